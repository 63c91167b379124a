//! Stores that are none, are somebody else's, or are damaged.

use super::recorded::{Asked, Luck, RecordedDisk};
use super::world::{Past, SHAPE, World, on_request, options};
use super::{Random, is_full};
use crate::store::record::BATCH_HEAD;
use crate::store::superblock::EndedRun;
use crate::store::{FsStoreError, FsStoreOptions, OpenedStore, StoreShape, SyncMode};
use outboard_offcode::ActiveRegion;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A store, and its last commit.
fn used(seed: u64, log_max: u64) -> (World, u64) {
    let (disk, mut random) = (Arc::new(RecordedDisk::default()), Random::new(seed));
    let options = FsStoreOptions { log_max, ..options(on_request()) };
    let mut world = World::new(&disk, options);
    for _ in 0..150 {
        let seq = world.commit(&mut random).expect("committed");
        world.wait(seq).expect("durable");
    }
    let last = world.commit(&mut random).expect("committed");
    world.wait(last).expect("durable");
    (world, last)
}

/// A store whose process was killed some time after its last commit: the log has said by itself
/// that all of it is durable.
fn rested(seed: u64, log_max: u64) -> (Arc<RecordedDisk>, Past, u64) {
    let (world, last) = used(seed, log_max);
    let end = Instant::now() + Duration::from_mins(1);
    while !has_said_all(&world.disk) {
        assert!(Instant::now() < end, "the log does not say that all is durable");
        thread::sleep(Duration::from_millis(20));
    }
    let (disk, _, past) = world.kill();
    (disk, past, last)
}

/// The log's last batch has no records: it says that all before it is durable.
fn has_said_all(disk: &RecordedDisk) -> bool {
    let (_, asked) = disk.history();
    let batches = asked.iter().rev().filter_map(|asked| match asked {
        Asked::Write { bytes, .. } if bytes.starts_with(b"obfslog1") => Some(bytes),
        _ => None,
    });
    batches.take(1).any(|batch| batch.len() == BATCH_HEAD)
}

/// Whatever was done to the disk is noticed, or does no harm.
fn check(disk: &Arc<RecordedDisk>, past: &Past, last: u64, what: &str) -> bool {
    match OpenedStore::open_on(disk.clone()).and_then(|opened| opened.recover()) {
        Err(FsStoreError::Damaged { .. } | FsStoreError::OtherVersion { .. }) => true,
        Err(error) => panic!("{what}: {error}"),
        Ok(found) => {
            past.check(disk, &found, last);
            found.passed_over.is_some()
        }
    }
}

fn files(disk: &RecordedDisk) -> Vec<String> {
    use crate::store::disk::StoreDisk;
    let names = disk.names().expect("names");
    names.into_iter().filter(|name| name != "data" && !disk.bytes(name).is_empty()).collect()
}

#[test]
fn bits_that_change_are_noticed() {
    let few = flip(&rested(5, 9000), 6);
    // Without a checkpoint all of the log matters.
    let many = flip(&rested(5, 1 << 30), 6);
    assert!(few > 260 && many > few + 200, "{few} and {many} were noticed");
}

fn flip((disk, past, last): &(Arc<RecordedDisk>, Past, u64), seed: u64) -> u32 {
    let (mut random, mut noticed) = (Random::new(seed), 0);
    for name in files(disk) {
        let len = disk.bytes(&name).len();
        for _ in 0..if is_full() { 20_000 } else { 250 } {
            let (copy, at, bit) = (disk.copy(), random.index(len), random.below(8));
            copy.change(&name, |bytes| bytes[at] ^= 1 << bit);
            let what = format!("{name}, byte {at}, bit {bit}");
            noticed += u32::from(check(&copy, past, *last, &what));
        }
    }
    noticed
}

