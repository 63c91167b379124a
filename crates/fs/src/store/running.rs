//! A store in use: what the service asks of it, and how it begins and ends.

use super::checkpoint::{CheckpointEnding, CheckpointSummary};
use super::data::DataFile;
use super::directory::OpenedStore;
use super::error::{FsStoreError, StoreFailure};
use super::feed::ReplicaFeed;
use super::keeper::Keeper;
use super::log::{LogHub, LogPusher, LogWriter, PendingLimits, ProgressWaker, SyncMode, failed};
use super::recover::{FoundLog, RecoveredRegion};
use super::segments::{self, Segments};
use super::snapshot::{FsSnapshots, HeldBlocks};
use super::superblock::Superblock;
use outboard_offcode::ActiveRegion;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How a store works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStoreOptions {
    /// When commits go to the disk.
    pub sync: SyncMode,
    /// Bytes of a segment of the log.
    pub segment_len: u64,
    /// Bytes of the log after which a checkpoint is made, unless half of the metadata is more.
    pub log_max: u64,
    /// Bytes of commits that wait, above which the service is told to wait.
    pub behind: usize,
    /// Bytes of commits that wait, above which the store fails.
    pub pending_max: usize,
}

impl Default for FsStoreOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::OnRequest { at_least_every: Duration::from_secs(1) },
            segment_len: 8 << 20,
            log_max: 64 << 20,
            behind: 16 << 20,
            pending_max: 256 << 20,
        }
    }
}

/// How a store is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStoreStatus {
    /// The last commit.
    pub last: u64,
    /// The last commit that is durable.
    pub durable: u64,
    /// The last commit of the newest checkpoint, or of the log that was found at the start.
    pub checkpointed: u64,
    /// Bytes of commits that wait for the disk.
    pub pending_bytes: u64,
    /// Bytes of the log behind the newest checkpoint, about.
    pub log_bytes: u64,
    /// How often the log was brought to the disk.
    pub syncs: u64,
    /// The disk had no space for the log's next segment. What needs space should be refused.
    pub is_tight: bool,
}

/// See this file's first lines. Dropped, it writes what was committed and makes no checkpoint.
#[derive(Debug)]
pub struct FsStore {
    pub(super) hub: Arc<LogHub>,
    data: Arc<DataFile>,
    superblock: Superblock,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<Keeper>>,
    _lock: Option<File>,
}

impl OpenedStore {
    /// Goes on with a region that was recovered: `region` is over its memory, with a new journal,
    /// whose number is `incarnation`.
    ///
    /// # Errors
    /// [`FsStoreError`].
    pub fn start(
        mut self,
        recovered: RecoveredRegion,
        region: &Arc<ActiveRegion>,
        incarnation: u64,
        options: FsStoreOptions,
    ) -> Result<FsStore, FsStoreError> {
        let RecoveredRegion { last_seq, log, newest, .. } = recovered;
        self.check_len(region)?;
        self.settle(&log, newest.number)?;
        let base = last_seq.wrapping_sub(region.seq());
        let before = match self.superblock.incarnation == incarnation {
            // A replica goes on with its server's journal.
            true => self.superblock,
            false => self.superblock.after(last_seq),
        };
        self.replace_superblock(Superblock { incarnation, base, ..before })?;
        let (hub, segments) = self.parts(options, (log, last_seq));
        self.keeper(region, (&hub, &segments), Some(newest), options).begin(self)
    }

    /// Goes on with a region whose memory and journal outlived the process before: it has all that
    /// the log has, and perhaps more. It becomes a checkpoint at once.
    ///
    /// # Errors
    /// [`FsStoreError::OtherMemory`] if it is another run's: recover then, with a new journal.
    /// Others as for [`start`](Self::start).
    pub fn adopt(
        self,
        region: &Arc<ActiveRegion>,
        incarnation: u64,
        options: FsStoreOptions,
    ) -> Result<FsStore, FsStoreError> {
        self.check_len(region)?;
        let (newest, log, logged) = self.survey()?;
        let last = self.superblock.base.wrapping_add(region.seq());
        if self.superblock.incarnation != incarnation || last < logged {
            return Err(FsStoreError::OtherMemory);
        }
        let old: Vec<u64> =
            log.closed.iter().map(|closed| closed.number).chain(log.dead.iter().copied()).collect();
        let log = FoundLog { next_number: log.next_number, ..FoundLog::default() };
        let (hub, segments) = self.parts(options, (log, last));
        let mut keeper = self.keeper(region, (&hub, &segments), newest, options);
        keeper.checkpoint(CheckpointEnding::UnderWay)?;
        // The log ends before the checkpoint, perhaps: what follows would not join it.
        self.remove_segments(&old)?;
        keeper.begin(self)
    }

