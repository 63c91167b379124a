//! The keeper's thread: makes checkpoints while commits go on, and the log's next segment.
//!
//! A checkpoint is due when the log behind the last one is long, when somebody wants it, and when
//! the disk has no space for another segment. The log's segments stay until the checkpoint *after*
//! the one that has their commits is on the disk, so that one that is damaged can be done without;
//! where space is short, until that one itself is.

use super::checkpoint::{CHUNK_MAX, CheckpointEnding, CheckpointSummary, CheckpointWriter};
use super::data::DataFile;
use super::disk::StoreDisk;
use super::error::FsStoreError;
use super::log::{LogHub, failed};
use super::segments::Segments;
use super::snapshot::SnapshotTask;
use outboard_mem::SharedRegion;
use outboard_offcode::ActiveRegion;
use outboard_offcode::region::COPY_PAGE;
use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pages that are copied while commits wait, about.
const FEW_PAGES: usize = 64;
/// How often changed pages are copied until they are few.
const ROUNDS_MAX: usize = 8;
/// Bytes of a checkpoint that are none of the region, at least.
const SLACK: u64 = 16 << 10;
/// How long nothing is tried after the disk was full.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the keeper waits that is woken for sure.
const FOREVER: Duration = Duration::from_secs(3600);

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) hub: Arc<LogHub>,
    pub(super) disk: Arc<dyn StoreDisk>,
    pub(super) data: Arc<DataFile>,
    pub(super) segments: Arc<Segments>,
    pub(super) region: Arc<ActiveRegion>,
    pub(super) uuid: [u8; 16],
    /// The newest checkpoint that is whole, if one is.
    pub(super) newest: Option<CheckpointSummary>,
    /// Bytes of the log after which a checkpoint is made, at least.
    pub(super) log_max: u64,
    /// When the disk was full last.
    pub(super) was_full: Option<Instant>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.hub.fail_if_panicking();
    }
}

/// What the keeper does next.
enum Chore {
    Checkpoint,
    Snapshot(SnapshotTask),
    Segment,
    End,
}

impl Keeper {
    /// Works until the store is closed or fails.
    pub(super) fn run(mut self) -> Self {
        loop {
            let done = match self.next() {
                Chore::Checkpoint => self.checkpoint_unless_full(),
                Chore::Snapshot(task) => {
                    self.snapshot(task);
                    Ok(())
                }
                Chore::Segment => self.provide_segment(),
                Chore::End => {
                    // Who waits for one learns that there will be none.
                    drop(self.hub.lock().snapshot.take());
                    return self;
                }
            };
            if let Err(error) = done {
                self.hub.fail(failed(error));
            }
        }
    }

    fn next(&self) -> Chore {
        let mut pending = self.hub.lock();
        loop {
            if pending.keeper_is_closing || self.hub.failure().is_some() {
                return Chore::End;
            }
            let rest = self.was_full.map(|at| AGAIN.saturating_sub(at.elapsed()));
            let may_try = rest.is_none_or(|rest| rest.is_zero()) || pending.is_stalled;
            if self.segments.lacks_next() && may_try {
                return Chore::Segment;
            }
            if std::mem::take(&mut pending.wants_checkpoint) || self.is_due() && may_try {
                return Chore::Checkpoint;
            }
            if let Some(task) = pending.snapshot.take() {
                return Chore::Snapshot(task);
            }
            let limit = rest.filter(|rest| !rest.is_zero()).unwrap_or(FOREVER);
            pending = self.hub.keeper_waits(pending, limit);
        }
    }

    fn is_due(&self) -> bool {
        let limit = self.hub.log_limit.load(Ordering::Relaxed);
        self.hub.log_bytes.load(Ordering::Relaxed) >= limit
    }

