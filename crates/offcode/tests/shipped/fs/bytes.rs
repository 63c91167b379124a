//! Bytes: what is written into reserved blocks is where a model has it, and no block is lost.

use super::*;
use crate::check_cases;
use proptest::prelude::*;
use std::collections::BTreeSet;

pub(super) const BLOCK_LEN: u64 = 4096;
const GROW: u32 = 1;
pub(super) const RESIZE: u32 = 2;
const KEEP_TIMES: u32 = 4;
const SET: u32 = 8;
const SEEK_DATA: u64 = 3;
const SEEK_HOLE: u64 = 4;

const E_NXIO: i32 = 6;
pub(super) const E_2BIG: i32 = 7;
const E_AGAIN: i32 = 11;
const E_FBIG: i32 = 27;

/// File, block, length.
pub(super) type Extent = (u64, u64, u64);

/// Arguments of `change` behind the inode.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) cut: (u64, u64),
    pub(super) size: u64,
    pub(super) which: u32,
    pub(super) extents: Vec<Extent>,
    /// With [`SET`]: which, mode, uid and gid, times.
    pub(super) set: Option<[u64; 4]>,
}

impl Tree<'_> {
    pub(super) fn change(&mut self, inode: Id, change: &Change) -> Result<Found, i32> {
        let Change { version, cut, size, which, extents, set } = change;
        let count = u32::try_from(extents.len()).expect("few");
        let head = [inode.0, inode.1, *version, cut.0, cut.1, *size, pair(*which, count)];
        let extents = extents.iter().flat_map(|(file, block, len)| [*file, *block, *len]);
        let mut words: Vec<u64> = head.into_iter().chain(extents).collect();
        if let Some(set) = set {
            // Neither its user nor its inode counts.
            words.extend([u64::MAX; 13].into_iter().chain(*set));
        }
        self.call("change", &words, &[]).map(|answer| Found::new(&answer))
    }

    /// Runs of blocks.
    pub(super) fn take(&mut self, want: u64, goal: u64) -> Vec<(u64, u64)> {
        let runs = self.run("take", &args(&[want, goal], b"")).expect("runs");
        runs.chunks_exact(16).map(|run| (word(run, 0), word(run, 8))).collect()
    }

    fn give(&mut self, runs: &[(u64, u64)]) -> Result<(), i32> {
        let words: Vec<u64> = runs.iter().flat_map(|(start, len)| [*start, *len]).collect();
        self.run("give", &args(&words, b"")).map(drop)
    }

    fn read(&mut self, inode: Id, offset: u64, len: u64) -> Result<(Found, Vec<Extent>), i32> {
        let read = self.call("read", &[inode.0, inode.1, offset, len], &[])?;
        let extents = read[272..].chunks_exact(24);
        let extents = extents.map(|one| (word(one, 0), word(one, 8), word(one, 16))).collect();
        Ok((Found::new(&read), extents))
    }

    fn seek(&mut self, inode: Id, offset: u64, which: u64) -> Result<u64, i32> {
        self.call("seek", &[inode.0, inode.1, offset, which], &[]).map(|place| word(&place, 0))
    }

    pub(super) fn share(&mut self, from: (Id, u64), to: (Id, u64), len: u64) -> Result<Found, i32> {
        let ((from, from_block), (to, to_block)) = (from, to);
        let words = [from.0, from.1, to.0, to.1, from_block, to_block, len];
        self.call("share", &words, &[]).map(|answer| Found::new(&answer))
    }

    pub(super) fn reap_all(&mut self) {
        while self.reap() == 1 {}
        assert_eq!(self.stats().dying, 0);
    }
}

/// What was written into a block: each time something else.
type Token = u64;

