//! The turn, and who takes it.
//!
//! One thread at a time holds the role of driver: it sleeps in epoll and serves every source.
//! * The background thread holds it while no application thread drives, so that one-sided
//!   operations are served whatever the application does.
//! * A thread in [`Core::wait_until`] takes it: the message that ends its wait costs one wake-up.
//! * A thread that polls moves its own queue pairs' sockets directly; it asks the background
//!   thread to stand down, because that would be woken for every message too.
//!
//! While applications drive, the background thread looks in now and then, first after
//! [`WATCH_MIN`], at longest after [`WATCH_MAX`]; it takes the role again as soon as one look-in
//! finds that nobody has driven since the last.

use super::eager::{self, Eager};
use super::repose::Repose;
use super::{Engine, WAKE, sockio};
use crate::context::Core;
use crate::error::VerbsError;
use crate::signal::lock;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How soon the background thread looks whether applications still drive; doubled each time.
const WATCH_MIN: Duration = Duration::from_millis(1);
/// How late it looks at longest: a peer may have to wait so long, once, for an application that
/// has just stopped polling.
const WATCH_MAX: Duration = Duration::from_millis(8);
/// The same, while an application thread sleeps in the role and would wake it on leaving.
const DEEP_WATCH: Duration = Duration::from_millis(100);
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 64;