    fn check_len(&self, region: &ActiveRegion) -> Result<(), FsStoreError> {
        let (found, wanted) = (self.superblock.region_len, region.memory().len() as u64);
        let what = "bytes of metadata";
        match found == wanted {
            true => Ok(()),
            false => Err(FsStoreError::OtherShape { what, found, wanted }),
        }
    }

    /// Brings what was found to the disk, which the process before need not have done, and cuts off
    /// what was not whole: nothing of it may ever seem to follow what is written from now on.
    fn settle(&self, log: &FoundLog, newest: u64) -> Result<(), FsStoreError> {
        self.data.sync()?;
        let sync = |name: &str, len: Option<u64>| -> io::Result<()> {
            let file = self.disk.open(name)?;
            len.map_or(Ok(()), |len| file.set_len(len))?;
            file.sync()
        };
        let checkpoint = super::checkpoint::name(newest);
        sync(&checkpoint, None).map_err(|source| FsStoreError::of(&checkpoint, source))?;
        for (index, closed) in log.closed.iter().enumerate() {
            let is_last = index + 1 == log.closed.len();
            let name = segments::name(closed.number);
            sync(&name, is_last.then_some(log.last_len))
                .map_err(|source| FsStoreError::of(&name, source))?;
        }
        self.remove_segments(&log.dead)
    }

    fn remove_segments(&self, numbers: &[u64]) -> Result<(), FsStoreError> {
        for number in numbers {
            let name = segments::name(*number);
            self.disk.remove(&name).map_err(|source| FsStoreError::of(&name, source))?;
        }
        self.disk.sync().map_err(|source| FsStoreError::of("the store's directory", source))
    }

    fn parts(
        &self,
        options: FsStoreOptions,
        (log, last): (FoundLog, u64),
    ) -> (Arc<LogHub>, Arc<Segments>) {
        let limits = PendingLimits { behind: options.behind, max: options.pending_max };
        let hub = LogHub::new(options.sync, limits, last);
        let found = (log.closed, log.next_number);
        let disk = Arc::clone(&self.disk);
        self.data.feed(&hub.feed);
        let segments = Segments::new(disk, self.superblock.uuid, options.segment_len, found);
        (Arc::new(hub), Arc::new(segments))
    }

    fn keeper(
        &self,
        region: &Arc<ActiveRegion>,
        (hub, segments): (&Arc<LogHub>, &Arc<Segments>),
        newest: Option<CheckpointSummary>,
        options: FsStoreOptions,
    ) -> Keeper {
        hub.set_base(self.superblock.base);
        hub.log_limit.store(options.log_max, Ordering::Relaxed);
        Keeper {
            hub: Arc::clone(hub),
            disk: Arc::clone(&self.disk),
            data: Arc::clone(&self.data),
            segments: Arc::clone(segments),
            region: Arc::clone(region),
            uuid: self.superblock.uuid,
            newest,
            log_max: options.log_max,
            was_full: None,
        }
    }
}

impl Keeper {
    /// Starts both threads: commits go to the log from now on.
    fn begin(mut self, opened: OpenedStore) -> Result<FsStore, FsStoreError> {
        let OpenedStore { lock, superblock, data, .. } = opened;
        let (hub, segments) = (Arc::clone(&self.hub), Arc::clone(&self.segments));
        // Where the disk is full, a checkpoint makes room for it; without one there is no store.
        hub.lock().is_stalled = true;
        self.provide_segment()?;
        hub.lock().is_stalled = false;
        let open = segments.take_next().ok_or(StoreFailure::Closed)?;
        let pusher = Box::new(LogPusher(Arc::clone(&hub)));
        let told = self.region.observe(pusher).map_err(|_| FsStoreError::Observed)?;
        if superblock.base.wrapping_add(told) != hub.last() {
            return Err(FsStoreError::OtherMemory);
        }
        let writer = LogWriter::new(Arc::clone(&hub), Arc::clone(&data), segments, open);
        let started = |error| FsStoreError::of("a thread", error);
        let writer = thread::Builder::new().name("fs-log".into()).spawn(move || writer.run());
        let mut store = FsStore {
            hub,
            data,
            superblock,
            writer: Some(writer.map_err(started)?),
            keeper: None,
            _lock: lock,
        };
        let keeper = thread::Builder::new().name("fs-keeper".into()).spawn(move || self.run());
        store.keeper = Some(keeper.map_err(started)?);
        Ok(store)
    }
}

impl FsStore {
    /// What the store is.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The bytes of files.
    #[must_use]
    pub fn data(&self) -> &Arc<DataFile> {
        &self.data
    }

    /// By which snapshots are made of it.
    #[must_use]
    pub fn snapshots(&self) -> FsSnapshots {
        FsSnapshots(Arc::clone(&self.hub))
    }

