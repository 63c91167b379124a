//! A tree that the modules have made is as it should be; each kind of damage is noticed, and none
//! ends the check.

use super::bytes::{RegionBytes, hash};
use super::found::Findings;
use super::heap::Heap;
use super::inodes::FoundInodes;
use super::{FsCheckReport, check_region};
use crate::protocol::{
    FsAnswer, FsBlocksRun, FsExtent, FsInitArgs, FsInode, FsInodeArgs, FsLayout, FsLinkArgs,
    FsMakeArgs, FsMapArgs, FsNameArgs, FsQuotaArgs, FsRecord, FsShareArgs, FsTakeArgs, FsWho,
    FsXattrArgs, GROW, HOLD, ROOT,
};
use crate::server::{MODULES, fs_module};
use outboard_mem::SharedRegion;
use outboard_offcode::Wasmtime;
use outboard_offcode::executor::Outcome;
use outboard_offcode::local::LocalRunner;

const BLOCKS: u64 = 6000;
const TOP: FsInode = FsInode { number: 1, generation: 1 };
const FILE: u32 = 0o100_644;

/// A file system that is used by one user.
struct Modules(LocalRunner<Wasmtime>);

impl Modules {
    fn new() -> Self {
        let engine = Wasmtime::new(None).expect("an engine");
        let runner = LocalRunner::new(engine, 1 << 20).expect("a runner");
        for (name, bytes) in MODULES {
            runner.load(name, bytes).expect("loaded");
        }
        let mut all = Self(runner);
        all.run("init", FsInitArgs { blocks: BLOCKS, mode: 0o755, ..FsInitArgs::default() }, b"");
        let args = FsQuotaArgs { id: [1, 2], blocks_max: 9000, inodes_max: 9000 };
        all.run("set_quota", args, b"");
        all
    }

    fn run(&mut self, entry: &str, args: impl FsLayout, more: &[u8]) -> Vec<u8> {
        let args = [&args.bytes()[..], more].concat();
        match self.0.execute(fs_module(), entry, &args) {
            Outcome::Done { result, .. } => result,
            other => panic!("{entry}: {other:?}"),
        }
    }

    fn make(&mut self, dir: FsInode, mode: u32, name: &[u8], target: &[u8]) -> FsInode {
        let target_len = u32::try_from(target.len()).expect("short");
        let who = FsWho { tenant: 1, ..FsWho::default() };
        let args = FsMakeArgs { who, dir, mode, target_len, ..FsMakeArgs::default() };
        let answer = self.run("make", args, &[name, target].concat());
        FsAnswer::split(&answer).expect("an answer").0.inode
    }

    fn remove(&mut self, entry: &str, dir: FsInode, name: &[u8], flags: u32) {
        self.run(entry, FsNameArgs { dir, flags, ..FsNameArgs::default() }, name);
    }

    /// Gives a file blocks at every other place.
    fn fill(&mut self, inode: FsInode, count: u64) {
        let taken = self.run("take", FsTakeArgs { want: count + 5, goal: u64::MAX }, b"");
        let (run, _) = FsBlocksRun::split(&taken).expect("blocks");
        let extents: Vec<_> = (0..count)
            .map(|at| FsExtent { file: 2 * at, block: run.start + at, len: 1 }.bytes())
            .collect();
        for extents in extents.chunks(100) {
            let count = u32::try_from(extents.len()).expect("few");
            let args = FsMapArgs { inode, size: 32 << 20, which: GROW, count, ..<_>::default() };
            self.run("change", args, &extents.concat());
        }
    }
}

/// A tree with everything that a tree can have; numbers are given in order, from 2 on.
fn tree() -> SharedRegion {
    let mut all = Modules::new();
    let dir = all.make(TOP, 0o040_755, b"dir", b"");
    let many = all.make(dir, FILE, b"many pieces", b"");
    let few = all.make(dir, FILE, b"few", b"");
    all.make(TOP, 0o120_777, b"link", b"dir/few");
    all.fill(many, 400);
    all.fill(few, 3);
    all.run("link", FsLinkArgs { dir: TOP, inode: few, ..FsLinkArgs::default() }, b"again");
    let (from, to, len) = (few, many, 1);
    let args = FsShareArgs { from, to, to_block: 1, len, ..FsShareArgs::default() };
    all.run("share", args, b"");
    let (name_len, value_len) = (6, 300);
    let args = FsXattrArgs { inode: few, name_len, value_len, ..FsXattrArgs::default() };
    all.run("set_xattr", args, &[&b"user.a"[..], &[7; 300]].concat());
    let full = all.make(dir, 0o040_700, b"full", b"");
    for at in 0..300 {
        let name = format!("{at}-{}", "long".repeat(at % 50));
        all.make(full, FILE, name.as_bytes(), b"");
    }
    for at in (0..300).step_by(3) {
        let name = format!("{at}-{}", "long".repeat(at % 50));
        all.remove("unlink", full, name.as_bytes(), 0);
    }
    let open = all.make(TOP, FILE, b"open", b"");
    all.fill(open, 2);
    all.remove("unlink", TOP, b"open", HOLD);
    let inode = all.make(TOP, 0o040_755, b"gone", b"");
    all.run("hold", FsInodeArgs { inode }, b"");
    all.remove("rmdir", TOP, b"gone", 0);
    let large = all.make(TOP, FILE, b"large", b"");
    all.fill(large, 2900);
    all.remove("unlink", TOP, b"large", 0);
    copy(all.0.region().memory())
}

