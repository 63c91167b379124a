//! Disks that are full, and disks that fail.

use super::Random;
use super::recorded::{Luck, RecordedDisk};
use super::world::{World, on_request, options};
use crate::store::{FsStoreError, FsStoreOptions, OpenedStore, StoreFailure, SyncMode};
use std::sync::Arc;
use std::time::Duration;

/// A store that has been used for a while.
fn used(options: FsStoreOptions, random: &mut Random) -> World {
    let disk = Arc::new(RecordedDisk::default());
    let mut world = World::new(&disk, options);
    world.work(random, 400);
    world
}

#[test]
fn commits_go_on_where_there_is_no_more_space() {
    go_on_without_space(options(on_request()));
    // No checkpoint was made before.
    go_on_without_space(FsStoreOptions { log_max: 1 << 30, ..options(on_request()) });
}

fn go_on_without_space(options: FsStoreOptions) {
    let (mut random, disk) = (Random::new(11), Arc::new(RecordedDisk::default()));
    let mut world = World::new(&disk, options);
    for _ in 0..100 {
        let seq = world.commit(&mut random).expect("committed");
        world.wait(seq).expect("durable");
    }
    // For no further segment.
    world.disk.set_room(Some(world.disk.used() + 3000));
    for _ in 0..600 {
        let seq = world.commit(&mut random).expect("committed");
        world.wait(seq).expect("durable");
    }
    assert!(world.store.status().checkpointed > 100, "there was space all the time");
    let (last, past) = (world.store.durable(), world.past.clone());
    let (disk, ..) = world.kill();
    let opened = OpenedStore::open_on(disk.clone()).expect("a store");
    past.check(&disk, &opened.recover().expect("recovered"), last);
    drop(opened);
    // And the next process starts in it.
    let mut world = World::again(&disk, past, options);
    let seq = world.commit(&mut random).expect("committed");
    world.wait(seq).expect("durable");
}

/// Has a checkpoint made that holds all commits, while the disk has space: it keeps the log of the
/// checkpoint before.
fn checkpointed_at_rest(world: &World) {
    let last = world.store.status().last;
    world.wait(last).expect("durable");
    world.store.want_checkpoint();
    while world.store.status().checkpointed < last {
        assert!(world.store.failure().is_none());
        std::thread::yield_now();
    }
}

#[test]
fn a_disk_that_fills_behind_a_checkpoint_is_given_the_log_before_it() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut world = used(options(on_request()), &mut random);
        checkpointed_at_rest(&world);
        // For no further segment.
        world.disk.set_room(Some(world.disk.used() + 3000));
        for _ in 0..100 {
            let seq = world.commit(&mut random).expect("committed");
            world.store.want_checkpoint();
            world.wait(seq).expect("durable");
        }
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut world = used(options(on_request()), &mut random);
        // Not even a checkpoint has room.
        world.disk.set_room(Some(0));
        let failure = loop {
            match world.commit(&mut random).and_then(|seq| world.wait(seq)) {
                Ok(()) => {}
                Err(failure) => break failure,
            }
            if world.store.durable() > 1200 {
                break StoreFailure::Closed;
            }
        };
        let is_full = |error: &FsStoreError| matches!(error, FsStoreError::NoSpace { .. });
        match &failure {
            StoreFailure::Disk(error) => assert!(is_full(error), "{error}"),
            // Segments that are used again, and checkpoints that do not grow, need no room.
            other => assert!(matches!(other, StoreFailure::Closed), "{other}"),
        }
        let (disk, _, past) = world.kill();
        let (mut cut, asked) = disk.history();
        asked.iter().for_each(|call| cut.follow(call));
        for luck in [Luck::All, Luck::None, Luck::Some { seed }] {
            let disk = cut.disk(luck);
            let opened = OpenedStore::open_on(disk.clone()).expect("a store");
            past.check(&disk, &opened.recover().expect("recovered"), cut.told);
        }
        World::again(&cut.disk(Luck::All), past, options(on_request()));
    }
}

#[test]
fn after_a_sync_that_failed_nothing_is_acknowledged() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut world = used(options(SyncMode::Always), &mut random);
        world.disk.fail_syncs_after(random.below(6));
        let failure = loop {
            if let Err(failure) = world.commit(&mut random).and_then(|seq| world.wait(seq)) {
                break failure;
            }
        };
        assert!(matches!(failure, StoreFailure::Disk(_)), "{failure}");
        world.disk.fail_syncs_after(u64::MAX);
        let durable = world.store.durable();
        for _ in 0..3 {
            // The disk would do now, and is not asked.
            let seq = world.store.status().last + 1;
            assert!(world.store.wait(seq, Duration::from_millis(20)).is_err());
        }
        assert_eq!(world.store.durable(), durable);
        assert!(world.store.failure().is_some());
        let (disk, _, past) = world.kill();
        let (mut cut, asked) = disk.history();
        asked.iter().for_each(|call| cut.follow(call));
        for luck in [Luck::All, Luck::None, Luck::Some { seed }] {
            let disk = cut.disk(luck);
            let opened = OpenedStore::open_on(disk.clone()).expect("a store");
            past.check(&disk, &opened.recover().expect("recovered"), cut.told);
        }
    }
}

#[test]
fn whoever_does_not_wait_when_told_is_stopped() {
    let disk = Arc::new(RecordedDisk::default());
    let slow = SyncMode::OnRequest { at_least_every: Duration::from_secs(3600) };
    let few = FsStoreOptions { behind: 4000, pending_max: 40_000, ..options(slow) };
    let (mut world, mut random) = (World::new(&disk, few), Random::new(2));
    let mut was_behind = false;
    while world.store.failure().is_none() {
        was_behind |= world.store.is_behind();
        world.commit_words(&mut random, 5);
    }
    assert!(was_behind);
    assert!(matches!(world.store.failure(), Some(StoreFailure::Overrun { .. })));
}

#[test]
fn two_who_want_a_snapshot_exclude_each_other() {
    let mut random = Random::new(5);
    let world = used(options(on_request()), &mut random);
    let file = || tempfile::tempfile().expect("a file");
    let (snapshots, other) = (world.store.snapshots(), world.store.snapshots());
    let (_head, hold) = snapshots.begin(file()).expect("made");
    assert!(world.store.held().is_some());
    let refused = other.begin(file()).map(drop);
    assert!(matches!(refused, Err(FsStoreError::SnapshotUnderWay)), "{refused:?}");
    assert!(world.store.held().is_some(), "the first one's blocks are held still");
    drop(hold);
    assert!(world.store.held().is_none());
    drop(other.begin(file()).expect("it is over"));
}