#[test]
fn stretches_that_are_lost_are_noticed() {
    let (disk, past, last) = rested(7, 9000);
    let mut random = Random::new(8);
    for name in files(&disk).into_iter().filter(|name| name != "superblock") {
        let len = disk.bytes(&name).len();
        for round in 0..if is_full() { 2000 } else { 60 } {
            let (copy, at) = (disk.copy(), random.index(len));
            let end = len.min(at + 1 + random.index(700));
            // What was written last is like what was not written any more, if the batch behind it
            // is lost, too, which says that it was.
            let used = disk.bytes(&name).iter().rposition(|byte| *byte != 0).unwrap_or(0);
            let is_tail = end + BATCH_HEAD > used;
            copy.change(&name, |bytes| match round % 2 {
                0 => bytes[at..end].fill(0),
                _ => bytes[at..end].fill_with(|| random.below(256).to_le_bytes()[0]),
            });
            if !is_tail {
                check(&copy, &past, last, &format!("{name}, {at} to {end}"));
            }
        }
    }
}

#[test]
fn a_checkpoint_can_be_done_without() {
    let (disk, past, last) = rested(9, 9000);
    let both = ["checkpoint.0", "checkpoint.1"];
    for name in both {
        let copy = disk.copy();
        copy.change(name, |bytes| bytes.iter_mut().skip(200).for_each(|byte| *byte = 1));
        check(&copy, &past, last, name);
        let mut world = World::again(&copy, past.clone(), options(on_request()));
        world.work(&mut Random::new(1), 100);
        let (copy, _, past) = world.kill();
        first_checkpoint_again(&copy, past.clone());
        World::again(&copy, past, options(on_request())).store.close().expect("closed");
    }
    both.iter().for_each(|name| disk.change(name, |bytes| bytes.truncate(100)));
    let opened = OpenedStore::open_on(disk).expect("a store");
    let error = opened.recover().expect_err("nothing is whole");
    assert!(error.to_string().contains("neither of the two"), "{error}");
}

/// Nor is the first checkpoint of a process needed.
fn first_checkpoint_again(disk: &Arc<RecordedDisk>, past: Past) {
    let disk = disk.copy();
    let quiet = FsStoreOptions { log_max: 1 << 30, ..options(SyncMode::Always) };
    let mut world = World::again(&disk, past, quiet);
    let mut random = Random::new(2);
    let seq = world.commit(&mut random).expect("committed");
    world.store.want_checkpoint();
    while world.store.status().checkpointed < seq {
        thread::yield_now();
    }
    let last = world.commit(&mut random).expect("committed");
    world.wait(last).expect("durable");
    let (disk, _, past) = world.kill();
    for name in ["checkpoint.0", "checkpoint.1"] {
        let copy = disk.copy();
        copy.change(name, |bytes| bytes[100..200].fill(7));
        let found = OpenedStore::open_on(copy.clone()).and_then(|opened| opened.recover());
        past.check(&copy, &found.expect("the other one does"), last);
    }
}

#[test]
fn a_segment_that_is_gone_is_noticed() {
    use crate::store::disk::StoreDisk;
    let (disk, ..) = used(10, 1 << 30).0.kill();
    let logs: Vec<_> = files(&disk).into_iter().filter(|name| name.starts_with("log.")).collect();
    // Of the last two one waits to be used, and nothing knows what the other one had.
    assert!(logs.len() > 4);
    for name in &logs[..logs.len() - 2] {
        let copy = disk.copy();
        copy.remove(name).expect("removed");
        let error = OpenedStore::open_on(copy).and_then(|opened| opened.recover());
        let error = error.map(drop).expect_err("noticed").to_string();
        assert!(error.contains("were durable and are not there any more"), "{error}");
    }
}

