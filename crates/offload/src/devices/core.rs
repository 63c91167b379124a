//! The device `core`: a process of its own on a chosen processor, which looks around for work for a
//! while before it sleeps.
//!
//! The process is the application's own program, or another one, called so that it runs
//! [`serve_core`]. Its standard input is the socket to the runtime; its doorbell comes over that as
//! the first message. It ends when the socket does.

use super::link::{DeviceLink, DeviceLost, LocalLink};
use crate::device::{Device, DeviceLimits, WasmCodes};
use crate::frames::{FrameFault, FrameStream};
use crate::request::{DeviceEvent, Numbered};
use crate::serve::{DeviceWaits, serve};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How long a new process waits for its doorbell, in seconds.
const BELL_SECONDS: i64 = 10;

/// A core to be started.
#[derive(Clone, Debug)]
pub struct CoreSpec {
    /// What people call it.
    pub name: String,
    /// The program that calls [`serve_core`].
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// See this file's first lines. The process is killed when this is dropped.
#[derive(Debug)]
pub struct CoreDevice {
    name: String,
    link: LocalLink,
    child: Child,
}

impl CoreDevice {
    /// Starts the process.
    ///
    /// # Errors
    /// This machine's: the program cannot be started.
    pub fn start(spec: &CoreSpec) -> io::Result<Self> {
        let (near, far) = UnixStream::pair()?;
        let (ring, bell) = UnixStream::pair()?;
        let link = LocalLink::new(near, ring.into())?;
        let child = Command::new(&spec.program)
            .args(&spec.args)
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::null())
            .spawn()?;
        // Whatever fails from here on, the process ends with this value.
        let mut device = Self { name: spec.name.clone(), link, child };
        device.link.frames().send(b"bell", &[bell.as_fd()]).map_err(io::Error::other)?;
        Ok(device)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Words for its end: how the process ended, if it has.
    fn lost(&mut self, why: &str) -> DeviceLost {
        match self.child.try_wait() {
            Ok(Some(status)) => DeviceLost(format!("its process ended: {status}")),
            _ => DeviceLost(why.to_owned()),
        }
    }
}

impl Drop for CoreDevice {
    fn drop(&mut self) {
        let _dead_already = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl DeviceLink for CoreDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn send(&mut self, request: &Numbered, fds: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        let sent = self.link.send(request, fds);
        sent.map_err(|error| self.lost(&error.to_string()))
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        let polled = self.link.poll();
        polled.map_err(|lost| self.lost(&lost.0))
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.fd()
    }

    fn wants_write(&self) -> bool {
        self.link.wants_write()
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        let flushed = self.link.frames().flush();
        flushed.map_err(|error| self.lost(&error.to_string()))
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.bell())
    }
}

/// Runs a core in this process until the runtime at the other end of `socket` is gone. Compiled
/// code is kept in `cache`.
///
/// # Errors
/// In words: why it cannot be one, or what went wrong.
pub fn serve_core(
    socket: OwnedFd,
    processor: Option<usize>,
    cache: Option<&Path>,
) -> Result<(), String> {
    if let Some(processor) = processor {
        pin(processor)?;
    }
    // Nothing that it may start could gain rights; it starts nothing.
    rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
    let mut frames = FrameStream::new(socket.into()).map_err(|error| error.to_string())?;
    let Some(bell) = bell(&mut frames).map_err(|error| error.to_string())? else { return Ok(()) };
    let waits = match processor {
        Some(_) => DeviceWaits::Spins,
        None => DeviceWaits::Sleeps,
    };
    let mut device = Device::new(DeviceLimits::default(), WasmCodes::new(cache)?);
    serve(&mut device, &mut frames, &bell, waits).map_err(|error| error.to_string())
}

fn pin(processor: usize) -> Result<(), String> {
    if processor >= CpuSet::MAX_CPU {
        return Err(format!("there is no processor {processor}"));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)
        .map_err(|error| format!("this process may not run on processor {processor}: {error}"))
}

/// The doorbell that comes first; `None`: the runtime is gone already.
fn bell(frames: &mut FrameStream) -> Result<Option<OwnedFd>, FrameFault> {
    loop {
        match frames.receive() {
            Ok(Some((_, mut fds))) => return Ok(fds.pop()),
            Ok(None) => {}
            Err(FrameFault::Closed) => return Ok(None),
            Err(error) => return Err(error),
        }
        let limit = Timespec { tv_sec: BELL_SECONDS, tv_nsec: 0 };
        let mut fds = [PollFd::new(frames, PollFlags::IN)];
        if poll(&mut fds, Some(&limit)).map_err(io::Error::from)? == 0 {
            return Ok(None);
        }
    }
}
