//! The tour's directory: only its user enters, and it goes when the tour ends.

use std::env;
use std::error::Error;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::process;

/// Directories of that name that others may have left behind.
const TRIES: u32 = 100;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TourDir(PathBuf);

impl TourDir {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let parent = env::temp_dir();
        let parent = parent.canonicalize().map_err(|error| {
            format!("{}: {error}; set TMPDIR to a directory that is there", parent.display())
        })?;
        if parent.components().any(is_hidden) {
            let parent = parent.display();
            return Err(format!(
                "{parent} has a hidden directory in it, and nothing hidden is shown to compile \
                 servers: set TMPDIR to another directory"
            )
            .into());
        }
        for attempt in 0..TRIES {
            let path = parent.join(format!("outboard-tour-{}-{attempt}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let path = path.display();
                    return Err(format!("{path}: {error}; set TMPDIR to another directory").into());
                }
            }
        }
        Err(format!("{} is full of outboard-tour directories", parent.display()).into())
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// A directory in it, made now if it is not there, for this user only.
    pub(super) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.0.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }
}

fn is_hidden(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"."))
}

impl Drop for TourDir {
    fn drop(&mut self) {
        // A process that is just ending may write once more.
        if fs::remove_dir_all(&self.0).is_err() {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }
}
