//! Where wrapper and manager meet: a directory of the user's own with a Unix socket in it.
//!
//! It is `$XDG_RUNTIME_DIR/outboard`, or else `/tmp/outboard-UID`. Anybody may have made the
//! latter, so it is used only when it belongs to the user and nobody else may enter.
//!
//! Each choice of servers has a manager and a socket of its own: who changes `OUTBOARD_HOSTS` is
//! not served by a manager that knows others.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The variable that names the cluster's key.
const KEY: &str = "OUTBOARD_KEY";
/// What a manager's connections depend on.
const SETTINGS: [&str; 3] = ["OUTBOARD_HOSTS", KEY, "OUTBOARD_FABRIC"];

/// A directory that only its user may enter, checked to be so, and which manager in it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
    /// Part of the socket's name.
    manager: String,
}

impl Place {
    /// The user's place, made when it is not there, for the servers that the environment names.
    ///
    /// # Errors
    /// It cannot be made, is another user's, or is open to others.
    pub fn of_user() -> io::Result<Self> {
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let place = match runtime.filter(|dir| dir.is_absolute()) {
            // It may name what was never made: in containers, after su.
            Some(dir) => Self::at(&dir.join("outboard")).or_else(|_| Self::at(&fallback())),
            None => Self::at(&fallback()),
        };
        Ok(Self { manager: manager(setting), ..place? })
    }

    /// `dir` as a place, made when it is not there, without any servers; its parent must be there.
    ///
    /// # Errors
    /// As [`Place::of_user`].
    pub fn at(dir: &Path) -> io::Result<Self> {
        let place = Self { dir: dir.to_owned(), manager: manager(|_| None) };
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
        let found = fs::symlink_metadata(&self.dir)?;
        let private = found.mode() & 0o077 == 0 && found.uid() == user();
        if found.is_dir() && private {
            return Ok(());
        }
        let dir = self.dir.display();
        Err(io::Error::other(format!("{dir} must be a directory of yours with mode 0700")))
    }

    /// The manager's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(format!("{}.sock", self.manager))
    }

    /// The sockets of all managers of this user's, also of those that have ended.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let paths = files.map(|file| file.path());
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
    }

    /// Locked by whoever makes or removes the socket.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.join("cc.lock")
    }

    /// What managers have to say that nobody waits for.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("cc.log")
    }

    /// Its age tells how long ago a manager could not be started.
    #[must_use]
    pub fn failure(&self) -> PathBuf {
        self.dir.join(format!("{}.failed", self.manager))
    }
}

/// The key's file, whatever directory a manager runs in.
#[must_use]
pub fn key() -> Option<OsString> {
    let key = env::var_os(KEY).filter(|key| !key.is_empty())?;
    let absolute = std::path::absolute(&key).map(PathBuf::into_os_string);
    Some(absolute.unwrap_or(key))
}

fn setting(name: &str) -> Option<OsString> {
    if name == KEY { key() } else { env::var_os(name).filter(|value| !value.is_empty()) }
}

/// What the files of a manager with these settings are called.
fn manager(setting: impl Fn(&str) -> Option<OsString>) -> String {
    let settings = SETTINGS.map(setting);
    if settings.iter().all(Option::is_none) {
        return "cc".to_owned();
    }
    let mut hasher = DefaultHasher::new();
    settings.hash(&mut hasher);
    format!("cc-{:016x}", hasher.finish())
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
    fn other_servers_are_another_managers() {
        let with =
            |hosts: &'static str| manager(|name| (name == SETTINGS[0]).then(|| hosts.into()));
        assert_eq!(manager(|_| None), "cc");
        assert_eq!(with("n[1-3]"), with("n[1-3]"));
        assert_ne!(with("n[1-3]"), with("n[1-4]"));
        assert_ne!(with("n"), manager(|name| (name == KEY).then(|| "n".into())));
    }

    #[test]
    fn all_managers_sockets_are_found() {
        let dir = scratch("sockets");
        let place = Place::at(&dir.join("p")).unwrap();
        for name in ["cc.sock", "cc-1.sock", "cc.log"] {
            fs::write(dir.join("p").join(name), "").unwrap();
        }
        let mut found = place.sockets();
        found.sort();
        assert_eq!(found, [dir.join("p/cc-1.sock"), place.socket()]);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn without_a_parent_there_is_no_place() {
        let dir = scratch("parent");
        assert!(Place::at(&dir.join("no/p")).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
