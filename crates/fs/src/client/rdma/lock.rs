//! The lock of a volatile file system: a word that is its holder's, or 0.
//!
//! A holder that ends leaves its word there. Whoever has seen the same word for [`LEASE`] takes the
//! lock from it, and first does what it had begun (`apply`). A holder changes nothing any more that
//! has had the lock for half of that. No server stands between: a process that is stopped in the
//! midst of its change, and goes on after that, writes into what others have changed meanwhile.

use super::{GoesOn, RdmaLink};
use crate::client::{FsError, random_session};
use crate::protocol::volatile::{LOCK_AT, SEQ_AT};
use outboard_active::{ActiveError, RegionVerb, VerbWhat};
use std::thread;
use std::time::{Duration, Instant};

/// How long a lock is believed to be held whose word does not change.
const LEASE: Duration = Duration::from_secs(4);
/// The pause of who has not got it, at first and at most.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(2);
/// How often it is given back, where connections are lost.
const TRIES: usize = 3;

/// What is known of the lock.
#[derive(Debug)]
pub(super) struct HeldLock {
    /// This client's part of the word: not 0. The lower 16 bits count.
    owner: u64,
    /// The word by which it is held, or is tried to be.
    word: u64,
    /// The number of the latest change.
    pub(super) seq: u64,
    until: Instant,
}

impl HeldLock {
    pub(super) fn new() -> Result<Self, FsError> {
        let owner = random_session()?[0] << 16 | 1 << 63;
        Ok(Self { owner, word: owner | 1, seq: 0, until: Instant::now() })
    }

    /// Whether it may be believed that nobody has taken it away.
    fn is_sure(&self) -> bool {
        Instant::now() < self.until
    }

    /// No two holders' words are the same, nor are two of one holder that follow each other.
    fn next(&mut self) {
        self.word = self.owner | (self.word.wrapping_add(1) & 0xffff);
    }
}

/// The number of 8 bytes in the node's byte order.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().copied().map_or(0, u64::from_ne_bytes)
}

impl RdmaLink {
    /// Does something while nobody else changes anything.
    pub(super) fn held<T>(
        &mut self,
        goes_on: GoesOn<'_>,
        work: impl FnOnce(&mut Self) -> Result<T, FsError>,
    ) -> Result<T, FsError> {
        self.acquire(goes_on)?;
        let done = work(self);
        let is_whole = match &done {
            Ok(_) | Err(FsError::Failed { .. }) => Ok(()),
            // It may have ended in the midst of a change.
            Err(_) if self.lock.is_sure() => self.finish(),
            Err(_) => return done,
        };
        // Where that fails others take it, when its time is over, and finish it.
        if is_whole.is_ok() {
            self.release();
        }
        done
    }

    fn swap_lock(&mut self, (old, new): (u64, u64)) -> Result<(u64, u64), ActiveError> {
        let region = &self.shared;
        let verbs = [
            RegionVerb { region, at: LOCK_AT, what: VerbWhat::Swap(old, new) },
            RegionVerb { region, at: SEQ_AT, what: VerbWhat::Read(8) },
        ];
        self.trips += 1;
        let read = self.client.verbs(&verbs)?;
        let word = |at: usize| read.get(at).map_or(0, |bytes| number(bytes));
        Ok((word(0), word(1)))
    }

    fn acquire(&mut self, goes_on: GoesOn<'_>) -> Result<(), FsError> {
        let mut seen = (0, Instant::now());
        let mut pause = PAUSE;
        let mut old = 0;
        loop {
            let (mine, begun) = (self.lock.word, Instant::now());
            match self.swap_lock((old, mine)) {
                // A CompareSwap whose answer was lost may have been made.
                Ok((found, seq)) if found == old || found == mine => {
                    (self.lock.seq, self.lock.until) = (seq, begun + LEASE / 2);
                    // Also where nobody had it: somebody may have given up in time, and not whole.
                    return if seq.is_multiple_of(2) { Ok(()) } else { self.finish() };
                }
                Ok((found, _)) => {
                    if seen.0 != found {
                        seen = (found, Instant::now());
                    }
                    old = if found != 0 && seen.1.elapsed() > LEASE { found } else { 0 };
                }
                Err(ActiveError::Interrupted { .. } | ActiveError::TimedOut { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if !goes_on() {
                return Err(FsError::Interrupted);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Fails where somebody else may have the lock by now: nothing is changed, and what was read
    /// may be of several states.
    pub(super) fn must_be_sure(&self) -> Result<(), FsError> {
        if self.lock.is_sure() { Ok(()) } else { Err(FsError::TimedOut) }
    }

    fn release(&mut self) {
        for _ in 0..TRIES {
            if self.swap_lock((self.lock.word, 0)).is_ok() {
                break;
            }
        }
        self.lock.next();
    }
}
