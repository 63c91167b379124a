//! A manager when there is none: one of several wrappers starts it, the others wait for that.
//!
//! The wrapper makes the socket and the manager inherits it as its standard input, so that whoever
//! connects meanwhile waits in the socket's queue and nobody asks twice. The manager inherits
//! nothing else: a build tool waits until the last holder of its pipes has closed them.

use crate::place::{self, Place};
use std::env;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// For so long after a manager failed to start nobody tries again.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Whose manager it is that a wrapper is connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// It was there.
    Found,
    /// This wrapper has started it, and nobody knows yet whether it works.
    Started,
}

/// A log longer than this is begun anew.
const LOG_OCTETS_MAX: u64 = 64 << 10;

/// Connects to the manager, which is started when it is not there.
///
/// # Errors
/// No manager can be started, or one could not a moment ago.
pub(crate) fn connect(place: &Place) -> io::Result<(UnixStream, Manager)> {
    if let Ok(stream) = UnixStream::connect(place.socket()) {
        return Ok((stream, Manager::Found));
    }
    let lock = open_lock(place)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    if let Ok(stream) = UnixStream::connect(place.socket()) {
        return Ok((stream, Manager::Found));
    }
    if failed_lately(place) {
        return Err(io::Error::other("the manager could not be started a moment ago"));
    }
    match start(place) {
        Ok(stream) => Ok((stream, Manager::Started)),
        Err(error) => {
            note_failure(place);
            Err(error)
        }
    }
}

/// Leaves a mark, so that the next wrappers do not try as well.
pub(crate) fn note_failure(place: &Place) {
    // The mark saves time only; without it they try.
    let _ = fs::write(place.failure(), "");
}

fn open_lock(place: &Place) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(place.lock())
}

/// What earlier managers said stays until it is too much.
fn open_log(place: &Place) -> io::Result<File> {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(place.log())?;
    if log.metadata()?.len() > LOG_OCTETS_MAX {
        log.set_len(0)?;
    }
    Ok(log)
}

fn failed_lately(place: &Place) -> bool {
    let age = fs::metadata(place.failure()).and_then(|mark| mark.modified());
    age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < RETRY_AFTER))
}

fn start(place: &Place) -> io::Result<UnixStream> {
    let socket = place.socket();
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&socket)?;
    match spawn(listener, open_log(place)?) {
        Ok(()) => UnixStream::connect(&socket),
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
    // It has a directory of its own.
    command.envs(place::key().map(|key| ("OUTBOARD_KEY", key)));
    leave_the_caller(&mut command);
    // Nobody waits for it: it outlives this process, and becomes the child of what reaps.
    command.spawn().map(drop)
}

/// The program `outboard` that lies beside this one, or else the one in `PATH`.
fn manager() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|own| Some(own.parent()?.join("outboard")));
    beside.filter(|file| file.exists()).unwrap_or_else(|| PathBuf::from("outboard"))
}

/// A session of its own, away from the terminal's signals, and no descriptor but the standard ones.
fn leave_the_caller(command: &mut Command) {
    let leave = || {
        // It fails for leaders of a group only, and a new process is none.
        let _ = rustix::process::setsid();
        // SAFETY: the call changes flags of descriptors and no memory. It closes nothing now, so
        // what other owners hold in this process stays open until they are gone with the exec.
        let done = unsafe { libc::close_range(3, libc::c_uint::MAX, CLOEXEC) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls; it allocates nothing, takes
    // no lock and touches no memory of the parent's.
    unsafe { command.pre_exec(leave) };
}

#[expect(clippy::cast_possible_wrap, reason = "a flag of one bit, low")]
const CLOEXEC: libc::c_int = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
