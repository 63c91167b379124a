//! The turn, and the threads that take it.
//!
//! One thread at a time holds the role of driver ([`DriverRole`](super::role::DriverRole)): that
//! thread sleeps in epoll and serves every source:
//! * The background thread holds it while no application thread drives, so that one-sided
//!   operations are served whatever the application does.
//! * A thread in [`Core::wait_until`] takes it: the message that ends its wait costs one wake-up.
//! * A thread in [`Core::wait_readable`] takes it as well, and sleeps on descriptors of its own
//!   beside epoll.
//! * A thread that polls moves its own queue pairs' sockets directly; it asks the background thread
//!   to stand down, which would otherwise be woken for every message as well.
//!
//! While applications drive, the background thread looks in now and then, first after
//! [`WATCH_MIN`], at longest after [`WATCH_MAX`]; it takes the role again as soon as it finds that
//! no application thread has driven since its last look. While an application thread sleeps in the
//! role, the background thread sleeps as well: the application thread wakes it on leaving.

use super::adaptive_spin::{self, AdaptiveSpin};
use super::role::{RoleGuard, Standby, Waiter, Wake};
use super::{Engine, WAKE, sockio};
use crate::context::Core;
use crate::error::VerbsError;
use crate::signal::lock;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How soon the background thread looks whether applications still drive; doubled each time.
const WATCH_MIN: Duration = Duration::from_millis(1);
/// The longest time between two looks. When an application has just stopped polling, its peers may
/// wait this long, once, before the background thread serves them.
const WATCH_MAX: Duration = Duration::from_millis(8);
/// How long the background thread may take to stand down for a thread that is about to sleep.
const STAND_DOWN_MAX: Duration = Duration::from_millis(1);
/// The longest sleep where the kernel refuses to wait, because the program has closed descriptors
/// that are not its own.
const LOST_PAUSE: Duration = Duration::from_millis(20);
/// Events taken from the kernel at a time.
const EVENTS_MAX: usize = 64;

impl Engine {
    /// An application thread polls or waits.
    #[inline]
    pub(crate) fn note_application(&self) {
        self.role.note_application();
    }

    /// True while the background thread drives and no application has asked it to stand down.
    pub(crate) fn drives_in_background(&self) -> bool {
        self.role.is_in_background()
    }

    /// Asks the background thread to stand down for a polling application.
    pub(crate) fn claim_by_polling(&self) {
        if let Some(claim) = self.role.claim() {
            if claim.first {
                lock(&self.backoff).end(Instant::now());
            }
            self.wake(claim.wake);
        }
    }

    /// Wakes the driver if it sleeps.
    pub(crate) fn kick(&self) {
        self.wake(self.role.poke());
    }

    /// Tells waiting threads that something changed.
    pub(crate) fn notify(&self) {
        self.wake(self.role.notify());
    }

