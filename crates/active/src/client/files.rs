//! Modules in files: one that a caller names, with those in its directory, which it may import.

use super::{ActiveClient, ActiveError};
use outboard_offcode::ModuleHash;
use outboard_offcode::inspect::ModuleLimits;
use outboard_unix::regular::read_regular;
use std::fs;
use std::path::{Path, PathBuf};

/// Files beside a module that are looked at for what it imports, at most.
const BESIDE_MAX: usize = 256;

fn read(path: &Path) -> Result<Vec<u8>, ActiveError> {
    read_regular(path, ModuleLimits::default().bytes)
        .map_err(|source| ActiveError::File { path: path.to_owned(), source })
}

/// A file's name without what follows the first dot.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}

/// Files in the same directory that are called like modules.
fn beside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let entries = fs::read_dir(directory.unwrap_or_else(|| Path::new("."))).ok();
    let files = entries.into_iter().flatten().flatten().map(|entry| entry.path());
    let modules = files.filter(|file| file.extension().is_some_and(|end| end == "wasm"));
    modules.take(BESIDE_MAX)
}

impl ActiveClient {
    /// [Knows](Self::know) the module in a file, and those in its directory, which it may import.
    ///
    /// # Errors
    /// [`ActiveError::File`]; as for [`Self::know`].
    pub fn know_file(&mut self, path: &Path) -> Result<ModuleHash, ActiveError> {
        let bytes = read(path)?;
        for file in beside(path) {
            // What cannot be read it may not import either.
            if let Ok(bytes) = read(&file) {
                self.know(&name_of(&file), &bytes)?;
            }
        }
        self.know(&name_of(path), &bytes)
    }
}
