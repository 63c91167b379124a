//! A directory for the files of one run.
//!
//! It is removed at the end, with the file systems that are mounted below it; what a killed run has
//! left, the next one of its kind removes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::command;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A new directory, which all users can read, in `parent`. The names of all those of its kind
    /// begin with `kind`, and no others there do.
    pub(crate) fn new(parent: &Path, kind: &str) -> Result<Self> {
        /// The number of directories that this process has made.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        clear(parent, kind)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let scratch = Self(parent.join(format!("{kind}{}-{number}", std::process::id())));
        make(&scratch.0)?;
        Ok(scratch)
    }

    /// The same as a file system in memory, with the options of mount(8).
    pub(crate) fn in_memory(parent: &Path, kind: &str, options: &str) -> Result<Self> {
        let scratch = Self::new(parent, kind)?;
        mount_memory(&scratch.0, options)?;
        Ok(scratch)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// A directory in it: made, if it is not there, so that all users can read it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        if !path.is_dir() {
            make(&path)?;
        }
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If the removal fails, the next run removes it.
        let _ = remove(&self.0);
    }
}

/// Mounts a file system in memory, with the options of mount(8).
pub(crate) fn mount_memory(at: &Path, options: &str) -> Result<()> {
    command::run(Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at))
}

fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Removes the directories of runs whose process has ended.
fn clear(parent: &Path, kind: &str) -> Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let of_kind = name.to_str().and_then(|name| name.strip_prefix(kind));
        if of_kind.and_then(maker).is_some_and(|maker| !is_running(maker)) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// The process that made a directory, by the rest of its name.
fn maker(rest: &str) -> Option<u32> {
    rest.split('-').next()?.parse().ok()
}

fn is_running(process: u32) -> bool {
    Path::new("/proc").join(process.to_string()).exists()
}

fn remove(scratch: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    let inside = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let inside: Vec<&str> = inside.filter(|at| Path::new(at).starts_with(scratch)).collect();
    // The innermost first. Detached, because a process that is about to end may still use it.
    for at in inside.into_iter().rev() {
        command::run(Command::new("umount").args(["--lazy", at]))?;
    }
    fs::remove_dir_all(scratch).with_context(|| format!("cannot remove {}", scratch.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_has_left_goes_and_what_another_uses_stays() {
        let parent = Scratch::new(&std::env::temp_dir(), "outboard-test-of-scratch-").unwrap();
        // More than any process number.
        let left = parent.directory("kind-4194305-0/below").unwrap();
        let used = [
            parent.directory(&format!("kind-{}-0", std::process::id())).unwrap(),
            parent.directory("kind-of-another").unwrap(),
            parent.directory("other-4194305-0").unwrap(),
        ];
        let scratch = Scratch::new(&parent.0, "kind-").unwrap();
        assert!(!left.exists() && scratch.0.exists());
        assert!(used.iter().all(|path| path.exists()));
        let own = scratch.0.clone();
        drop(scratch);
        assert!(!own.exists());
    }

    #[test]
    fn a_directory_that_was_opened_to_all_stays_so() {
        let scratch = Scratch::new(&std::env::temp_dir(), "outboard-test-of-scratch-").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let path = scratch.directory("one").unwrap();
        assert_eq!(mode(&path), 0o755);
        fs::set_permissions(&path, Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(mode(&scratch.directory("one").unwrap()), 0o1777);
    }
}
