//! Finds the state that a store was left in: the newest checkpoint that is whole, and the commits
//! that the log has behind it.
//!
//! Changes nothing on the disk: that is done when the store is started, so that a machine that
//! stops here has lost nothing.

use super::checkpoint::{self, CheckpointEnding, CheckpointSummary};
use super::directory::OpenedStore;
use super::disk::StoreDisk;
use super::error::FsStoreError;
use super::record::{BatchHead, SegmentKey, WholeBatch, find_batch, parse_batch, records};
use super::segments::{self, ClosedSegment};
use outboard_mem::SharedRegion;
use outboard_offcode::region::{ReplayError, replay};

/// The region of a store that nobody uses yet.
#[derive(Debug)]
pub struct RecoveredRegion {
    /// Its bytes, a memory file.
    pub memory: SharedRegion,
    /// The last commit that is in it.
    pub last_seq: u64,
    /// Whether the store was closed, so that nothing can have been lost.
    pub is_orderly: bool,
    /// Why the newer checkpoint was not used: it was being written, or is damaged.
    pub passed_over: Option<String>,
    pub(super) log: FoundLog,
    /// The newest whole checkpoint.
    pub(super) newest: CheckpointSummary,
}

/// What there is of a log.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    /// Segments with commits, in their order.
    pub(super) closed: Vec<ClosedSegment>,
    /// Bytes of the last of them that hold commits.
    pub(super) last_len: u64,
    /// Segments of which nothing is used.
    pub(super) dead: Vec<u64>,
    /// The next segment's number.
    pub(super) next_number: u64,
}

impl OpenedStore {
    /// Reads the newest whole checkpoint and the log behind it.
    ///
    /// # Errors
    /// [`FsStoreError::Damaged`] where commits that were durable cannot be read any more; the
    /// disk's.
    pub fn recover(&self) -> Result<RecoveredRegion, FsStoreError> {
        let (summary, memory, passed_over) = self.newest_checkpoint()?;
        let mut replaying = Replaying { expected: summary.seq + 1, memory: Some(&memory) };
        let log = scan(self.disk.as_ref(), &self.superblock.uuid, &mut replaying)?;
        let last_seq = replaying.expected - 1;
        let is_orderly = summary.ending == CheckpointEnding::Orderly && last_seq == summary.seq;
        let newest = summary;
        Ok(RecoveredRegion { memory, last_seq, is_orderly, passed_over, log, newest })
    }

