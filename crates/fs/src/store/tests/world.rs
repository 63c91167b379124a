//! A small file system of a sort: slots of the region refer to blocks, each commit gives a slot
//! another block, whose bytes were written before. A block is written again when the commit that
//! freed it is durable. Everything that ever was is remembered.

use super::Random;
use super::recorded::RecordedDisk;
use crate::store::{
    FsStore, FsStoreOptions, OpenedStore, RecoveredRegion, StoreFailure, StoreShape, SyncMode,
};
use outboard_mem::SharedRegion;
use outboard_offcode::ActiveRegion;
use outboard_offcode::host::Execution;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

pub(super) const SHAPE: StoreShape = StoreShape { block_count: 48, region_len: 1 << 16 };
const SLOTS: u64 = 16;
const BLOCK: usize = 4096;
const WRITE_MAX: usize = 1 << 16;

/// Small, so that every part of the store is often at work.
pub(super) fn options(sync: SyncMode) -> FsStoreOptions {
    FsStoreOptions { sync, segment_len: 6000, log_max: 9000, ..FsStoreOptions::default() }
}

pub(super) fn on_request() -> SyncMode {
    SyncMode::OnRequest { at_least_every: Duration::from_millis(5) }
}

/// What a commit's block holds.
fn bytes_of(seq: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(seq * 1_000_003 + index as u64).to_le_bytes());
    }
    bytes
}

/// What the region was after each commit.
#[derive(Clone, Debug, Default)]
pub(super) struct Past {
    states: BTreeMap<u64, blake3::Hash>,
    /// Commits of processes that promise nothing: their blocks may be lost.
    loose: BTreeSet<u64>,
}

impl Past {
    pub(super) fn note(&mut self, seq: u64, memory: &SharedRegion) {
        self.states.insert(seq, hash(memory));
    }

    /// Checks what was found after a power cut, when commits up to `told` had been acknowledged.
    pub(super) fn check(&self, disk: &RecordedDisk, found: &RecoveredRegion, told: u64) {
        let last = found.last_seq;
        assert!(last >= told, "commit {told} was acknowledged, {last} is the last one");
        assert_eq!(
            self.states.get(&last),
            Some(&hash(&found.memory)),
            "not the state of commit {last}"
        );
        let data = disk.bytes("data");
        let blocks = mapped(&found.memory).into_iter();
        for (seq, block) in blocks.filter(|(seq, _)| !self.loose.contains(seq)) {
            let at = block * BLOCK;
            let is_there = data[at..at + BLOCK] == bytes_of(seq);
            assert!(is_there, "block {block} of commit {seq} is not there, at commit {last}");
        }
    }
}

fn hash(memory: &SharedRegion) -> blake3::Hash {
    blake3::hash(&memory.snapshot(0..memory.len()).expect("memory"))
}

