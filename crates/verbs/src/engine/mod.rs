//! The engine: sockets, timers and the threads that drive them. One non-blocking turn
//! ([`Core::try_turn`]) has two drivers here: a background thread, and the application's own
//! polling or waiting (see [`driver`]). The driving thread holds the role; any thread may move
//! bytes of its own queue pairs.
//!
//! Modules: [`role`] (which thread drives), [`driver`] (the turn and its drivers),
//! [`adaptive_spin`] and [`handoff_backoff`] (when the background thread spins, and when an
//! application hands over to it), [`link`] (one queue pair's socket and connection), [`unsent`]
//! (bytes that connections hold until TCP takes them), [`ending`] (a stream's end, as a table),
//! [`lingering`] (links whose queue pair has given them up), [`sockio`] (the system calls that take
//! raw spans), [`sealed`] (a session between socket and connection), [`staging`] (receive buffers),
//! [`tapped`] (bytes for recordings), [`timers`], [`counters`].

pub(crate) mod adaptive_spin;
pub(crate) mod counters;
pub(crate) mod driver;
pub(crate) mod ending;
mod handoff_backoff;
pub(crate) mod lingering;
pub(crate) mod link;
mod role;
pub(crate) mod sealed;
pub(crate) mod sockio;
pub(crate) mod staging;
pub(crate) mod tapped;
pub(crate) mod timers;
pub(crate) mod unsent;

use crate::context::Core;
use crate::error::VerbsError;
use crate::signal::lock;
use counters::EngineCounts;
use handoff_backoff::HandoffBackoff;
use lingering::Lingering;
use role::DriverRole;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;
use timers::Timers;
use unsent::UnsentTotal;

/// Token of the engine's own wake-up descriptor.
const WAKE: u64 = 0;

/// Something with a descriptor or a deadline.
pub(crate) trait EventSource: Send + Sync {
    /// The descriptor has something to read, room to write, or an error; or work was left over.
    /// With `hangup` the peer has closed or the socket has failed. True when there was news, not
    /// only room to write.
    fn on_ready(self: Arc<Self>, core: &Arc<Core>, token: u64, hangup: bool) -> bool;
    /// A deadline set for this token has come.
    fn on_timer(self: Arc<Self>, core: &Arc<Core>, token: u64, now: Instant);
    /// The engine has failed: what depends on it ends.
    fn engine_failed(self: Arc<Self>, _core: &Arc<Core>) {}
}

/// See the [module](self).
pub(crate) struct Engine {
    epoll: OwnedFd,
    wake: OwnedFd,
    tokens: AtomicU64,
    sources: Mutex<HashMap<u64, Arc<dyn EventSource>>>,
    /// Sources that left work over: they get another turn without an event.
    ready: Mutex<VecDeque<u64>>,
    timers: Timers,
    /// Streams whose queue pairs have given them up.
    pub(crate) lingering: Lingering,
    pub(crate) unsent: UnsentTotal,
    pub(crate) counts: EngineCounts,
    role: DriverRole,
    backoff: Mutex<HandoffBackoff>,
    /// The background thread.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("sources", &lock(&self.sources).len())
            .finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new() -> Result<Self, VerbsError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| VerbsError::system("cannot make an epoll descriptor", e.into()))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| VerbsError::system("cannot make an event descriptor", e.into()))?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN | EventFlags::ET)
            .map_err(|e| VerbsError::system("cannot watch a descriptor", e.into()))?;
        Ok(Self {
            epoll,
            wake,
            tokens: AtomicU64::new(WAKE + 1),
            sources: Mutex::new(HashMap::new()),
            ready: Mutex::new(VecDeque::new()),
            timers: Timers::default(),
            lingering: Lingering::default(),
            unsent: UnsentTotal::default(),
            counts: EngineCounts::default(),
            role: DriverRole::new(),
            backoff: Mutex::default(),
            thread: Mutex::new(None),
        })
    }

    /// A fresh token: tokens are never used twice, so a late event cannot reach a newer source.
    pub(crate) fn next_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    /// Watches a descriptor, edge-triggered.
    pub(crate) fn add(
        &self,
        token: u64,
        fd: impl AsFd,
        source: Arc<dyn EventSource>,
    ) -> Result<(), VerbsError> {
        lock(&self.sources).insert(token, source);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags).map_err(|e| {
            lock(&self.sources).remove(&token);
            VerbsError::system("cannot watch a socket", e.into())
        })
    }

    /// A start-up is done, and its descriptor belongs to a queue pair, whose link sets deadlines of
    /// its own: that of the start-up goes. Otherwise it would come seconds later for every
    /// connection, and cost each of them a wake-up.
    pub(crate) fn begin_link(&self, token: u64, qp: Arc<dyn EventSource>) {
        self.timers.set(token, None);
        self.replace(token, qp);
    }

    /// The descriptor behind a token now belongs to another source, with the same deadline.
    pub(crate) fn replace(&self, token: u64, source: Arc<dyn EventSource>) {
        lock(&self.sources).insert(token, source);
    }

    /// Forgets a source whose descriptor is about to be closed.
    pub(crate) fn forget(&self, token: u64) {
        self.timers.set(token, None);
        let source = lock(&self.sources).remove(&token);
        drop(source);
    }

    /// Forgets a source and its descriptor.
    pub(crate) fn remove(&self, token: u64, fd: impl AsFd) {
        self.forget(token);
        // Fails only if it was never added; the caller closes the descriptor anyway.
        let _gone = epoll::delete(&self.epoll, fd);
    }

    /// Runs a source again in the next turn.
    pub(crate) fn run_again(&self, token: u64) {
        lock(&self.ready).push_back(token);
        self.kick();
    }

    /// Asks for [`EventSource::on_timer`] at this time, instead of what was asked before.
    pub(crate) fn set_timer(&self, token: u64, at: Option<Instant>) {
        self.timers.set(token, at);
        if at.is_some() {
            self.kick();
        }
    }

    fn source(&self, token: u64) -> Option<Arc<dyn EventSource>> {
        lock(&self.sources).get(&token).cloned()
    }

    /// All sources there are now.
    fn sources(&self) -> Vec<Arc<dyn EventSource>> {
        lock(&self.sources).values().cloned().collect()
    }

    /// All sources, taken away.
    fn drain_sources(&self) -> Vec<Arc<dyn EventSource>> {
        lock(&self.sources).drain().map(|(_, source)| source).collect()
    }
}
