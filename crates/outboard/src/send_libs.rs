//! `--send-libs`: a program's shared libraries, as a directory `PROGRAM_libs` to cast beside it.
//!
//! The program's own loader says which they are (`--list`: the program does not run), by this
//! process's LD_LIBRARY_PATH and the program's run paths. Libraries that it opens later by itself
//! are not among them. They are copied into a directory of this user's, which goes with the value.

use outboard_cast::tree::CastSource;
use outboard_compile::toolchain::libraries_of;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Directories whose libraries every machine has itself: Slurm's BcastExclude.
pub(crate) const EXCLUDED: &str = "/lib,/usr/lib,/lib64,/usr/lib64";

/// Attempts to find a name that is free.
const NAMES: u32 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct StagedLibraries {
    top: PathBuf,
    name: OsString,
}

impl StagedLibraries {
    /// Those of a program that will be called `name`, but for the excluded directories: a list with
    /// commas, or `NONE`.
    ///
    /// # Errors
    /// It is no ELF program, or lacks a library; what cannot be copied.
    pub(crate) fn of(program: &Path, name: &OsString, excluded: &str) -> io::Result<Self> {
        let found = libraries_of(program)?;
        let mut directory_name = name.clone();
        directory_name.push("_libs");
        let staged = Self { top: make_directory()?, name: directory_name };
        let directory = staged.path();
        DirBuilder::new().mode(0o755).create(&directory)?;
        let mut names = HashSet::new();
        for library in found.iter().filter(|library| !is_below(library, excluded)) {
            // Of two with one name, the loader takes the first.
            if let Some(name) = library.file_name().filter(|name| names.insert(name.to_owned())) {
                copy(library, &directory.join(name))?;
            }
        }
        Ok(staged)
    }

    /// What to cast.
    pub(crate) fn source(&self) -> CastSource {
        CastSource { path: self.path(), name: self.name.clone().into_vec() }
    }

    fn path(&self) -> PathBuf {
        self.top.join(&self.name)
    }
}

impl Drop for StagedLibraries {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.top) {
            tracing::warn!(path = %self.top.display(), %error, "cannot remove");
        }
    }
}

fn is_below(library: &Path, excluded: &str) -> bool {
    let mut directories = excluded.split(',').filter(|directory| !directory.is_empty());
    excluded != "NONE" && directories.any(|directory| library.starts_with(directory))
}

fn copy(library: &Path, to: &Path) -> io::Result<()> {
    let shown = |error: io::Error| io::Error::other(format!("{}: {error}", library.display()));
    fs::copy(library, to).map_err(shown)?;
    let modified = library.metadata().and_then(|metadata| metadata.modified()).map_err(shown)?;
    File::open(to).and_then(|file| file.set_modified(modified)).map_err(shown)
}

fn make_directory() -> io::Result<PathBuf> {
    let mut last = io::Error::other("no name is free");
    for attempt in 0..NAMES {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("outboard-libs-{}-{now:x}-{attempt}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(excluded: &str) -> Vec<String> {
        let own = std::env::current_exe().expect("a path");
        let staged = StagedLibraries::of(&own, &"app".into(), excluded).expect("an ELF program");
        assert_eq!(staged.source().name, b"app_libs");
        let entries = fs::read_dir(staged.source().path).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        let top = staged.top.clone();
        drop(staged);
        assert!(!top.exists());
        names
    }

    #[test]
    fn libraries_are_those_that_the_loader_finds_but_the_systems() {
        let all = names("NONE");
        assert!(all.iter().any(|name| name.starts_with("libc.so")), "{all:?}");
        assert!(names(EXCLUDED).is_empty());
        assert_eq!(names("/opt"), all);
    }

    #[test]
    fn a_script_has_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("script");
        fs::write(&script, "#!/bin/sh\n").expect("written");
        let error = StagedLibraries::of(&script, &"script".into(), "NONE").expect_err("no ELF");
        assert!(error.to_string().contains("no ELF"), "{error}");
    }

    #[test]
    fn a_directory_is_excluded_by_whole_names() {
        assert!(is_below(Path::new("/lib/x.so"), "/opt,/lib"));
        assert!(!is_below(Path::new("/library/x.so"), "/opt,/lib"));
        assert!(!is_below(Path::new("/lib/x.so"), "NONE"));
        assert!(!is_below(Path::new("/lib/x.so"), ""));
    }
}
