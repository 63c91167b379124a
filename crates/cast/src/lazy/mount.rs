//! Mounting a view on a directory of its own, and unmounting it.
//!
//! With privileges the mount goes exactly onto the directory that was made, by its descriptor: no
//! process can lead it elsewhere by renaming. Without, `fusermount3` mounts by path; it checks the
//! directory itself. An unmount detaches: processes keep what they have open.

use super::serve::ViewHandlers;
use crate::receive::Destination;
use crate::tree::{open_beneath, shown};
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What mounts are called in the machine's table of them.
pub(super) const SOURCE: &str = "outboard-cast";
/// The kernel's device.
const DEVICE: &str = "/dev/fuse";
/// What mounts where there is no privilege.
const HELPER: &str = "fusermount3";
/// Its configuration.
const HELPER_CONFIG: &str = "/etc/fuse.conf";
/// Threads that take the kernel's requests, so that one slow disk read does not hold up all.
const THREADS: usize = 2;
/// Bytes of one read request of the kernel.
const READ_MAX: usize = 1 << 20;

/// Why a view cannot be shown. This machine is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShowError {
    #[error("{path:?} cannot be made: {errno}; it is where a view of what comes is mounted")]
    Directory { path: PathBuf, errno: Errno },
    #[error(
        "{DEVICE} cannot be opened: {errno}; --lazy needs FUSE: load the kernel's module \
         (modprobe fuse), in a container start it with --device {DEVICE}, or cast without --lazy"
    )]
    Device { errno: Errno },
    #[error(
        "nothing can be mounted: {why}; --lazy needs FUSE: install {HELPER} (package fuse3), have \
         the node's administrator set as_root = true in [cast], or cast without --lazy"
    )]
    Mount { why: String },
    #[error(
        "{} views are mounted or held open by processes of this node: end those that run or read \
         files of earlier casts, or cast without --lazy",
        super::VIEWS_MAX
    )]
    TooMany,
    #[error("this machine starts no thread: {0}")]
    Thread(io::Error),
}

/// A mounted view, before its requests are served.
pub(super) struct ViewMount {
    pub(super) session: Session<ViewHandlers>,
    /// For one that the helper has mounted.
    pub(super) unmounter: Option<SessionUnmounter>,
}

/// Makes the directory `name` and mounts on it.
pub(super) fn mount_view(
    destination: &Destination,
    name: &[u8],
    handlers: impl Fn() -> ViewHandlers,
) -> Result<ViewMount, ShowError> {
    let unmade = |errno| ShowError::Directory { path: destination.path().join(shown(name)), errno };
    let mode = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
    fs::mkdirat(destination.fd(), name, mode).map_err(unmade)?;
    let mounted = open_directory(destination, name).map_err(unmade).and_then(|directory| {
        match rustix::process::geteuid().is_root() {
            true => match mount_directly(&directory, &handlers) {
                // In a container, root may have no right to mount.
                Err(Refusal::NotPermitted) => mount_by_helper(&directory, &handlers),
                Err(Refusal::Other(error)) => Err(error),
                Ok(mounted) => Ok(mounted),
            },
            false => mount_by_helper(&directory, &handlers),
        }
    });
    if mounted.is_err() {
        unmount_view(destination, name, None);
    }
    mounted
}

/// Detaches what is mounted on `name`, if anything is, and removes the directory.
pub(super) fn unmount_view(
    destination: &Destination,
    name: &[u8],
    unmounter: Option<SessionUnmounter>,
) {
    let remove = || fs::unlinkat(destination.fd(), name, AtFlags::REMOVEDIR);
    if let Some(mut unmounter) = unmounter {
        // Where a user has unmounted it, there is nothing to do.
        let _ = unmounter.unmount();
    }
    if matches!(remove(), Ok(()) | Err(Errno::NOENT)) {
        return;
    }
    if detach(destination, name).is_err() {
        detach_by_helper(destination, name);
    }
    if let Err(errno) = remove() {
        let path = destination.path().join(shown(name));
        tracing::warn!(path = %path.display(), %errno, "a view's directory stays");
    }
}