    /// What a replica lacks, and who waits for it.
    #[must_use]
    pub fn feed(&self) -> StoreFeed {
        StoreFeed(Arc::clone(&self.hub))
    }

    /// Blocks that a snapshot may still have to copy.
    #[must_use]
    pub fn held(&self) -> Option<Arc<HeldBlocks>> {
        self.hub.holds.get()
    }

    /// The store's number of a commit of the region.
    #[must_use]
    pub fn seq_of(&self, region_seq: u64) -> u64 {
        self.hub.base().wrapping_add(region_seq)
    }

    /// The last commit that is durable, as the store numbers them.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.hub.durable()
    }

    /// The last commit that a power cut does not lose: [`durable`](Self::durable), but for
    /// [`SyncMode::Never`], where it is that of the newest checkpoint. Blocks that a later commit
    /// has freed must not be written or punched.
    #[must_use]
    pub fn on_disk(&self) -> u64 {
        self.hub.on_disk()
    }

    /// A commit, and all before it, shall be durable soon. Returns at once.
    pub fn want(&self, seq: u64) {
        self.hub.want(seq);
    }

    /// Waits until a commit is durable; false if it is not when the time is over.
    ///
    /// # Errors
    /// [`StoreFailure`]: it will never be.
    pub fn wait(&self, seq: u64, limit: Duration) -> Result<bool, StoreFailure> {
        self.hub.wait(seq, limit)
    }

    /// Calls this whenever more is durable, or the store has failed: on a thread of the store, or
    /// inside of a commit. It must neither wait nor touch the region. False if there is one before
    /// it, which stays.
    pub fn wake_by(&self, waker: ProgressWaker) -> bool {
        self.hub.set_waker(waker)
    }

    /// So much waits for the disk that no further commits should be made now.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.hub.is_behind()
    }

    /// Why the store acknowledges nothing any more.
    #[must_use]
    pub fn failure(&self) -> Option<&StoreFailure> {
        self.hub.failure()
    }

    /// Makes a checkpoint soon.
    pub fn want_checkpoint(&self) {
        self.hub.wake_keeper(|pending| pending.wants_checkpoint = true);
    }

    /// How it is doing.
    #[must_use]
    pub fn status(&self) -> FsStoreStatus {
        let hub = &self.hub;
        FsStoreStatus {
            last: hub.last(),
            durable: hub.durable(),
            checkpointed: hub.checkpointed.load(Ordering::Relaxed),
            pending_bytes: hub.waiting_bytes(),
            log_bytes: hub.log_bytes.load(Ordering::Relaxed),
            syncs: hub.syncs.load(Ordering::Relaxed),
            is_tight: hub.lock().is_tight,
        }
    }

    /// Ends in order: all that was committed is on the disk, in a checkpoint that says so. Nothing
    /// may be committed any more.
    ///
    /// # Errors
    /// [`FsStoreError`]; then the store is recovered at the next start.
    pub fn close(mut self) -> Result<(), FsStoreError> {
        let Some(mut keeper) = self.stop() else {
            return Err(StoreFailure::Closed.into());
        };
        if let Some(failure) = self.hub.failure() {
            return Err(failure.clone().into());
        }
        let closed = keeper.checkpoint(CheckpointEnding::Orderly).map(drop);
        let failure = closed.err().map_or(StoreFailure::Closed, failed);
        self.hub.fail(failure.clone());
        match failure {
            StoreFailure::Closed => Ok(()),
            failure => Err(failure.into()),
        }
    }

    /// Writes what was committed, and ends both threads.
    fn stop(&mut self) -> Option<Keeper> {
        // First the log's: it may wait for a segment.
        self.hub.close_log();
        let joined = self.writer.take().map(JoinHandle::join);
        self.hub.wake_keeper(|pending| pending.keeper_is_closing = true);
        let keeper = self.keeper.take()?.join().ok()?;
        joined.is_none_or(|joined| joined.is_ok()).then_some(keeper)
    }
}

/// A store's feed: what changes there, whoever waits for the store is told.
#[derive(Clone, Debug)]
pub struct StoreFeed(Arc<LogHub>);

impl StoreFeed {
    /// Changes what is waited for.
    pub fn change<T>(&self, change: impl FnOnce(&ReplicaFeed) -> T) -> T {
        let changed = change(&self.0.feed);
        // Nobody is between looking and waiting.
        drop(self.0.lock());
        self.0.tell();
        changed
    }

    /// The feed, to look at and to take from.
    #[must_use]
    pub fn feed(&self) -> &ReplicaFeed {
        &self.0.feed
    }

    /// Commits up to this one shall be in the log soon.
    pub fn want(&self, seq: u64) {
        self.0.want(seq);
    }
}

impl Drop for FsStore {
    fn drop(&mut self) {
        if self.stop().is_some() {
            self.hub.fail(StoreFailure::Closed);
        }
    }
}
