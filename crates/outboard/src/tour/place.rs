//! The tour's directory: only its user enters, and it goes when the tour ends. What killed tours
//! left goes when the next one begins.

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::env;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::process;

/// Directories of that name that others may have left behind.
const TRIES: u32 = 100;
/// How their names begin; a process and a number follow.
const NAME: &str = "outboard-tour-";

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TourDir {
    path: PathBuf,
    /// Locked as long as the tour runs, where the file system has locks.
    _held: Option<File>,
}

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
        Self::within(&parent)
    }

    fn within(parent: &Path) -> Result<Self, Box<dyn Error>> {
        remove_left(parent);
        for attempt in 0..TRIES {
            let path = parent.join(format!("{NAME}{}-{attempt}", process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { _held: hold(&path).ok(), path }),
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
        &self.path
    }

    /// A directory in it, made now if it is not there, for this user only.
    pub(super) fn directory(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }
}

/// Removes directories of this user's tours that were killed.
fn remove_left(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let own = entry.metadata().is_ok_and(|found| found.uid() == geteuid().as_raw());
        // A process of another namespace has no number here, but it holds its directory.
        if own && has_ended(&entry.file_name()) && hold(&path).is_ok() {
            // What cannot be removed is in no one's way.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Whether a name is that of a tour's directory, and there is no process of its number.
fn has_ended(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.strip_prefix(NAME)?.split_once('-'));
    let process = number.and_then(|(process, _)| process.parse::<u32>().ok());
    process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())
}

/// Locks a directory, unless another process has.
fn hold(path: &Path) -> io::Result<File> {
    let held = File::open(path)?;
    flock(&held, FlockOperation::NonBlockingLockExclusive)?;
    Ok(held)
}

fn is_hidden(component: Component<'_>) -> bool {
    matches!(component, Component::Normal(name) if name.as_encoded_bytes().starts_with(b"."))
}

impl Drop for TourDir {
    fn drop(&mut self) {
        // A process that is just ending may write once more.
        if fs::remove_dir_all(&self.path).is_err() {
            let _gone = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_tours_left_is_removed() {
        let parent = env::temp_dir().join(format!("outboard-place-{}", process::id()));
        let _ = fs::remove_dir_all(&parent);
        // A process that has ended.
        let mut ended = process::Command::new("true").spawn().expect("it starts");
        ended.wait().expect("it ends");
        let at = |name: &str, pid: u32| parent.join(format!("outboard-{name}-{pid}-0"));
        let own = process::id();
        let (left, other) = (at("tour", ended.id()), at("other", ended.id()));
        for path in [&left, &other, &at("tour", own)] {
            fs::create_dir_all(path.join("project")).expect("made");
        }
        let tour = TourDir::within(&parent).expect("a directory");
        assert!(!left.exists() && other.exists() && at("tour", own).exists());
        // Another process's number, as of another namespace, but it holds the directory.
        fs::create_dir(&left).expect("made");
        let held = hold(&left).expect("free");
        let second = TourDir::within(&parent).expect("a directory");
        assert!(left.exists() && tour.path().exists() && second.path() != tour.path());
        drop((held, tour, second));
        fs::remove_dir_all(&parent).expect("removed");
    }
}
