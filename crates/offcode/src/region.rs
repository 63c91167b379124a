//! A region that modules work on: its memory, its journal, and commits, one at a time.
//!
//! Its version is even while nothing is being applied and grows by two with each commit; an
//! execution that began at another version than it ends at is run again. One-sided writes of peers
//! change no version: words for which that matters are named by the module, and compared here
//! while the region's gate keeps the network card's own writes out.

mod copying;
mod following;
mod observe;

pub use copying::{COPY_PAGE, RegionCopying};
pub use following::FollowError;
pub use observe::{AlreadyObserved, CommitObserver, ReplayError, replay, written_runs};

use crate::host::Execution;
use crate::journal::{Earlier, JournalError, RegionJournal, RequestId};
use crate::write_set::WrittenLine;
use copying::ChangedPages;
use outboard_mem::{ClosedGate, MemError, SharedRegion, Space};
use std::hint;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// Bytes for answers, unless a caller says something else.
pub const ANSWERS_DEFAULT: usize = 4 << 20;

/// Something else was committed, or a named word has changed: the execution must run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another execution has committed.
    Execution,
    /// A peer has changed a word by a one-sided operation.
    Peer,
}

/// Why nothing was committed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// Run it again.
    #[error("the region has changed meanwhile")]
    Conflict(Conflict),
    /// The answer is longer than what the journal keeps.
    #[error("the answer of an execution that writes has {found} bytes, at most {limit} are kept")]
    Answer {
        /// Its bytes.
        found: usize,
        /// How many may be.
        limit: usize,
    },
    /// This machine's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

/// See this file's first lines.
#[derive(Debug)]
pub struct ActiveRegion {
    name: String,
    memory: SharedRegion,
    write_max: usize,
    number: u64,
    /// Its first word is the version, for peers to read.
    head: SharedRegion,
    version: AtomicU64,
    seq: AtomicU64,
    journal: Mutex<RegionJournal>,
    changed: ChangedPages,
    observer: OnceLock<Box<dyn CommitObserver>>,
}

/// Bytes of a region's head.
const HEAD_LEN: usize = 8;

/// The next region's number.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Nothing else commits to a region while this is held.
#[derive(Debug)]
pub struct RegionWriter<'a> {
    region: &'a ActiveRegion,
    journal: MutexGuard<'a, RegionJournal>,
}

impl ActiveRegion {
    /// A region of `len` zero bytes, of which an execution may write `write_max`.
    ///
    /// # Errors
    /// [`JournalError`]: this machine's memory.
    pub fn new(name: &str, len: usize, write_max: usize) -> Result<Self, JournalError> {
        let memory = SharedRegion::memfd(c"outboard-region", len, Space::OnDemand)?;
        Self::of(name, memory, RegionJournal::new(write_max, ANSWERS_DEFAULT)?, write_max)
    }

    /// A region with memory of the caller's, which has a descriptor, and a new journal.
    ///
    /// # Errors
    /// [`JournalError`]: this machine's memory.
    pub fn over(name: &str, memory: SharedRegion, write_max: usize) -> Result<Self, JournalError> {
        Self::of(name, memory, RegionJournal::new(write_max, ANSWERS_DEFAULT)?, write_max)
    }

