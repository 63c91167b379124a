//! The log of a store in use: commits are pushed by the region, one thread writes them in groups.
//!
//! For each group: the data that was written before, if any was, is brought to the disk; the
//! records are written; the log is brought to the disk; whoever waits is told. While the disk works
//! the next group gathers. An error ends it all: nothing is acknowledged any more.

use super::data::DataFile;
use super::error::{FsStoreError, StoreFailure};
use super::feed::{CommitAnswer, ReplicaFeed};
use super::record::{self, BATCH_HEAD, BatchHead};
use super::segments::{ClosedSegment, OpenSegment, Segments};
use super::snapshot::{SnapshotHolds, SnapshotTask};
use outboard_offcode::journal::RequestId;
use outboard_offcode::region::CommitObserver;
use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A group is written at the latest when it has so many bytes.
const GROUP_BYTES: usize = 4 << 20;
/// Bytes of memory that a group's buffer keeps.
const KEPT: usize = 1 << 20;
/// How long a group waits for those who were told of the last one, at most.
const GATHER_MAX: Duration = Duration::from_micros(500);
/// How long after the last group the log says that it is durable.
const IDLE: Duration = Duration::from_millis(500);
/// Bytes that a disk loses together.
const PAGE: u64 = 4096;
/// How long a thread waits that is woken for sure.
const FOREVER: Duration = Duration::from_secs(3600);

/// When commits go to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// At once.
    Always,
    /// When somebody wants it, and so often.
    OnRequest {
        /// A commit waits so long at most.
        at_least_every: Duration,
    },
    /// They are handed to the system, which writes them some time: a power cut loses what a client
    /// was told is safe.
    Never,
}

impl SyncMode {
    fn patience(self) -> Duration {
        match self {
            Self::Always => Duration::ZERO,
            Self::OnRequest { at_least_every } => at_least_every,
            Self::Never => Duration::from_secs(1),
        }
    }
}

/// What is called when more is durable, or the store has failed.
pub type ProgressWaker = Box<dyn Fn() + Send + Sync>;

/// How many bytes of commits may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingLimits {
    /// Above this the service is told to wait.
    pub(super) behind: usize,
    /// Above this the store fails.
    pub(super) max: usize,
}

/// What the log's thread, the keeper's and everybody else know together.
pub(super) struct LogHub {
    mode: SyncMode,
    limits: PendingLimits,
    base: AtomicU64,
    pending: Mutex<PendingRecords>,
    /// The log's thread.
    woken: Condvar,
    /// Everybody who waits for a commit, and for a segment.
    progress: Condvar,
    /// The keeper's thread.
    keeper: Condvar,
    durable: AtomicU64,
    waiting_bytes: AtomicU64,
    failure: OnceLock<StoreFailure>,
    waker: OnceLock<ProgressWaker>,
    /// The last commit of the newest checkpoint, or of the log that was found.
    pub(super) checkpointed: AtomicU64,
    pub(super) syncs: AtomicU64,
    /// Bytes of the log behind the newest checkpoint, about.
    pub(super) log_bytes: AtomicU64,
    /// From so many on a checkpoint is made.
    pub(super) log_limit: AtomicU64,
    pub(super) holds: SnapshotHolds,
    pub(super) feed: Arc<ReplicaFeed>,
}

impl fmt::Debug for LogHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let durable = self.durable.load(Ordering::Relaxed);
        f.debug_struct("LogHub").field("durable", &durable).finish_non_exhaustive()
    }
}

/// Commits that are not written yet, and what is wanted of both threads.
#[derive(Debug, Default)]
pub(super) struct PendingRecords {
    records: Vec<u8>,
    /// Their answers, where a replica wants them.
    answers: Vec<CommitAnswer>,
    count: u32,
    /// The last commit that was pushed.
    last: u64,
    wanted: u64,
    /// At so many commits the log's thread is woken.
    enough: u32,
    since: Option<Instant>,
    is_closing: bool,
    /// The log has no segment to go on in.
    pub(super) is_stalled: bool,
    /// A checkpoint is wanted.
    pub(super) wants_checkpoint: bool,
    /// A snapshot is wanted.
    pub(super) snapshot: Option<SnapshotTask>,
    pub(super) keeper_is_closing: bool,
    /// The disk had no space for another segment.
    pub(super) is_tight: bool,
}

