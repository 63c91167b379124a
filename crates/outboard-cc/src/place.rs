//! Where wrapper and manager meet: a directory of the user's own with a Unix socket in it.
//!
//! It is `$XDG_RUNTIME_DIR/outboard`, or else `/tmp/outboard-UID`. Anybody may have made the
//! latter, so it is used only when it belongs to the user and nobody else may enter.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A directory that only its user may enter, checked to be so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(PathBuf);

impl Place {
    /// The user's place, made when it is not there.
    ///
    /// # Errors
    /// It cannot be made, is another user's, or is open to others.
    pub fn of_user() -> io::Result<Self> {
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        match runtime.filter(|dir| dir.is_absolute()) {
            // It may name what was never made: in containers, after su.
            Some(dir) => Self::at(&dir.join("outboard")).or_else(|_| Self::at(&fallback())),
            None => Self::at(&fallback()),
        }
    }

    /// `dir` as a place, made when it is not there; its parent must be.
    ///
    /// # Errors
    /// As [`Place::of_user`].
    pub fn at(dir: &Path) -> io::Result<Self> {
        let place = Self(dir.to_owned());
        match place.check() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => place.check(),
                }?;
            }
            checked => checked?,
        }
        Ok(place)
    }

    /// Not followed when it is a link: whoever could make that could change it later.
    fn check(&self) -> io::Result<()> {
        let found = fs::symlink_metadata(&self.0)?;
        let private = found.mode() & 0o077 == 0 && found.uid() == user();
        if found.is_dir() && private {
            return Ok(());
        }
        let dir = self.0.display();
        Err(io::Error::other(format!("{dir} must be a directory of yours with mode 0700")))
    }

    /// The manager's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.0.join("cc.sock")
    }

    /// Locked by whoever makes or removes the socket.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("cc.lock")
    }

    /// What the manager has to say that nobody waits for.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join("cc.log")
    }

    /// Its age tells how long ago a manager could not be started.
    #[must_use]
    pub fn failure(&self) -> PathBuf {
        self.0.join("cc.failed")
    }
}

fn fallback() -> PathBuf {
    PathBuf::from(format!("/tmp/outboard-{}", user()))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("outboard-place-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        dir
    }

    #[test]
    fn a_place_is_made_private_and_found_again() {
        let dir = scratch("made");
        let place = Place::at(&dir.join("p")).unwrap();
        assert_eq!(fs::metadata(dir.join("p")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(Place::at(&dir.join("p")).unwrap(), place);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_place_that_others_may_enter_or_made_is_refused() {
        let dir = scratch("open");
        Place::at(&dir.join("p")).unwrap();
        fs::set_permissions(dir.join("p"), Permissions::from_mode(0o710)).unwrap();
        assert!(Place::at(&dir.join("p")).is_err());
        fs::set_permissions(dir.join("p"), Permissions::from_mode(0o700)).unwrap();
        symlink(dir.join("p"), dir.join("link")).unwrap();
        assert!(Place::at(&dir.join("link")).is_err());
        fs::write(dir.join("file"), "").unwrap();
        assert!(Place::at(&dir.join("file")).is_err());
        if user() == 0 {
            std::os::unix::fs::chown(dir.join("p"), Some(12345), None).unwrap();
            assert!(Place::at(&dir.join("p")).is_err());
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn without_a_parent_there_is_no_place() {
        let dir = scratch("parent");
        assert!(Place::at(&dir.join("no/p")).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