    /// A disk that has no space for a checkpoint may have some later: the log goes on meanwhile.
    fn checkpoint_unless_full(&mut self) -> Result<(), FsStoreError> {
        match self.checkpoint(CheckpointEnding::UnderWay) {
            Err(error @ FsStoreError::NoSpace { .. }) => self.is_full(&error),
            Err(error) => return Err(error),
            Ok(_) if !self.segments.lacks_next() => self.has_space(),
            Ok(_) => {}
        }
        Ok(())
    }

    fn is_full(&mut self, error: &FsStoreError) {
        if self.was_full.is_none() {
            tracing::warn!("the store's disk is full: {error}");
        }
        self.was_full = Some(Instant::now());
        self.hub.lock().is_tight = true;
    }

    fn has_space(&mut self) {
        self.was_full = None;
        self.hub.lock().is_tight = false;
    }

    /// Makes the next segment, out of those that a checkpoint frees if there is no space.
    pub(super) fn provide_segment(&mut self) -> Result<(), FsStoreError> {
        let made = self.segments.prepare().or_else(|error| match error {
            FsStoreError::NoSpace { .. } => {
                self.is_full(&error);
                self.prepare_in_released()
            }
            other => Err(other),
        });
        match made {
            Ok(()) => {
                self.has_space();
                self.reserve()?;
                self.hub.segment_is_there();
                Ok(())
            }
            // Until the log's last segment is full, space may be found.
            Err(FsStoreError::NoSpace { .. }) if !self.hub.lock().is_stalled => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes the next segment of what the newest checkpoint has, and if that is too little, of what
    /// a newer one has. The newest may be a moment old and have every commit: it kept the log of
    /// the one before, as there was space then.
    fn prepare_in_released(&mut self) -> Result<(), FsStoreError> {
        let covered = self.newest.map_or(0, |newest| newest.seq);
        self.segments.release(covered)?;
        match self.segments.prepare() {
            Err(FsStoreError::NoSpace { .. }) if self.hub.last() > covered => {
                self.checkpoint(CheckpointEnding::UnderWay)?;
                self.segments.prepare()
            }
            made => made,
        }
    }

    /// Sees to it that checkpoints have space: they are made because nothing else has.
    fn reserve(&self) -> Result<(), FsStoreError> {
        let failed = |errno: Errno| FsStoreError::of("the region's memory", errno.into());
        let pages = fstat(self.region.memory().descriptor()?).map_err(failed)?;
        let used = u64::try_from(pages.st_blocks).unwrap_or(0) * 512;
        let number = self.next_number();
        // Pages that change meanwhile are in it more than once.
        let len = used + used / 8 + 2 * used.min((FEW_PAGES * COPY_PAGE) as u64) + SLACK;
        let reserve = |number| super::checkpoint::reserve(self.disk.as_ref(), number, len);
        // And the one after it: the disk may stay full.
        reserve(number).and_then(|()| reserve(number + 1))
    }

    fn next_number(&self) -> u64 {
        self.newest.map_or(super::checkpoint::FIRST, |newest| newest.number + 1)
    }

    /// Makes a checkpoint now.
    pub(super) fn checkpoint(
        &mut self,
        ending: CheckpointEnding,
    ) -> Result<CheckpointSummary, FsStoreError> {
        let store = (&self.uuid, self.region.memory().len() as u64);
        let number = self.next_number();
        let bytes_before = self.hub.log_bytes.load(Ordering::Relaxed);
        let mut writer = CheckpointWriter::begin(self.disk.as_ref(), store, number)?;
        let seq = self.hub.base().wrapping_add(copy(&self.region, &mut writer, |_| ())?);
        // What was written before the copy's last commit, whether the log has that or not.
        self.data.sync().map_err(|error| FsStoreError::Failed(failed(error)))?;
        let made = writer.finish(seq, ending)?;
        let before = self.newest.replace(made).map_or(0, |before| before.seq);
        self.hub.log_bytes.fetch_sub(bytes_before, Ordering::Relaxed);
        self.hub.log_limit.store(self.log_max.max(made.len / 2), Ordering::Relaxed);
        self.reserve()?;
        self.hub.checkpointed.fetch_max(seq, Ordering::AcqRel);
        let is_tight = self.hub.lock().is_tight;
        // What a replica is to have, the log has first.
        if is_tight && !self.hub.feed.is_fed() {
            self.hub.advance(seq);
        }
        self.segments.release(if is_tight { seq } else { before })?;
        Ok(made)
    }
}

/// Copies what was ever written of the region, as of one commit, whose number is returned. Commits
/// wait only while the last pages are read, and while `then` is told of which commit they are.
pub(super) fn copy(
    region: &ActiveRegion,
    to: &mut CheckpointWriter,
    then: impl FnOnce(u64),
) -> Result<u64, FsStoreError> {
    let copying = region.begin_copy();
    copy_memory(region.memory(), to)?;
    for _ in 0..ROUNDS_MAX {
        let changed = copying.changed();
        let are_few = changed.len() <= FEW_PAGES;
        for some in changed.chunks(FEW_PAGES) {
            copy_pages(region, some)?.iter().try_for_each(|(at, page)| to.chunk(*at, page))?;
        }
        if are_few {
            break;
        }
    }
    let (writer, changed) = copying.finish();
    let (seq, last) = (region.seq(), copy_pages(region, &changed)?);
    then(seq);
    drop(writer);
    last.iter().try_for_each(|(at, page)| to.chunk(*at, page))?;
    Ok(seq)
}

/// Copies what was ever written of memory.
pub(super) fn copy_memory(
    memory: &SharedRegion,
    to: &mut CheckpointWriter,
) -> Result<(), FsStoreError> {
    let pages = memory.descriptor()?;
    let (mut at, mut buffer) = (0, Vec::with_capacity(CHUNK_MAX));
    while let Some(used) = used_from(&pages, at, memory.len())? {
        buffer.clear();
        memory.append_to(used.clone(), &mut buffer)?;
        chunks_of(used.start as u64, &buffer, to)?;
        at = used.end;
    }
    Ok(())
}

type CopiedPage = (u64, [u8; COPY_PAGE]);

fn copy_pages(region: &ActiveRegion, offsets: &[u64]) -> Result<Vec<CopiedPage>, FsStoreError> {
    let copy = |at: &u64| {
        let mut page = [0; COPY_PAGE];
        let offset = usize::try_from(*at).unwrap_or(usize::MAX);
        let len = region.memory().len().saturating_sub(offset).min(COPY_PAGE);
        region.memory().copy_out(offset, &mut page[..len])?;
        Ok((*at, page))
    };
    offsets.iter().map(copy).collect()
}

/// Adds the pages that are not all zero, as long chunks as there are.
fn chunks_of(offset: u64, bytes: &[u8], to: &mut CheckpointWriter) -> Result<(), FsStoreError> {
    let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
    let mut at = 0;
    while at < bytes.len() {
        let rest = bytes[at..].chunks(COPY_PAGE);
        let used: usize = rest.take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
        if used > 0 {
            to.chunk(offset + at as u64, &bytes[at..at + used])?;
        }
        at += used + COPY_PAGE;
    }
    Ok(())
}

/// The next bytes of a memory file that were ever written, no more than a chunk has.
fn used_from(pages: &OwnedFd, at: usize, len: usize) -> Result<Option<Range<usize>>, FsStoreError> {
    let failed = |errno: Errno| FsStoreError::of("the region's memory", io::Error::from(errno));
    let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX).min(len);
    let start = match seek(pages, SeekFrom::Data(at as u64)) {
        Ok(start) => place(start),
        Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    };
    let hole = place(seek(pages, SeekFrom::Hole(start as u64)).map_err(failed)?);
    let end = hole.min(start.saturating_add(CHUNK_MAX));
    Ok((start < end).then_some(start..end))
}
