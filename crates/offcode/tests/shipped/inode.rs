//! Inodes: their numbers, and which blocks a file has where, against a map of every block.

use crate::sides::{args, word};
use crate::{Sides, check_cases};
use proptest::prelude::*;
use std::collections::BTreeMap;

const REGION: usize = 1 << 18;
const HEAP: u64 = 1024;
const STORE: u64 = 4096;
const ROOT: u64 = 16384;
/// What the allocator has.
const FREE: u64 = 20480;
const BLOCKS: u64 = 6000;
const MODE: u64 = 0o100_644;
const ALL: u64 = 1 << 40;

#[derive(Clone, Copy, Debug)]
enum Step {
    New,
    /// Of the nth file.
    Drop(usize),
    Map(usize, u64, u64),
    /// So many blocks, two blocks apart: as many extents.
    Scatter(usize, u64, u64),
    Cut(usize, u64, u64),
    Share(usize, u64, u64, usize),
    /// What is behind there becomes another file's.
    Split(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let file = || 0..4_usize;
    let run = || (prop_oneof![4 => 0..600_u64, 1 => 0..ALL], 1..60_u64);
    prop_oneof![
        2 => Just(Step::New),
        1 => file().prop_map(Step::Drop),
        6 => (file(), run()).prop_map(|(file, (at, len))| Step::Map(file, at, len)),
        2 => (file(), 0..600_u64, 1..60_u64)
            .prop_map(|(file, at, len)| Step::Scatter(file, at, len)),
        4 => (file(), run()).prop_map(|(file, (at, len))| Step::Cut(file, at, len)),
        1 => (file(), Just(0), Just(u64::MAX)).prop_map(|(file, at, len)| Step::Cut(file, at, len)),
        2 => (file(), run(), file())
            .prop_map(|(file, (at, len), to)| Step::Share(file, at, len, to)),
        2 => (file(), prop_oneof![5 => 0..700_u64, 1 => 0..ALL])
            .prop_map(|(file, at)| Step::Split(file, at)),
    ]
}

/// A file: its number, and the block of the store that each of its blocks is.
#[derive(Debug, Default)]
struct File {
    number: u64,
    blocks: BTreeMap<u64, u64>,
}

impl File {
    /// What a file has in a range, found by its extents, which must be in order and apart.
    fn found(sides: &mut Sides, number: u64, at: u64, len: u64) -> BTreeMap<u64, u64> {
        let mut found = BTreeMap::new();
        let mut from = at;
        loop {
            let left = len.saturating_sub(from - at);
            let extents = sides.done("inode.extents", &args(&[ROOT, number, from, left], b""));
            for extent in extents.chunks_exact(24) {
                let [file, block, len] = [0, 8, 16].map(|at| word(extent, at));
                assert!(len > 0 && file + len > from, "{extent:x?}");
                found.extend((0..len).map(|more| (file + more, block + more)));
                from = file + len;
            }
            if extents.is_empty() {
                return found;
            }
        }
    }

    fn cut(&mut self, at: u64, len: u64) {
        self.blocks.retain(|block, _| *block < at || *block - at >= len);
    }

