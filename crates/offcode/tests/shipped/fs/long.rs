//! Files with more extents than one execution gives back: each writes a bounded part of the region,
//! whatever becomes of them.

use super::bytes::{BLOCK_LEN, Change, E_2BIG, RESIZE};
use super::*;

const REGION: usize = 2 << 20;
const BLOCKS: u64 = 800_000;
/// Extents, and blocks of each: long ones, of which one execution gives back some hundred.
const COUNT: u64 = 1700;
const LEN: u64 = 384;

/// A file with that many extents, as far apart as they are long.
fn long_file(tree: &mut Tree<'_>) -> Id {
    let file = tree.make(ROOT, FILE | 0o644, b"long", b"").expect("made").id;
    let mut next = 0;
    while next < COUNT {
        let count = (COUNT - next).min(150);
        let runs = tree.take(count * LEN, 0);
        let blocks = runs.into_iter().flat_map(|(start, len)| start..start + len);
        let starts = blocks.step_by(usize::try_from(LEN).expect("small"));
        let extents = (next..).zip(starts).map(|(at, block)| (2 * LEN * at, block, LEN));
        let extents: Vec<_> = extents.collect();
        next += count;
        let size = 2 * LEN * next * BLOCK_LEN;
        let change = Change { extents, size, which: 1, ..Change::default() };
        tree.change(file, &change).expect("written");
    }
    assert_eq!(tree.get(file).map(|found| found.blocks), Ok(COUNT * LEN));
    file
}

fn resize(tree: &mut Tree<'_>, file: Id, size: u64) -> Found {
    let change = Change { size, which: RESIZE, ..Change::default() };
    tree.change(file, &change).expect("resized")
}

fn reap_all(tree: &mut Tree<'_>) -> usize {
    let mut pieces = 1;
    while tree.reap() == 1 {
        pieces += 1;
    }
    pieces
}

#[test]
fn a_long_file_loses_its_tail_at_once_and_its_blocks_by_and_by() {
    let mut sides = Sides::new(REGION);
    Tree::init_with(&mut sides, BLOCKS, 0);
    let mut tree = Tree::new(&mut sides);
    // Blocks that are left: up to a hole, and in the midst of an extent.
    for left in [0, 3 * LEN, 300 * LEN + 17] {
        let before = tree.stats();
        let file = long_file(&mut tree);
        let size = (left / LEN * 2 * LEN + left % LEN) * BLOCK_LEN;
        let found = resize(&mut tree, file, size);
        assert_eq!((found.size, found.blocks), (size, left));
        assert_eq!((tree.stats().inodes, tree.stats().dying), (before.inodes + 2, 1));
        assert!(tree.stats().free < BLOCKS - left, "not all at once");
        assert!(reap_all(&mut tree) > 1 || left > 3 * LEN);
        assert_eq!(tree.stats().free, BLOCKS - left);
        // It is a file as others are.
        let block = tree.take(1, 0)[0].0;
        let extents = vec![(LEN + 3, block, 1)];
        let write = Change { extents, size: 1 << 40, which: 1, ..Change::default() };
        assert_eq!(tree.change(file, &write).map(|found| found.blocks), Ok(left + 1));
        assert_eq!(resize(&mut tree, file, 0).blocks, 0);
        tree.remove("unlink", ROOT, b"long").expect("removed");
        reap_all(&mut tree);
        assert_eq!((tree.stats().free, tree.stats().inodes), (BLOCKS, before.inodes));
    }
}

#[test]
fn a_long_file_that_goes_is_reaped_also_by_who_needs_blocks() {
    let mut sides = Sides::new(REGION);
    Tree::init_with(&mut sides, BLOCKS, 0);
    let mut tree = Tree::new(&mut sides);
    let file = long_file(&mut tree);
    tree.remove_with("unlink", ROOT, b"long", HOLD).expect("removed");
    assert_eq!(tree.get(file).map(|found| found.blocks), Ok(COUNT * LEN));
    tree.of_inode("release", file).expect("held");
    assert_eq!(tree.get(file), Err(E_STALE));
    let rest = tree.stats().free;
    assert!(rest < BLOCKS && tree.stats().dying == 1);
    let mut reserved = 0;
    while reserved < rest {
        reserved += tree.take(rest - reserved, 0).iter().map(|(_, len)| len).sum::<u64>();
    }
    assert_eq!((reserved, tree.stats().free), (rest, 0));
    let more = tree.take(100, 0).iter().map(|(_, len)| len).sum::<u64>();
    assert_eq!(more, 100, "some were given back for that");
    reap_all(&mut tree);
    assert_eq!(tree.stats().free, BLOCKS - rest - more);
    tree.sides.done("fs.sweep", &args(&[0, u64::MAX], b""));
    assert_eq!((tree.stats().free, tree.stats().inodes), (BLOCKS, 1));
}

#[test]
fn what_is_too_much_at_once_is_done_in_halves() {
    let mut sides = Sides::new(REGION);
    Tree::init_with(&mut sides, BLOCKS, 0);
    let mut tree = Tree::new(&mut sides);
    let file = long_file(&mut tree);
    let other = tree.make(ROOT, FILE | 0o644, b"other", b"").expect("made").id;
    let mut share = |at, len| {
        let words = [file.0, file.1, other.0, other.1, at, at, len];
        tree.call("share", &words, &[]).map(|answer| Found::new(&answer).blocks)
    };
    let half = COUNT * LEN;
    assert_eq!(share(0, 2 * half), Err(E_2BIG));
    assert_eq!(share(0, half), Ok(half / 2));
    assert_eq!(share(half, half), Ok(half));
    assert_eq!(tree.stats().free, BLOCKS - half);
    // A hole up to the end is never too much.
    let hole = Change { cut: (LEN, u64::MAX), ..Change::default() };
    let found = tree.change(file, &hole).expect("cut");
    assert_eq!((found.blocks, found.size), (LEN, 2 * half * BLOCK_LEN));
    reap_all(&mut tree);
    assert_eq!(tree.stats().free, BLOCKS - half, "the other one has them");
}
