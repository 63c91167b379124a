//! Completion queues. Polling an empty queue drains the sockets of its queue pairs in the
//! caller's own context; waiting sleeps on them.

mod entries;

use crate::channel::CompChannel;
use crate::context::Shared;
use crate::error::{CqOverflow, VerbsError};
use crate::poll_interval::{PollInterval, count};
use crate::qp::QpShared;
use crate::signal::{Signal, deadline, lock};
use crate::yielding::Yielding;
use entries::Entries;
pub use entries::Flushed;
use outboard_iwarp::work::{Completion, Status};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Above this many queue pairs, an empty poll asks the kernel which socket has something rather
/// than asking each.
const DIRECT_QPS_MAX: usize = 4;

/// Which completions make an event on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyOn {
    /// Any.
    Any,
    /// Receives whose sender asked for it, and errors.
    SolicitedOnly,
}

/// A completion queue. Clones are the same queue.
#[derive(Clone, Debug)]
pub struct Cq {
    pub(crate) inner: Arc<CqShared>,
    pub(crate) shared: Arc<Shared>,
}

/// The part of a completion queue that its queue pairs share.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) number: u32,
    state: Mutex<CqState>,
    /// Queue pairs that complete here, by number.
    qps: Mutex<BTreeMap<u32, Weak<QpShared>>>,
    /// How many of them have outstanding requests.
    pub(crate) busy: AtomicUsize,
    channel: Option<Arc<Signal<u32>>>,
    pub(crate) interval: PollInterval,
    /// Counts polls that found nothing at first.
    empty_polls: AtomicU32,
    yielding: Yielding,
}

#[derive(Debug)]
struct CqState {
    entries: Entries,
    capacity: usize,
    overflowed: bool,
    armed: Option<NotifyOn>,
    /// The thread that looks here itself for what it brings, without an event on the channel.
    waiter: Option<ThreadId>,
}

impl CqState {
    /// Whether there is no room, also after what is purged has gone.
    fn is_full(&mut self) -> bool {
        self.entries.bound() >= self.capacity && self.entries.all().len() >= self.capacity
    }

    fn has_news(&mut self) -> bool {
        self.overflowed || !self.entries.all().is_empty()
    }
}