#[derive(Clone, Debug)]
enum Step {
    /// The nth file, a block, how many, the size in bytes behind the last one, flags.
    Write(usize, u64, u64, u64, u32),
    /// Every other block, so many.
    Scatter(usize, u64, u64),
    Punch(usize, u64, u64),
    Resize(usize, u64),
    Share((usize, u64), (usize, u64), u64),
    Take(u64, u64),
    Give(usize),
    /// Whoever had reserved blocks has crashed.
    Crash(u64),
    /// Removes a file that somebody has open or not, and makes another one.
    Remake(usize, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let file = || 0..3_usize;
    let at = || prop_oneof![6 => 0..200_u64, 1 => 0..1_u64 << 30];
    let len = || prop_oneof![3 => 1..8_u64, 2 => 8..120_u64];
    let which = prop_oneof![Just(0), Just(GROW), Just(GROW | KEEP_TIMES)];
    let size = || prop_oneof![3 => 0..230 * BLOCK_LEN, 1 => Just(0), 1 => 0..(1_u64 << 43)];
    prop_oneof![
        6 => (file(), at(), len(), 0..BLOCK_LEN, which)
            .prop_map(|(file, at, len, odd, which)| Step::Write(file, at, len, odd, which)),
        3 => (file(), at(), len()).prop_map(|(file, at, len)| Step::Scatter(file, at, len)),
        3 => (file(), at(), len()).prop_map(|(file, at, len)| Step::Punch(file, at, len)),
        3 => (file(), size()).prop_map(|(file, size)| Step::Resize(file, size)),
        3 => ((file(), at()), (file(), at()), len())
            .prop_map(|(from, to, len)| Step::Share(from, to, len)),
        3 => (1..300_u64, prop_oneof![Just(u64::MAX), 0..BLOCKS])
            .prop_map(|(want, goal)| Step::Take(want, goal)),
        1 => (0..100_usize).prop_map(Step::Give),
        1 => prop_oneof![Just(u64::MAX), 1..300_u64].prop_map(Step::Crash),
        1 => (file(), any::<bool>()).prop_map(|(file, is_open)| Step::Remake(file, is_open)),
    ]
}

#[derive(Debug)]
struct File {
    id: Id,
    size: u64,
    blocks: BTreeMap<u64, Token>,
}

/// What is where: files, what each block of the store has, and which are reserved.
#[derive(Debug, Default)]
struct Model {
    files: Vec<File>,
    store: BTreeMap<u64, Token>,
    reserved: BTreeSet<u64>,
    last: Token,
    made: u64,
}

impl Model {
    fn make(&mut self, tree: &mut Tree<'_>) -> File {
        self.made += 1;
        let name = self.made.to_string();
        let id = tree.make(ROOT, FILE | 0o644, name.as_bytes(), b"").expect("made").id;
        File { id, size: 0, blocks: BTreeMap::new() }
    }

    /// Writes into reserved blocks, for these blocks of a file.
    fn fill(&mut self, files: impl Iterator<Item = u64>) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for file in files {
            let Some(block) = self.reserved.pop_first() else { break };
            self.last += 1;
            self.store.insert(block, self.last);
            match extents.last_mut() {
                Some((from, at, len)) if (*from + *len, *at + *len) == (file, block) => *len += 1,
                _ => extents.push((file, block, 1)),
            }
        }
        extents
    }

    /// What a file has by now.
    fn put(&mut self, file: usize, extents: &[Extent]) {
        for (file_block, block) in extents
            .iter()
            .flat_map(|(file, block, len)| (0..*len).map(move |more| (file + more, block + more)))
        {
            self.files[file].blocks.insert(file_block, self.store[&block]);
        }
    }

    fn cut(&mut self, file: usize, from: u64, to: u64) {
        self.files[file].blocks.retain(|block, _| *block < from || *block >= to);
    }

    /// Blocks that are some file's.
    fn used(&self) -> u64 {
        let tokens = self.files.iter().flat_map(|file| file.blocks.values());
        tokens.collect::<BTreeSet<_>>().len() as u64
    }
}

