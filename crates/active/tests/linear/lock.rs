//! Clients that take one lock at the same time, by executions and by plain verbs, as
//! modules/lock/lock.h says.

use crate::checker::Event;
use crate::clients::{Missing, ModuleClient, word, words};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROOT: u64 = 4096;
const NAME: &[u8] = b"the one lock";
const ENTRY: usize = 128;
/// Longer than a round takes: no lease passes.
const LEASE: Duration = Duration::from_secs(3600);
/// The times of entries begin in 2020.
const EPOCH_MS: u64 = 1_577_836_800_000;
const EXPIRY: u64 = (1 << 40) - 1;
const LOW: u64 = (1 << 24) - 1;
const GRANTED: u64 = 1;
const HELD: u64 = 2;

/// An operation and its result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LockOp {
    /// The token; `None`: somebody held it.
    Acquire(Option<u64>),
    /// The token, and whether it was the holder's.
    Release(u64, bool),
    /// The holder's token.
    Look(Option<u64>),
}

/// The holder's token, and the latest one.
pub(crate) type LockState = (Option<u64>, u64);

/// The lock after an operation: see [`crate::checker::is_linearizable`].
pub(crate) fn apply(state: &LockState, op: &LockOp, is_known: bool) -> Option<LockState> {
    let (holder, latest) = *state;
    let next = latest + 1;
    match *op {
        LockOp::Acquire(_) if !is_known => {
            Some(if holder.is_none() { (Some(next), next) } else { *state })
        }
        LockOp::Acquire(Some(token)) => {
            (holder.is_none() && token == next).then_some((Some(token), token))
        }
        LockOp::Acquire(None) => holder.is_some().then_some(*state),
        LockOp::Release(token, was_its) => {
            let is_its = holder == Some(token);
            let after = if is_its { (None, latest) } else { *state };
            (!is_known || is_its == was_its).then_some(after)
        }
        LockOp::Look(found) => (holder == found).then_some(*state),
    }
}

/// See this file's first lines.
pub(crate) struct LockClient {
    pub(crate) own: ModuleClient,
    number: u64,
    entry: u64,
}

/// What a client does with the lock in a round.
pub(crate) struct LockVisit<'a> {
    /// Whether some client is between its acquisition and its release.
    pub(crate) inside: &'a AtomicBool,
    pub(crate) events: Vec<Event<LockOp>>,
}

impl LockClient {
    pub(crate) fn new(own: ModuleClient, number: u64) -> Self {
        Self { own, number, entry: 0 }
    }

    pub(crate) fn init(&mut self) {
        self.own.call("init", &words(&[ROOT, 16])).expect("locks");
    }

    /// Finds the lock's entry, which stays where it is.
    pub(crate) fn locate(&mut self) {
        let located = self.own.call("locate", &[&words(&[ROOT])[..], NAME].concat());
        self.entry = word(&located.expect("an entry"), 0);
    }

    /// Some operations; ends early if it may hold the lock without knowing its token.
    pub(crate) fn visit(&mut self, visit: &mut LockVisit<'_>, times: usize) {
        for _ in 0..times {
            let (begun, is_plain) = (Instant::now(), self.own.random(2) == 1);
            if self.own.random(4) == 0 {
                visit.note(LockOp::Look(None), begun, self.look().map(LockOp::Look));
                continue;
            }
            let acquired = if is_plain { self.acquire() } else { self.acquire_by_call() };
            visit.note(LockOp::Acquire(None), begun, acquired.map(LockOp::Acquire));
            match acquired {
                Ok(Some(token)) => {
                    assert!(!visit.inside.swap(true, Ordering::SeqCst), "two have the lock");
                    thread::sleep(Duration::from_micros(self.own.random(200)));
                    visit.inside.store(false, Ordering::SeqCst);
                    self.leave(visit, token);
                }
                Err(Missing::Unknown) => return,
                _ => {}
            }
        }
    }

    /// Releases the lock, by whatever it takes.
    fn leave(&mut self, visit: &mut LockVisit<'_>, token: u64) {
        loop {
            let (begun, is_plain) = (Instant::now(), self.own.random(2) == 1);
            let released = if is_plain { self.release(token) } else { self.release_by_call(token) };
            let op = LockOp::Release(token, false);
            visit.note(op, begun, released.map(|was_its| LockOp::Release(token, was_its)));
            if released.is_ok() {
                return;
            }
        }
    }

    /// Frees it from whoever was killed; the latest token.
    pub(crate) fn free(&mut self) -> u64 {
        loop {
            match self.status("look", &[ROOT]) {
                Ok((HELD, token)) => drop(self.release_by_call(token)),
                Ok((_, token)) => return token,
                Err(_) => {}
            }
        }
    }

    /// Status and token of an entry's result.
    fn status(&mut self, entry: &str, args: &[u64]) -> Result<(u64, u64), Missing> {
        let result = self.own.call(entry, &[&words(args)[..], NAME].concat())?;
        Ok((word(&result, 0), word(&result, 8)))
    }

    fn look(&mut self) -> Result<Option<u64>, Missing> {
        let (status, token) = self.status("look", &[ROOT])?;
        Ok((status == HELD).then_some(token))
    }

    fn acquire_by_call(&mut self) -> Result<Option<u64>, Missing> {
        let lease = u64::try_from(LEASE.as_nanos()).expect("an hour");
        let (status, token) = self.status("acquire", &[ROOT, self.number, lease])?;
        Ok((status == GRANTED).then_some(token))
    }

    fn release_by_call(&mut self, token: u64) -> Result<bool, Missing> {
        Ok(self.status("release", &[ROOT, token])?.0 == GRANTED)
    }

    /// The entry's word and the latest token.
    fn entry(&mut self) -> Result<(u64, u64), Missing> {
        let entry = self.own.read(self.entry, ENTRY)?;
        let (held, token) = (word(&entry, 0), word(&entry, 8));
        // The smallest from the token on that has the word's low bits.
        Ok((held, token + ((held >> 40).wrapping_sub(token) & LOW)))
    }

    fn acquire(&mut self) -> Result<Option<u64>, Missing> {
        let (held, latest) = self.entry()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let now_ms = u64::try_from(now.as_millis()).expect("a clock") - EPOCH_MS;
        if held & EXPIRY > now_ms {
            return Ok(None);
        }
        let (token, expiry) = (latest + 1, now_ms + LEASE.as_secs() * 1000);
        if !self.own.swap(self.entry, held, (token & LOW) << 40 | expiry)? {
            // Another one was faster.
            return Ok(None);
        }
        // The lock is taken; what follows is for those who look.
        let _told = self.own.write(self.entry + 8, &words(&[token]));
        let _told = self.own.write(self.entry + 16, &words(&[self.number]));
        Ok(Some(token))
    }

    fn release(&mut self, token: u64) -> Result<bool, Missing> {
        loop {
            let (held, latest) = self.entry()?;
            if latest != token || held & EXPIRY == 0 {
                return Ok(false);
            }
            if self.own.swap(self.entry, held, held & !EXPIRY)? {
                return Ok(true);
            }
        }
    }
}

impl LockVisit<'_> {
    /// Notes an operation: with its result, or as `unknown` if it may have taken effect.
    fn note(&mut self, unknown: LockOp, begun: Instant, came: Result<LockOp, Missing>) {
        let event = match came {
            Ok(op) => Event { op, begun, ended: Some(Instant::now()) },
            Err(Missing::Unknown) => Event { op: unknown, begun, ended: None },
            Err(Missing::NotDone) => return,
        };
        self.events.push(event);
    }
}
