//! Modules of a directory, which the operator gives to every identity: files that end in `.wasm`.

use outboard_offcode::{LoadError, ModuleHash, ModuleStore, WasmEngine};
use outboard_unix::regular::read_regular;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Modules of a directory, at most.
const FILES_MAX: usize = 1024;

/// Loads all modules of a directory, those that others import first. One that cannot be loaded is
/// left out, with a warning.
///
/// # Errors
/// The directory cannot be read.
pub fn load_directory<E: WasmEngine>(
    store: &ModuleStore<E>,
    directory: &Path,
    bytes_max: usize,
) -> io::Result<HashSet<ModuleHash>> {
    let mut left = Vec::new();
    for path in paths(directory)? {
        match read_regular(&path, bytes_max) {
            Ok(bytes) => left.push((path, bytes)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "no module"),
        }
    }
    let mut loaded = HashSet::new();
    loop {
        let before = left.len();
        left.retain(|(path, bytes)| {
            let name = path.file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
            match store.load(None, &name, bytes) {
                Ok(info) => !loaded.insert(info.hash),
                // Perhaps the next round loads that one.
                Err(LoadError::Missing { .. }) => true,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "the module is not loaded");
                    false
                }
            }
        });
        left.retain(|(_, bytes)| !loaded.contains(&ModuleHash::of(bytes)));
        if left.is_empty() || left.len() == before {
            break;
        }
    }
    for (path, _) in left {
        tracing::warn!(path = %path.display(), "the module imports one that is not there");
    }
    Ok(loaded)
}

fn paths(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wasm") {
            paths.push(path);
        }
    }
    paths.sort();
    paths.truncate(FILES_MAX);
    Ok(paths)
}
