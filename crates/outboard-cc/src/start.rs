//! Connects to the manager, and starts it if none runs: one of several wrappers does so while the
//! others wait.
//!
//! The wrapper makes the socket and the manager inherits it as its standard input, so that other
//! wrappers can connect at once and wait in the socket's queue. The manager inherits nothing else:
//! a build tool waits until every process that holds its pipes has closed them.

use crate::leftovers;
use crate::place::{self, ManagerPlace};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, getrlimit, setrlimit};

/// How long no wrapper tries again after a manager failed to start.
pub(crate) const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long no wrapper asks a manager after one did not answer.
pub(crate) const LEAVE_ALONE: Duration = Duration::from_secs(60);
/// How long a manager may take to accept a connection or to read, and a wrapper to start a manager.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a manager may take to answer the question whether it is alive.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Time between two attempts to take a lock that another wrapper holds.
const PAUSE: Duration = Duration::from_millis(5);

/// Variables that a manager inherits, as names or beginnings of names. All others belong to the
/// build that happens to start it, and a manager serves all builds. Those that it reads decide
/// which manager a wrapper asks, see [`place`].
const VARIABLES: &[&str] =
    &["HOME", "LOGNAME", "OUTBOARD_", "PATH", "RUST_", "TMPDIR", "USER", "XDG_"];
/// Descriptors that a manager may have, at most: some programs loop over all that the limit allows.
const DESCRIPTORS_MAX: u64 = 1 << 16;
/// Limits of the build that starts a manager, which must not hold for other builds.
const LIMITS: [Resource; 6] = [
    Resource::As,
    Resource::Cpu,
    Resource::Data,
    Resource::Fsize,
    Resource::Memlock,
    Resource::Nproc,
];

/// How a wrapper got its manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ManagerOrigin {
    /// It ran already.
    Found,
    /// This wrapper has started it; whether it works is not known yet.
    Started,
}

/// A log that is longer is emptied.
const LOG_BYTES_MAX: u64 = 64 << 10;

/// Connects to the manager, and starts it if it does not run.
///
/// # Errors
/// No manager can be started; or one could not be started, or did not answer, a moment ago.
pub(crate) fn connect(place: &ManagerPlace) -> io::Result<(UnixStream, ManagerOrigin)> {
    if is_newer(&place.silence(), LEAVE_ALONE) {
        return Err(io::Error::other("the manager did not answer a moment ago"));
    }
    if let Some(stream) = reach(place)? {
        return Ok((stream, ManagerOrigin::Found));
    }
    let lock = open_lock(place)?;
    wait_for(&lock)?;
    if let Some(stream) = reach(place)? {
        return Ok((stream, ManagerOrigin::Found));
    }
    if is_newer(&place.failure(), RETRY_AFTER) {
        return Err(io::Error::other("the manager could not be started a moment ago"));
    }
    match start(place) {
        Ok(stream) => Ok((stream, ManagerOrigin::Started)),
        Err(error) => {
            note_failure(place);
            Err(error)
        }
    }
}

/// Whether the manager at a socket is alive. Asks through a new connection.
pub(crate) fn answers(socket: &Path) -> bool {
    probe(socket).is_ok()
}

/// Has the manager at a socket write its statistics, if there is one, and waits until it has, up to
/// a limit.
pub fn settle(socket: &Path) {
    // Without a manager everything is written already.
    let _ = probe(socket).and_then(|mut stream| stream.read(&mut [0]));
}