#[test]
fn what_an_earlier_process_did_not_finish_never_comes_back() {
    let (disk, mut random) = (Arc::new(RecordedDisk::default()), Random::new(12));
    // Groups that nothing has brought to the disk, in one segment.
    let never = FsStoreOptions { segment_len: 1 << 16, ..options(SyncMode::Never) };
    let mut world = World::new(&disk, FsStoreOptions { log_max: 1 << 30, ..never });
    for _ in 0..12 {
        world.commit_words(&mut random, 2);
        let last = world.store.status().last;
        world.wait(last).expect("written");
    }
    let (disk, _, past) = world.kill();
    // A power cut has lost one of them, not those behind it.
    disk.change("log.00000001", |bytes| bytes[1100..1500].fill(0));
    let mut world = World::again(&disk, past, options(SyncMode::Always));
    assert!((1..11).contains(&world.store.durable()), "{}", world.store.durable());
    for _ in 0..3 {
        world.commit_words(&mut random, 2);
        let last = world.store.status().last;
        world.wait(last).expect("durable");
    }
    let (last, (disk, _, past)) = (world.store.durable(), world.kill());
    let found = OpenedStore::open_on(disk.clone()).and_then(|opened| opened.recover());
    past.check(&disk, &found.expect("recovered"), last);
}

#[test]
fn a_store_that_was_closed_says_so() {
    let (disk, mut random) = (Arc::new(RecordedDisk::default()), Random::new(3));
    for sync in [SyncMode::Always, on_request(), SyncMode::Never] {
        let disk = if disk.calls() == 0 { disk.clone() } else { Arc::default() };
        let mut world = World::new(&disk, options(sync));
        world.work(&mut random, 30);
        let (last, past) = (world.commit(&mut random).expect("committed"), world.past.clone());
        world.store.close().expect("closed");
        let (mut cut, asked) = disk.history();
        asked.iter().for_each(|call| cut.follow(call));
        let disk = cut.disk(Luck::None);
        let found = OpenedStore::open_on(disk.clone()).expect("a store").recover().expect("found");
        past.check(&disk, &found, last);
        assert!(found.is_orderly);
        let mut world = World::again(&disk, past, options(sync));
        let seq = world.commit(&mut random).expect("committed");
        world.wait(seq).expect("durable");
        let (disk, ..) = world.kill();
        assert!(!OpenedStore::open_on(disk).expect("one").recover().expect("found").is_orderly);
    }
}

#[test]
fn memory_of_another_run_is_refused() {
    let (disk, region, past) = used(4, 1 << 30).0.kill();
    let adopt = |region: &Arc<ActiveRegion>, incarnation| {
        let opened = OpenedStore::open_on(disk.clone()).expect("a store");
        opened.adopt(region, incarnation, options(on_request())).map(drop)
    };
    let kept = || {
        let parts = region.descriptors().expect("kept");
        Arc::new(ActiveRegion::kept("fs", parts, 4096).expect("kept"))
    };
    assert!(matches!(adopt(&kept(), 3), Err(FsStoreError::OtherMemory)));
    let fresh = ActiveRegion::new("fs", 1 << 16, 4096).expect("memory");
    assert!(matches!(adopt(&Arc::new(fresh), 77), Err(FsStoreError::OtherMemory)));
    let short = ActiveRegion::new("fs", 4096, 4096).expect("memory");
    assert!(matches!(adopt(&Arc::new(short), 77), Err(FsStoreError::OtherShape { .. })));
    adopt(&kept(), 77).expect("its own");
    let logs = files(&disk).iter().filter(|name| name.starts_with("log.")).count();
    assert!(logs <= 3, "{logs} segments are left of what the checkpoint has");
    World::again(&disk, past, options(on_request()));
}

fn error_of(dir: &Path) -> String {
    OpenedStore::open(dir).map(drop).expect_err("no store").to_string()
}

