//! Directories of services, made before anything starts and given to the service's user.
//!
//! The supervisor may be root, and services may be broken into: it follows no link that a service
//! could have made, and gives away no directory that holds anything.

use super::setup::NodeError;
use super::user::User;
use outboard_secure::ServiceName;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fchown, fstat, openat};
use rustix::process::{Gid, Uid};
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a service cannot have a directory.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It belongs to another user.
    #[error(
        "{} is not empty and belongs to user {owner}, and the service {service} is user {user}: \
         empty it, or `chown -R {user}:{user}` it", path.display()
    )]
    Owner {
        /// The directory.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
        /// The service.
        service: String,
        /// The user id of the service.
        user: u32,
    },
    /// It lies below one that the service's user may not enter.
    #[error(
        "{}: the service {service} runs as user {user}, who may not enter {}: `chmod o+x` that, or \
         name a directory elsewhere", path.display(), above.display()
    )]
    Above {
        /// The directory.
        path: PathBuf,
        /// The one above it.
        above: PathBuf,
        /// The service.
        service: String,
        /// The user id of the service.
        user: u32,
    },
    /// This machine refuses it.
    #[error("{}, a directory of the service {service}: {source}", path.display())]
    System {
        /// The directory.
        path: PathBuf,
        /// The service.
        service: String,
        /// What the system says.
        source: io::Error,
    },
}

/// A directory of a service's own, as another user than the supervisor: below the supervisor's
/// `XDG_CACHE_HOME`, or else the system's.
pub(super) fn cache(service: &ServiceName) -> PathBuf {
    let own = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    own.unwrap_or_else(|| "/var/cache".into()).join("outboard").join(service.as_str())
}

/// Makes a service's directories, and its cache; that is emptied if another user had it before.
pub(super) fn make(
    service: &ServiceName,
    user: Option<User>,
    directories: &[PathBuf],
) -> Result<(), NodeError> {
    for path in directories {
        give(service, path, user)?;
    }
    let Some(user) = user else { return Ok(()) };
    let cache = cache(service);
    let mut outcome = give(service, &cache, Some(user));
    if let Err(DirectoryError::Owner { .. }) = outcome {
        // The contents of a cache can be produced again. This removes links, and does not follow
        // them.
        outcome = fs::remove_dir_all(&cache)
            .map_err(|source| failed(service, &cache, source))
            .and_then(|()| give(service, &cache, Some(user)));
    }
    match outcome {
        // A service that must have a cache reports that it has none.
        Err(DirectoryError::System { .. } | DirectoryError::Above { .. }) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn failed(service: &ServiceName, path: &Path, source: io::Error) -> DirectoryError {
    DirectoryError::System { path: path.into(), service: service.as_str().into(), source }
}

/// A directory that is there and the user's, with those above it.
fn give(service: &ServiceName, path: &Path, user: Option<User>) -> Result<(), DirectoryError> {
    let failed = |source: io::Error| failed(service, path, source);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let Some(user) = user else { return Ok(()) };
    if let Some(above) = shut_above(path, user).map_err(failed)? {
        let (path, service) = (path.into(), service.as_str().into());
        return Err(DirectoryError::Above { path, above, service, user: user.uid });
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let opened = openat(CWD, path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let owner = fstat(&opened).map_err(|error| failed(error.into()))?.st_uid;
    if owner == user.uid {
        return Ok(());
    }
    if !is_empty(path).map_err(failed)? {
        let (path, service) = (path.into(), service.as_str().into());
        return Err(DirectoryError::Owner { path, owner, service, user: user.uid });
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    fchown(&opened, Some(uid), Some(gid))
        .and_then(|()| fchmod(&opened, Mode::RWXU))
        .map_err(|error| failed(error.into()))
}

/// The first directory above a path that a user may not enter. The user is in no other group.
fn shut_above(path: &Path, user: User) -> io::Result<Option<PathBuf>> {
    let Some(parent) = path.parent() else { return Ok(None) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = parent.canonicalize()?;
    for above in parent.ancestors().collect::<Vec<_>>().into_iter().rev() {
        let found = fs::metadata(above)?;
        let may_enter = match () {
            () if found.uid() == user.uid => Mode::XUSR,
            () if found.gid() == user.gid => Mode::XGRP,
            () => Mode::XOTH,
        };
        if found.mode() & may_enter.bits() == 0 {
            return Ok(Some(above.to_owned()));
        }
    }
    Ok(None)
}

fn is_empty(path: &Path) -> io::Result<bool> {
    Ok(fs::read_dir(path)?.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_empty_directory_is_given_away_and_no_other() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root gives directories away");
            return;
        }
        let name = format!("outboard-directories-{}", std::process::id());
        let top = env::temp_dir().join(name);
        let [one, other] = [User { uid: 61_300, gid: 61_300 }, User { uid: 61_301, gid: 61_301 }];
        let service: ServiceName = "one".parse().expect("a name");
        let path = top.join("a/b");
        give(&service, &path, Some(one)).expect("made");
        let found = fs::metadata(&path).expect("there");
        assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (61_300, 61_300, 0o700));
        assert_eq!(fs::metadata(top.join("a")).expect("there").uid(), 0);
        give(&service, &path, Some(other)).expect("it is empty");
        fs::write(path.join("file"), "").expect("written");
        give(&service, &path, Some(other)).expect("it is its own");
        let error = give(&service, &path, Some(one)).expect_err("another user's").to_string();
        assert!(error.contains("chown -R 61300:61300"), "{error}");
        std::os::unix::fs::symlink("/root", top.join("link")).expect("a link");
        give(&service, &top.join("link"), Some(one)).expect_err("a link");
        fs::set_permissions(top.join("a"), PermissionsExt::from_mode(0o700)).expect("set");
        let error = give(&service, &path, Some(other)).expect_err("below a directory of root's");
        let shut = top.join("a").canonicalize().expect("there");
        assert!(
            error.to_string().contains(&format!("may not enter {}:", shut.display())),
            "{error}"
        );
        fs::remove_dir_all(&top).expect("removed");
    }
}
