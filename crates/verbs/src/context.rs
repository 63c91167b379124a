//! The context: one software RDMA NIC inside this process, with its STag table and its engine.

use crate::channel::CompChannel;
use crate::cm::{Bound, CmChannel, Listener};
use crate::cq::Cq;
use crate::engine::Engine;
use crate::engine::counters::EngineCounters;
use crate::error::VerbsError;
use crate::event::AsyncEvent;
use crate::pd::Pd;
use crate::signal::{Signal, deadline};
use crate::tap::Tap;
use outboard_mem::{PdId, StagTable};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Memory regions that a context can hold.
const STAGS_MAX: u32 = 1 << 20;
/// Asynchronous events kept for a reader.
const ASYNC_EVENTS_MAX: usize = 1024;

/// A software RDMA NIC. Clones are the same one; it ends when the last object made from it goes.
#[derive(Clone, Debug)]
pub struct Context {
    shared: Arc<Shared>,
}

/// Every public object holds this; dropping the last one stops the engine.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) core: Arc<Core>,
}

/// The state that the engine's thread and sources work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) stags: StagTable,
    pub(crate) engine: Engine,
    pub(crate) async_events: Signal<AsyncEvent>,
    /// Sees the bytes of every connection.
    pub(crate) tap: Option<Arc<dyn Tap>>,
    numbers: AtomicU32,
}

impl Core {
    /// A number for a new object, never given twice.
    pub(crate) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

impl Shared {
    /// Refuses an object of another context: its events would not wake threads that wait in this
    /// one.
    pub(crate) fn check_own(
        self: &Arc<Self>,
        other: &Arc<Self>,
        what: &'static str,
    ) -> Result<(), VerbsError> {
        if Arc::ptr_eq(self, other) { Ok(()) } else { Err(VerbsError::OtherContext { what }) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.core.drain();
        self.core.shut_down();
    }
}

impl Context {
    /// Opens a NIC of this process's own. Its background thread starts with the first queue pair
    /// or listener.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel gives no descriptors.
    pub fn open() -> Result<Self, VerbsError> {
        Self::open_with(None)
    }

    /// As [`Context::open`], with a tap on every connection.
    ///
    /// # Errors
    /// As [`Context::open`].
    pub fn open_tapped(tap: Arc<dyn Tap>) -> Result<Self, VerbsError> {
        Self::open_with(Some(tap))
    }

    fn open_with(tap: Option<Arc<dyn Tap>>) -> Result<Self, VerbsError> {
        let core = Core {
            stags: StagTable::new(STAGS_MAX),
            engine: Engine::new()?,
            async_events: Signal::new(ASYNC_EVENTS_MAX)?,
            tap,
            numbers: AtomicU32::new(1),
        };
        Ok(Self { shared: Arc::new(Shared { core: Arc::new(core) }) })
    }

    /// A new protection domain.
    pub fn alloc_pd(&self) -> Pd {
        Pd { shared: Arc::clone(&self.shared), id: PdId(self.shared.core.next_number()) }
    }

    /// A completion queue with room for this many completions, at least 1.
    pub fn create_cq(&self, capacity: usize) -> Cq {
        Cq::new(&self.shared, capacity, None)
    }

    /// A completion queue whose events go to a channel.
    ///
    /// # Errors
    /// [`VerbsError::OtherContext`] when the channel is another context's.
    pub fn create_cq_on(&self, capacity: usize, channel: &CompChannel) -> Result<Cq, VerbsError> {
        self.shared.check_own(&channel.shared, "the completion channel")?;
        Ok(Cq::new(&self.shared, capacity, Some(channel)))
    }

    /// A completion channel.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel gives no descriptor.
    pub fn create_comp_channel(&self) -> Result<CompChannel, VerbsError> {
        CompChannel::new(&self.shared)
    }

    /// A channel for events of connections.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the kernel gives no descriptor.
    pub fn create_cm_channel(&self) -> Result<CmChannel, VerbsError> {
        CmChannel::new(&self.shared, true)
    }