/// The commits that slots are of, and their blocks.
fn mapped(memory: &SharedRegion) -> Vec<(u64, usize)> {
    let word = |slot: u64| memory.load_u64(usize::try_from(slot * 8).expect("small"));
    let words = (0..SLOTS).map(|slot| word(slot).expect("inside")).filter(|word| *word != 0);
    words.map(|word| (word >> 8, usize::try_from(word & 0xff).expect("small"))).collect()
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct World {
    pub(super) disk: Arc<RecordedDisk>,
    pub(super) store: FsStore,
    pub(super) region: Arc<ActiveRegion>,
    pub(super) past: Past,
    sync: SyncMode,
    free: Vec<usize>,
    freed: VecDeque<(u64, usize)>,
    seq: u64,
}

impl World {
    pub(super) fn new(disk: &Arc<RecordedDisk>, options: FsStoreOptions) -> Self {
        let opened = OpenedStore::create_on(disk.clone(), SHAPE).expect("made");
        let mut past = Past::default();
        let found = opened.recover().expect("empty");
        past.note(0, &found.memory);
        Self::start(disk, opened, found, past, options)
    }

    /// Opens it again after a power cut, or after the process was killed.
    pub(super) fn again(disk: &Arc<RecordedDisk>, past: Past, options: FsStoreOptions) -> Self {
        let opened = OpenedStore::open_on(disk.clone()).expect("a store");
        let found = opened.recover().expect("recovered");
        past.check(disk, &found, 0);
        Self::start(disk, opened, found, past, options)
    }

    fn start(
        disk: &Arc<RecordedDisk>,
        opened: OpenedStore,
        found: RecoveredRegion,
        mut past: Past,
        options: FsStoreOptions,
    ) -> Self {
        let region = ActiveRegion::over("fs", found.memory.clone(), WRITE_MAX).expect("memory");
        let (region, seq) = (Arc::new(region), found.last_seq);
        past.states.split_off(&(seq + 1));
        past.loose.split_off(&(seq + 1));
        let store = opened.start(found, &region, seq + 77, options).expect("started");
        Self::of(disk, store, (region, options.sync), past, seq)
    }

    fn of(
        disk: &Arc<RecordedDisk>,
        store: FsStore,
        (region, sync): (Arc<ActiveRegion>, SyncMode),
        past: Past,
        seq: u64,
    ) -> Self {
        let used: BTreeSet<usize> =
            mapped(region.memory()).into_iter().map(|(_, block)| block).collect();
        let count = usize::try_from(SHAPE.block_count).expect("small");
        let free = (0..count).filter(|block| !used.contains(block)).collect();
        disk.told(store.durable());
        let freed = VecDeque::new();
        Self { disk: disk.clone(), store, region, past, sync, free, freed, seq }
    }

    /// The process is killed: what it had asked the disk for stays asked.
    pub(super) fn kill(self) -> (Arc<RecordedDisk>, Arc<ActiveRegion>, Past) {
        let Self { disk, store, region, past, .. } = self;
        store.hub.fail(StoreFailure::Closed);
        drop(store);
        (disk, region, past)
    }

    /// The next process goes on with the memory of one that was killed.
    pub(super) fn adopt(
        (disk, region, past): (Arc<RecordedDisk>, Arc<ActiveRegion>, Past),
        options: FsStoreOptions,
    ) -> Self {
        let (memory, journal) = region.descriptors().expect("kept");
        drop(region);
        let region = ActiveRegion::kept("fs", (memory, journal), WRITE_MAX).expect("kept");
        let (region, opened) = (Arc::new(region), OpenedStore::open_on(disk.clone()));
        let opened = opened.expect("a store");
        let incarnation = opened.superblock().incarnation;
        let store = opened.adopt(&region, incarnation, options).expect("adopted");
        let seq = store.seq_of(region.seq());
        Self::of(&disk, store, (region, options.sync), past, seq)
    }

    /// A block for the next commit, which may wait until one is durably free.
    fn block(&mut self) -> Result<usize, StoreFailure> {
        loop {
            while let Some((_, block)) =
                self.freed.pop_front_if(|(seq, _)| *seq <= self.store.on_disk())
            {
                self.free.push(block);
            }
            if let Some(block) = self.free.pop() {
                return Ok(block);
            }
            let oldest = self.freed.front().map_or(0, |(seq, _)| *seq);
            self.store.wait(oldest, Duration::from_secs(20))?;
            if self.store.on_disk() < oldest {
                self.store.want_checkpoint();
                std::thread::yield_now();
            }
        }
    }

    /// Makes the next commit. Returns its number.
    pub(super) fn commit(&mut self, random: &mut Random) -> Result<u64, StoreFailure> {
        let (slot, seq) = (random.below(SLOTS), self.seq + 1);
        let mut execution = Execution::new(self.region.memory().clone(), WRITE_MAX);
        execution.reset(true);
        if random.below(3) > 0 {
            let block = self.block()?;
            let bytes = bytes_of(seq);
            let mut parts = [IoSlice::new(&bytes[..100]), IoSlice::new(&bytes[100..])];
            self.store.data().write(block as u64, 0, &mut parts).expect("room");
            let old = execution.load64(slot * 8).expect("inside");
            execution.store64(slot * 8, seq << 8 | block as u64).expect("inside");
            if old != 0 {
                self.freed.push_back((seq, usize::try_from(old & 0xff).expect("small")));
            }
        }
        let words = random.below(12);
        self.finish(execution, random, words);
        Ok(seq)
    }

    /// Makes a commit that needs no block.
    pub(super) fn commit_words(&mut self, random: &mut Random, words: u64) {
        let mut execution = Execution::new(self.region.memory().clone(), WRITE_MAX);
        execution.reset(true);
        self.finish(execution, random, words);
    }

    fn finish(&mut self, mut execution: Execution, random: &mut Random, words: u64) {
        for _ in 0..words {
            let at = 1024 + random.below(SHAPE.region_len / 8 - 128) * 8;
            execution.store64(at, random.below(1 << 30)).expect("inside");
        }
        let (since, mut writer) = (self.region.begin(), self.region.writer());
        writer.commit(&execution, since, None, None).expect("alone");
        drop(writer);
        self.seq += 1;
        if self.sync == SyncMode::Never {
            self.past.loose.insert(self.seq);
        }
        self.past.note(self.seq, self.region.memory());
    }

    /// Waits for a commit, and notes that it was acknowledged.
    pub(super) fn wait(&self, seq: u64) -> Result<(), StoreFailure> {
        assert!(self.store.wait(seq, Duration::from_secs(20))?, "commit {seq} takes too long");
        self.disk.told(self.store.on_disk());
        Ok(())
    }

    /// Commits, and waits for some of them.
    pub(super) fn work(&mut self, random: &mut Random, commits: u64) {
        for _ in 0..commits {
            let seq = self.commit(random).expect("committed");
            match random.below(8) {
                0..=2 => self.wait(seq).expect("durable"),
                3 => self.disk.told(self.store.on_disk()),
                4 => self.store.want_checkpoint(),
                _ => {}
            }
        }
    }
}
