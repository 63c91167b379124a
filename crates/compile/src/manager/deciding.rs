//! Threads that decide whether a call may run remotely. They look at the call's files, so that a
//! file system that hangs blocks a thread here and not the manager's loop.

use super::slots::Id;
use crate::args::{Classification, CompilerCall, classify, examine};
use crate::running_time::RunningTime;
use rustix::event::{EventfdFlags, eventfd};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Threads that answer, besides those that hang.
const THREADS: usize = 2;
/// Threads that may hang at one time; then further calls are refused.
const HANGING_MAX: usize = 32;
/// How long the look at one call's files may take.
const DECISION_MAX: Duration = Duration::from_secs(3);

type Answer = (Id, Classification);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Deciders {
    questions: mpsc::Sender<(Id, CompilerCall)>,
    ahead: Arc<Mutex<mpsc::Receiver<(Id, CompilerCall)>>>,
    answer: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    waker: Arc<OwnedFd>,
    threads: usize,
    /// Calls without a decision, and when each was asked, as running time.
    open: HashMap<Id, Duration>,
    time: RunningTime,
    /// Calls that were dropped before their decision came.
    given_up: usize,
    decide: fn(CompilerCall) -> Classification,
}

impl Deciders {
    pub(super) fn new() -> rustix::io::Result<Self> {
        Self::with(|call| examine(classify(call)))
    }

    fn with(decide: fn(CompilerCall) -> Classification) -> rustix::io::Result<Self> {
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let ((questions, ahead), (answer, answers)) = (mpsc::channel(), mpsc::channel());
        let ahead = Arc::new(Mutex::new(ahead));
        Ok(Self {
            questions,
            ahead,
            answer,
            answers,
            waker,
            threads: 0,
            open: HashMap::new(),
            time: RunningTime::default(),
            given_up: 0,
            decide,
        })
    }

    /// Has a thread decide where a call may run. False: too many threads hang already.
    #[must_use]
    pub(super) fn ask(&mut self, id: Id, call: CompilerCall, now: Instant) -> bool {
        if self.given_up >= HANGING_MAX {
            return false;
        }
        self.open.insert(id, self.time.pass(now));
        self.start_if_needed();
        // This cannot fail: `self` holds the receiving end, too.
        self.questions.send((id, call)).is_ok()
    }

    /// Starts a thread if all others may be busy or hang.
    fn start_if_needed(&mut self) {
        let busy = self.open.len() + self.given_up;
        if busy > self.threads && self.threads < THREADS + self.given_up {
            self.start();
        }
    }

    fn start(&mut self) {
        let (ahead, answer) = (Arc::clone(&self.ahead), self.answer.clone());
        let (waker, decide) = (Arc::clone(&self.waker), self.decide);
        let started = thread::Builder::new().spawn(move || {
            loop {
                let question = ahead.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok((id, call)) = question else { return };
                // The deciders may have been dropped.
                let _sent = answer.send((id, decide(call)));
                let _woken = rustix::io::write(&*waker, &1_u64.to_ne_bytes());
            }
        });
        self.threads += usize::from(started.is_ok());
    }

    /// The next decision whose call was not dropped.
    pub(super) fn poll(&mut self) -> Option<Answer> {
        let mut count = [0; 8];
        let _reset = rustix::io::read(&*self.waker, &mut count);
        while let Ok((id, plan)) = self.answers.try_recv() {
            if self.open.remove(&id).is_some() {
                return Some((id, plan));
            }
            self.given_up -= 1;
        }
        None
    }

    /// Takes a call out whose files take too long: its decision will be dropped.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Option<Id> {
        let passed = self.time.pass(now);
        let is_late = |since: &Duration| passed - *since >= DECISION_MAX;
        let (id, _) = self.open.iter().find(|(_, since)| is_late(since))?;
        let id = *id;
        self.forget(id);
        Some(id)
    }

    /// Drops a call: its decision, when it comes, is ignored.
    pub(super) fn forget(&mut self, id: Id) {
        self.given_up += usize::from(self.open.remove(&id).is_some());
        self.start_if_needed();
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.time.next_look(*self.open.values().min()? + DECISION_MAX)
    }
}

impl AsFd for Deciders {
    /// Readable when there is a decision.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cause;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn named(name: &str) -> CompilerCall {
        CompilerCall { compiler: name.into(), ..CompilerCall::default() }
    }

    /// Decides at once, or never for a compiler named `hang`.
    fn hang(call: CompilerCall) -> Classification {
        while call.compiler.as_os_str() == "hang" {
            thread::park();
        }
        Classification::Local(Cause::Link.into())
    }

    fn next(deciders: &mut Deciders) -> Id {
        loop {
            if let Some((id, _)) = deciders.poll() {
                return id;
            }
            let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(deciders, PollFlags::IN)], Some(&patience));
            assert_eq!(ready, Ok(1), "no answer");
        }
    }

    #[test]
    fn hanging_calls_do_not_delay_others() {
        let mut deciders = Deciders::with(hang).unwrap();
        let mut now = Instant::now();
        let mut id = 0;
        for round in 0..HANGING_MAX / 4 {
            for _ in 0..4 {
                id += 1;
                assert!(deciders.ask(id, named("hang"), now));
            }
            let begin = now;
            while deciders.take_overdue(now).is_none() {
                now = deciders.deadline().expect("calls are open");
            }
            assert_eq!(now - begin, DECISION_MAX);
            let late = std::iter::from_fn(|| deciders.take_overdue(now)).count();
            assert_eq!(late, 3, "round {round}");
            if round + 1 < HANGING_MAX / 4 {
                id += 1;
                assert!(deciders.ask(id, named("good"), now));
                assert_eq!(next(&mut deciders), id);
            }
        }
        assert!(!deciders.ask(id + 1, named("good"), now), "no thread is left");
        assert!(deciders.threads <= THREADS + HANGING_MAX, "{}", deciders.threads);
    }

    #[test]
    fn a_pause_is_not_the_time_that_a_decision_takes() {
        let mut deciders = Deciders::with(hang).unwrap();
        let now = Instant::now();
        assert!(deciders.ask(1, named("hang"), now));
        assert_eq!(deciders.take_overdue(now + 20 * DECISION_MAX), None);
    }

    #[test]
    fn late_answers_are_dropped() {
        let mut deciders = Deciders::with(hang).unwrap();
        let now = Instant::now();
        assert!(deciders.ask(1, named("good"), now));
        deciders.forget(1);
        assert!(deciders.ask(2, named("good"), now));
        assert_eq!(next(&mut deciders), 2);
        assert_eq!((deciders.poll(), deciders.given_up), (None, 0));
        assert_eq!(deciders.deadline(), None);
    }
}