    fn newest_checkpoint(
        &self,
    ) -> Result<(CheckpointSummary, SharedRegion, Option<String>), FsStoreError> {
        let store = (&self.superblock.uuid, self.superblock.region_len);
        let disk = self.disk.as_ref();
        let mut why = Vec::new();
        let mut found = Vec::new();
        for number in [0, 1] {
            let name = checkpoint::name(number);
            match checkpoint::peek(disk, store, &name) {
                Ok(number) => found.push((number, name)),
                // There is one only, until the first that follows it is made.
                Err(FsStoreError::Disk { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => why.push(in_short(&error)),
            }
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        for (_, name) in &found {
            match checkpoint::load(disk, store, name)? {
                Ok((summary, memory)) => {
                    let why = (!why.is_empty()).then(|| why.join("; "));
                    return Ok((summary, memory, why));
                }
                Err(error @ FsStoreError::Damaged { .. }) => why.push(in_short(&error)),
                Err(error) => return Err(error),
            }
        }
        let what = format!("neither of the two is whole ({})", why.join("; "));
        Err(FsStoreError::damaged("checkpoints", what))
    }

    /// The newest whole checkpoint, and what the log has at all: for memory that is newer.
    pub(super) fn survey(
        &self,
    ) -> Result<(Option<CheckpointSummary>, FoundLog, u64), FsStoreError> {
        let newest = match self.newest_checkpoint() {
            Ok((summary, _, _)) => Some(summary),
            Err(FsStoreError::Damaged { .. }) => None,
            Err(error) => return Err(error),
        };
        let expected = newest.map_or(0, |newest| newest.seq) + 1;
        let mut replaying = Replaying { expected, memory: None };
        let log = scan(self.disk.as_ref(), &self.superblock.uuid, &mut replaying)?;
        Ok((newest, log, replaying.expected - 1))
    }
}

/// What is wrong with a file of two: the other one may do.
fn in_short(error: &FsStoreError) -> String {
    match error {
        FsStoreError::Damaged { file, what } => format!("{file}: {what}"),
        error => error.to_string(),
    }
}

struct Replaying<'a> {
    /// The commit that is next.
    expected: u64,
    /// Where commits are applied; `None`: what the log has is looked at only, damaged or not.
    memory: Option<&'a SharedRegion>,
}

/// Reads all segments, up to where the log ends.
fn scan(
    disk: &dyn StoreDisk,
    store: &[u8; 16],
    replaying: &mut Replaying<'_>,
) -> Result<FoundLog, FsStoreError> {
    let names = disk.names().map_err(|source| FsStoreError::of("the store's directory", source))?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| segments::number(name)).collect();
    numbers.sort_unstable();
    let next_number = numbers.last().map_or(1, |last| last.saturating_add(1));
    let mut log = FoundLog { next_number, ..FoundLog::default() };
    let mut is_over = false;
    for number in numbers {
        let name = segments::name(number);
        let bytes = read(disk, &name)?;
        let key = SegmentKey::new(store, number);
        let mut used = None;
        for batch in batches(&key, &bytes) {
            is_over |= replaying.is_too_early(&name, &batch.head)?;
            if !is_over {
                replaying.take(&name, &bytes, &batch)?;
                used = Some((batch.body.end, batch.head.next()));
            }
        }
        match used {
            Some((len, next)) => {
                log.closed.push(ClosedSegment { number, last: next.saturating_sub(1) });
                log.last_len = len as u64;
            }
            None => log.dead.push(number),
        }
    }
    Ok(log)
}

fn read(disk: &dyn StoreDisk, name: &str) -> Result<Vec<u8>, FsStoreError> {
    let failed = |source| FsStoreError::of(name, source);
    let file = disk.open(name).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len];
    file.read_at(&mut bytes, 0).map_err(failed)?;
    Ok(bytes)
}

/// All whole batches of a segment, wherever they are.
fn batches<'a>(key: &'a SegmentKey, segment: &'a [u8]) -> impl Iterator<Item = WholeBatch> + 'a {
    let mut at = 0;
    std::iter::from_fn(move || {
        let found = parse_batch(key, segment, at).or_else(|| find_batch(key, segment, at))?;
        at = found.body.end;
        Some(found)
    })
}

impl Replaying<'_> {
    /// Whether commits before a batch are missing: then the machine stopped while it was being
    /// written, unless it says that they were durable.
    fn is_too_early(&self, name: &str, head: &BatchHead) -> Result<bool, FsStoreError> {
        let BatchHead { first, durable, .. } = *head;
        if first <= self.expected || self.memory.is_none() && durable >= self.expected {
            return Ok(false);
        }
        if durable < self.expected {
            return Ok(true);
        }
        let (from, to) = (self.expected, durable.min(first - 1));
        let what = format!("commits {from} to {to} were durable and are not there any more");
        Err(FsStoreError::damaged(name, what))
    }

    fn take(&mut self, name: &str, segment: &[u8], batch: &WholeBatch) -> Result<(), FsStoreError> {
        for record in records(&segment[batch.body.clone()]) {
            if record.seq >= self.expected {
                self.apply(name, record.seq, record.lines)?;
            }
        }
        self.expected = self.expected.max(batch.head.next());
        Ok(())
    }

    fn apply(&mut self, name: &str, seq: u64, lines: &[u8]) -> Result<(), FsStoreError> {
        let Some(memory) = self.memory else { return Ok(()) };
        replay(memory, lines).map_err(|error| match error {
            ReplayError::Memory(error @ outboard_mem::MemError::Map { .. }) => error.into(),
            other => FsStoreError::damaged(name, format!("commit {seq}: {other}")),
        })
    }
}
