//! The directory of the manager's Unix socket, which belongs to the user.
//!
//! It is `$XDG_RUNTIME_DIR/outboard`, or else `/tmp/outboard-UID`. Any user can make the latter, so
//! it is used only if it belongs to the user and no other user may enter it.
//!
//! Each choice of servers has a manager and a socket of its own, so that a change of
//! `OUTBOARD_HOSTS` takes effect at once; and so have all values of the other variables that a
//! manager reads, such as `HOME`, which says where the user's keys are. So has each view of the
//! machine's files, because a path means other files in another mount namespace or below another
//! root, and each set of hard limits, which a manager cannot raise.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// The variable that names the cluster's key.
const KEY: &str = "OUTBOARD_KEY";
/// The variables that a manager reads: on them depend its connections, the files that it keeps and
/// its log. Variables that go with each request are not among them.
const SETTINGS: [&str; 7] = [
    "OUTBOARD_HOSTS",
    KEY,
    "OUTBOARD_FABRIC",
    "OUTBOARD_LOG",
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_STATE_HOME",
];
/// Limits that would end a manager before the builds that it serves.
const LIMITS: [Resource; 4] = [Resource::As, Resource::Data, Resource::Cpu, Resource::Fsize];

/// A directory that was checked to be accessible to its user only, and the manager in it that this
/// process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerPlace {
    dir: PathBuf,
    /// Part of the socket's name.
    manager: String,
}

impl ManagerPlace {
    /// The user's directory, which is made if it does not exist, and the manager for this
    /// environment.
    ///
    /// # Errors
    /// It cannot be made, is another user's, or is open to others.
    pub fn of_user() -> io::Result<Self> {
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let place = match runtime.filter(|dir| dir.is_absolute()) {
            // The variable may name a directory that does not exist: in containers, after su.
            Some(dir) => Self::at(&dir.join("outboard")).or_else(|_| Self::at(&fallback())),
            None => Self::at(&fallback()),
        };
        Ok(Self { manager: manager(setting), ..place? })
    }

    /// The manager without servers in `dir`, which is made if it does not exist; its parent must
    /// exist.
    ///
    /// # Errors
    /// As [`ManagerPlace::of_user`].
    pub fn at(dir: &Path) -> io::Result<Self> {
        let place = Self { dir: dir.to_owned(), manager: manager(|_| None) };
        match place.check() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match DirBuilder::new().mode(0o700).create(dir) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        Err(cannot_make(dir, &error))
                    }
                    _ => place.check(),
                }?;
            }
            checked => checked?,
        }
        Ok(place)
    }

    /// Does not follow a link: its owner could change it later.
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

    /// The sockets of all of this user's managers, also of those that have ended.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        self.files().filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
    }

    /// All that is in the directory.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(&self.dir).into_iter().flatten().flatten().map(|file| file.path())
    }

    /// The file that a process locks while it makes or removes the socket.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.join("cc.lock")
    }

    /// A mark whose age tells how long ago a manager did not answer.
    #[must_use]
    pub fn silence(&self) -> PathBuf {
        self.dir.join(format!("{}.silent", self.manager))
    }

    /// The managers' log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("cc.log")
    }

    /// A mark whose age tells how long ago a manager could not be started.
    #[must_use]
    pub fn failure(&self) -> PathBuf {
        self.dir.join(format!("{}.failed", self.manager))
    }
}

/// The key's file as an absolute path: a manager runs in another directory.
#[must_use]
pub fn key() -> Option<OsString> {
    let key = env::var_os(KEY).filter(|key| !key.is_empty())?;
    let absolute = std::path::absolute(&key).map(PathBuf::into_os_string);
    Some(absolute.unwrap_or(key))
}

fn setting(name: &str) -> Option<OsString> {
    if name == KEY { key() } else { env::var_os(name).filter(|value| !value.is_empty()) }
}

/// The name of a manager with these settings, in this process's view of the files.
fn manager(setting: impl Fn(&str) -> Option<OsString>) -> String {
    let mut hasher = DefaultHasher::new();
    SETTINGS.map(setting).hash(&mut hasher);
    view_of_files().hash(&mut hasher);
    LIMITS.map(|limit| getrlimit(limit).maximum).hash(&mut hasher);
    format!("cc-{:016x}", hasher.finish())
}

/// The mount namespace and the root directory, by device and inode: they decide which file a path
/// means.
fn view_of_files() -> [Option<(u64, u64)>; 2] {
    let identity = |path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    ["/proc/self/ns/mnt", "/"].map(identity)
}

fn cannot_make(dir: &Path, error: &io::Error) -> io::Error {
    let dir = dir.display();
    let what_to_do = "set XDG_RUNTIME_DIR to a directory of yours";
    io::Error::new(error.kind(), format!("cannot make {dir}: {error}: {what_to_do}"))
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
        let place = ManagerPlace::at(&dir.join("p")).unwrap();
        assert_eq!(fs::metadata(dir.join("p")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(ManagerPlace::at(&dir.join("p")).unwrap(), place);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_place_that_others_may_enter_or_made_is_refused() {
        let dir = scratch("open");
        ManagerPlace::at(&dir.join("p")).unwrap();
        fs::set_permissions(dir.join("p"), Permissions::from_mode(0o710)).unwrap();
        assert!(ManagerPlace::at(&dir.join("p")).is_err());
        fs::set_permissions(dir.join("p"), Permissions::from_mode(0o700)).unwrap();
        symlink(dir.join("p"), dir.join("link")).unwrap();
        assert!(ManagerPlace::at(&dir.join("link")).is_err());
        fs::write(dir.join("file"), "").unwrap();
        assert!(ManagerPlace::at(&dir.join("file")).is_err());
        if user() == 0 {
            std::os::unix::fs::chown(dir.join("p"), Some(12345), None).unwrap();
            assert!(ManagerPlace::at(&dir.join("p")).is_err());
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn other_servers_are_another_managers() {
        let with =
            |hosts: &'static str| manager(|name| (name == SETTINGS[0]).then(|| hosts.into()));
        assert_eq!(with("n[1-3]"), with("n[1-3]"));
        assert_ne!(with("n[1-3]"), with("n[1-4]"));
        assert_ne!(with("n"), manager(|name| (name == KEY).then(|| "n".into())));
    }

    #[test]
    fn all_managers_sockets_are_found() {
        let dir = scratch("sockets");
        let place = ManagerPlace::at(&dir.join("p")).unwrap();
        for name in ["cc-1.sock", "cc.log"] {
            fs::write(dir.join("p").join(name), "").unwrap();
        }
        fs::write(place.socket(), "").unwrap();
        let mut found = place.sockets();
        found.sort();
        let mut expected = [dir.join("p/cc-1.sock"), place.socket()];
        expected.sort();
        assert_eq!(found, expected);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn without_a_parent_there_is_no_place() {
        let dir = scratch("parent");
        let error = ManagerPlace::at(&dir.join("no/p")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let text = error.to_string();
        assert!(text.contains("no/p") && text.contains("XDG_RUNTIME_DIR"), "{text}");
        fs::remove_dir_all(dir).unwrap();
    }
}