    /// A channel for all events of connections but
    /// [`CmEventKind::Established`](crate::CmEventKind::Established): a program that ignores that
    /// event is not woken for it.
    ///
    /// # Errors
    /// As [`Context::create_cm_channel`].
    pub fn create_cm_channel_without_established(&self) -> Result<CmChannel, VerbsError> {
        CmChannel::new(&self.shared, false)
    }

    /// Listens; at most `backlog` connections wait for an answer at a time.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the address cannot be had.
    pub fn listen(&self, address: SocketAddr, backlog: usize) -> Result<Listener, VerbsError> {
        Listener::new(&self.shared, Bound::new(address)?, backlog, &self.create_cm_channel()?)
    }

    /// As [`Context::listen`], with connection requests on a channel of the caller's.
    ///
    /// # Errors
    /// [`VerbsError::System`] when the address cannot be had, [`VerbsError::OtherContext`] when the
    /// channel is another context's.
    pub fn listen_on(
        &self,
        address: SocketAddr,
        backlog: usize,
        channel: &CmChannel,
    ) -> Result<Listener, VerbsError> {
        self.shared.check_own(&channel.shared, "the channel")?;
        Listener::new(&self.shared, Bound::new(address)?, backlog, channel)
    }

    /// As [`Context::listen_on`], at an address taken before. The channel may be another context's,
    /// so that one serves listeners of several; then nothing wakes [`CmChannel::next`], and its
    /// owner watches the descriptor.
    ///
    /// # Errors
    /// [`VerbsError::System`] when another program listens there.
    pub fn listen_at(
        &self,
        at: Bound,
        backlog: usize,
        channel: &CmChannel,
    ) -> Result<Listener, VerbsError> {
        Listener::new(&self.shared, at, backlog, channel)
    }

    /// What its engine has done so far. Reading it stops no thread.
    pub fn counters(&self) -> EngineCounters {
        self.shared.core.engine.counts.snapshot()
    }

    /// Bytes that its connections have received: [`EngineCounters::received_bytes`] alone.
    pub fn received_bytes(&self) -> u64 {
        self.shared.core.engine.counts.received_bytes()
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.shared.core
    }

    /// Does the engine's pending work, without sleeping.
    pub fn turn(&self) {
        self.shared.core.engine.note_application();
        self.shared.core.engine.claim_by_polling();
        self.shared.core.try_turn();
    }

    /// To be called when this thread is about to sleep on a descriptor, with poll(2) or similar, or
    /// to work for longer than a moment before it waits here again: the engine's own thread then
    /// serves peers. The call is not required, but without it that thread notices only some
    /// milliseconds later that it has to drive again.
    pub fn rest(&self) {
        self.shared.core.rest();
    }

    /// Sleeps on the sockets and serves them until `done` is true. False when the time is over.
    /// `done` must not wait for anything itself: no socket is served while it runs. This is how a
    /// thread waits for a change of registered memory that no completion tells of.
    pub fn wait_until(&self, timeout: Option<Duration>, mut done: impl FnMut() -> bool) -> bool {
        let deadline = deadline(timeout);
        self.shared.core.wait_until(deadline, || done().then_some(())).is_some()
    }

    /// Sleeps until one of these descriptors is readable, such as that of a completion channel or
    /// one of the program's own, and serves the sockets meanwhile: a message costs one wake-up,
    /// where a thread that sleeps in poll(2) costs a second one, that of the engine's thread. False
    /// when the time is over.
    pub fn wait_readable(&self, timeout: Option<Duration>, fds: &[BorrowedFd<'_>]) -> bool {
        self.shared.core.wait_readable(fds, deadline(timeout), || false)
    }

    /// Takes the oldest asynchronous event.
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.shared.core.async_events.pop()
    }

    /// Readable while an asynchronous event waits.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.shared.core.async_events.fd()
    }
}