    /// The whole file, as the module has it.
    fn check(&self, sides: &mut Sides) {
        let found = Self::found(sides, self.number, 0, u64::MAX);
        assert_eq!(found, self.blocks, "file {}", self.number);
        let record = sides.done("inode.get", &args(&[ROOT, self.number], b""));
        assert_eq!(record.len(), 256);
        assert_eq!(word(&record, 40), self.blocks.len() as u64, "its count of blocks");
    }
}

fn begin(sides: &mut Sides) {
    sides.clear();
    sides.done("alloc.init", &args(&[HEAP, FREE, REGION as u64], b""));
    sides.done("blocks.init", &args(&[STORE, BLOCKS], b""));
    sides.done("inode.init", &args(&[ROOT, HEAP, STORE], b""));
}

fn new_file(sides: &mut Sides) -> File {
    let number = sides.number("inode.new", &args(&[ROOT, MODE], b""));
    File { number, blocks: BTreeMap::new() }
}

/// Maps new blocks, of which nobody else may have one.
fn map(sides: &mut Sides, files: &mut [File], index: usize, at: u64, len: u64) {
    let number = files[index].number;
    sides.done("inode.map", &args(&[ROOT, number, at, len], b""));
    files[index].cut(at, len);
    let found = File::found(sides, number, at, len);
    let fresh: Vec<_> =
        found.into_iter().filter(|(file, _)| (at..at + len).contains(file)).collect();
    assert_eq!(fresh.len() as u64, len);
    for (_, block) in &fresh {
        let used = files.iter().any(|file| file.blocks.values().any(|used| used == block));
        assert!(!used, "block {block} is another's");
    }
    files[index].blocks.extend(fresh);
}

fn perform(sides: &mut Sides, files: &mut Vec<File>, step: Step) {
    let count = files.len();
    match step {
        Step::New if count < 4 => files.push(new_file(sides)),
        Step::New => {}
        _ if count == 0 => {}
        Step::Drop(index) => {
            let file = files.swap_remove(index % count);
            sides.done("inode.drop", &args(&[ROOT, file.number], b""));
            assert_eq!(sides.failure("inode.get", &args(&[ROOT, file.number], b"")), 129);
        }
        Step::Map(index, at, len) => map(sides, files, index % count, at, len),
        Step::Scatter(index, at, len) => {
            for more in 0..len {
                map(sides, files, index % count, at + 2 * more, 1);
            }
        }
        Step::Cut(index, at, len) => {
            let file = &mut files[index % count];
            sides.done("inode.cut", &args(&[ROOT, file.number, at, len], b""));
            file.cut(at, len);
        }
        Step::Share(index, at, len, to) if index % count != to % count => {
            let (from, to) = (&files[index % count], to % count);
            sides.done("inode.share", &args(&[ROOT, from.number, at, len, files[to].number], b""));
            let run = at..at + len;
            let part: Vec<_> =
                from.blocks.range(run).map(|(file, block)| (*file, *block)).collect();
            files[to].cut(at, len);
            files[to].blocks.extend(part);
        }
        Step::Split(index, at) if count < 4 => {
            let mut rest = new_file(sides);
            let file = &mut files[index % count];
            sides.done("inode.split", &args(&[ROOT, file.number, at, rest.number], b""));
            rest.blocks = file.blocks.split_off(&at);
            file.check(sides);
            rest.check(sides);
            files.push(rest);
        }
        Step::Share(..) | Step::Split(..) => {}
    }
}

#[test]
fn files_have_their_blocks_and_nothing_is_lost() {
    let operations = prop::collection::vec(step(), 1..30);
    check_cases(REGION, operations, begin, |sides, steps| {
        let mut files = Vec::new();
        for step in steps {
            perform(sides, &mut files, *step);
        }
        files.iter().for_each(|file| file.check(sides));
        let mut users = BTreeMap::new();
        for block in files.iter().flat_map(|file| file.blocks.values()) {
            *users.entry(*block).or_insert(0_u64) += 1;
        }
        for (block, users) in &users {
            assert_eq!(sides.number("blocks.users", &args(&[STORE, *block], b"")), *users);
        }
        let stats = sides.done("blocks.stats", &args(&[STORE], b""));
        assert_eq!(word(&stats, 8), BLOCKS - users.len() as u64, "blocks that are free");
        let held = word(&sides.done("alloc.stats", &args(&[HEAP], b"")), 0);
        for file in files.drain(..) {
            sides.done("inode.drop", &args(&[ROOT, file.number], b""));
        }
        // Only the first segment of records is left, if there ever was a file.
        assert!(word(&sides.done("alloc.stats", &args(&[HEAP], b"")), 0) <= held.min(1));
    });
}

/// The first leaf of a tree is gone, its successor holds what comes before, and is split there.
#[test]
fn what_is_before_a_trees_first_key_is_found() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let mut files = Vec::new();
    let steps = [
        Step::New,
        Step::Map(0, 378, 15),
        Step::Scatter(0, 324, 31),
        Step::Map(0, 355, 29),
        Step::Scatter(0, 337, 24),
    ];
    for step in steps {
        perform(&mut sides, &mut files, step);
        files[0].check(&mut sides);
    }
}