fn perform(tree: &mut Tree<'_>, model: &mut Model, step: &Step) {
    match *step {
        Step::Write(file, at, len, odd, which) => {
            let extents = model.fill(at..at + len);
            write(tree, model, file, extents, odd, which);
        }
        Step::Scatter(file, at, len) => {
            let extents = model.fill((0..len).map(|more| at + 2 * more));
            write(tree, model, file, extents, 0, GROW);
        }
        Step::Punch(file, at, len) => {
            let change = Change { cut: (at, len), ..Change::default() };
            tree.change(model.files[file].id, &change).expect("punched");
            model.cut(file, at, at + len);
        }
        Step::Resize(file, size) => {
            let change = Change { size, which: RESIZE, ..Change::default() };
            let found = tree.change(model.files[file].id, &change).expect("resized");
            model.cut(file, size.div_ceil(BLOCK_LEN), u64::MAX);
            model.files[file].size = size;
            assert_eq!((found.size, found.mtime_ns), (size, BEGIN_NS));
        }
        Step::Share(from, to, len) => share(tree, model, from, to, len),
        Step::Take(want, goal) => take(tree, model, want, goal),
        Step::Give(count) => {
            let some: Vec<_> = model.reserved.iter().rev().take(count).copied().collect();
            some.iter().for_each(|block| assert!(model.reserved.remove(block)));
            let runs: Vec<_> = some.into_iter().map(|block| (block, 1)).collect();
            tree.give(&runs).expect("given");
        }
        Step::Crash(most) => {
            sweep(tree, most);
            model.reserved.clear();
        }
        Step::Remake(file, is_open) => {
            let new = model.make(tree);
            let name = (0..=model.made).map(|made| made.to_string());
            let id = model.files[file].id;
            let name = name
                .into_iter()
                .find(|name| tree.find(ROOT, name.as_bytes()).is_ok_and(|found| found.id == id));
            let name = name.expect("it has a name");
            let flags = if is_open { HOLD } else { 0 };
            tree.remove_with("unlink", ROOT, name.as_bytes(), flags).expect("removed");
            if is_open {
                check_file(tree, model, file);
                tree.of_inode("release", id).expect("held");
            }
            tree.reap_all();
            model.files[file] = new;
        }
    }
}

/// Frees all that is reserved, in pieces.
fn sweep(tree: &mut Tree<'_>, most: u64) {
    let mut from = 0;
    loop {
        let next = tree.sides.number("fs.sweep", &args(&[from, most], b""));
        if next == 0 {
            return;
        }
        assert!(next > from, "it goes on");
        from = next;
    }
}

fn write(
    tree: &mut Tree<'_>,
    model: &mut Model,
    file: usize,
    extents: Vec<Extent>,
    odd: u64,
    which: u32,
) {
    let last = extents.last().map_or(0, |(file, _, len)| file + len);
    let size = (last * BLOCK_LEN).saturating_sub(odd);
    let id = model.files[file].id;
    let version = tree.get(id).expect("there").version;
    let mut change = Change { version: version + 1, size, which, extents, ..Change::default() };
    assert_eq!(tree.change(id, &change), Err(E_AGAIN), "of another version");
    change.version = version;
    let found = tree.change(id, &change).expect("written");
    model.put(file, &change.extents);
    if which & GROW != 0 {
        model.files[file].size = model.files[file].size.max(size);
    }
    assert_eq!(found.size, model.files[file].size);
}

fn share(
    tree: &mut Tree<'_>,
    model: &mut Model,
    (from, from_at): (usize, u64),
    (to, to_at): (usize, u64),
    len: u64,
) {
    let ids = [from, to].map(|file| model.files[file].id);
    let shared = tree.share((ids[0], from_at), (ids[1], to_at), len);
    let overlap = from == to && from_at < to_at + len && to_at < from_at + len;
    if overlap {
        assert_eq!(shared, Err(E_INVAL));
        return;
    }
    shared.expect("shared");
    let run: Vec<_> = model.files[from]
        .blocks
        .range(from_at..from_at + len)
        .map(|(block, token)| (block - from_at + to_at, *token))
        .collect();
    model.cut(to, to_at, to_at + len);
    model.files[to].blocks.extend(run);
}