impl Cq {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        capacity: usize,
        channel: Option<&CompChannel>,
    ) -> Self {
        let capacity = capacity.max(1);
        let state = CqState {
            entries: Entries::default(),
            capacity,
            overflowed: false,
            armed: None,
            waiter: None,
        };
        let inner = CqShared {
            number: shared.core.next_number(),
            state: Mutex::new(state),
            qps: Mutex::default(),
            busy: AtomicUsize::new(0),
            channel: channel.map(|channel| Arc::clone(&channel.events)),
            interval: PollInterval::default(),
            empty_polls: AtomicU32::new(0),
            yielding: Yielding::default(),
        };
        Self { inner: Arc::new(inner), shared: Arc::clone(shared) }
    }

    /// Number of the queue, as channels name it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Moves up to `max` completions to `out` and returns how many.
    ///
    /// # Errors
    /// [`CqOverflow`] when completions were lost, after the others have been taken.
    pub fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqOverflow> {
        self.poll_by(|| self.inner.take(out, max))
    }

    /// As [`Cq::poll`], for a caller that must do more than take completions, such as hold a lock
    /// while it does so: `take`, which works with [`Cq::take`] and says how many it found, is
    /// called before anything is driven, and again after that when it found none.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn poll_by(
        &self,
        mut take: impl FnMut() -> Result<usize, CqOverflow>,
    ) -> Result<usize, CqOverflow> {
        let turn_due = self.count_poll();
        match take()? {
            0 => {
                self.count_empty_poll();
                self.drive(turn_due);
                take()
            }
            count => {
                // If completions are always there, everything else must still be served.
                if turn_due {
                    self.shared.core.try_turn();
                }
                Ok(count)
            }
        }
    }

    /// Moves up to `max` completions that are there to `out` and returns how many; drives nothing.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn take(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqOverflow> {
        self.inner.take(out, max)
    }

    /// Sleeps until at least one completion is there, and moves up to `max`. Returns 0 only when
    /// the time is over.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    pub fn wait(
        &self,
        out: &mut Vec<Completion>,
        max: usize,
        timeout: Option<Duration>,
    ) -> Result<usize, CqOverflow> {
        let count = self.inner.take(out, max)?;
        if count > 0 {
            return Ok(count);
        }
        let deadline = deadline(timeout);
        let got = self.shared.core.wait_until(deadline, || match self.inner.take(out, max) {
            Ok(0) => None,
            result => Some(result),
        });
        got.unwrap_or(Ok(0))
    }

    /// Asks for one event on the queue's channel, at the next completion of this kind;
    /// [`NotifyOn::Any`] stays in force when both kinds have been asked for. Poll once more
    /// afterwards: completions that came before make no event.
    pub fn request_notify(&self, arm: NotifyOn) {
        let mut state = lock(&self.inner.state);
        if state.armed != Some(NotifyOn::Any) {
            state.armed = Some(arm);
        }
    }

    /// Raises the event that [`Cq::request_notify`] asked for if a completion is there already: for
    /// a caller that is about to sleep on the channel and may not have polled all completions, or
    /// (`kept`) has taken some and not handled them yet.
    pub fn recall(&self, kept: bool) {
        self.inner.recall(kept);
    }

    /// As [`crate::Context::rest`].
    pub fn rest(&self) {
        self.shared.core.rest();
    }

    /// As [`Cq::rest`], if no outstanding request could complete here: a program that polled for
    /// completions then looks elsewhere for news, such as into memory that peers write.
    pub fn rest_if_idle(&self) {
        let engine = &self.shared.core.engine;
        if engine.drives_in_background() || self.inner.busy.load(Ordering::Relaxed) > 0 {
            return;
        }
        self.inner.empty_polls.store(0, Ordering::Relaxed);
        self.shared.core.rest_if_worthwhile();
    }

    /// Changes the capacity. A queue that had overflowed works again.
    ///
    /// # Errors
    /// [`VerbsError::BadParameter`] when more completions are waiting than would fit.
    pub fn resize(&self, capacity: usize) -> Result<(), VerbsError> {
        let mut state = lock(&self.inner.state);
        if capacity == 0 || state.entries.all().len() > capacity {
            return Err(VerbsError::BadParameter {
                what: "the completion queue's capacity",
                found: capacity,
                needed: "at least 1 and at least the completions that wait in it",
            });
        }
        state.capacity = capacity;
        state.overflowed = false;
        Ok(())
    }

    /// Adds a completion of the caller's own making, such as that of a request that no queue pair
    /// was given. False: there was no room, and the queue has overflowed.
    pub fn push(&self, completion: Completion) -> bool {
        let fits = !self.inner.push_all(std::iter::once(completion));
        self.shared.core.engine.notify();
        fits
    }

    /// How many completions wait here.
    ///
    /// # Errors
    /// [`CqOverflow`] when completions were lost.
    pub fn waiting(&self) -> Result<usize, CqOverflow> {
        let mut state = lock(&self.inner.state);
        match state.overflowed {
            true => Err(CqOverflow { capacity: state.capacity }),
            false => Ok(state.entries.all().len()),
        }
    }

    /// The flushed requests of a queue pair whose completions wait here.
    ///
    /// # Errors
    /// [`CqOverflow`] when completions were lost.
    pub fn flushed(&self, qp: u32) -> Result<Flushed, CqOverflow> {
        self.inner.flushed(qp)
    }

    /// Drops the completions of a queue pair that have not been polled: they are not seen again,
    /// and their buffers are dropped now or, in a long queue, before the next poll.
    pub fn purge(&self, qp: u32) {
        lock(&self.inner.state).entries.purge(qp);
    }

    /// As [`Context::wait_readable`](crate::Context::wait_readable), and ends when completions are
    /// here, too. The queue is armed by this call, and for its time alone; completions that the
    /// calling thread receives meanwhile make no event on the channel: its descriptor need not be
    /// written, polled and read.
    pub fn wait_readable(&self, timeout: Option<Duration>, fds: &[BorrowedFd<'_>]) -> bool {
        self.wait_for(timeout, fds, || false)
    }

    /// As [`Self::wait_readable`], and ends when a connection of the context has received bytes,
    /// too: peers that read and write memory make no completions here, and a caller that spins
    /// while its peers are busy must hear of them.
    pub fn wait_traffic(&self, timeout: Option<Duration>, fds: &[BorrowedFd<'_>]) -> bool {
        let counts = &self.shared.core.engine.counts;
        let before = counts.received_bytes();
        self.wait_for(timeout, fds, || counts.received_bytes() != before)
    }

    fn wait_for(
        &self,
        timeout: Option<Duration>,
        fds: &[BorrowedFd<'_>],
        is_over: impl Fn() -> bool,
    ) -> bool {
        let mut state = lock(&self.inner.state);
        if state.has_news() {
            return true;
        }
        (state.armed, state.waiter) = (Some(NotifyOn::Any), Some(thread::current().id()));
        drop(state);
        let is_here = || is_over() || lock(&self.inner.state).has_news();
        let found = self.shared.core.wait_readable(fds, deadline(timeout), is_here);
        let mut state = lock(&self.inner.state);
        (state.armed, state.waiter) = (None, None);
        found
    }

    /// Notes a poll; true when it is time for a turn of the whole engine.
    fn count_poll(&self) -> bool {
        self.shared.core.engine.note_application();
        self.inner.interval.count()
    }

    /// Notes a poll that found nothing. After many of them the application polls continuously: the
    /// background thread would only compete with it, and is asked to stand down. The processor is
    /// offered to other threads, because the peer may be waiting for it. If another thread has kept
    /// it for long, the background thread drives for a while: a message wakes that one at once,
    /// also while this thread waits for its processor.
    fn count_empty_poll(&self) {
        if count(&self.inner.empty_polls) {
            let now = Instant::now();
            if self.inner.yielding.is_due(now) {
                self.shared.core.engine.claim_by_polling();
                self.inner.yielding.give_way(now);
            } else {
                self.shared.core.rest();
            }
        }
    }

    /// Lets this thread do the engine's work: an application that polls drives the engine itself.
    fn drive(&self, turn_due: bool) {
        let core = &self.shared.core;
        // If the lock is taken, another thread that polls this queue does the same at this moment.
        let Ok(qps) = self.inner.qps.try_lock() else { return };
        // While every poll is a turn, that serves the queue's own sockets as well.
        if qps.len() <= DIRECT_QPS_MAX && !self.inner.interval.is_every_poll() {
            for qp in qps.values().filter_map(Weak::upgrade) {
                qp.try_progress(core);
            }
            if !turn_due {
                return;
            }
        }
        drop(qps);
        self.inner.interval.turn(|| core.try_turn());
    }
}

impl CqShared {
    pub(crate) fn attach(&self, qp: &Arc<QpShared>) {
        lock(&self.qps).insert(qp.number, Arc::downgrade(qp));
    }

    pub(crate) fn detach(&self, qp: &QpShared) {
        lock(&self.qps).remove(&qp.number);
    }

    /// A queue pair has outstanding requests now, or has none any more.
    pub(crate) fn count_busy(&self, busy: bool) {
        // A queue pair that was counted is subtracted at most once.
        if busy {
            self.busy.fetch_add(1, Ordering::Relaxed);
        } else {
            self.busy.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds completions in order; true when one found no room.
    pub(crate) fn push_all(&self, completions: impl Iterator<Item = Completion>) -> bool {
        let mut state = lock(&self.state);
        let mut event = false;
        for completion in completions {
            if state.is_full() {
                state.overflowed = true;
                break;
            }
            event |= state.armed.is_some_and(|arm| arm.wants(&completion));
            state.entries.push(completion);
        }
        if event {
            state.armed = None;
        }
        let overflowed = state.overflowed;
        let tells = event && state.waiter.is_none_or(|thread| thread != thread::current().id());
        drop(state);
        if tells && let Some(channel) = &self.channel {
            channel.push(self.number);
        }
        overflowed
    }

    /// See [`Cq::flushed`].
    pub(crate) fn flushed(&self, qp: u32) -> Result<Flushed, CqOverflow> {
        let state = lock(&self.state);
        match state.overflowed {
            true => Err(CqOverflow { capacity: state.capacity }),
            false => Ok(state.entries.flushed(qp)),
        }
    }

    fn recall(&self, kept: bool) {
        let mut state = lock(&self.state);
        let CqState { entries, armed, .. } = &mut *state;
        let left = |arm: NotifyOn| kept || entries.all().iter().any(|entry| arm.wants(entry));
        if !armed.is_some_and(left) {
            return;
        }
        state.armed = None;
        drop(state);
        if let Some(channel) = &self.channel {
            channel.push(self.number);
        }
    }

    fn take(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqOverflow> {
        let mut state = lock(&self.state);
        match state.entries.take(out, max) {
            0 if state.overflowed && max > 0 => Err(CqOverflow { capacity: state.capacity }),
            count => Ok(count),
        }
    }
}

impl NotifyOn {
    fn wants(self, completion: &Completion) -> bool {
        self == Self::Any || completion.solicited || completion.status != Status::Success
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Context, OwnedBuf, QpConfig, RecvRequest};

    fn busy(cq: &Cq) -> usize {
        cq.inner.busy.load(Ordering::Relaxed)
    }

    fn receive() -> RecvRequest {
        RecvRequest { wr_id: 1, local: OwnedBuf::zeroed(8).into() }
    }

    #[test]
    fn queue_pairs_with_something_under_way_are_counted_once_each() {
        let context = Context::open().expect("a context");
        let (pd, sends, receives) =
            (context.alloc_pd(), context.create_cq(16), context.create_cq(16));
        let apart = || QpConfig { recv_cq: receives.clone(), ..QpConfig::new(&sends) };
        let qps = [QpConfig::new(&sends), apart(), apart()].map(|config| pd.create_qp(config));
        let [one, two, three] = qps.map(|qp| qp.expect("a queue pair"));
        let srq = Some(pd.create_srq(4, 1));
        let shared = pd.create_qp(QpConfig { srq, ..apart() }).expect("a queue pair");
        assert_eq!((busy(&sends), busy(&receives)), (1, 1), "a shared queue always has some");
        for qp in [&one, &two, &three] {
            (0..2).for_each(|_| qp.post_recv(receive()).expect("room"));
        }
        assert_eq!((busy(&sends), busy(&receives)), (4, 3));
        one.reset();
        assert_eq!((busy(&sends), busy(&receives)), (3, 3));
        drop((two, shared));
        assert_eq!((busy(&sends), busy(&receives)), (1, 1));
        drop(three);
        assert_eq!((busy(&sends), busy(&receives)), (0, 0));
        drop(one);
        assert_eq!(busy(&sends), 0);
    }
}
