//! The loop of a device: requests in, offcodes run, events out. A thread, or a process, runs it.
//!
//! It waits for nothing but its socket, its doorbell and the time. It ends when the other side of
//! the socket is gone: then everything on the device is gone, too.

use crate::device::Device;
use crate::frames::{FRAME_MAX, FrameFault, FrameStream};
use crate::request::{DeviceError, DeviceEvent, Numbered, PROTOCOL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Messages that the socket has not taken, beyond which nothing is run and no request is read.
const BACKLOG_MAX: usize = 4096;
/// Bytes of them.
const BACKLOG_BYTES: usize = 64 << 20;
/// Requests that are taken in a row before offcodes run.
const REQUESTS_MAX: usize = 256;
/// How long a device that has a processor of its own looks around before it sleeps.
const SPIN: Duration = Duration::from_micros(200);

/// Reads of the doorbell in a row: whoever rings without an end holds nothing up.
const RINGS_MAX: usize = 16;

/// How a device waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceWaits {
    /// It sleeps at once.
    #[default]
    Sleeps,
    /// It looks around for 200 µs first: it has a processor of its own.
    Spins,
}

/// Serves `device` until the other side of `frames` is gone. Other devices ring at `bell`.
///
/// # Errors
/// Why it ended, other than by the other side's end.
pub fn serve(
    device: &mut Device,
    frames: &mut FrameStream,
    bell: &OwnedFd,
    waits: DeviceWaits,
) -> Result<(), FrameFault> {
    let mut bell = Bell(Some(bell));
    loop {
        match turn(device, frames) {
            Ok(true) => {}
            Ok(false) => rest(device, frames, &mut bell, waits)?,
            Err(FrameFault::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Where other devices ring, until nobody can ring there any more: it would be readable for ever.
struct Bell<'a>(Option<&'a OwnedFd>);

impl Bell<'_> {
    /// Rings that came meanwhile are looked at in the next turn.
    fn quieten(&mut self) {
        let Some(bell) = self.0 else { return };
        for _ in 0..RINGS_MAX {
            match recv(bell, &mut [0_u8; 64], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET) => return self.0 = None,
                Ok((64, _)) => {}
                _ => return,
            }
        }
    }
}

/// Whether the other side takes too little: it is waited for, and nothing else is done.
fn is_backed_up(frames: &FrameStream) -> bool {
    frames.queued() >= BACKLOG_MAX || frames.queued_bytes() >= BACKLOG_BYTES
}

/// True: there is more to do.
fn turn(device: &mut Device, frames: &mut FrameStream) -> Result<bool, FrameFault> {
    frames.flush()?;
    let has_requests = take_requests(device, frames)?;
    if is_backed_up(frames) {
        return Ok(false);
    }
    if device.has_rings() {
        device.look_at_rings();
    }
    device.turn(Instant::now());
    send_events(device, frames)?;
    Ok(!is_backed_up(frames) && (has_requests || device.is_ready()))
}

fn send_events(device: &mut Device, frames: &mut FrameStream) -> Result<(), FrameFault> {
    while let Some(event) = device.poll_event() {
        match frames.send(&PROTOCOL.encode(&event), &[]) {
            Err(FrameFault::TooLong(bytes)) => {
                if let Some(instead) = instead_of(event, bytes) {
                    frames.send(&PROTOCOL.encode(&instead), &[])?;
                }
            }
            sent => sent?,
        }
    }
    Ok(())
}

/// What is said in the place of an event that is too long for a frame.
fn instead_of(event: DeviceEvent, bytes: usize) -> Option<DeviceEvent> {
    let why = format!("what it leaves takes {bytes} bytes, where {FRAME_MAX} are the most");
    match event {
        DeviceEvent::Reply(number, _) => {
            Some(DeviceEvent::Reply(number, Err(DeviceError::Failed(why))))
        }
        _ => None,
    }
}

/// True: there may be more of them. What a request brings about may be long: they are read while
/// what has been said before is taken.
fn take_requests(device: &mut Device, frames: &mut FrameStream) -> Result<bool, FrameFault> {
    for _ in 0..REQUESTS_MAX {
        if is_backed_up(frames) || !device.has_room() {
            return Ok(true);
        }
        let Some((bytes, fds)) = frames.receive()? else { return Ok(false) };
        match PROTOCOL.decode::<Numbered>(&bytes) {
            Ok(numbered) => device.handle(numbered, fds),
            Err(error) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, error);
                return Err(FrameFault::Socket(error));
            }
        }
    }
    Ok(true)
}

/// Looks around for a while if the device has its own processor, then sleeps.
fn rest(
    device: &mut Device,
    frames: &FrameStream,
    bell: &mut Bell<'_>,
    waits: DeviceWaits,
) -> Result<(), FrameFault> {
    if is_backed_up(frames) {
        return wait(&mut [PollFd::new(frames, PollFlags::OUT)], None);
    }
    if waits == DeviceWaits::Spins && spin(device, frames) {
        return Ok(());
    }
    if device.has_rings() && !device.prepare_sleep() {
        return Ok(());
    }
    sleep(device, frames, bell)?;
    bell.quieten();
    Ok(())
}

/// True: something has come.
fn spin(device: &mut Device, frames: &FrameStream) -> bool {
    let began = Instant::now();
    while began.elapsed() < SPIN {
        for _ in 0..16 {
            if device.has_rings() && device.look_at_rings() {
                return true;
            }
            std::hint::spin_loop();
        }
        let wanted = wanted(frames);
        let mut fds = [PollFd::new(frames, wanted)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let is_due = device.deadline().is_some_and(|at| at <= Instant::now());
        if is_due || poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
    false
}

fn wanted(frames: &FrameStream) -> PollFlags {
    match frames.wants_write() {
        true => PollFlags::IN | PollFlags::OUT,
        false => PollFlags::IN,
    }
}

fn sleep(device: &Device, frames: &FrameStream, bell: &Bell<'_>) -> Result<(), FrameFault> {
    let left = |at: Instant| at.saturating_duration_since(Instant::now());
    let timeout = device.deadline().map(left).and_then(|left| Timespec::try_from(left).ok());
    let socket = PollFd::new(frames, wanted(frames));
    match bell.0 {
        Some(bell) => wait(&mut [socket, PollFd::new(bell, PollFlags::IN)], timeout.as_ref()),
        None => wait(&mut [socket], timeout.as_ref()),
    }
}

fn wait(fds: &mut [PollFd<'_>], timeout: Option<&Timespec>) -> Result<(), FrameFault> {
    match poll(fds, timeout) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(FrameFault::Socket(error.into())),
    }
}

#[cfg(test)]
mod tests;