fn take(tree: &mut Tree<'_>, model: &mut Model, want: u64, goal: u64) {
    let free = BLOCKS - model.used() - model.reserved.len() as u64;
    let runs = tree.take(want, goal);
    assert_eq!(runs.iter().map(|(_, len)| len).sum::<u64>(), want.min(free));
    for block in runs.into_iter().flat_map(|(start, len)| start..start + len) {
        assert!(model.reserved.insert(block), "{block} was reserved already");
        // Whoever still has it, has lost its bytes.
        model.store.remove(&block);
    }
}

/// A file, as its extents have it.
fn check_file(tree: &mut Tree<'_>, model: &Model, file: usize) {
    let File { id, size, blocks } = &model.files[file];
    let (found, extents) = tree.read(*id, 0, u64::MAX).expect("read");
    assert_eq!((found.size, found.blocks), (*size, blocks.len() as u64));
    let end = size.div_ceil(BLOCK_LEN);
    let mut has = BTreeMap::new();
    for (file, block, len) in extents {
        assert!((1..=4096).contains(&len) && file + len <= end, "no more than it has");
        has.extend((0..len).map(|more| (file + more, model.store[&(block + more)])));
    }
    let expected: BTreeMap<_, _> =
        blocks.range(..end).map(|(block, token)| (*block, *token)).collect();
    assert_eq!(has, expected, "file {file}");
    for (offset, len) in [(5000, 1), (4096 * 50 - 1, 4096 * 20 + 2), (4096 * 90, 0)] {
        let (_, extents) = tree.read(*id, offset, len).expect("read");
        let bytes = extents.iter().map(|(file, ..)| *file).collect::<Vec<_>>();
        let range = offset / BLOCK_LEN..(offset + len).min(*size).div_ceil(BLOCK_LEN);
        assert!(bytes.iter().all(|file| range.contains(file)), "{range:?} {extents:?}");
        let count: u64 = extents.iter().map(|(_, _, len)| len).sum();
        let is_some = len > 0 && offset < *size;
        let expected = if is_some { blocks.range(range).count() } else { 0 };
        assert_eq!(count, expected as u64);
    }
}

fn check_seek(tree: &mut Tree<'_>, file: &File, offset: u64) {
    let block = offset / BLOCK_LEN;
    let place = |block: u64| (block * BLOCK_LEN).max(offset);
    let is_inside = offset < file.size;
    let data = file.blocks.range(block..).next().map(|(block, _)| place(*block));
    let data = data.filter(|place| is_inside && *place < file.size).ok_or(E_NXIO);
    assert_eq!(tree.seek(file.id, offset, SEEK_DATA), data, "data from {offset}");
    let hole = (block..).find(|block| !file.blocks.contains_key(block)).expect("one");
    let hole = if is_inside { Ok(place(hole).min(file.size)) } else { Err(E_NXIO) };
    assert_eq!(tree.seek(file.id, offset, SEEK_HOLE), hole, "a hole from {offset}");
}

#[test]
fn bytes_are_where_the_model_has_them_and_no_block_is_lost() {
    let operations = prop::collection::vec(step(), 1..40);
    let begin = |sides: &mut Sides| Tree::init(sides, 0);
    check_cases(REGION, operations, begin, |sides, steps| {
        let mut tree = Tree::new(sides);
        let mut model = Model::default();
        for _ in 0..3 {
            let file = model.make(&mut tree);
            model.files.push(file);
        }
        for step in steps {
            perform(&mut tree, &mut model, step);
            let kept = model.used() + model.reserved.len() as u64;
            tree.reap_all();
            assert_eq!(tree.stats().free + kept, BLOCKS, "after {step:?}");
        }
        for file in 0..model.files.len() {
            check_file(&mut tree, &model, file);
            for offset in [0, 1, 4095, 4096, 40_000, 200_000, 1 << 20, 1 << 40] {
                check_seek(&mut tree, &model.files[file], offset);
            }
        }
    });
}

