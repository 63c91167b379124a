//! The allocator: blocks do not overlap, keep their bytes, come back, and nothing else does.

use crate::check_cases;
use crate::sides::{args, word};
use proptest::prelude::*;

const HEAP: u64 = 64;
const START: u64 = 4096;
const END: u64 = 60_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u64),
    /// The nth block that is taken.
    Give(usize),
    /// An offset near the nth block that is none.
    GiveForeign(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop_oneof![0..80_u64, 0..3000_u64].prop_map(Step::Take),
        4 => (0..64_usize).prop_map(Step::Give),
        1 => (0..64_usize, 1..40_u64).prop_map(|(block, by)| Step::GiveForeign(block, by)),
    ]
}

fn overlap((one, one_len): (u64, u64), (other, other_len): (u64, u64)) -> bool {
    one < other + other_len && other < one + one_len
}

#[test]
fn blocks_are_apart_and_come_back() {
    let operations = prop::collection::vec(step(), 1..80);
    let begin = |sides: &mut crate::Sides| {
        sides.done("alloc.init", &args(&[HEAP, START, END], b""));
    };
    check_cases(1 << 16, operations, begin, |sides, steps| {
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match *step {
                Step::Take(len) => match sides.execute("alloc.take", &args(&[HEAP, len], b"")) {
                    crate::native::Came::Done(result) => {
                        let block = (word(&result, 0), len);
                        assert!(block.0.is_multiple_of(16) && block.0 >= START);
                        assert!(block.0 + len <= END);
                        assert!(taken.iter().all(|other| !overlap(*other, block)), "{block:?}");
                        sides.write(block.0, &vec![0xee; usize::try_from(len).expect("small")]);
                        taken.push(block);
                    }
                    other => assert!(matches!(other, crate::native::Came::Failed(17, _))),
                },
                Step::Give(index) if !taken.is_empty() => {
                    let (block, _) = taken.swap_remove(index % taken.len());
                    sides.done("alloc.give", &args(&[HEAP, block], b""));
                    assert_eq!(sides.failure("alloc.give", &args(&[HEAP, block], b"")), 19);
                }
                Step::GiveForeign(index, by) if !taken.is_empty() => {
                    let near = taken[index % taken.len()].0.wrapping_add(by);
                    if taken.iter().all(|(block, _)| *block != near) {
                        let code = sides.failure("alloc.give", &args(&[HEAP, near], b""));
                        assert!(code == 18 || code == 19, "{code}");
                    }
                }
                Step::Give(_) | Step::GiveForeign(..) => {}
            }
        }
        let stats = sides.done("alloc.stats", &args(&[HEAP], b""));
        assert_eq!(word(&stats, 0), taken.len() as u64);
    });
}

#[test]
fn wrong_places_are_refused() {
    let mut sides = crate::Sides::new(1 << 16);
    for wrong in [[4096, 4096, 60_000], [64, 4096, 70_000], [64, 9000, 4096], [3, 4096, 60_000]] {
        assert_eq!(sides.failure("alloc.init", &args(&wrong, b"")), 20, "{wrong:?}");
    }
    assert_eq!(sides.failure("alloc.take", &args(&[64, 1], b"")), 16);
    assert_eq!(sides.failure("alloc.take", b"short"), 1);
    sides.done("alloc.init", &args(&[HEAP, START, END], b""));
    assert_eq!(sides.failure("alloc.take", &args(&[HEAP, 1 << 31], b"")), 17);
    assert_eq!(sides.failure("alloc.take", &args(&[HEAP, u64::MAX], b"")), 17);
    for foreign in [0, 8, START, END, 1 << 40, u64::MAX - 15] {
        assert_eq!(sides.failure("alloc.give", &args(&[HEAP, foreign], b"")), 18, "{foreign}");
    }
}