#[test]
fn numbers_are_used_again_with_another_generation_and_a_higher_version() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let numbers: Vec<u64> = (0..200).map(|_| new_file(&mut sides).number).collect();
    assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
    let get = |sides: &mut Sides, number| sides.done("inode.get", &args(&[ROOT, number], b""));
    let before = get(&mut sides, 77);
    for number in [77, 5, 130] {
        sides.done("inode.drop", &args(&[ROOT, number], b""));
    }
    let again: Vec<u64> = (0..4).map(|_| new_file(&mut sides).number).collect();
    assert_eq!(again, [130, 5, 77, 201]);
    let after = get(&mut sides, 77);
    let generation = |record: &[u8]| word(record, 8) & 0xffff_ffff;
    assert_eq!(generation(&after), generation(&before) + 1);
    assert!(word(&after, 80) > word(&before, 80), "its version");
}

#[test]
fn thousands_of_extents_are_found_and_given_back() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let mut files = [new_file(&mut sides)];
    // Backwards, forwards and in between.
    for at in (0..1000).rev().map(|at| 3 * at).chain((1000..2000).map(|at| 3 * at)) {
        sides.done("inode.map", &args(&[ROOT, files[0].number, at, 1], b""));
    }
    for at in (1..1500).step_by(7).map(|at| 3 * at + 1) {
        sides.done("inode.map", &args(&[ROOT, files[0].number, at, 1], b""));
    }
    files[0].blocks = File::found(&mut sides, files[0].number, 0, u64::MAX);
    assert_eq!(files[0].blocks.len(), 2000 + 215);
    for (at, len) in [(3, 3000), (4000, 1), (5990, 100), (0, 1), (3500, 40)] {
        sides.done("inode.cut", &args(&[ROOT, files[0].number, at, len], b""));
        files[0].cut(at, len);
        files[0].check(&mut sides);
    }
    sides.done("inode.drop", &args(&[ROOT, files[0].number], b""));
    let stats = sides.done("blocks.stats", &args(&[STORE], b""));
    assert_eq!(word(&stats, 8), BLOCKS);
}

/// Trees of three levels are split at, before and behind each kind of border.
#[test]
fn a_tree_is_split_anywhere() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let mut first = new_file(&mut sides);
    for at in 0..1200 {
        sides.done("inode.map", &args(&[ROOT, first.number, 4 * at, 2], b""));
    }
    first.blocks = File::found(&mut sides, first.number, 0, u64::MAX);
    let mut files = vec![first];
    let before = word(&sides.done("alloc.stats", &args(&[HEAP], b"")), 0);
    for at in [4800, 4797, 4796, 4501, 4500, 2402, 2400, 992, 124, 37, 32, 5, 4, 3, 1, 0] {
        let mut rest = new_file(&mut sides);
        let file = &mut files[0];
        sides.done("inode.split", &args(&[ROOT, file.number, at, rest.number], b""));
        rest.blocks = file.blocks.split_off(&at);
        file.check(&mut sides);
        rest.check(&mut sides);
        files.push(rest);
    }
    let (number, to) = (files[1].number, files[2].number);
    assert_eq!(sides.failure("inode.split", &args(&[ROOT, to, 0, files[3].number], b"")), 132);
    sides.done("inode.split", &args(&[ROOT, to, 0, number], b""));
    for file in files {
        sides.done("inode.drop", &args(&[ROOT, file.number], b""));
    }
    let stats = sides.done("blocks.stats", &args(&[STORE], b""));
    assert_eq!(word(&stats, 8), BLOCKS);
    assert!(word(&sides.done("alloc.stats", &args(&[HEAP], b"")), 0) < before, "no node is left");
    assert_eq!(word(&sides.done("alloc.stats", &args(&[HEAP], b"")), 0), 1);
}

#[test]
fn wrong_places_are_refused() {
    let mut sides = Sides::new(REGION);
    assert_eq!(sides.failure("inode.get", &args(&[ROOT, 1], b"")), 128);
    begin(&mut sides);
    for none in [0, 1, 64, u64::MAX] {
        assert_eq!(sides.failure("inode.get", &args(&[ROOT, none], b"")), 129, "{none}");
    }
    let file = new_file(&mut sides).number;
    let mut map = |at, len| sides.failure("inode.map", &args(&[ROOT, file, at, len], b""));
    assert_eq!(map((1 << 51) - 1, 1), 131, "behind where files end");
    assert_eq!(map(u64::MAX - 2, 1), 131);
    assert_eq!(map(0, BLOCKS + 1), 113, "more than there are");
    let stats = sides.done("blocks.stats", &args(&[STORE], b""));
    assert_eq!(word(&stats, 8), BLOCKS, "nothing of it stays");
}