/// A file with this much, and what is reserved beyond.
fn begin<'a>(sides: &'a mut Sides, len: u64) -> (Tree<'a>, Id, u64) {
    Tree::init(sides, 0);
    let mut tree = Tree::new(sides);
    let file = tree.make(ROOT, FILE | 0o644, b"file", b"").expect("made").id;
    let runs = tree.take(len + 10, 0);
    assert_eq!(runs, [(0, len + 10)]);
    let write = Change {
        size: len * BLOCK_LEN,
        which: GROW,
        extents: vec![(0, 0, len)],
        ..Change::default()
    };
    tree.change(file, &write).expect("written");
    (tree, file, len)
}

#[test]
fn only_reserved_blocks_become_a_files() {
    let mut sides = Sides::new(REGION);
    let (mut tree, file, next) = begin(&mut sides, 20);
    let before = tree.get(file).expect("there");
    for wrong in [0, 19, next + 10, BLOCKS - 1] {
        let change = Change { extents: vec![(50, next, 1), (51, wrong, 1)], ..Change::default() };
        assert_eq!(tree.sides.failure("fs.change", &full(&tree, file, &change)), 117, "{wrong}");
    }
    for wrong in [BLOCKS, BLOCKS - 1, 1 << 35] {
        let change = Change { extents: vec![(50, wrong, 2)], ..Change::default() };
        assert_eq!(tree.sides.failure("fs.change", &full(&tree, file, &change)), 114, "{wrong}");
    }
    let change = Change { extents: vec![(50, 1 << 36, 2)], ..Change::default() };
    assert_eq!(tree.sides.failure("fs.change", &full(&tree, file, &change)), 131);
    let twice = Change { extents: vec![(50, next, 1), (51, next, 1)], ..Change::default() };
    assert_eq!(tree.sides.failure("fs.change", &full(&tree, file, &twice)), 117);
    for (extent, why) in [
        ((0, next, 0), E_INVAL),
        ((0, next, 4097), E_INVAL),
        (((1 << 31) - 1, next, 2), E_FBIG),
        ((u64::MAX, next, 2), E_FBIG),
    ] {
        let change = Change { extents: vec![extent], ..Change::default() };
        assert_eq!(tree.change(file, &change), Err(why), "{extent:?}");
    }
    for (which, size, why) in
        [(GROW | RESIZE, 0, E_INVAL), (8, 0, E_INVAL), (GROW, (1 << 43) + 1, E_FBIG)]
    {
        let change = Change { which, size, ..Change::default() };
        assert_eq!(tree.change(file, &change), Err(why));
    }
    assert_eq!(tree.get(file), Ok(before), "nothing of it was done");
    assert_eq!(tree.stats().free, BLOCKS - 30);
    let last = (1 << 31) - 1;
    let largest =
        Change { extents: vec![(last, next, 1)], size: 1 << 43, which: GROW, ..Change::default() };
    assert_eq!(tree.change(file, &largest).map(|found| found.size), Ok(1 << 43));
    assert_eq!(tree.read(file, (1 << 43) - 1, 9).expect("read").1, [(last, next, 1)]);
}

/// A `change` of user 0's.
fn full(tree: &Tree<'_>, inode: Id, change: &Change) -> Vec<u8> {
    let count = u32::try_from(change.extents.len()).expect("few");
    let head = [inode.0, inode.1, 0, 0, 0, 0, pair(0, count)];
    let extents = change.extents.iter().flat_map(|(file, block, len)| [*file, *block, *len]);
    let words: Vec<u64> = tree.who_words().into_iter().chain(head).chain(extents).collect();
    args(&words, b"")
}

