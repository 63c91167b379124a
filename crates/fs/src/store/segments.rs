//! The log's files: which are there, and the next one ahead of its need.
//!
//! A segment has its place on the disk before it is used: where the disk is full, the log still has
//! the rest of one segment and one more, in which time a checkpoint frees others. Segments that are
//! not needed any more get the next numbers; what they hold is none of their new number's.

use super::disk::{StoreDisk, StoreFile};
use super::error::FsStoreError;
use super::record::SegmentKey;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Segments that are kept for later use, at most; more are removed.
const FREE_MAX: usize = 1;

/// The file of a segment.
pub(super) fn name(number: u64) -> String {
    format!("log.{number:08}")
}

/// The number in a segment's name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("log.")?;
    let is_number = digits.len() >= 8 && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && self::name(*number) == name)
}

/// A segment that is written to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClosedSegment {
    pub(super) number: u64,
    /// The last commit in it.
    pub(super) last: u64,
}

/// A segment to write.
#[derive(Debug)]
pub(super) struct OpenSegment {
    pub(super) number: u64,
    pub(super) file: Arc<dyn StoreFile>,
    pub(super) key: SegmentKey,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct Segments {
    disk: Arc<dyn StoreDisk>,
    store: [u8; 16],
    segment_len: u64,
    state: Mutex<SegmentState>,
}

#[derive(Debug)]
struct SegmentState {
    closed: VecDeque<ClosedSegment>,
    /// Files that are not needed any more.
    free: Vec<u64>,
    next: Option<OpenSegment>,
    next_number: u64,
}

impl Segments {
    /// Those that are there, in their order, and the next one's number.
    pub(super) fn new(
        disk: Arc<dyn StoreDisk>,
        store: [u8; 16],
        segment_len: u64,
        (closed, next_number): (Vec<ClosedSegment>, u64),
    ) -> Self {
        let (free, next) = (Vec::new(), None);
        let state = Mutex::new(SegmentState { closed: closed.into(), free, next, next_number });
        Self { disk, store, segment_len, state }
    }

    pub(super) fn segment_len(&self) -> u64 {
        self.segment_len
    }

    fn lock(&self) -> MutexGuard<'_, SegmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no next segment.
    pub(super) fn lacks_next(&self) -> bool {
        self.lock().next.is_none()
    }

    /// Makes the next segment. The caller is the only one that does.
    pub(super) fn prepare(&self) -> Result<(), FsStoreError> {
        let (number, used) = {
            let mut state = self.lock();
            if state.next.is_some() {
                return Ok(());
            }
            (state.next_number, state.free.pop())
        };
        let name = name(number);
        let file = match self.make(&name, used) {
            Ok(file) => file,
            Err(source) => {
                self.lock().free.extend(used.filter(|used| self.is_there(*used)));
                return Err(FsStoreError::of(&name, source));
            }
        };
        let key = SegmentKey::new(&self.store, number);
        let mut state = self.lock();
        state.next_number = number + 1;
        state.next = Some(OpenSegment { number, file, key });
        Ok(())
    }

    fn make(&self, name: &str, used: Option<u64>) -> std::io::Result<Arc<dyn StoreFile>> {
        if let Some(used) = used {
            self.disk.rename(&self::name(used), name)?;
        }
        let file = self.disk.create(name)?;
        file.allocate(self.segment_len)?;
        file.sync()?;
        self.disk.sync()?;
        Ok(file)
    }

    fn is_there(&self, number: u64) -> bool {
        self.disk.open(&name(number)).is_ok()
    }

    /// Takes the next segment.
    pub(super) fn take_next(&self) -> Option<OpenSegment> {
        self.lock().next.take()
    }

    /// A segment is written to its end.
    pub(super) fn close(&self, closed: ClosedSegment) {
        self.lock().closed.push_back(closed);
    }

    /// Segments whose commits are all `upto` or before are not needed any more. The checkpoint that
    /// has them outlives a power cut.
    pub(super) fn release(&self, upto: u64) -> Result<(), FsStoreError> {
        let removed: Vec<u64> = {
            let mut state = self.lock();
            while state.closed.front().is_some_and(|closed| closed.last <= upto) {
                let closed = state.closed.pop_front();
                state.free.extend(closed.map(|closed| closed.number));
            }
            let keep = state.free.len().min(FREE_MAX);
            state.free.drain(keep..).collect()
        };
        removed.iter().try_for_each(|number| {
            let name = name(*number);
            self.disk.remove(&name).map_err(|source| FsStoreError::of(&name, source))
        })
    }
}
