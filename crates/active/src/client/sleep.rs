//! A descriptor for programs with an event loop of their own, and how a call that waits is ended
//! from another thread.

use super::{ActiveClient, ActiveError, Executed};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A call that waits looks this often whether it has been stopped, if anything can stop it.
const SLICE: Duration = Duration::from_millis(50);

/// Ends the calls of a client that wait, from any thread. Clones stop the same client.
#[derive(Clone, Debug, Default)]
pub struct ClientStopper(Arc<AtomicBool>);

impl ClientStopper {
    /// From now on every call that has to wait ends with [`ActiveError::Stopped`]; one that waits
    /// does so within a moment, or, while it dials, within the seconds that this may take.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// How long to sleep at a time for something that is due at a deadline.
pub(super) fn slice(stopper: Option<&ClientStopper>, deadline: Instant) -> Instant {
    match stopper {
        Some(_) => deadline.min(Instant::now() + SLICE),
        None => deadline,
    }
}

/// Readable when something has come, or when it is time to look.
#[derive(Debug)]
pub(super) struct ClientDescriptor {
    both: OwnedFd,
    timer: OwnedFd,
    /// When the timer says that it is time to look.
    set: Option<Instant>,
}

impl ClientDescriptor {
    fn new(channel: impl AsFd) -> Result<Self, Errno> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let both = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&both, channel, EventData::new_u64(0), EventFlags::IN)?;
        epoll::add(&both, &timer, EventData::new_u64(1), EventFlags::IN)?;
        Ok(Self { both, timer, set: None })
    }

    /// When it is time to look, besides when something has come. A look that is too early harms
    /// nobody: the timer, which costs a system call, is set for what comes sooner only.
    fn set(&mut self, at: Option<Instant>) -> Result<(), Errno> {
        let now = Instant::now();
        let is_due_before = |set: Instant| set > now && at.is_none_or(|at| set <= at);
        if self.set.is_some_and(is_due_before) || at.is_none() && self.set.is_none() {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = at.map_or(zero, |at| {
            // Zero would switch it off.
            let left = at.saturating_duration_since(now).max(Duration::from_nanos(1));
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
        });
        self.set = at;
        let time = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &time).map(drop)
    }
}

fn machine(error: Errno) -> ActiveError {
    ActiveError::Machine { why: format!("the client's descriptor: {error}") }
}

impl ActiveClient {
    /// What ends the calls of this client from another thread.
    pub fn stopper(&mut self) -> ClientStopper {
        self.stopper.get_or_insert_default().clone()
    }

    pub(super) fn check_stopped(&self) -> Result<(), ActiveError> {
        match &self.stopper {
            Some(stopper) if stopper.is_stopped() => Err(ActiveError::Stopped),
            _ => Ok(()),
        }
    }

    /// A descriptor that becomes readable when [`Self::poll_or_arm`] has something to do, once that
    /// has returned `None`. The same for all connections.
    ///
    /// # Errors
    /// [`ActiveError::Machine`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>, ActiveError> {
        if self.descriptor.is_none() {
            self.descriptor = Some(ClientDescriptor::new(&self.channel).map_err(machine)?);
        }
        let made = self.descriptor.as_ref().map(|descriptor| descriptor.both.as_fd());
        made.ok_or(ActiveError::NotOwn { what: "descriptor" })
    }

    /// As [`poll`](Self::poll), for a caller that sleeps on the [descriptor](Self::descriptor) when
    /// nothing is over.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_or_arm(&mut self) -> Result<Option<Executed>, ActiveError> {
        let executed = self.poll_or_notify()?;
        if executed.is_none() {
            self.context.rest();
        }
        Ok(executed)
    }

    /// As [`Self::poll_or_arm`], for a caller that sleeps in
    /// [`Context::wait_readable`](outboard_verbs::Context::wait_readable), which serves the
    /// connection meanwhile.
    ///
    /// # Errors
    /// As [`Self::poll`].
    pub fn poll_or_notify(&mut self) -> Result<Option<Executed>, ActiveError> {
        self.descriptor()?;
        loop {
            if let Some(executed) = self.poll()? {
                return Ok(Some(executed));
            }
            while self.channel.try_next().is_some() {}
            if let Some(link) = &self.link {
                link.request_notify();
            }
            let connections = self.connections;
            // What came before the channel was asked is not said there.
            if let Some(executed) = self.poll()? {
                return Ok(Some(executed));
            }
            if self.connections == connections {
                break;
            }
        }
        let due = self.due();
        self.descriptor.as_mut().map_or(Ok(()), |it| it.set(due)).map_err(machine)?;
        Ok(None)
    }

    /// When to look next, whatever comes: a call's time is over, or it is time to dial again.
    fn due(&self) -> Option<Instant> {
        let (deadline, _) = self.state.window.oldest()?;
        match (&self.link, self.dial_at) {
            (None, Some(at)) => Some(deadline.min(at)),
            _ => Some(deadline),
        }
    }
}