#[test]
fn only_reserved_blocks_are_given_and_only_they_are_swept() {
    let mut sides = Sides::new(REGION);
    let (mut tree, file, next) = begin(&mut sides, 20);
    for wrong in [(0, 1), (next - 1, 2), (next + 9, 2), (next + 10, 1)] {
        let words = args(&[next, 1, wrong.0, wrong.1], b"");
        assert_eq!(tree.sides.failure("fs.give", &words), 117, "{wrong:?}");
    }
    assert_eq!(tree.run("give", &[0; 17]), Err(E_INVAL));
    tree.give(&[(next + 1, 3), (next + 5, 1)]).expect("reserved");
    assert_eq!(tree.stats().free, BLOCKS - 26);
    assert_eq!(tree.sides.number("fs.sweep", &args(&[0, u64::MAX], b"")), 0);
    assert_eq!(tree.stats().free, BLOCKS - 20);
    for from in [BLOCKS, BLOCKS + 64, u64::MAX] {
        assert_eq!(tree.sides.number("fs.sweep", &args(&[from, 64], b"")), 0, "{from}");
    }
    assert_eq!(tree.read(file, 0, u64::MAX).expect("read").1, [(0, 0, 20)]);
}

#[test]
fn a_file_is_changed_by_who_may_write_it_and_loses_its_set_uid_bit() {
    let mut sides = Sides::new(REGION);
    let (mut tree, file, next) = begin(&mut sides, 20);
    let change = |file, more| Change { extents: vec![(file, next + more, 1)], ..Change::default() };
    tree.set(file, 1, (0o6775, 0, 0)).expect("set");
    tree.sides.set_time(BEGIN_NS + 5);
    let found = tree.change(file, &change(0, 0)).expect("user 0");
    assert_eq!(found.mode & 0o7777, 0o6775);
    assert_eq!((found.mtime_ns, found.ctime_ns), (BEGIN_NS + 5, BEGIN_NS + 5));
    tree.who = (7, 70);
    assert_eq!(tree.change(file, &change(1, 1)), Err(E_ACCES));
    tree.groups = vec![0];
    tree.sides.set_time(BEGIN_NS + 9);
    let kept = Change { which: KEEP_TIMES, ..change(1, 1) };
    let found = tree.change(file, &kept).expect("its group may");
    assert_eq!(found.mode & 0o7777, 0o775);
    assert_eq!((found.mtime_ns, found.ctime_ns), (BEGIN_NS + 5, BEGIN_NS + 5));
    tree.who = (0, 0);
    tree.set(file, 3, (0o2040, 8, 0)).expect("set");
    tree.who = (8, 80);
    let found = tree.change(file, &change(2, 2)).expect("its owner, whatever the mode says");
    assert_eq!(found.mode & 0o7777, 0o2040);
    tree.who = (9, 90);
    tree.groups = vec![];
    assert_eq!(tree.read(file, 0, 1).map(drop), Err(E_ACCES));
    assert_eq!(tree.seek(file, 0, SEEK_DATA), Err(E_ACCES));
    tree.who = (0, 0);
    tree.set(file, 1, (0o001, 0, 0)).expect("set");
    tree.who = (9, 90);
    assert_eq!(tree.read(file, 0, 1).map(|(_, extents)| extents), Ok(vec![(0, next, 1)]));
    assert_eq!(tree.read(ROOT, 0, 1).map(drop), Err(E_ISDIR));
    assert_eq!(tree.change(ROOT, &change(0, 3)), Err(E_ISDIR));
    tree.who = (0, 0);
    let link = tree.make(ROOT, LINK, b"link", b"target").expect("made").id;
    assert_eq!(tree.change(link, &change(0, 3)), Err(E_INVAL));
}