impl LogHub {
    pub(super) fn new(mode: SyncMode, limits: PendingLimits, last: u64) -> Self {
        let pending = PendingRecords { last, ..PendingRecords::default() };
        Self {
            mode,
            limits,
            base: AtomicU64::new(0),
            pending: Mutex::new(pending),
            woken: Condvar::new(),
            progress: Condvar::new(),
            keeper: Condvar::new(),
            durable: AtomicU64::new(last),
            waiting_bytes: AtomicU64::new(0),
            failure: OnceLock::new(),
            waker: OnceLock::new(),
            checkpointed: AtomicU64::new(last),
            syncs: AtomicU64::new(0),
            log_bytes: AtomicU64::new(0),
            log_limit: AtomicU64::new(u64::MAX),
            holds: SnapshotHolds::default(),
            feed: Arc::new(ReplicaFeed::new(last)),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PendingRecords> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    /// What the store's numbers are ahead of the region's. Before anything is committed.
    pub(super) fn set_base(&self, base: u64) {
        self.base.store(base, Ordering::Relaxed);
    }

    /// Sets what is called on progress; once.
    pub(super) fn set_waker(&self, waker: ProgressWaker) -> bool {
        self.waker.set(waker).is_ok()
    }

    /// The newest commit that is durable: at the replica, too, where that is followed closely.
    pub(super) fn durable(&self) -> u64 {
        let own = self.durable.load(Ordering::Acquire);
        if self.mode == SyncMode::Never { own } else { self.feed.gated(own) }
    }

    /// The newest commit that a power cut does not lose, and behind which blocks that it has freed
    /// are used again.
    pub(super) fn on_disk(&self) -> u64 {
        self.feed.held(match self.mode {
            // What a replica is to have, the log has first.
            SyncMode::Never => {
                let durable = self.durable.load(Ordering::Acquire);
                self.checkpointed.load(Ordering::Acquire).min(durable)
            }
            _ => self.durable.load(Ordering::Acquire),
        })
    }

    pub(super) fn last(&self) -> u64 {
        self.lock().last
    }

    pub(super) fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn is_behind(&self) -> bool {
        self.waiting_bytes() > self.limits.behind as u64
    }

    pub(super) fn failure(&self) -> Option<&StoreFailure> {
        self.failure.get()
    }

    /// The store has failed. The first reason is kept.
    pub(super) fn fail(&self, failure: StoreFailure) {
        let is_news = !matches!(failure, StoreFailure::Closed);
        let text = failure.to_string();
        if self.failure.set(failure).is_ok() && is_news {
            tracing::error!("{text}");
        }
        self.feed.end();
        self.wake_all();
    }

    /// Nobody waits for a thread that has ended by itself.
    pub(super) fn fail_if_panicking(&self) {
        if thread::panicking() {
            self.fail(StoreFailure::Fault);
        }
    }

    /// Wakes everybody: the lock is taken, so that nobody is between looking and waiting.
    fn wake_all(&self) {
        drop(self.lock());
        self.woken.notify_all();
        self.keeper.notify_all();
        self.tell();
    }

    pub(super) fn tell(&self) {
        self.progress.notify_all();
        if let Some(waker) = self.waker.get() {
            waker();
        }
    }

    /// Commits up to this one are durable.
    pub(super) fn advance(&self, seq: u64) {
        let before = self.durable.fetch_max(seq, Ordering::AcqRel);
        if before < seq {
            drop(self.lock());
            self.tell();
        }
    }

    pub(super) fn want(&self, seq: u64) {
        let mut pending = self.lock();
        if seq > pending.wanted {
            pending.wanted = seq;
            drop(pending);
            self.woken.notify_one();
        }
    }

    /// Waits until a commit is durable.
    pub(super) fn wait(&self, seq: u64, limit: Duration) -> Result<bool, StoreFailure> {
        self.want(seq);
        let now = Instant::now();
        let until = now.checked_add(limit).unwrap_or(now + FOREVER);
        let mut pending = self.lock();
        loop {
            if self.durable() >= seq {
                return Ok(true);
            }
            if let Some(failure) = self.failure() {
                return Err(failure.clone());
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                return Ok(false);
            };
            let waited = self.progress.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The log's thread is to write what there is, and to end.
    pub(super) fn close_log(&self) {
        self.lock().is_closing = true;
        self.woken.notify_all();
        self.progress.notify_all();
    }

    pub(super) fn wake_keeper(&self, change: impl FnOnce(&mut PendingRecords)) {
        change(&mut self.lock());
        self.keeper.notify_all();
    }

    /// Waits as the keeper.
    pub(super) fn keeper_waits<'a>(
        &self,
        pending: MutexGuard<'a, PendingRecords>,
        limit: Duration,
    ) -> MutexGuard<'a, PendingRecords> {
        self.keeper.wait_timeout(pending, limit).unwrap_or_else(PoisonError::into_inner).0
    }

    /// There is a segment again.
    pub(super) fn segment_is_there(&self) {
        drop(self.lock());
        self.progress.notify_all();
    }
}

/// Pushes a region's commits.
#[derive(Debug)]
pub(super) struct LogPusher(pub(super) Arc<LogHub>);

impl CommitObserver for LogPusher {
    fn committed(&self, seq: u64, lines: &[u8], answer: Option<(RequestId, &[u8])>) {
        let hub = &*self.0;
        if hub.failure().is_some() {
            return;
        }
        let mut pending = hub.lock();
        let was_empty = pending.count == 0;
        let before = pending.records.len();
        let last = hub.base().wrapping_add(seq);
        pending.last = last;
        record::push_record(&mut pending.records, last, lines);
        if let Some((id, bytes)) = answer.filter(|_| hub.feed.is_fed()) {
            pending.answers.push(CommitAnswer { seq: last, id, bytes: bytes.to_vec() });
        }
        pending.count += 1;
        if was_empty {
            pending.since = Some(Instant::now());
        }
        let len = pending.records.len();
        let waits = hub.waiting_bytes.fetch_add((len - before) as u64, Ordering::Relaxed);
        let is_due = was_empty
            || pending.count == pending.enough
            || before < GROUP_BYTES && len >= GROUP_BYTES;
        drop(pending);
        if is_due {
            hub.woken.notify_one();
        }
        let limit = hub.limits.max;
        if waits > limit as u64 {
            let pending = usize::try_from(waits).unwrap_or(usize::MAX);
            hub.fail(StoreFailure::Overrun { pending, limit });
        }
    }
}

/// The log's thread.
#[derive(Debug)]
pub(super) struct LogWriter {
    hub: Arc<LogHub>,
    data: Arc<DataFile>,
    segments: Arc<Segments>,
    open: OpenSegment,
    at: u64,
    /// The last commit that was written.
    last: u64,
    /// What the next group is gathered into, when this one is written.
    buffer: Vec<u8>,
    /// How many commits the last group had, and how long the disk took.
    group: (u32, Duration),
    /// The log does not say yet that its last group is durable.
    is_unsaid: bool,
}

/// What the log's thread does next.
enum Next {
    Write { records: Vec<u8>, answers: Vec<CommitAnswer>, count: u32 },
    Say,
    End,
}

impl LogWriter {
    pub(super) fn new(
        hub: Arc<LogHub>,
        data: Arc<DataFile>,
        segments: Arc<Segments>,
        open: OpenSegment,
    ) -> Self {
        let last = hub.durable();
        let group = (0, Duration::ZERO);
        let (at, buffer, is_unsaid) = (0, Vec::new(), false);
        Self { hub, data, segments, open, at, last, buffer, group, is_unsaid }
    }

    /// Writes until the store is closed or fails.
    pub(super) fn run(mut self) {
        if let Err(failure) = self.write_all() {
            self.hub.fail(failure);
        }
    }

    fn write_all(&mut self) -> Result<(), StoreFailure> {
        loop {
            match self.next() {
                Next::Write { records, answers, count } => {
                    self.write_group(records, answers, count)?;
                }
                Next::Say => self.say_durable()?,
                Next::End => return self.end(),
            }
        }
    }

    /// Everything outlives a power cut when the store was closed, whatever the mode.
    fn end(&self) -> Result<(), StoreFailure> {
        if self.hub.failure().is_some() {
            return Ok(());
        }
        self.data.sync().map_err(failed)?;
        self.sync()
    }

    /// Waits until a group is due, and takes it.
    fn next(&mut self) -> Next {
        let hub = Arc::clone(&self.hub);
        let mut pending = hub.lock();
        loop {
            if hub.failure().is_some() {
                return Next::End;
            }
            let left = self.left(&pending);
            if pending.count > 0 && (pending.is_closing || left.is_zero()) {
                break;
            }
            if pending.is_closing {
                return Next::End;
            }
            pending.enough = self.group.0;
            let waited = hub.woken.wait_timeout(pending, left);
            let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
            pending = guard;
            if result.timed_out() && pending.count == 0 && self.is_unsaid {
                return Next::Say;
            }
        }
        let count = std::mem::take(&mut pending.count);
        pending.since = None;
        let empty = std::mem::take(&mut self.buffer);
        let records = std::mem::replace(&mut pending.records, empty);
        Next::Write { records, answers: std::mem::take(&mut pending.answers), count }
    }

    /// How long the group that gathers may wait.
    fn left(&self, pending: &PendingRecords) -> Duration {
        let Some(since) = pending.since else {
            return if self.is_unsaid { IDLE } else { FOREVER };
        };
        if pending.records.len() >= GROUP_BYTES {
            return Duration::ZERO;
        }
        let is_wanted = pending.wanted > self.last || self.hub.mode == SyncMode::Always;
        let patience = match is_wanted {
            // Those who were told of the last group are about to commit again: they share a flush
            // with whoever was faster, if they come in a fraction of the time that it takes.
            true if pending.count < self.group.0 => (self.group.1 / 4).min(GATHER_MAX),
            true => Duration::ZERO,
            false => self.hub.mode.patience(),
        };
        patience.saturating_sub(since.elapsed())
    }

    fn write_group(
        &mut self,
        mut records: Vec<u8>,
        answers: Vec<CommitAnswer>,
        count: u32,
    ) -> Result<(), StoreFailure> {
        let begun = Instant::now();
        if self.hub.mode != SyncMode::Never {
            self.data.sync().map_err(failed)?;
        }
        self.append(&records)?;
        if self.hub.mode != SyncMode::Never {
            self.sync()?;
        }
        self.hub.feed.push(&records, answers, self.last);
        let len = records.len() as u64;
        self.group = (count, begun.elapsed());
        records.clear();
        records.shrink_to(KEPT);
        self.buffer = records;
        self.is_unsaid = self.hub.mode != SyncMode::Never;
        self.hub.waiting_bytes.fetch_sub(len, Ordering::Relaxed);
        let before = self.hub.log_bytes.fetch_add(len, Ordering::Relaxed);
        let limit = self.hub.log_limit.load(Ordering::Relaxed);
        if before < limit && before + len >= limit {
            self.hub.wake_keeper(|_| ());
        }
        self.hub.advance(self.last);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreFailure> {
        self.hub.syncs.fetch_add(1, Ordering::Relaxed);
        let synced = self.open.file.sync();
        synced.map_err(|source| self.of_segment(source))
    }

    fn of_segment(&self, source: std::io::Error) -> StoreFailure {
        failed(FsStoreError::of(&super::segments::name(self.open.number), source))
    }

    /// Writes records into as many segments as they need. All but the last are on the disk then.
    fn append(&mut self, mut records: &[u8]) -> Result<(), StoreFailure> {
        while let Some(first) = record::first_record(records) {
            let room = self.segments.segment_len().saturating_sub(self.at + BATCH_HEAD as u64);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (len, count) = match record::fitting(records, room) {
                (0, _) if self.at > 0 => {
                    self.rotate()?;
                    continue;
                }
                // One that is longer than a segment makes it longer.
                (0, _) => (first.len, 1),
                some => some,
            };
            let (batch, rest) = records.split_at(len);
            self.put(BatchHead { count, first: first.seq, durable: self.hub.on_disk() }, batch)?;
            self.last = first.seq + u64::from(count) - 1;
            records = rest;
        }
        Ok(())
    }

    fn put(&mut self, head: BatchHead, body: &[u8]) -> Result<(), StoreFailure> {
        self.at += self.write(self.at, head, body)?;
        Ok(())
    }

    /// Writes a batch, and returns its bytes.
    fn write(&self, at: u64, head: BatchHead, body: &[u8]) -> Result<u64, StoreFailure> {
        // Longer than a batch can be: no execution may write as much.
        let too_long = || self.of_segment(std::io::ErrorKind::InvalidInput.into());
        let head = head.emit(&self.open.key, body).ok_or_else(too_long)?;
        let mut parts = [IoSlice::new(&head), IoSlice::new(body)];
        let written = self.open.file.write_at(&mut parts, at);
        written.map_err(|source| self.of_segment(source))?;
        Ok((BATCH_HEAD + body.len()) as u64)
    }

    /// An empty batch says that all before it is durable: should a disk change bytes of it, that
    /// is damage, not a flush that was cut short. It lies on another page, where there is one, and
    /// the next group goes over it.
    fn say_durable(&mut self) -> Result<(), StoreFailure> {
        self.is_unsaid = false;
        let head = BatchHead { count: 0, first: self.last + 1, durable: self.hub.on_disk() };
        let (end, at) = (self.segments.segment_len(), self.at);
        let fits = |at: &u64| at + BATCH_HEAD as u64 <= end;
        match [at.next_multiple_of(PAGE), at].into_iter().find(fits) {
            Some(at) => self.write(at, head, &[]).map(drop),
            None => Ok(()),
        }
    }

    /// Goes on in the next segment, and waits where there is none.
    fn rotate(&mut self) -> Result<(), StoreFailure> {
        if self.hub.mode != SyncMode::Never {
            self.sync()?;
        }
        // First, so that a checkpoint that is made because none is left can free this one.
        self.segments.close(ClosedSegment { number: self.open.number, last: self.last });
        let next = match self.segments.take_next() {
            Some(next) => next,
            None => self.wait_for_segment()?,
        };
        (self.open, self.at) = (next, 0);
        self.hub.wake_keeper(|_| ());
        Ok(())
    }

    fn wait_for_segment(&self) -> Result<OpenSegment, StoreFailure> {
        self.hub.wake_keeper(|pending| pending.is_stalled = true);
        let mut pending = self.hub.lock();
        loop {
            if let Some(failure) = self.hub.failure() {
                return Err(failure.clone());
            }
            if let Some(next) = self.segments.take_next() {
                pending.is_stalled = false;
                return Ok(next);
            }
            let waited = self.hub.progress.wait(pending);
            pending = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.hub.fail_if_panicking();
    }
}

pub(super) fn failed(error: FsStoreError) -> StoreFailure {
    match error {
        FsStoreError::Failed(failure) => failure,
        error => StoreFailure::Disk(Arc::new(error)),
    }
}