fn copy(memory: &SharedRegion) -> SharedRegion {
    let fresh = SharedRegion::zeroed(memory.len()).expect("memory");
    fresh.copy_in(0, &memory.snapshot(0..memory.len()).expect("bytes")).expect("as long");
    fresh
}

fn at(offset: u64) -> usize {
    usize::try_from(offset).expect("small")
}

fn word(memory: &SharedRegion, offset: u64) -> u64 {
    memory.load_u64(at(offset)).expect("a word")
}

fn add(memory: &SharedRegion, offset: u64, more: u64) {
    let sum = word(memory, offset).wrapping_add(more);
    memory.store_u64(at(offset), sum).expect("a word");
}

fn part(memory: &SharedRegion, index: u64) -> u64 {
    word(memory, ROOT + 8 * index)
}

/// Where a record is: numbers below 64 are together.
fn record_at(memory: &SharedRegion, number: u64) -> u64 {
    word(memory, part(memory, 3) + 64) + 256 * number
}

fn edit(memory: &SharedRegion, number: u64, change: impl FnOnce(&mut FsRecord)) {
    let place = at(record_at(memory, number));
    let bytes = memory.snapshot(place..place + 256).expect("a record");
    let (mut record, _) = FsRecord::split(&bytes).expect("a record");
    change(&mut record);
    record.check = hash(0x0031_646f_6e69_626f, &record.bytes()[8..]);
    memory.copy_in(place, &record.bytes()).expect("room");
}

fn record(memory: &SharedRegion, number: u64) -> FsRecord {
    let (mut found, mut heap) = (Findings::default(), Heap::default());
    let inodes = FoundInodes::read(RegionBytes(memory), part(memory, 3), &mut heap, &mut found);
    inodes.get(number).expect("a record")
}

fn texts(report: &FsCheckReport) -> String {
    let line = |path: &Option<Vec<u8>>, what: &str| match path {
        Some(path) => format!("{}: {what}\n", String::from_utf8_lossy(path)),
        None => format!("{what}\n"),
    };
    report.damage.iter().map(|one| line(&one.path, &one.what)).collect()
}