#[test]
fn attributes_are_set_with_the_bytes_or_neither_is_changed() {
    let mut sides = Sides::new(REGION);
    let (mut tree, file, next) = begin(&mut sides, 20);
    tree.set(file, 3, (0o644, 7, 0)).expect("set");
    tree.who = (7, 70);
    tree.sides.set_time(BEGIN_NS + 5);
    // Rights, and the last change.
    let (mode, mtime) = (pair(1 | 16, 0o600), BEGIN_NS - 9);
    let extents = vec![(0, next, 1)];
    let change =
        Change { which: SET, extents, set: Some([mode, 0, 0, mtime]), ..Change::default() };
    let before = tree.read(file, 0, 1).expect("read").0;
    let found = tree.change(file, &change).expect("its owner");
    assert_eq!((found.mode & 0o7777, found.blocks), (0o600, 20));
    assert_eq!((found.mtime_ns, found.ctime_ns), (BEGIN_NS - 9, BEGIN_NS + 5));
    assert_eq!(found.version, before.version + 1);
    // Without bytes: nothing but the attributes.
    let which = SET | KEEP_TIMES;
    let alone = Change { which, set: Some([pair(1, 0o640), 0, 0, 0]), ..Change::default() };
    let found = tree.change(file, &alone).expect("its owner");
    assert_eq!((found.mode & 0o7777, found.mtime_ns), (0o640, BEGIN_NS - 9));
    let before = tree.read(file, 0, 20 * BLOCK_LEN).expect("read");
    assert_eq!(before.1[0], (0, next, 1));
    // Given to somebody else: only user 0 does that, and the bytes stay, too.
    let extents = vec![(1, next + 1, 1)];
    let given = Change { extents, set: Some([pair(2, 0), pair(8, 0), 0, 0]), ..change.clone() };
    assert_eq!(tree.change(file, &given), Err(E_PERM));
    assert_eq!(tree.read(file, 0, 20 * BLOCK_LEN).expect("read"), before);
    let unknown = Change { set: Some([pair(128, 0), 0, 0, 0]), ..given };
    assert_eq!(tree.change(file, &unknown), Err(E_INVAL));
    // Fewer bytes than the attributes have.
    assert_eq!(tree.change(file, &Change { set: None, ..alone }), Err(E_INVAL));
}

#[test]
fn shares_are_checked_and_a_block_has_no_more_users_than_are_counted() {
    let mut sides = Sides::new(REGION);
    let (mut tree, file, _) = begin(&mut sides, 20);
    let other = tree.make(ROOT, FILE | 0o600, b"other", b"").expect("made").id;
    tree.set(other, 1, (0o622, 0, 0)).expect("set");
    tree.who = (7, 70);
    tree.share((file, 0), (other, 0), 1).expect("it may read the one and write the other");
    assert_eq!(tree.share((other, 0), (other, 5), 1), Err(E_ACCES), "it may not read it");
    assert_eq!(tree.share((other, 0), (file, 0), 1), Err(E_ACCES));
    assert_eq!(tree.share((file, 0), (file, 5), 1), Err(E_ACCES), "it may not write it");
    tree.who = (0, 0);
    tree.change(other, &Change { which: RESIZE, ..Change::default() }).expect("cut");
    for (from, to, len) in [(1 << 31, 0, 1), (0, 1 << 31, 1), (0, 0, u64::MAX), (u64::MAX, 0, 1)] {
        assert_eq!(tree.share((file, from), (other, to), len), Err(E_FBIG));
    }
    for at in 0..254 {
        tree.share((file, 3), (other, 2 * at), 1).expect("shared");
    }
    let words = [&tree.who_words()[..], &[file.0, file.1, other.0, other.1, 0, 999, 10]].concat();
    assert_eq!(tree.sides.failure("fs.share", &args(&words, b"")), 116);
    assert_eq!(tree.get(other).map(|found| found.blocks), Ok(254));
    assert_eq!(tree.stats().free, BLOCKS - 30);
}