enum Refusal {
    NotPermitted,
    Other(ShowError),
}

fn open_directory(destination: &Destination, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = open_beneath(destination.fd(), name, flags, Mode::empty())?;
    // Another process may have put its own in the place of the one that was made.
    let is_own = fs::fstat(&directory)?.st_uid == rustix::process::geteuid().as_raw();
    if is_own { Ok(directory) } else { Err(Errno::PERM) }
}

fn mount_directly(
    directory: &OwnedFd,
    handlers: &impl Fn() -> ViewHandlers,
) -> Result<ViewMount, Refusal> {
    let device = fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Refusal::Other(ShowError::Device { errno }))?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read={}",
        device.as_raw_fd(),
        READ_MAX
    );
    let options = CString::new(options).unwrap_or_default();
    let at = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    let kind = format!("fuse.{SOURCE}");
    mount(SOURCE, at.as_str(), kind.as_str(), flags, options.as_c_str()).map_err(|errno| {
        match errno {
            Errno::PERM => Refusal::NotPermitted,
            errno => Refusal::Other(ShowError::Mount { why: errno.to_string() }),
        }
    })?;
    let config = config(SessionACL::All);
    let session = Session::from_fd(handlers(), device, SessionACL::All, config)
        .map_err(|error| Refusal::Other(ShowError::Mount { why: error.to_string() }))?;
    Ok(ViewMount { session, unmounter: None })
}

fn mount_by_helper(
    directory: &OwnedFd,
    handlers: &impl Fn() -> ViewHandlers,
) -> Result<ViewMount, ShowError> {
    let device = fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    device.map_err(|errno| ShowError::Device { errno })?;
    let acl = match helper_allows_others() {
        true => SessionACL::All,
        false => {
            tracing::info!(
                "other users see nothing of this cast before its end: {HELPER_CONFIG} does not \
                 say user_allow_other"
            );
            SessionACL::Owner
        }
    };
    let failed = |why: String| ShowError::Mount { why };
    let path = path_of(directory).map_err(|errno| failed(errno.to_string()))?;
    let session = Session::new(handlers(), path, &config(acl));
    let mut session = session.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => failed(format!("there is no {HELPER}")),
        _ => failed(error.to_string().trim().to_owned()),
    })?;
    let unmounter = Some(session.unmount_callable());
    Ok(ViewMount { session, unmounter })
}

fn config(acl: SessionACL) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(SOURCE.into()),
        MountOption::Subtype(SOURCE.into()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
        MountOption::RO,
    ];
    config.acl = acl;
    config.n_threads = Some(THREADS);
    config
}

fn helper_allows_others() -> bool {
    let config = std::fs::read_to_string(HELPER_CONFIG).unwrap_or_default();
    config.lines().any(|line| line.trim() == "user_allow_other")
}

/// Where an open directory is now.
fn path_of(directory: &OwnedFd) -> Result<PathBuf, Errno> {
    let path = fs::readlink(format!("/proc/self/fd/{}", directory.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// Detaches the mount that `name` leads to, by its descriptor. Sends it no request: it may be dead.
fn detach(destination: &Destination, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let top = open_beneath(destination.fd(), name, flags, Mode::empty())?;
    unmount(format!("/proc/self/fd/{}", top.as_raw_fd()), UnmountFlags::DETACH)
}

fn detach_by_helper(destination: &Destination, name: &[u8]) {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let top = open_beneath(destination.fd(), b".", flags, Mode::empty());
    let Ok(path) = top.and_then(|top| path_of(&top)) else { return };
    let helper = Command::new(HELPER)
        .args(["-u", "-q", "-z", "--"])
        .arg(path.join(shown(name)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    // The directory that stays tells of it.
    drop(helper);
}