#[test]
fn a_directory_that_is_no_store_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("store");
    assert!(error_of(&dir).contains("is no store"));
    fs::create_dir(&dir).expect("made");
    assert!(error_of(&dir).contains("is no store"));
    fs::write(dir.join("letter"), "dear").expect("written");
    let error = OpenedStore::create(&dir, SHAPE).map(drop).expect_err("not empty");
    assert!(error.to_string().contains("letter"), "{error}");
    fs::remove_file(dir.join("letter")).expect("removed");
    let none = StoreShape { block_count: 0, ..SHAPE };
    assert!(matches!(OpenedStore::create(&dir, none), Err(FsStoreError::Shape { .. })));
    let opened = OpenedStore::create(&dir, SHAPE).expect("made");
    assert!(error_of(&dir).contains("in use"));
    drop(opened);
    let opened = OpenedStore::open(&dir).expect("a store");
    assert!(opened.expect(StoreShape { block_count: 9, ..SHAPE }).is_err());
    assert!(opened.expect(SHAPE).is_ok());
    drop(opened);
    for entry in fs::read_dir(&dir).expect("a directory") {
        let meta = entry.expect("a file").metadata().expect("metadata");
        assert_eq!(meta.permissions().mode() & 0o777, 0o600);
    }
    let mut bytes = fs::read(dir.join("superblock")).expect("read");
    bytes[8] = 9;
    fs::write(dir.join("superblock"), &bytes).expect("written");
    assert!(error_of(&dir).contains("version 9"));
    bytes[..4].fill(0);
    fs::write(dir.join("superblock"), &bytes).expect("written");
    assert!(error_of(&dir).contains("damaged"));
}

#[test]
fn a_store_on_a_real_disk_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let dir = directory.path().join("store");
    let opened = OpenedStore::create(&dir, SHAPE).expect("made");
    let found = opened.recover().expect("empty");
    let region = ActiveRegion::over("fs", found.memory.clone(), 4096).expect("memory");
    let region = Arc::new(region);
    let options = FsStoreOptions { sync: SyncMode::Always, ..FsStoreOptions::default() };
    let store = opened.start(found, &region, 1, options).expect("started");
    let mut execution =
        outboard_offcode::host::Execution::new(region.memory().clone(), region.write_max());
    execution.reset(true);
    execution.store64(64, 7).expect("inside");
    let (since, mut writer) = (region.begin(), region.writer());
    let seq = writer.commit(&execution, since, None, None).expect("alone");
    drop(writer);
    assert!(store.wait(store.seq_of(seq), Duration::from_secs(20)).expect("durable"));
    drop(store);
    let mut opened = OpenedStore::open(&dir).expect("a store");
    opened.enter_epoch(5, 1).expect("entered");
    drop(opened);
    let opened = OpenedStore::open(&dir).expect("a store");
    let ended = |epoch, last| EndedRun { epoch, incarnation: 1, last };
    assert_eq!((opened.superblock().epoch, opened.superblock().ended[0]), (5, ended(1, 1)));
    let found = opened.recover().expect("recovered");
    assert_eq!((found.last_seq, found.memory.load_u64(64)), (1, Ok(7)));
    let mut read = [1; 10];
    let region = Arc::new(ActiveRegion::over("fs", found.memory.clone(), 4096).expect("memory"));
    let store = opened.start(found, &region, 2, options).expect("started");
    assert_eq!(store.superblock().ended[..3], [ended(5, 1), ended(1, 1), EndedRun::default()]);
    store.data().read(47, 4086, &mut read).expect("zeros");
    assert_eq!(read, [0; 10]);
    assert!(store.data().read(47, 4087, &mut read).is_err());
    store.data().punch(0, 48).expect("punched");
    store.close().expect("closed");
}

#[test]
fn a_store_that_is_half_made_can_be_made_again() {
    let disk = Arc::new(RecordedDisk::default());
    OpenedStore::create_on(disk.clone(), SHAPE).map(drop).expect("made");
    let (mut cut, asked) = disk.history();
    for (index, call) in asked.iter().enumerate() {
        for seed in 0..8 {
            let disk = cut.disk(Luck::Some { seed });
            let opened = match OpenedStore::open_on(disk.clone()) {
                Ok(opened) => opened,
                Err(_) => OpenedStore::create_on(disk, SHAPE).expect("made again"),
            };
            let found = opened.recover();
            assert_eq!(found.expect("whole").last_seq, 0, "call {index}, seed {seed}");
        }
        cut.follow(call);
    }
}
