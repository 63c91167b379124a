//! Mounting on a directory, and unmounting.
//!
//! Root mounts by itself; everybody else, and root where it has no right to, by `fusermount3`.

use super::options::FsMountOptions;
use fuser::{Config, Filesystem, MountOption, Session, SessionACL, SessionUnmounter};
use rustix::fd::AsRawFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The file system's type in the machine's table of mounts, behind `fuse.`.
const SUBTYPE: &str = "outboard";
/// The kernel's device.
const DEVICE: &str = "/dev/fuse";
/// What mounts where there is no privilege.
const HELPER: &str = "fusermount3";
/// Bytes of one read of the kernel, at most.
const READ_MAX: usize = 1 << 20;
/// Threads that take the kernel's requests.
const THREADS: usize = 12;

/// What to do where the device cannot be opened.
fn device_advice(errno: Errno) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM => format!(
            "it must be everybody's to open, as udev makes it (chmod 666 {DEVICE}), and a \
             container be started with --device {DEVICE}"
        ),
        _ => format!(
            "load the kernel's module (modprobe fuse), and in a container start it with \
             --device {DEVICE}"
        ),
    }
}

/// Why nothing is mounted, or unmounted. This machine or the caller is at fault.
#[derive(Debug, thiserror::Error)]
pub enum FsMountError {
    /// The directory.
    #[error("{}: {why}; a file system is mounted on a directory that is there", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The kernel's device.
    #[error("{DEVICE} cannot be opened: {errno}; {}", device_advice(*errno))]
    Device {
        /// What the system says.
        errno: Errno,
    },
    /// The mount.
    #[error("{} is not mounted: {why}", path.display())]
    Mount {
        /// Where.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// An option that only root may ask for.
    #[error("-o {option}: only root may ask for it")]
    OnlyRoot {
        /// Which.
        option: &'static str,
    },
    /// The unmount.
    #[error("{} is not unmounted: {why}", path.display())]
    Unmount {
        /// Where.
        path: PathBuf,
        /// What the system, or the helper, says.
        why: String,
    },
    /// The session with the kernel ended with an error.
    #[error("the kernel's requests are served no more: {0}")]
    Session(io::Error),
}

/// A mount whose requests are not served yet.
pub(super) struct Attached<F: Filesystem> {
    pub(super) session: Session<F>,
    /// For one that the helper has mounted.
    pub(super) unmounter: Option<SessionUnmounter>,
}

/// Mounts on a directory.
pub(super) fn attach<F: Filesystem>(
    directory: &Path,
    source: &str,
    options: &FsMountOptions,
    handlers: impl Fn() -> F,
) -> Result<Attached<F>, FsMountError> {
    let is_root = rustix::process::geteuid().is_root();
    for (is_asked, option) in [(options.allows_suid, "suid"), (options.allows_devices, "dev")] {
        if is_asked && !is_root {
            return Err(FsMountError::OnlyRoot { option });
        }
    }
    let path = directory.canonicalize();
    let path = path.map_err(|why| FsMountError::Directory { path: directory.to_owned(), why })?;
    if !path.is_dir() {
        let why = io::Error::from_raw_os_error(libc::ENOTDIR);
        return Err(FsMountError::Directory { path, why });
    }
    if is_root {
        match attach_directly(&path, source, options, &handlers) {
            // In a container, root may have no right to mount.
            Err(Refusal::NotPermitted) => {}
            Err(Refusal::Other(error)) => return Err(error),
            Ok(session) => return Ok(Attached { session, unmounter: None }),
        }
    }
    attach_by_helper(&path, source, options, &handlers)
}

enum Refusal {
    NotPermitted,
    Other(FsMountError),
}

fn attach_directly<F: Filesystem>(
    path: &Path,
    source: &str,
    options: &FsMountOptions,
    handlers: &impl Fn() -> F,
) -> Result<Session<F>, Refusal> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| Refusal::Other(FsMountError::Device { errno }))?;
    let others = if options.allows_others { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,\
         max_read={READ_MAX}{others}",
        device.as_raw_fd(),
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let data = CString::new(data).unwrap_or_default();
    let kind = format!("fuse.{SUBTYPE}");
    let flags = flags(options);
    mount(source, path, kind.as_str(), flags, data.as_c_str()).map_err(|errno| match errno {
        Errno::PERM => Refusal::NotPermitted,
        errno => Refusal::Other(not_mounted(path, errno.to_string())),
    })?;
    let config = config(source, options);
    let session = Session::from_fd(handlers(), device, config.acl, config);
    session.map_err(|error| {
        // Nobody would serve it.
        let _detached = unmount(path, UnmountFlags::DETACH);
        Refusal::Other(not_mounted(path, error.to_string()))
    })
}

fn flags(options: &FsMountOptions) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::NOSUID, !options.allows_suid);
    flags.set(MountFlags::NODEV, !options.allows_devices);
    flags.set(MountFlags::NOEXEC, options.is_no_exec);
    flags.set(MountFlags::RDONLY, options.is_read_only);
    flags
}

fn attach_by_helper<F: Filesystem>(
    path: &Path,
    source: &str,
    options: &FsMountOptions,
    handlers: &impl Fn() -> F,
) -> Result<Attached<F>, FsMountError> {
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    device.map_err(|errno| FsMountError::Device { errno })?;
    let session = Session::new(handlers(), path, &config(source, options));
    let mut session = session.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            not_mounted(path, format!("there is no {HELPER}: install the package fuse3"))
        }
        _ => not_mounted(path, error.to_string().trim().to_owned()),
    })?;
    let unmounter = Some(session.unmount_callable());
    Ok(Attached { session, unmounter })
}

fn not_mounted(path: &Path, why: String) -> FsMountError {
    FsMountError::Mount { path: path.to_owned(), why }
}

fn config(source: &str, options: &FsMountOptions) -> Config {
    let mut config = Config::default();
    let either = |is: bool, yes, no| if is { yes } else { no };
    config.mount_options = vec![
        MountOption::FSName(source.replace(',', ";")),
        MountOption::Subtype(SUBTYPE.into()),
        MountOption::DefaultPermissions,
        MountOption::CUSTOM(format!("max_read={READ_MAX}")),
        either(options.allows_suid, MountOption::Suid, MountOption::NoSuid),
        either(options.allows_devices, MountOption::Dev, MountOption::NoDev),
        either(options.is_no_exec, MountOption::NoExec, MountOption::Exec),
        either(options.is_read_only, MountOption::RO, MountOption::RW),
    ];
    config.acl = if options.allows_others { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(THREADS);
    config
}

/// Takes a mount away from a directory. Its server may be dead: no request is sent to it. Processes
/// that have files of it open keep it until they close them.
///
/// # Errors
/// [`FsMountError::Unmount`].
pub fn unmount_at(directory: &Path) -> Result<(), FsMountError> {
    let failed = |why: String| FsMountError::Unmount { path: directory.to_owned(), why };
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match unmount(directory, flags) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(Errno::INVAL) => return Err(failed("nothing is mounted there".into())),
        Err(errno) => return Err(failed(errno.to_string())),
    }
    let mut helper = Command::new(HELPER);
    helper.args(["-u", "-z", "--"]).arg(directory).stdin(Stdio::null());
    let output = helper.output().map_err(|error| failed(format!("{HELPER}: {error}")))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}
