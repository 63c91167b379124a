//! Power cuts anywhere, and processes that are killed, one after another.

use super::recorded::{Asked, Cut, Luck, RecordedDisk};
use super::world::{Past, World, on_request, options};
use super::{Random, is_full};
use crate::store::{OpenedStore, SyncMode};
use std::sync::Arc;

/// What was certain at a power cut is found again, whatever else the disk has.
fn check(cut: &Cut, luck: Luck, past: &Past, what: &str) {
    let disk = cut.disk(luck);
    let opened = OpenedStore::open_on(disk.clone())
        .unwrap_or_else(|error| panic!("{what}, {luck:?}: {error}"));
    let found = opened.recover().unwrap_or_else(|error| panic!("{what}, {luck:?}: {error}"));
    past.check(&disk, &found, cut.told);
}

/// Cuts the power after each call, or after a sample of them.
fn cut_everywhere(disk: &RecordedDisk, past: &Past, random: &mut Random, what: &str) {
    let (mut cut, asked) = disk.history();
    for (index, call) in asked.iter().enumerate() {
        cut.follow(call);
        let is_told = matches!(call, Asked::Told { .. });
        if !cut.is_made || !is_full() && !is_told && random.below(8) > 0 {
            continue;
        }
        let what = format!("{what}, call {index}");
        check(&cut, Luck::All, past, &what);
        check(&cut, Luck::None, past, &what);
        for _ in 0..if is_full() { 8 } else { 3 } {
            check(&cut, Luck::Some { seed: random.below(1 << 30) }, past, &what);
        }
    }
}

/// A disk as of some call of its past.
fn cut_somewhere(disk: &RecordedDisk, random: &mut Random) -> (Arc<RecordedDisk>, u64) {
    let (mut cut, asked) = disk.history();
    let calls = random.index(asked.len());
    for (index, call) in asked.iter().enumerate() {
        if index < calls || !cut.is_made {
            cut.follow(call);
        }
    }
    let told = cut.told;
    (cut.disk(Luck::Some { seed: random.below(1 << 30) }), told)
}

/// Several lives of one store.
fn live(seed: u64) {
    let mut random = Random::new(seed);
    let disk = Arc::new(RecordedDisk::default());
    let mut world = World::new(&disk, options(SyncMode::Always));
    for life in 0..6 {
        let what = format!("seed {seed}, life {life}");
        let commits = 20 + random.below(60);
        world.work(&mut random, commits);
        let sync = match random.below(4) {
            0 => SyncMode::Always,
            1 => SyncMode::Never,
            _ => on_request(),
        };
        world = match random.below(4) {
            0 => {
                let (disk, _, past) = world.kill();
                World::again(&disk, past, options(sync))
            }
            1 => World::adopt(world.kill(), options(sync)),
            _ => {
                let (disk, _, past) = world.kill();
                cut_everywhere(&disk, &past, &mut random, &what);
                let (disk, told) = cut_somewhere(&disk, &mut random);
                let again = World::again(&disk, past, options(sync));
                assert!(again.store.on_disk() >= told, "{what}");
                again
            }
        };
    }
    let (disk, _, past) = world.kill();
    cut_everywhere(&disk, &past, &mut random, &format!("seed {seed}, the end"));
}

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let seeds = if is_full() { 60 } else { 8 };
    (0..seeds).for_each(live);
}