/// What is done to a tree, and what is said of it.
type Damage = (&'static str, fn(&SharedRegion));

const DAMAGES: &[Damage] = &[
    ("/again: 3 links are counted, and it has 2", |memory| {
        edit(memory, 4, |record| record.nlink = 3);
    }),
    ("/dir: 7 links are counted, and it has 3", |memory| {
        edit(memory, 2, |record| record.nlink = 7);
    }),
    ("/dir: its size is 1, it has 3 names", |memory| edit(memory, 2, |record| record.size = 1)),
    ("/dir: the directory says that it is in inode 9", |memory| {
        edit(memory, 2, |record| record.parent = 9);
    }),
    ("/again: its check word is another one", |memory| add(memory, record_at(memory, 4) + 32, 1)),
    ("/dir/few: it stands for inode 4, which is not used", |memory| {
        edit(memory, 4, |record| record.mode = 0);
    }),
    ("/dir/few: it says another kind than its inode does", |memory| {
        edit(memory, 4, |record| record.mode = 0o010_644);
    }),
    ("/again: 9 blocks are counted, and it has 3", |memory| {
        edit(memory, 4, |record| record.blocks = 9);
    }),
    ("/again: it has block 405, which is counted otherwise", |memory| {
        edit(memory, 4, |record| record.entry[1].value = record.entry[0].value);
    }),
    ("/again: blocks 268435455 to 268435456 are not in the store", |memory| {
        edit(memory, 4, |record| record.entry[0].value = (0x0fff_ffff << 28) | 1);
    }),
    ("/again: blocks of the file at 0 are out of order", |memory| {
        edit(memory, 4, |record| record.entry[1].key = 0);
    }),
    ("/dir/many pieces: a node of its extents is not where", |memory| {
        let node = record(memory, 3).entry[1].value;
        add(memory, node + 16, 1);
    }),
    ("/dir/many pieces: a node of its extents is none", |memory| {
        let node = record(memory, 3).entry[0].value;
        add(memory, node, 1);
    }),
    ("/again: its extended attributes are none", |memory| {
        add(memory, record(memory, 4).xattrs + 8, 300);
    }),
    ("/again: its extended attributes are outside of the region", |memory| {
        edit(memory, 4, |record| record.xattrs += 64);
    }),
    ("/link: its target has 0 bytes", |memory| edit(memory, 5, |record| record.size = 0)),
    ("/link: its target: memory at", |memory| {
        let other = record(memory, 4).xattrs;
        edit(memory, 5, |record| record.body = other);
    }),
    ("blocks are counted as free", |memory| add(memory, part(memory, 2) + 16, 1)),
    ("block 0 is free with 1 users counted", |memory| add(memory, part(memory, 2) + 64, !0)),
    ("level 1 of blocks says something else", |memory| {
        add(memory, part(memory, 2) + 64 + 8 * BLOCKS.div_ceil(64), 1 << 40);
    }),
    ("inodes are counted", |memory| add(memory, part(memory, 3) + 40, 1)),
    ("unused inodes are in no list", |memory| {
        memory.store_u64(at(part(memory, 3) + 32), 0).expect("a word");
    }),
    ("the heap counts", |memory| add(memory, word(memory, part(memory, 4) + 8) + 24, 1)),
    ("the heap has no piece at", |memory| add(memory, record(memory, 4).xattrs - 16, 1)),
    ("pieces of the heap with", |memory| edit(memory, 4, |record| record.xattrs = 0)),
    ("the table of names counts", |memory| add(memory, part(memory, 4) + 16, 1)),
    ("inodes that are only open: 1 names are counted, and it has 2", |memory| {
        add(memory, part(memory, 7), 0_u64.wrapping_sub(1))
    }),
    ("nobody has it, and it is not given back", |memory| {
        memory.store_u64(at(ROOT + 48), 0).expect("a word");
    }),
    ("/dir: 4 names are counted, and it has 3", |memory| add(memory, record(memory, 2).body, 1)),
    ("/dir/few: looked up it is inode 4, listed 3", |memory| {
        // The second name of the directory: records of "many pieces" have 32 bytes.
        let segment = word(memory, record(memory, 2).body + 144);
        add(memory, segment + 32, 0_u64.wrapping_sub(1));
    }),
    ("/dir/few: looked up it is inode 4, and it is not listed", |memory| {
        let segment = word(memory, record(memory, 2).body + 144);
        add(memory, segment + 48, 1);
    }),
    ("tenant 1 counts 406 blocks of 207 inodes, and has 403 of 206", |memory| {
        edit(memory, 4, |record| record.tenant = 0);
    }),
    ("tenant 1 counts 407 blocks", |memory| add(memory, (part(memory, 1) >> 16) * 16 + 32, 1)),
    ("inodes are tenant 7's, which there is not", |memory| {
        edit(memory, 4, |record| record.tenant = 7);
    }),
    ("the table of tenants is none", |memory| add(memory, (part(memory, 1) >> 16) * 16 + 8, 99)),
    ("there is no file system in the metadata", |memory| add(memory, ROOT, 1)),
];

#[test]
fn a_tree_is_as_it_should_be_and_each_damage_is_noticed() {
    let memory = tree();
    let report = check_region(&memory, BLOCKS);
    assert_eq!(report.damage_count, 0, "{}", texts(&report));
    assert_eq!((report.inodes, report.names), (209, 206));
    assert_eq!((report.nameless, report.dying), (2, 1));
    assert!(report.blocks > 400 && report.reserved > 15, "{report:?}");
    let mut missed = Vec::new();
    for (said, damage) in DAMAGES {
        let damaged = copy(&memory);
        damage(&damaged);
        let report = check_region(&damaged, BLOCKS);
        if !texts(&report).contains(said) {
            missed.push(format!("{said:?} is not in: {}", texts(&report)));
        }
        assert_eq!(report.damage.len() as u64, report.damage_count);
    }
    assert!(missed.is_empty(), "{}", missed.concat());
    bits_that_change_end_no_check(&memory);
}

/// Wherever a bit changes: nothing else than that it is noticed, if it matters.
fn bits_that_change_end_no_check(memory: &SharedRegion) {
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 20_000 } else { 400 };
    let heap = word(memory, part(memory, 4) + 8);
    let (first, end) = (ROOT, word(memory, heap + 16));
    let (mut state, mut noticed) = (7_u64, 0);
    for _ in 0..rounds {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = first + (state >> 20) % (end - first);
        let damaged = copy(memory);
        let byte = damaged.snapshot(at(place)..at(place) + 1).expect("a byte")[0];
        damaged.copy_in(at(place), &[byte ^ 1 << (state >> 60 & 7)]).expect("room");
        noticed += u32::from(check_region(&damaged, BLOCKS).damage_count > 0);
    }
    // The others are in what nobody uses: free memory, places behind.
    assert!(noticed > rounds / 4, "{noticed} of {rounds} are noticed");
}

#[test]
fn what_was_never_served_is_empty() {
    let memory = SharedRegion::zeroed(1 << 16).expect("memory");
    assert_eq!(check_region(&memory, BLOCKS), FsCheckReport::default());
}