    fn wake(&self, whom: Wake) {
        if whom == Wake::Driver {
            // The counter cannot overflow in any life time; a full one is readable, too.
            let _wrote = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    /// An application thread begins to wait.
    fn begin_wait(&self) -> Waiter<'_> {
        let (waiter, wake) = self.role.wait();
        self.wake(wake);
        waiter
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
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let (events, _) = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok(found) => found,
            // A sleep that a signal interrupts counts as a short one.
            Err(Errno::INTR) => return 0,
            Err(_) => {
                rest_without_descriptors(limit);
                return 0;
            }
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

/// Sleeps for a while, at most up to `limit`: the engine's descriptors are gone, as in a program
/// that becomes a daemon and closes them all. What depends on the engine stands still. It closes
/// nothing, because the numbers may be the program's own descriptors by now.
fn rest_without_descriptors(limit: Option<Duration>) {
    std::thread::sleep(limit.map_or(LOST_PAUSE, |limit| limit.min(LOST_PAUSE)));
}

impl Engine {
    /// True on the background thread.
    pub(crate) fn is_engine_thread(&self) -> bool {
        let thread = lock(&self.thread);
        thread.as_ref().is_some_and(|one| one.thread().id() == std::thread::current().id())
    }
}

impl Core {
    /// Starts the background thread if it does not run yet.
    pub(crate) fn start_background(self: &Arc<Self>) -> Result<(), VerbsError> {
        let mut thread = lock(&self.engine.thread);
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
        let engine = &self.engine;
        engine.role.stop();
        engine.wake(Wake::Driver);
        let thread = lock(&engine.thread).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // The panic hook has already printed a panic of that thread.
            let _ended = thread.join();
        }
        drop(engine.drain_sources());
        engine.lingering.clear();
    }

    /// One turn without sleeping, unless another thread holds the role. True when it brought news.
    pub(crate) fn try_turn(self: &Arc<Self>) -> bool {
        let Some(_role) = self.engine.role.take_for_turn() else { return false };
        self.turn(Some(Duration::ZERO), || false)
    }

    /// Serves what is ready; sleeps up to `limit` for it, unless `done` says that there is no
    /// reason to. The caller holds the role. True when that brought news, not only room to send.
    fn turn(self: &Arc<Self>, limit: Option<Duration>, mut done: impl FnMut() -> bool) -> bool {
        let engine = &self.engine;
        let mut events = [(WAKE, false); EVENTS_MAX];
        let count = if limit == Some(Duration::ZERO) || !engine.role.fall_asleep() {
            engine.poll_events(Some(Duration::ZERO), &mut events)
        } else {
            // From here on, a thread that changes something wakes the driver.
            let limit = if done() { Some(Duration::ZERO) } else { engine.sleep_limit(limit) };
            engine.counts.slept();
            let count = engine.poll_events(limit, &mut events);
            engine.role.wake_up();
            count
        };
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
            engine.notify();
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
        self.engine.note_application();
        if let Some(value) = check() {
            return Some(value);
        }
        let mut waiter = self.engine.begin_wait();
        loop {
            // The thread is registered as a follower, so it misses nothing that comes after this
            // look.
            if let Some(value) = check() {
                return Some(value);
            }
            let limit = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if limit == Some(Duration::ZERO) {
                return None;
            }
            if waiter.drives() {
                let mut found = None;
                self.turn(limit, || {
                    found = check();
                    found.is_some()
                });
                if found.is_some() {
                    return found;
                }
            } else {
                waiter.sleep(deadline);
            }
            self.engine.note_application();
        }
    }

    /// Sleeps until one of these descriptors is readable, and serves the engine's sockets meanwhile
    /// unless another application thread does. False when the deadline has come.
    pub(crate) fn wait_readable(
        self: &Arc<Self>,
        fds: &[BorrowedFd<'_>],
        deadline: Option<Instant>,
        is_found: impl Fn() -> bool,
    ) -> bool {
        self.engine.note_application();
        let mut waiter = self.engine.begin_wait();
        if !waiter.drives() {
            waiter.sleep(Some(Instant::now() + STAND_DOWN_MAX));
        }
        if !waiter.drives() {
            // News that the driver brings makes the descriptors readable. It has not stood down in
            // time: it need not.
            drop(waiter);
            self.rest();
            return is_readable(fds, deadline);
        }
        loop {
            if self.sleep_as_driver(fds, deadline) {
                return true;
            }
            self.turn(Some(Duration::ZERO), || false);
            self.engine.note_application();
            if is_found() {
                return true;
            }
            if deadline.is_some_and(|at| at <= Instant::now()) {
                return is_readable(fds, deadline);
            }
        }
    }

    /// Sleeps until a socket of the engine needs a turn, or one of these descriptors is readable.
    /// True in the second case.
    fn sleep_as_driver(&self, fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> bool {
        let engine = &self.engine;
        // From here on, threads that have work for the driver wake it.
        engine.role.fall_asleep();
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let limit = engine.sleep_limit(left);
        let timeout = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let all = std::iter::once(engine.epoll.as_fd()).chain(fds.iter().copied());
        let mut all: Vec<_> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A sleep that a signal interrupts counts as a short one.
        let _slept = poll(&mut all, timeout.as_ref());
        if all[0].revents().contains(PollFlags::NVAL) {
            rest_without_descriptors(limit);
        }
        engine.role.wake_up();
        all[1..].iter().any(|fd| !fd.revents().is_empty())
    }

    /// An application thread is about to sleep where the engine cannot see it, or to work.
    pub(crate) fn rest(&self) {
        self.engine.role.hand_to_background();
    }

    /// An application has nothing under way and may sleep or look elsewhere for news.
    pub(crate) fn rest_if_worthwhile(&self) {
        if lock(&self.engine.backoff).begin(Instant::now()) {
            self.rest();
        }
    }

    /// The background thread.
    fn run_background(self: &Arc<Self>) {
        sockio::ask_for_prompt_turns();
        while !self.engine.role.is_stopped() {
            // The panic hook has printed where our defect is.
            if catch_unwind(AssertUnwindSafe(|| self.drive_until_stopped())).is_err() {
                self.fail();
            }
        }
    }

    /// The background thread has panicked. What it left undone is unknown, so every connection of
    /// the context ends; the thread goes on and serves later connections.
    fn fail(self: &Arc<Self>) {
        self.engine.counts.panicked();
        for source in self.engine.sources() {
            // A second panic has been printed as well.
            let _failed = catch_unwind(AssertUnwindSafe(|| source.engine_failed(self)));
        }
        self.engine.notify();
    }

    fn drive_until_stopped(self: &Arc<Self>) {
        let role = &self.engine.role;
        let mut watch = WATCH_MIN;
        while !role.is_stopped() {
            if let Some(held) = role.take_in_background() {
                self.drive_in_background(held);
                watch = WATCH_MIN;
            }
            watch = match role.park(watch) {
                Standby::Watching => (watch * 2).min(WATCH_MAX),
                Standby::No | Standby::Called => WATCH_MIN,
            };
        }
    }

    fn drive_in_background(self: &Arc<Self>, _held: RoleGuard<'_>) {
        let mut spin = AdaptiveSpin::default();
        while !self.engine.role.is_unwanted() {
            if spin.is_looking() {
                self.look(&mut spin);
            } else {
                let before = Instant::now();
                self.turn(None, || false);
                let now = Instant::now();
                spin.slept(now - before, now);
            }
        }
    }

    /// Takes turns without sleeping until something happens or the window is over.
    fn look(self: &Arc<Self>, spin: &mut AdaptiveSpin) {
        let start = Instant::now();
        let (mut before, mut longest) = (start, Duration::ZERO);
        loop {
            let found = self.turn(Some(Duration::ZERO), || false);
            let now = Instant::now();
            if !found {
                longest = longest.max(now - before);
            }
            if found || now - start > adaptive_spin::WINDOW || self.engine.role.is_unwanted() {
                return spin.looked(found, now, longest);
            }
            before = now;
        }
    }
}

/// Sleeps until one of these descriptors is readable; false when the deadline has come.
fn is_readable(fds: &[BorrowedFd<'_>], deadline: Option<Instant>) -> bool {
    let mut fds: Vec<_> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut fds, left.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventSource;
    use super::*;
    use crate::{
        AsyncEvent, CmEventKind, ConnectParams, Context, Cq, OwnedBuf, Qp, QpConfig, RecvRequest,
        SendOp, SendRequest, SgList, Status,
    };
    use rustix::event::{EventfdFlags, eventfd};

    const LIMIT: Duration = Duration::from_secs(20);

    /// A defect.
    struct Defect;

    impl EventSource for Defect {
        fn on_ready(self: Arc<Self>, _: &Arc<Core>, _: u64, _: bool) -> bool {
            panic!("on purpose")
        }

        fn on_timer(self: Arc<Self>, _: &Arc<Core>, _: u64, _: Instant) {}
    }

    fn connected(a: &Context, b: &Context) -> [(Qp, Cq); 2] {
        let make = |context: &Context| {
            let cq = context.create_cq(16);
            let qp = context.alloc_pd().create_qp(QpConfig::new(&cq)).expect("a queue pair");
            let local = OwnedBuf::zeroed(8).into();
            qp.post_recv(RecvRequest { wr_id: 1, local }).expect("room");
            (qp, cq)
        };
        let ends = [make(a), make(b)];
        let listener = b.listen("127.0.0.1:0".parse().expect("an address"), 4).expect("a port");
        let (params, events) = (ConnectParams::default(), a.create_cm_channel().expect("one"));
        ends[0].0.start_connect(listener.local_addr(), &params, &events).expect("begun");
        let request = listener.next_request(Some(LIMIT)).expect("a request");
        request.accept(&ends[1].0, &params).expect("accepted");
        let told = events.next(Some(LIMIT)).expect("an event").kind;
        assert!(matches!(told, CmEventKind::Connected(_)), "{told:?}");
        ends
    }

    fn next(cq: &Cq) -> Status {
        let mut done = Vec::new();
        assert_eq!(cq.wait(&mut done, 1, Some(LIMIT)).expect("no overflow"), 1, "a completion");
        done.remove(0).status
    }

    #[test]
    fn a_panic_of_the_engine_ends_its_connections_and_it_goes_on() {
        let [a, b] = [(); 2].map(|()| Context::open().expect("a context"));
        let ends = connected(&a, &b);
        let (core, token) = (b.core(), b.core().engine.next_token());
        let fd = eventfd(1, EventfdFlags::NONBLOCK).expect("a descriptor");
        // Only the background thread must meet it.
        b.rest();
        core.engine.add(token, &fd, Arc::new(Defect)).expect("watched");
        let deadline = Instant::now() + LIMIT;
        while !ends[1].0.state().is_over() {
            assert!(Instant::now() < deadline, "the queue pair is not told");
            std::thread::sleep(Duration::from_millis(1));
        }
        let event = AsyncEvent::EngineFailed { qp: ends[1].0.number() };
        assert_eq!(b.poll_async_event(), Some(event));
        assert_eq!((next(&ends[1].1), next(&ends[0].1)), (Status::Flushed, Status::Flushed));
        let busy = |cq: &Cq| cq.inner.busy.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((busy(&ends[1].1), busy(&ends[0].1)), (0, 0), "nothing is under way");
        let later = connected(&a, &b);
        let send = SendOp::Send { invalidate: None };
        let request = SendRequest::new(2, send, SgList::copied(b"again"));
        later[0].0.post_send(request).expect("room");
        assert_eq!(next(&later[1].1), Status::Success);
    }

    #[test]
    fn a_connection_at_rest_has_no_deadline() {
        let [a, b] = [(); 2].map(|()| Context::open().expect("a context"));
        let _ends = connected(&a, &b);
        // The limits of start-ups are longer; what an initiator does for a silent peer is shorter.
        let deadline = Instant::now() + Duration::from_secs(3);
        while [&a, &b].iter().any(|side| !side.core().engine.timers.is_empty()) {
            assert!(Instant::now() < deadline, "a deadline is left");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn a_thread_that_sleeps_on_its_own_descriptor_serves_peers() {
        let [a, b] = [(); 2].map(|()| Context::open().expect("a context"));
        let ends = connected(&a, &b);
        let fd = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
        assert!(!b.wait_readable(Some(Duration::from_millis(1)), &[fd.as_fd()]), "too soon");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| b.wait_readable(Some(LIMIT), &[fd.as_fd()]));
            let send = SendOp::Send { invalidate: None };
            let request = SendRequest::new(2, send, SgList::copied(b"to b"));
            ends[0].0.post_send(request).expect("room");
            assert_eq!(next(&ends[1].1), Status::Success);
            assert!(!waiting.is_finished());
            rustix::io::write(&fd, &1u64.to_ne_bytes()).expect("written");
            assert!(waiting.join().expect("no panic"));
        });
    }

    #[test]
    fn beside_another_driver_its_own_descriptor_wakes_it() {
        let [a, b] = [(); 2].map(|()| Context::open().expect("a context"));
        let _ends = connected(&a, &b);
        let fd = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                b.wait_until(Some(LIMIT), || over.load(std::sync::atomic::Ordering::SeqCst))
            });
            std::thread::sleep(Duration::from_millis(20));
            let waiting = scope.spawn(|| b.wait_readable(Some(LIMIT), &[fd.as_fd()]));
            std::thread::sleep(Duration::from_millis(20));
            rustix::io::write(&fd, &1u64.to_ne_bytes()).expect("written");
            let begin = Instant::now();
            assert!(waiting.join().expect("no panic"));
            assert!(begin.elapsed() < LIMIT / 2);
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            b.core().engine.notify();
        });
    }
}
