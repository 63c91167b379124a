//! What a replica makes of what its server, or whoever has the key, sends.

use super::held::HeldStore;
use super::incoming::{self, IncomingCopy, IncomingSpool};
use super::messages::{CopyHead, FollowedStore, NUMBER_MAX, ReplicaMessage, ShippedAnswer};
use super::stream::ReplicaError;
use crate::store::record::push_record;
use crate::store::role::StoreRole;
use crate::store::{OpenedStore, StoreShape};
use outboard_active::service::RegionKeeper;
use outboard_cluster::node::RequestError;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;

const SHAPE: StoreShape = StoreShape { block_count: 64, region_len: 64 << 10 };

/// Keeps nothing.
struct NoKeeper;

impl RegionKeeper for NoKeeper {
    fn keep(&mut self, _: &str, _: OwnedFd) -> Result<(), RequestError> {
        Ok(())
    }

    fn discard(&mut self, _: &str) -> Result<(), RequestError> {
        Ok(())
    }
}

fn held(dir: &Path) -> HeldStore {
    if !dir.join("superblock").exists() {
        drop(OpenedStore::create(dir, SHAPE).expect("a store"));
    }
    HeldStore::open(dir, BTreeMap::new(), &mut NoKeeper).expect("opened")
}

fn followed() -> FollowedStore {
    let StoreShape { block_count, region_len } = SHAPE;
    FollowedStore { uuid: [1; 16], block_count, region_len, epoch: 1, incarnation: 5, base: 0 }
}

/// The lines of a commit that writes a byte of a line.
fn lines(line: u64, byte: u8) -> Vec<u8> {
    let mut lines = vec![0; 80];
    lines[..8].copy_from_slice(&line.to_le_bytes());
    lines[8] = 1;
    lines[16] = byte;
    lines
}

fn commits(all: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut records = Vec::new();
    all.iter().for_each(|(seq, lines)| push_record(&mut records, *seq, lines));
    records
}

fn is_hostile<T: std::fmt::Debug>(taken: Result<T, ReplicaError>) -> bool {
    match taken {
        Err(ReplicaError::Hostile(_) | ReplicaError::Store(_)) => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commits_come_in_their_order_and_inside_of_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let held = held(dir.path());
    let take =
        |records: &[u8]| held.take(&ReplicaMessage::Commits { records, answers: Vec::new() });
    let first = commits(&[(1, lines(3, 7)), (2, lines(4, 8))]);
    take(&first).expect("the next ones");
    take(&first).expect("they are here, and are left alone");
    assert_eq!((held.last(), held.sync().expect("on the disk")), (2, 2));
    assert!(is_hostile(take(&commits(&[(4, lines(3, 7))]))), "one is missing");
    assert!(is_hostile(take(&commits(&[(3, lines(1024, 7))]))), "behind the region");
    assert!(is_hostile(take(&commits(&[(3, vec![1; 79])]))), "no lines");
    assert!(is_hostile(take(&first[..first.len() - 1])), "cut");
    assert!(is_hostile(take(&[0xff; 64])), "no records");
    let bytes = vec![0; 2 << 20];
    let answers = vec![ShippedAnswer { seq: 3, client: [0; 16], number: 1, bytes: &bytes }];
    let records = commits(&[(3, lines(3, 1))]);
    assert!(is_hostile(held.take(&ReplicaMessage::Commits { records: &records, answers })));
    for (start, len) in [(64, 4096), (63, 8192), (0, 4095), (u64::MAX, 4096)] {
        let bytes = &vec![1; len];
        assert!(is_hostile(held.take(&ReplicaMessage::Blocks { start, bytes })), "{start} {len}");
    }
    assert!(is_hostile(held.take(&ReplicaMessage::Status)));
    assert_eq!(held.last(), 2, "nothing of it was taken");
    take(&commits(&[(3, lines(3, 9))])).expect("it goes on");
}

#[test]
fn what_was_missed_takes_effect_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let missed = |held: &HeldStore, seq: u64| {
        let mut spool = IncomingSpool::begin(dir.path(), SHAPE.block_count).expect("begun");
        let records = commits(&[(seq, lines(5, 1))]);
        let bytes = &[7; 4096];
        spool.take(&ReplicaMessage::Blocks { start: 9, bytes }).expect("taken");
        spool
            .take(&ReplicaMessage::Commits { records: &records, answers: Vec::new() })
            .expect("taken");
        assert_eq!(held.last(), seq - 1, "nothing has changed yet");
        spool
    };
    let first = held(dir.path());
    drop(missed(&first, 1));
    incoming::take_spool(dir.path(), &first).expect("what is not whole goes");
    assert_eq!(first.last(), 0);
    // Killed when all was there, and before any of it was taken.
    missed(&first, 1).finish().expect("whole");
    let _incarnation = first.leave();
    let next = held(dir.path());
    incoming::take_spool(dir.path(), &next).expect("taken now");
    incoming::take_spool(dir.path(), &next).expect("once");
    assert_eq!(next.last(), 1);
    let data = std::fs::read(dir.path().join("data")).expect("blocks");
    assert_eq!(data[9 * 4096..10 * 4096], [7; 4096]);
    // It has no end.
    let mut spool = IncomingSpool::begin(dir.path(), 0).expect("begun");
    let bytes = &vec![0; 1 << 20];
    let many = (0..400).map(|_| spool.take(&ReplicaMessage::Blocks { start: 0, bytes }));
    assert!(many.into_iter().any(|taken| taken.is_err_and(|error| is_hostile::<()>(Err(error)))));
}

#[test]
fn a_copy_is_checked_before_it_is_the_store() {
    let dir = tempfile::tempdir().expect("a directory");
    let begin = |followed: &FollowedStore, seq| {
        IncomingCopy::begin(dir.path(), followed, &CopyHead { uuid: [2; 16], seq })
    };
    for bad in [
        FollowedStore { block_count: u64::MAX, ..followed() },
        FollowedStore { block_count: 0, ..followed() },
        FollowedStore { region_len: 1 << 50, ..followed() },
        FollowedStore { epoch: u64::MAX, ..followed() },
        FollowedStore { base: NUMBER_MAX, ..followed() },
    ] {
        assert!(is_hostile(begin(&bad, 7)), "{bad:?}");
    }
    assert!(is_hostile(begin(&FollowedStore { base: 8, ..followed() }, 7)));
    let mut copy = begin(&followed(), 7).expect("begun");
    copy.take(&ReplicaMessage::Metadata(&[3; 4096])).expect("taken");
    assert!(is_hostile(copy.take(&ReplicaMessage::Blocks { start: 64, bytes: &[0; 4096] })));
    assert!(is_hostile(copy.finish()), "these are no metadata");
    incoming::switch(dir.path()).expect("it goes");
    assert_eq!(StoreRole::of(dir.path()).expect("read"), StoreRole::Own);
    assert!(!dir.path().join("next").exists() && !dir.path().join("superblock").exists());
}