    /// A region whose memory and journal the supervisor has kept. A commit that was made and not
    /// applied is applied.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn kept(
        name: &str,
        (memory, journal): (OwnedFd, OwnedFd),
        write_max: usize,
    ) -> Result<Self, JournalError> {
        let region = Self::of(
            name,
            SharedRegion::from_memfd(memory)?,
            RegionJournal::kept(journal)?,
            write_max,
        )?;
        let journal = region.lock();
        if let Some(lines) = journal.unapplied()? {
            let closed = region.memory.close_gate();
            WrittenLine::decode(&lines).try_for_each(|line| apply(&closed, &line))?;
            journal.applied()?;
        }
        drop(journal);
        Ok(region)
    }

    fn of(
        name: &str,
        memory: SharedRegion,
        journal: RegionJournal,
        write_max: usize,
    ) -> Result<Self, JournalError> {
        let (name, memory) = (name.to_owned(), memory.with_gate());
        let (seq, journal) = (AtomicU64::new(journal.seq()), Mutex::new(journal));
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (head, version) = (SharedRegion::zeroed(HEAD_LEN)?, AtomicU64::new(0));
        let (changed, observer) = (ChangedPages::default(), OnceLock::new());
        Ok(Self { name, memory, write_max, number, head, version, seq, journal, changed, observer })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A number that no other region of this process ever has.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Memory whose first word is the region's version, to be registered for peers: what they read
    /// of the region between two Reads of the same even version is of one state, as far as
    /// executions change it.
    #[must_use]
    pub fn head(&self) -> &SharedRegion {
        &self.head
    }

    /// Its memory, to be registered for peers.
    #[must_use]
    pub fn memory(&self) -> &SharedRegion {
        &self.memory
    }

    /// Bytes that an execution may write.
    #[must_use]
    pub fn write_max(&self) -> usize {
        self.write_max
    }

    /// Descriptors of its memory and its journal, to be kept.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn descriptors(&self) -> Result<(OwnedFd, OwnedFd), MemError> {
        Ok((self.memory.descriptor()?, self.lock().descriptor()?))
    }

    /// The number of the last commit.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq.load(Ordering::Acquire)
    }

    /// What is known of a request that is made again: see [`RegionJournal::find`].
    ///
    /// # Errors
    /// [`MemError`].
    pub fn find(&self, id: RequestId, seen: u64) -> Result<Earlier, MemError> {
        self.lock().find(id, seen)
    }

    /// As [`find`](Self::find), unless that would have to wait.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn try_find(&self, id: RequestId, seen: u64) -> Option<Result<Earlier, MemError>> {
        Some(self.try_lock()?.find(id, seen))
    }

    /// The version to begin an execution at. Waits while a commit is applied.
    #[must_use]
    pub fn begin(&self) -> u64 {
        let mut spins = 0_u32;
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version.is_multiple_of(2) {
                return version;
            }
            spins += 1;
            if spins.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }

    /// Whether nothing was committed since the version: what was read is of one state.
    #[must_use]
    pub fn is_unchanged(&self, since: u64) -> bool {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == since
    }

    /// Keeps all other commits out.
    #[must_use]
    pub fn writer(&self) -> RegionWriter<'_> {
        RegionWriter { region: self, journal: self.lock() }
    }

    /// As [`writer`](Self::writer), unless that would have to wait.
    #[must_use]
    pub fn try_writer(&self) -> Option<RegionWriter<'_>> {
        Some(RegionWriter { region: self, journal: self.try_lock()? })
    }

    /// A copy of all bytes, as of one commit.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn snapshot(&self) -> Result<Vec<u8>, MemError> {
        let _journal = self.lock();
        self.memory.snapshot(0..self.memory.len())
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, RegionJournal>> {
        match self.journal.try_lock() {
            Ok(journal) => Some(journal),
            Err(TryLockError::Poisoned(journal)) => Some(journal.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, RegionJournal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegionWriter<'_> {
    /// Keeps out peers, too, until the result is dropped.
    #[must_use]
    pub fn close_gate(&self) -> ClosedGate<'_> {
        self.region.memory.close_gate()
    }

    /// Applies what an execution that began at the version `since` has written, all or nothing, and
    /// keeps its answer. Returns the commit's number. `closed` is the gate if it is closed already.
    ///
    /// # Errors
    /// [`CommitError`]; then nothing has changed.
    pub fn commit(
        &mut self,
        execution: &Execution,
        since: u64,
        answer: Option<(RequestId, &[u8])>,
        closed: Option<&ClosedGate<'_>>,
    ) -> Result<u64, CommitError> {
        let region = self.region;
        if region.version.load(Ordering::Relaxed) != since {
            return Err(CommitError::Conflict(Conflict::Execution));
        }
        let limit = self.journal.answer_max();
        if let Some((_, bytes)) = answer.filter(|(_, bytes)| bytes.len() > limit) {
            return Err(CommitError::Answer { found: bytes.len(), limit });
        }
        let own = closed.is_none().then(|| region.memory.close_gate());
        let Some(closed) = closed.or(own.as_ref()) else {
            return Err(CommitError::Conflict(Conflict::Peer));
        };
        for (offset, value) in execution.expected() {
            let offset = usize::try_from(*offset).unwrap_or(usize::MAX);
            if closed.load_u64(offset)? != *value {
                return Err(CommitError::Conflict(Conflict::Peer));
            }
        }
        let seq = self.journal.commit_writes(execution.writes(), answer)?;
        region.changed.note(execution.lines());
        region.seq.store(seq, Ordering::Release);
        region.version.store(since + 1, Ordering::Relaxed);
        region.head.store_u64(0, since + 1)?;
        fence(Ordering::Release);
        // All pages were there when the module read or the host call checked them; a failure here
        // is repaired when the region is opened again.
        let applied = execution.lines().iter().try_for_each(|line| apply(closed, line));
        region.version.store(since + 2, Ordering::Release);
        region.head.store_u64(0, since + 2)?;
        if let Some(observer) = region.observer.get() {
            observer.committed(seq, self.journal.last_lines(), answer);
        }
        applied?;
        self.journal.applied()?;
        Ok(seq)
    }
}

fn apply(closed: &ClosedGate<'_>, line: &WrittenLine) -> Result<(), MemError> {
    line.runs().try_for_each(|(offset, bytes)| {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        match <[u8; 8]>::try_from(bytes) {
            Ok(word) => closed.store_u64(offset, u64::from_le_bytes(word)),
            Err(_) => closed.copy_in(offset, bytes),
        }
    })
}
