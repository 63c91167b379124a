//! Completion queues. Polling an empty queue drains the sockets of its queue pairs in the
//! caller's own context; waiting sleeps on them.

use crate::cadence::{Cadence, count};
use crate::channel::CompChannel;
use crate::context::Shared;
use crate::error::{CqOverflow, VerbsError};
use crate::qp::QpShared;
use crate::signal::{Signal, deadline, lock};
use outboard_iwarp::work::{Completion, Status};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Above this many queue pairs, an empty poll asks the kernel which socket has something rather
/// than asking each.
const DIRECT_QPS_MAX: usize = 4;

/// Which completions make an event on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
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

/// What queue pairs hold on to.
#[derive(Debug)]
pub(crate) struct CqShared {
    pub(crate) number: u32,
    state: Mutex<State>,
    qps: Mutex<Vec<Weak<QpShared>>>,
    channel: Option<Arc<Signal<u32>>>,
    pub(crate) cadence: Cadence,
    /// Counts polls that found nothing at first.
    empty_polls: AtomicU32,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Completion>,
    capacity: usize,
    overflowed: bool,
    armed: Option<Arm>,
}

impl Cq {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        capacity: usize,
        channel: Option<&CompChannel>,
    ) -> Self {
        let capacity = capacity.max(1);
        let state = State { entries: VecDeque::new(), capacity, overflowed: false, armed: None };
        let inner = CqShared {
            number: shared.core.next_number(),
            state: Mutex::new(state),
            qps: Mutex::new(Vec::new()),
            channel: channel.map(|channel| Arc::clone(&channel.events)),
            cadence: Cadence::default(),
            empty_polls: AtomicU32::new(0),
        };
        Self { inner: Arc::new(inner), shared: Arc::clone(shared) }
    }

    /// Number of the queue, as channels name it.
    pub fn number(&self) -> u32 {
        self.inner.number
    }

    /// Moves up to `max` completions to `out` and says how many.
    ///
    /// # Errors
    /// [`CqOverflow`] when completions were lost, after the others have been taken.
    pub fn poll(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize, CqOverflow> {
        let turn_due = self.count_poll();
        match self.inner.take(out, max)? {
            0 => {
                self.count_empty_poll();
                self.drive(turn_due);
                self.inner.take(out, max)
            }
            count => {
                // Completions that are always there must not keep everything else waiting.
                if turn_due {
                    self.shared.core.try_turn();
                }
                Ok(count)
            }
        }
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

    /// Asks for one event on the queue's channel, at the next completion of this kind. Poll once
    /// more after arming: what came before makes no event.
    pub fn arm(&self, arm: Arm) {
        lock(&self.inner.state).armed = Some(arm);
    }

    /// Makes the event that [`Cq::arm`] asked for also of a completion that was there before: for a
    /// caller who is about to sleep on the channel and may have left some behind, here or (`kept`)
    /// where it keeps those it has taken.
    pub fn recall(&self, kept: bool) {
        self.inner.recall(kept);
    }

    /// As [`crate::Context::rest`].
    pub fn rest(&self) {
        self.shared.core.rest();
    }

    /// The same when nothing is under way that could complete here: then who polled for
    /// completions will look elsewhere for news, such as into memory that peers write.
    pub fn rest_if_idle(&self) {
        let engine = &self.shared.core.engine;
        if engine.drives_in_background() || !self.is_idle() {
            return;
        }
        self.inner.empty_polls.store(0, Ordering::Relaxed);
        self.shared.core.rest_if_worthwhile();
    }

    fn is_idle(&self) -> bool {
        // Somebody else at work is somebody at work.
        let Ok(qps) = self.inner.qps.try_lock() else { return false };
        qps.iter().filter_map(Weak::upgrade).all(|qp| qp.expects_nothing())
    }

    /// Changes the capacity. A queue that had overflowed works again.
    ///
    /// # Errors
    /// [`VerbsError::BadParameter`] when more completions are waiting than would fit.
    pub fn resize(&self, capacity: usize) -> Result<(), VerbsError> {
        let mut state = lock(&self.inner.state);
        if capacity == 0 || state.entries.len() > capacity {
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

    /// How many of the completions that wait here are such.
    ///
    /// # Errors
    /// [`CqOverflow`] when completions were lost.
    pub fn waiting(&self, such: impl Fn(&Completion) -> bool) -> Result<usize, CqOverflow> {
        self.inner.waiting(such)
    }

    /// Drops the completions of a queue pair that nobody has taken.
    pub fn purge(&self, qp: u32) {
        lock(&self.inner.state).entries.retain(|completion| completion.qp != qp);
    }

    /// Notes a poll; true when it is time for a turn of the whole engine.
    fn count_poll(&self) -> bool {
        self.shared.core.engine.note_application();
        self.inner.cadence.count()
    }

    /// Notes a poll that found nothing. Many such, and the application polls in earnest: the
    /// background thread would only be in its way.
    fn count_empty_poll(&self) {
        if count(&self.inner.empty_polls) {
            self.shared.core.engine.claim_by_polling();
        }
    }

    /// Lets this thread do what the engine would do: an application that polls is its own engine.
    fn drive(&self, turn_due: bool) {
        let core = &self.shared.core;
        // Another thread that polls this queue does the same at this moment.
        let Ok(qps) = self.inner.qps.try_lock() else { return };
        if qps.len() <= DIRECT_QPS_MAX {
            for qp in qps.iter().filter_map(Weak::upgrade) {
                qp.try_progress(core);
            }
            if !turn_due && !self.inner.cadence.is_eager() {
                return;
            }
        }
        drop(qps);
        self.inner.cadence.turn(|| core.try_turn());
    }
}

impl CqShared {
    pub(crate) fn attach(&self, qp: &Arc<QpShared>) {
        let mut qps = lock(&self.qps);
        qps.retain(|known| known.strong_count() > 0);
        qps.push(Arc::downgrade(qp));
    }

    pub(crate) fn detach(&self, qp: &QpShared) {
        lock(&self.qps).retain(|known| !std::ptr::eq(known.as_ptr(), qp));
    }

    /// Adds completions in order; true when one found no room.
    pub(crate) fn push_all(&self, completions: impl Iterator<Item = Completion>) -> bool {
        let mut state = lock(&self.state);
        let mut event = false;
        for completion in completions {
            if state.entries.len() >= state.capacity {
                state.overflowed = true;
                break;
            }
            event |= state.armed.is_some_and(|arm| arm.wants(&completion));
            state.entries.push_back(completion);
        }
        if event {
            state.armed = None;
        }
        let overflowed = state.overflowed;
        drop(state);
        if event && let Some(channel) = &self.channel {
            channel.push(self.number);
        }
        overflowed
    }

    /// See [`Cq::waiting`].
    pub(crate) fn waiting(&self, such: impl Fn(&Completion) -> bool) -> Result<usize, CqOverflow> {
        let state = lock(&self.state);
        if state.overflowed {
            return Err(CqOverflow { capacity: state.capacity });
        }
        Ok(state.entries.iter().filter(|completion| such(completion)).count())
    }

    fn recall(&self, kept: bool) {
        let mut state = lock(&self.state);
        let left = |arm: Arm| kept || state.entries.iter().any(|completion| arm.wants(completion));
        if !state.armed.is_some_and(left) {
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
        let count = state.entries.len().min(max);
        if count == 0 {
            return if state.overflowed && max > 0 {
                Err(CqOverflow { capacity: state.capacity })
            } else {
                Ok(0)
            };
        }
        out.extend(state.entries.drain(..count));
        Ok(count)
    }
}

impl Arm {
    fn wants(self, completion: &Completion) -> bool {
        self == Self::Any || completion.solicited || completion.status != Status::Success
    }
}