/// What drivers tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Counts polls and waits of applications.
    application: AtomicU64,
    /// An application wants the background thread to stand down.
    claimed: AtomicBool,
    /// The background thread holds the role.
    background: AtomicBool,
    /// The driver sleeps in epoll, or is about to.
    sleeping: AtomicBool,
    /// Application threads inside [`Core::wait_until`].
    waiters: AtomicUsize,
    /// Those of them that wait without the role.
    followers: AtomicUsize,
    /// The background thread is parked for long.
    deep: AtomicBool,
    /// An application that drove is about to sleep elsewhere: the background thread is to drive.
    resting: AtomicBool,
    repose: Mutex<Repose>,
    stop: AtomicBool,
    /// Counts turns and deliveries, for threads that wait without the role.
    news: Mutex<u64>,
    news_cond: Condvar,
    park: Mutex<()>,
    park_cond: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// An application thread polls or waits.
    #[inline]
    pub(crate) fn note_application(&self) {
        // A lost count does no harm: the next poll counts again.
        let count = self.signals.application.load(Ordering::Relaxed);
        self.signals.application.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// True while the background thread drives and nobody has asked it to stand down.
    pub(crate) fn drives_in_background(&self) -> bool {
        self.signals.background.load(Ordering::SeqCst)
            && !self.signals.claimed.load(Ordering::SeqCst)
    }

    /// Asks the background thread to stand down for a polling application.
    pub(crate) fn claim_by_polling(&self) {
        if self.signals.background.load(Ordering::Relaxed) {
            if !self.signals.claimed.swap(true, Ordering::SeqCst) {
                lock(&self.signals.repose).end(Instant::now());
            }
            self.kick();
        }
    }

    /// Wakes the driver if it sleeps.
    pub(crate) fn kick(&self) {
        if self.signals.sleeping.load(Ordering::SeqCst) {
            // The counter cannot overflow in any life time; a full one is readable all the same.
            let _wrote = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// Tells waiting threads that something changed.
    pub(crate) fn notify(&self) {
        if self.signals.waiters.load(Ordering::SeqCst) > 0 {
            *lock(&self.signals.news) += 1;
            if self.signals.followers.load(Ordering::SeqCst) > 0 {
                self.signals.news_cond.notify_all();
            }
            self.kick();
        }
    }

    /// Lets threads that wait without the role look again: something happened, or the role is free.
    fn tell_followers(&self) {
        if self.signals.followers.load(Ordering::SeqCst) > 0 {
            *lock(&self.signals.news) += 1;
            self.signals.news_cond.notify_all();
        }
    }

    fn try_role(&self) -> Option<MutexGuard<'_, ()>> {
        match self.role.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The role for a waiting application: taken from the background thread if need be.
    fn role_for_application(&self) -> Option<MutexGuard<'_, ()>> {
        loop {
            if let Some(guard) = self.try_role() {
                return Some(guard);
            }
            if !self.signals.background.load(Ordering::SeqCst) {
                // It may have left between these two looks.
                return self.try_role();
            }
            self.claim_by_polling();
            std::thread::yield_now();
        }
    }

    /// How long the driver may sleep: until the next deadline, `limit`, or not at all.
    fn sleep_limit(&self, limit: Option<Duration>) -> Option<Duration> {
        if !lock(&self.ready).is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.next().map(|at| at.saturating_duration_since(Instant::now()));
        match (timer, limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Asks the kernel what is ready: tokens, and whether their peers have gone.
    fn poll_events(&self, limit: Option<Duration>, ready: &mut [(u64, bool); EVENTS_MAX]) -> usize {
        let mut events = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // An interrupted sleep is a short one.
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut events, limit.as_ref()) else {
            return 0;
        };
        let gone = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        let read = |event: &Event| {
            let (flags, data) = (event.flags, event.data);
            (data.u64(), flags.intersects(gone))
        };
        for (slot, event) in ready.iter_mut().zip(&*events) {
            *slot = read(event);
        }
        events.len()
    }

    fn drain_wake(&self) {
        let mut count = [0; 8];
        let _read = rustix::io::read(&self.wake, &mut count);
    }
}

/// A thread inside [`Core::wait_until`]; leaving it, even by a panic of the caller's condition,
/// lets others have the role.
struct Waiting<'a>(&'a Core);

impl<'a> Waiting<'a> {
    fn new(core: &'a Core) -> Self {
        core.engine.signals.waiters.fetch_add(1, Ordering::SeqCst);
        Self(core)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.engine.signals.waiters.fetch_sub(1, Ordering::SeqCst);
        self.0.hand_over();
    }
}

impl Core {
    /// Starts the background thread if it does not run yet.
    pub(crate) fn start_background(self: &Arc<Self>) -> Result<(), VerbsError> {
        let mut thread = lock(&self.engine.signals.thread);
        if thread.is_none() {
            let core = Arc::clone(self);
            let run = move || core.run_background();
            let builder = std::thread::Builder::new().name("outboard-engine".into());
            let handle = sockio::without_signals(|| builder.spawn(run))
                .map_err(|e| VerbsError::system("cannot start the engine's thread", e))?;
            *thread = Some(handle);
        }
        Ok(())
    }

    /// Stops the background thread and forgets every source.
    pub(crate) fn shut_down(&self) {
        let signals = &self.engine.signals;
        signals.stop.store(true, Ordering::SeqCst);
        // Whatever it is doing, one of these two ends its sleep.
        let _wrote = rustix::io::write(&self.engine.wake, &1u64.to_ne_bytes());
        self.unpark();
        let thread = lock(&signals.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there has been printed; there is nobody left to tell.
            let _ended = thread.join();
        }
        drop(self.engine.drain_sources());
    }

    /// One turn without sleeping, unless another thread is at it. True when it brought news.
    pub(crate) fn try_turn(self: &Arc<Self>) -> bool {
        let Some(role) = self.engine.try_role() else { return false };
        let news = self.turn(Some(Duration::ZERO), || false);
        drop(role);
        self.engine.tell_followers();
        news
    }

    /// Serves what is ready; sleeps up to `limit` for it, unless `done` says that there is no
    /// reason to. The caller holds the role. True when that brought news, not only room to send.
    fn turn(self: &Arc<Self>, limit: Option<Duration>, mut done: impl FnMut() -> bool) -> bool {
        let engine = &self.engine;
        let sleeps = limit != Some(Duration::ZERO);
        if sleeps {
            engine.signals.sleeping.store(true, Ordering::SeqCst);
        }
        // Whoever changes something from here on sees `sleeping` and kicks.
        let limit = if sleeps && done() { Some(Duration::ZERO) } else { limit };
        let mut events = [(WAKE, false); EVENTS_MAX];
        let count = engine.poll_events(engine.sleep_limit(limit), &mut events);
        engine.signals.sleeping.store(false, Ordering::SeqCst);
        let mut news = self.fire_timers();
        let leftovers = std::mem::take(&mut *lock(&engine.ready));
        let busy = news || count > 0 || !leftovers.is_empty();
        for &(token, hangup) in &events[..count] {
            news |= self.serve(token, hangup);
        }
        for token in leftovers {
            news |= self.serve(token, false);
        }
        if busy {
            engine.tell_followers();
        }
        news
    }

    fn serve(self: &Arc<Self>, token: u64, hangup: bool) -> bool {
        if token == WAKE {
            self.engine.drain_wake();
            return false;
        }
        self.engine.source(token).is_some_and(|source| source.on_ready(self, token, hangup))
    }

    fn fire_timers(self: &Arc<Self>) -> bool {
        if self.engine.timers.is_empty() {
            return false;
        }
        let now = Instant::now();
        let mut any = false;
        while let Some(token) = self.engine.timers.pop_due(now) {
            any = true;
            if let Some(source) = self.engine.source(token) {
                source.on_timer(self, token, now);
            }
        }
        any
    }

    /// Sleeps on the engine's sockets until `check` yields something or the deadline has come.
    pub(crate) fn wait_until<T>(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        mut check: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let signals = &self.engine.signals;
        let _waiting = Waiting::new(self);
        loop {
            self.engine.note_application();
            let news = *lock(&signals.news);
            if let Some(value) = check() {
                return Some(value);
            }
            let limit = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if limit == Some(Duration::ZERO) {
                return None;
            }
            match self.engine.role_for_application() {
                Some(_role) => {
                    let mut found = None;
                    self.turn(limit, || {
                        found = check();
                        found.is_some()
                    });
                    if found.is_some() {
                        return found;
                    }
                }
                None => self.wait_for_news(news, limit),
            }
        }
    }

    /// The role is free again: another waiting thread may want it, or the background thread.
    fn hand_over(&self) {
        self.engine.notify();
        if self.engine.signals.deep.load(Ordering::SeqCst) {
            self.unpark();
        }
    }

    /// An application thread is about to sleep where the engine cannot see it.
    pub(crate) fn rest(&self) {
        let signals = &self.engine.signals;
        if !self.engine.drives_in_background() && signals.waiters.load(Ordering::SeqCst) == 0 {
            signals.resting.store(true, Ordering::SeqCst);
            self.unpark();
        }
    }

    /// An application has nothing under way and may sleep or look elsewhere for news.
    pub(crate) fn rest_if_worthwhile(&self) {
        if lock(&self.engine.signals.repose).begin(Instant::now()) {
            self.rest();
        }
    }

    fn unpark(&self) {
        let _parked = lock(&self.engine.signals.park);
        self.engine.signals.park_cond.notify_all();
    }

    fn wait_for_news(&self, seen: u64, limit: Option<Duration>) {
        let signals = &self.engine.signals;
        signals.followers.fetch_add(1, Ordering::SeqCst);
        let guard = lock(&signals.news);
        let limit = limit.unwrap_or(DEEP_WATCH).min(DEEP_WATCH);
        let waited = signals.news_cond.wait_timeout_while(guard, limit, |news| *news == seen);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        signals.followers.fetch_sub(1, Ordering::SeqCst);
    }

    /// The background thread.
    fn run_background(self: &Arc<Self>) {
        sockio::ask_for_prompt_turns();
        let signals = &self.engine.signals;
        let mut seen = signals.application.load(Ordering::Relaxed);
        while !signals.stop.load(Ordering::SeqCst) {
            self.drive_in_background();
            self.park_while_applications_drive(&mut seen);
        }
    }

    fn drive_in_background(self: &Arc<Self>) {
        let signals = &self.engine.signals;
        let Some(role) = self.engine.try_role() else { return };
        signals.background.store(true, Ordering::SeqCst);
        let leave =
            || signals.stop.load(Ordering::SeqCst) || signals.claimed.load(Ordering::SeqCst);
        let mut eager = Eager::default();
        while !leave() {
            if eager.is_looking() {
                self.look(&mut eager, leave);
            } else {
                let before = Instant::now();
                self.turn(None, leave);
                let now = Instant::now();
                eager.slept(now - before, now);
            }
        }
        // In this order: who sees that nobody drives in the background finds the role free.
        drop(role);
        signals.background.store(false, Ordering::SeqCst);
        signals.claimed.store(false, Ordering::SeqCst);
        self.engine.tell_followers();
    }

    /// Takes turns without sleeping until something happens or the window is over.
    fn look(self: &Arc<Self>, eager: &mut Eager, leave: impl Fn() -> bool) {
        let start = Instant::now();
        let (mut before, mut longest) = (start, Duration::ZERO);
        loop {
            let found = self.turn(Some(Duration::ZERO), || false);
            let now = Instant::now();
            if !found {
                longest = longest.max(now - before);
            }
            if found || now - start > eager::WINDOW || leave() {
                return eager.looked(found, now, longest);
            }
            before = now;
        }
    }

    /// Returns when one look-in finds that no application has driven since the last.
    fn park_while_applications_drive(self: &Arc<Self>, seen: &mut u64) {
        let signals = &self.engine.signals;
        let (mut watch, mut deep) = (WATCH_MIN, false);
        loop {
            self.park(if deep { DEEP_WATCH } else { watch }, deep);
            watch = (watch * 2).min(WATCH_MAX);
            if signals.stop.load(Ordering::SeqCst) {
                return;
            }
            let now = signals.application.load(Ordering::Relaxed);
            let resting = signals.resting.swap(false, Ordering::SeqCst);
            let called = now != *seen && !resting;
            *seen = now;
            if !called && signals.waiters.load(Ordering::SeqCst) == 0 {
                return;
            }
            // Who leaves a wait wakes a deep sleeper, so short waits one after another get none.
            deep = !called;
        }
    }

    fn park(&self, limit: Duration, deep: bool) {
        let signals = &self.engine.signals;
        let guard = lock(&signals.park);
        signals.deep.store(deep, Ordering::SeqCst);
        // A thread that stopped waiting before it could see `deep` wakes nobody.
        let alone = deep && signals.waiters.load(Ordering::SeqCst) == 0;
        if !alone && !signals.resting.load(Ordering::SeqCst) {
            let waited = signals.park_cond.wait_timeout(guard, limit);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        signals.deep.store(false, Ordering::SeqCst);
    }
}
