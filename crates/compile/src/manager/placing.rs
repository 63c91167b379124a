//! Writes outputs to their paths: each is written under a hidden name in the same directory and
//! renamed, so that no process ever sees an incomplete output.
//!
//! Only an ordinary file is replaced. Where a link, a device, a directory or a fifo is, it stays,
//! and the job runs locally: the compiler treats it as compilers do.

use outboard_unix::staged::{StagedFile, directory_of};
use rustix::fs::{Access, AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why an output could not be placed. What was at its path is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// Something other than an ordinary file is there.
    #[error("{} is no ordinary file", .0.display())]
    NotOrdinary(PathBuf),
    /// This machine's file system refuses: no such directory, no rights, no room.
    #[error("cannot write {}: {source}", path.display())]
    System {
        /// The output.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// An output under its hidden name. It is written like a file, and then committed; without a commit
/// it is removed.
#[derive(Debug)]
pub struct Staged {
    file: StagedFile,
    place: PathBuf,
}

impl Staged {
    /// Starts an output at `place`, an absolute path, with the permission bits `mode` that the
    /// compiler asked for, less the caller's `umask`.
    ///
    /// # Errors
    /// Something other than an ordinary file is there, or the directory cannot be written to.
    pub fn create(place: &Path, mode: u32, umask: u32) -> Result<Self, PlaceError> {
        let system = |errno: Errno| system(place, errno.into());
        match rustix::fs::statat(CWD, place, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile => {
                return Err(PlaceError::NotOrdinary(place.into()));
            }
            // A local compiler would open the existing file for writing: refuse where it could not.
            Ok(_) => {
                let (access, flags) = (Access::WRITE_OK, AtFlags::EACCESS);
                rustix::fs::accessat(CWD, place, access, flags).map_err(system)?;
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(system(errno)),
        }
        place.file_name().ok_or_else(|| system(Errno::ISDIR))?;
        let failed = |error| self::system(place, error);
        let file = create_in(directory_of(place), mode & 0o777, umask).map_err(failed)?;
        Ok(Self { file, place: place.into() })
    }

    /// Renames the output to its path.
    ///
    /// # Errors
    /// The directory cannot be written to.
    pub fn commit(self) -> Result<(), PlaceError> {
        self.file.rename_to(&self.place).map_err(|error| system(&self.place, error))
    }
}

impl Write for Staged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A new file as its caller's compiler makes it: a directory's default access control list takes
/// the umask's place (acl(5)).
fn create_in(directory: &Path, mode: u32, umask: u32) -> io::Result<StagedFile> {
    if has_default_acl(directory) {
        return StagedFile::create_with_mode(directory, mode);
    }
    let file = StagedFile::create_in(directory)?;
    file.set_mode(mode & !umask)?;
    Ok(file)
}

fn has_default_acl(directory: &Path) -> bool {
    let mut start = [0_u8; 1];
    let found = rustix::fs::getxattr(directory, "system.posix_acl_default", &mut start);
    // A list is longer than that.
    matches!(found, Ok(1..) | Err(Errno::RANGE))
}

/// All outputs of one job: none is renamed before all are written.
#[derive(Debug)]
pub struct OutputPlacement {
    umask: u32,
    staged: Vec<Staged>,
}

impl OutputPlacement {
    /// A placement without outputs, for a caller with this umask.
    #[must_use]
    pub fn new(umask: u32) -> Self {
        Self { umask, staged: Vec::new() }
    }

    /// Starts an output, which the caller writes.
    ///
    /// # Errors
    /// As [`Staged::create`].
    pub fn stage(&mut self, place: &Path, mode: u32) -> Result<&mut Staged, PlaceError> {
        self.staged.push(Staged::create(place, mode, self.umask)?);
        // In bounds: it was pushed just now.
        let last = self.staged.len() - 1;
        Ok(&mut self.staged[last])
    }

    /// Stages a whole output.
    ///
    /// # Errors
    /// As [`Staged::create`], or no room is left.
    pub fn add(&mut self, place: &Path, mode: u32, bytes: &[u8]) -> Result<(), PlaceError> {
        let staged = self.stage(place, mode)?;
        staged.write_all(bytes).map_err(|error| system(place, error))
    }

    /// Renames all outputs to their paths, in the reverse order of staging: an object that is
    /// staged first appears last, as build tools expect.
    ///
    /// # Errors
    /// One could not be renamed; those that came before it are in place.
    pub fn commit(mut self) -> Result<(), PlaceError> {
        while let Some(staged) = self.staged.pop() {
            staged.commit()?;
        }
        Ok(())
    }
}

fn system(path: &Path, source: io::Error) -> PlaceError {
    PlaceError::System { path: path.into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir();
            let dir = dir.join(format!("outboard-placing-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir(&dir).unwrap();
            Self(dir)
        }

        fn names(&self) -> Vec<OsString> {
            let entries = fs::read_dir(&self.0).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn all_outputs_appear_together_with_the_callers_mask() {
        let dir = Scratch::new("all");
        let odd = OsString::from_vec(b"a\nb \xff.d".to_vec());
        fs::write(dir.0.join("a.o"), "old").unwrap();
        let mut placement = OutputPlacement::new(0o027);
        placement.add(&dir.0.join("a.o"), 0o666, b"object").unwrap();
        placement.add(&dir.0.join(&odd), 0o777, b"more").unwrap();
        assert_eq!(fs::read(dir.0.join("a.o")).unwrap(), b"old");
        assert!(!dir.0.join(&odd).exists());
        placement.commit().unwrap();
        assert_eq!(fs::read(dir.0.join("a.o")).unwrap(), b"object");
        assert_eq!(fs::metadata(dir.0.join("a.o")).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::metadata(dir.0.join(&odd)).unwrap().mode() & 0o7777, 0o750);
        assert_eq!(dir.names(), [odd, "a.o".into()]);
    }

    /// The permission bits of a file that is created with `mode`, as a local compiler would.
    fn created(directory: &Path, mode: u32) -> u32 {
        let place = directory.join("local");
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&place).unwrap();
        let found = fs::metadata(&place).unwrap().mode() & 0o7777;
        fs::remove_file(&place).unwrap();
        found
    }

    #[test]
    fn a_default_access_control_list_takes_the_masks_place() {
        let dir = Scratch::new("acl");
        // Version 2, then tag, rights and id of each entry: the owner 7, the user 12345 7, the
        // group 5, the mask 7, all others none (linux/posix_acl_xattr.h).
        let entries = [(1, 7, -1), (2, 7, 12345), (4, 5, -1), (16, 7, -1), (32, 0, -1)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            list.extend_from_slice(&u16::to_le_bytes(tag));
            list.extend_from_slice(&u16::to_le_bytes(rights));
            list.extend_from_slice(&i32::to_le_bytes(id));
        }
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&dir.0, "system.posix_acl_default", &list, flags)
            .expect("TMPDIR is on a file system with access control lists");
        for mode in [0o666, 0o777] {
            let place = dir.0.join("a.o");
            let mut placement = OutputPlacement::new(0o077);
            placement.add(&place, mode, b"object").unwrap();
            placement.commit().unwrap();
            let found = fs::metadata(&place).unwrap().mode() & 0o7777;
            assert_eq!(found, created(&dir.0, mode), "{mode:o}: {found:o}");
            assert_ne!(found & 0o070, 0, "the umask takes nothing");
        }
    }

    #[test]
    fn uncommitted_outputs_leave_nothing() {
        let dir = Scratch::new("dropped");
        let mut placement = OutputPlacement::new(0);
        placement.add(&dir.0.join("a.o"), 0o666, b"object").unwrap();
        assert_eq!(dir.names().len(), 1);
        drop(placement);
        assert_eq!(dir.names().len(), 0);
    }

    #[test]
    fn only_an_ordinary_file_is_replaced() {
        let dir = Scratch::new("ordinary");
        fs::write(dir.0.join("target"), "precious").unwrap();
        symlink("target", dir.0.join("link")).unwrap();
        symlink("absent", dir.0.join("dangling")).unwrap();
        fs::create_dir(dir.0.join("dir")).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        let fifo = dir.0.join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
        for name in ["link", "dangling", "dir", "fifo"] {
            let error = Staged::create(&dir.0.join(name), 0o666, 0).unwrap_err();
            assert!(matches!(error, PlaceError::NotOrdinary(_)), "{name}: {error}");
        }
        assert_eq!(fs::read(dir.0.join("target")).unwrap(), b"precious");
        assert_eq!(dir.names().len(), 5);
    }

    #[test]
    fn a_read_only_file_is_not_replaced() {
        let dir = Scratch::new("readonly");
        let place = dir.0.join("a.o");
        fs::write(&place, "precious").unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o444)).unwrap();
        let created = Staged::create(&place, 0o666, 0);
        // Root may write to it, as root's local compiler may.
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(created.is_ok(), is_root, "{created:?}");
    }

    #[test]
    fn a_directory_that_is_not_there_is_not_made() {
        let dir = Scratch::new("parent");
        let error = Staged::create(&dir.0.join("no/a.o"), 0o666, 0).unwrap_err();
        assert!(matches!(error, PlaceError::System { .. }), "{error}");
        assert!(Staged::create(Path::new("/"), 0o666, 0).is_err());
        assert_eq!(dir.names().len(), 0);
    }
}