/// Shuts a connection down without a request: the manager answers with a byte, and closes the
/// connection once it has written its statistics.
fn probe(socket: &Path) -> io::Result<UnixStream> {
    let mut stream = dial(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(stream)
}

/// Leaves a mark, so that the next wrappers do not wait for this manager.
pub(crate) fn note_silence(place: &ManagerPlace) {
    let _ = fs::write(place.silence(), "");
}

/// A connection to a running manager; `None` if there is none. It is an error if a manager does not
/// accept.
fn reach(place: &ManagerPlace) -> io::Result<Option<UnixStream>> {
    match dial(&place.socket()) {
        Ok(stream) => Ok(Some(stream)),
        Err(Errno::AGAIN) => {
            note_silence(place);
            Err(io::Error::other("the manager accepts no connection"))
        }
        Err(_) => Ok(None),
    }
}

/// Connects. Connecting and writing fail if the other side does not accept or read in time.
fn dial(path: &Path) -> Result<UnixStream, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(CONNECT_MAX))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Waits for the lock, up to a limit: a wrapper that was stopped may hold it.
fn wait_for(lock: &File) -> io::Result<()> {
    let deadline = Instant::now() + CONNECT_MAX;
    while let Err(errno) = flock(lock, FlockOperation::NonBlockingLockExclusive) {
        if errno != Errno::WOULDBLOCK || Instant::now() > deadline {
            return Err(errno.into());
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Leaves a mark, so that the next wrappers do not try to start a manager.
pub(crate) fn note_failure(place: &ManagerPlace) {
    // Without the mark they only lose time.
    let _ = fs::write(place.failure(), "");
}

fn open_lock(place: &ManagerPlace) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(place.lock())
}

/// The log, which keeps the messages of earlier managers up to a length.
fn open_log(place: &ManagerPlace) -> io::Result<File> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(place.log())?;
    if log.metadata()?.len() > LOG_BYTES_MAX {
        log.set_len(0)?;
    }
    Ok(log)
}

/// Whether a mark is there and is younger than `age_max`.
pub(crate) fn is_newer(mark: &Path, age_max: Duration) -> bool {
    let made = fs::metadata(mark).and_then(|mark| mark.modified());
    made.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < age_max))
}

fn start(place: &ManagerPlace) -> io::Result<UnixStream> {
    leftovers::remove(place);
    let socket = place.socket();
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    match spawn(listener, open_log(place)?) {
        Ok(()) => Ok(dial(&socket)?),
        Err(error) => fs::remove_file(&socket).and(Err(error)),
    }
}

fn spawn(listener: UnixListener, log: File) -> io::Result<()> {
    let mut command = Command::new(manager());
    command
        .args(["cc", "--manager"])
        .current_dir("/")
        .stdin(OwnedFd::from(listener))
        .stdout(Stdio::null())
        .stderr(log);
    let is_kept = |name: &OsStr| {
        VARIABLES.iter().any(|kept| match kept.strip_suffix('_') {
            Some(_) => name.as_bytes().starts_with(kept.as_bytes()),
            None => name == *kept,
        })
    };
    command.env_clear().envs(env::vars_os().filter(|(name, _)| is_kept(name)));
    // The manager runs in another directory.
    command.envs(place::key().map(|key| ("OUTBOARD_KEY", key)));
    leave_the_caller(&mut command);
    // It is not waited for: it outlives this process, and init adopts it.
    command.spawn().map(drop)
}

/// The program `outboard` that lies beside this one, or else the one in `PATH`.
fn manager() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join("outboard")));
    beside.filter(|file| file.exists()).unwrap_or_else(|| PathBuf::from("outboard"))
}

/// Raises limits as far as this process may.
fn lift_limits() {
    let lift = |limit: Resource, most: u64| {
        let mut found = getrlimit(limit);
        found.current = found.maximum.map_or(Some(most), |maximum| Some(maximum.min(most)));
        found.current = found.current.filter(|current| *current != u64::MAX);
        // If it fails, the manager has the caller's limit.
        let _ = setrlimit(limit, found);
    };
    LIMITS.into_iter().for_each(|limit| lift(limit, u64::MAX));
    lift(Resource::Nofile, DESCRIPTORS_MAX);
}

/// Gives the new process a session of its own, without the terminal's signals, closes all
/// descriptors but the standard ones at exec, and raises its limits.
fn leave_the_caller(command: &mut Command) {
    let leave = || {
        // It fails only for a leader of a process group, which a new process is not.
        let _ = rustix::process::setsid();
        lift_limits();
        // SAFETY: the call changes flags of descriptors and no memory. It closes nothing now, so
        // what other owners hold in this process stays open until they are gone with the exec.
        let done = unsafe { libc::close_range(3, libc::c_uint::MAX, CLOEXEC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes system calls only; it allocates nothing,
    // takes no lock and touches no memory of the parent's.
    unsafe { command.pre_exec(leave) };
}

#[expect(clippy::cast_possible_wrap, reason = "a flag of one bit, low")]
const CLOEXEC: libc::c_int = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
