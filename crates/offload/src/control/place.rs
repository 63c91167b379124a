//! Where the sockets of running applications are.
//!
//! The directory belongs to the user alone: another user's is never used.

use rustix::fs::{Mode, mkdir};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The ending of a socket's name.
pub(super) const ENDING: &str = "sock";
/// Bytes of a socket's path, at most (unix(7)).
const PATH_MAX: usize = 107;

/// The directory of the user's sockets, which is made if it is not there.
///
/// # Errors
/// It cannot be made, or belongs to somebody else.
pub fn directory() -> io::Result<PathBuf> {
    let own = format!("outboard-offload-{}", geteuid().as_raw());
    let base = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|base| base.is_absolute());
    let preferred = base.map(|base| base.join("outboard-offload")).filter(|path| is_short(path));
    let path = preferred.unwrap_or_else(|| env::temp_dir().join(own));
    match mkdir(&path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(said(&path, error.into())),
    }
    let found = fs::symlink_metadata(&path).map_err(|error| said(&path, error))?;
    let is_own = found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
    if is_own {
        Ok(path)
    } else {
        Err(said(&path, io::Error::other("it is not this user's alone")))
    }
}

/// With a name of 63 bytes it is a socket's path.
fn is_short(directory: &Path) -> bool {
    directory.as_os_str().len() + 1 + 63 + 1 + ENDING.len() <= PATH_MAX
}

fn said(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The socket of an application.
///
/// # Errors
/// As [`directory`].
pub fn socket(application: &str) -> io::Result<PathBuf> {
    Ok(directory()?.join(format!("{application}.{ENDING}")))
}

/// Names of applications that have sockets; some may have ended without taking them away.
///
/// # Errors
/// As [`directory`].
pub fn applications() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory()?)? {
        let path = entry?.path();
        let is_socket = path.extension().is_some_and(|ending| ending == ENDING);
        if let Some(name) = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_socket) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}
