//! Files that appear only whole: written under a hidden name in their directory, then named.
//!
//! No process ever sees an incomplete file, and none stays behind, but where a process is killed
//! while it writes. Contents outlive a loss of power only if the caller syncs them before the file
//! gets its name; [`write_whole`] does.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How many hidden names are tried: processes of other pid namespaces may use the same.
const ATTEMPTS_MAX: usize = 16;

/// A file that only its owner can open and that has no name of its own yet. It is removed unless it
/// gets one.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    hidden: PathBuf,
    is_named: bool,
}

impl StagedFile {
    /// A new file in `directory`, under a short hidden name that no build tool's pattern matches.
    ///
    /// # Errors
    /// The directory's: it is not there, it cannot be written to, its disk is full.
    pub fn create_in(directory: &Path) -> io::Result<Self> {
        Self::create_with_mode(directory, 0o600)
    }

    /// As [`Self::create_in`], with the permission bits that the system makes of `mode`: less this
    /// process's umask, or, where the directory has a default access control list, less what that
    /// list withholds.
    ///
    /// # Errors
    /// As [`Self::create_in`].
    pub fn create_with_mode(directory: &Path, mode: u32) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        for _ in 0..ATTEMPTS_MAX {
            let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let name = OsString::from(format!(".outboard-{process}-{number}"));
            let hidden = directory.join(name);
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&hidden) {
                Ok(file) => return Ok(Self { file, hidden, is_named: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// A new file under a hidden name that is only this caller's, who replaces what an earlier one
    /// of its processes has left there.
    ///
    /// # Errors
    /// As [`Self::create_in`].
    pub fn create_as(hidden: PathBuf) -> io::Result<Self> {
        match fs::remove_file(&hidden) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&hidden)?;
        Ok(Self { file, hidden, is_named: false })
    }

    /// The file, to be locked, or synced before it is named.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Sets the permission bits, whatever this process's umask is.
    ///
    /// # Errors
    /// The file system's.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    /// Gives the file its name, in the same file system. It replaces what has this name.
    ///
    /// # Errors
    /// The file system's; then the file is removed.
    pub fn rename_to(mut self, place: &Path) -> io::Result<()> {
        fs::rename(&self.hidden, place)?;
        self.is_named = true;
        Ok(())
    }

    /// Gives the file its name unless something has this name already.
    ///
    /// # Errors
    /// The file system's, [`ErrorKind::AlreadyExists`] among them; then the file is removed.
    pub fn link_to(self, place: &Path) -> io::Result<()> {
        // A link, unlike a rename, replaces nothing. The hidden name goes with `self`.
        fs::hard_link(&self.hidden, place)
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_named {
            // Where this fails, a hidden file stays, which nothing reads.
            let _ = fs::remove_file(&self.hidden);
        }
    }
}

/// Writes the file `place`, which only its owner may open; a file of this name is replaced. After a
/// loss of power it holds either the old contents or the new. It is written under the name `hidden`
/// in the same directory, which only the caller uses: what a killed process left there is
/// overwritten.
///
/// # Errors
/// The file system's; then what was at `place` is unchanged.
pub fn write_whole(place: &Path, hidden: PathBuf, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
    let mut staged = StagedFile { file, hidden, is_named: false };
    staged.write_all(bytes)?;
    staged.file.sync_all()?;
    staged.rename_to(place)?;
    sync_directory_of(place)
}

/// The directory of a file, `.` for a bare name.
#[must_use]
pub fn directory_of(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes names in the file's directory outlive a loss of power.
///
/// # Errors
/// The file system's.
pub fn sync_directory_of(place: &Path) -> io::Result<()> {
    File::open(directory_of(place))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<_> = entries.map(|entry| entry.expect("a name").file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_and_replaces_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("a");
        fs::write(&place, "old").expect("written");
        let mut staged = StagedFile::create_in(directory.path()).expect("a hidden file");
        staged.write_all(b"new").expect("written");
        staged.set_mode(0o640).expect("its mode");
        assert_eq!(fs::read(&place).expect("read"), b"old");
        staged.rename_to(&place).expect("renamed");
        assert_eq!(fs::read(&place).expect("read"), b"new");
        assert_eq!(fs::metadata(&place).expect("metadata").mode() & 0o7777, 0o640);
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn a_link_replaces_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("a");
        for (bytes, kind) in [("one", None), ("two", Some(ErrorKind::AlreadyExists))] {
            let mut staged = StagedFile::create_in(directory.path()).expect("a hidden file");
            staged.write_all(bytes.as_bytes()).expect("written");
            assert_eq!(staged.link_to(&place).err().map(|error| error.kind()), kind);
        }
        assert_eq!(fs::read(&place).expect("read"), b"one");
        assert_eq!(names(directory.path()), ["a"]);
    }

    #[test]
    fn what_gets_no_name_is_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let staged = StagedFile::create_in(directory.path()).expect("a hidden file");
        assert_eq!(names(directory.path()).len(), 1);
        drop(staged);
        let staged = StagedFile::create_in(directory.path()).expect("a hidden file");
        assert!(staged.rename_to(&directory.path().join("no/a")).is_err());
        assert_eq!(names(directory.path()).len(), 0);
        assert!(StagedFile::create_in(&directory.path().join("no")).is_err());
    }

    #[test]
    fn what_a_killed_process_left_is_overwritten() {
        let directory = tempfile::tempdir().expect("a directory");
        let (hidden, place) = (directory.path().join("a.new"), directory.path().join("a"));
        for bytes in [b"1", b"2"] {
            fs::write(&hidden, "a longer rest").expect("written");
            fs::set_permissions(&hidden, Permissions::from_mode(0o600)).expect("its mode");
            write_whole(&place, hidden.clone(), bytes).expect("written");
            assert_eq!(fs::read(&place).expect("read"), bytes);
        }
        assert_eq!(fs::metadata(&place).expect("metadata").mode() & 0o7777, 0o600);
        assert_eq!(names(directory.path()), ["a"]);
        assert!(write_whole(&place.join("no"), hidden, b"3").is_err());
        assert_eq!(names(directory.path()), ["a"], "what could not be named is removed");
        assert_eq!(directory_of(Path::new("a")), Path::new("."));
    }
}
