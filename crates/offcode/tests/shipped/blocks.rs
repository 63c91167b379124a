//! Blocks of a store: runs are apart, have their users, come back, and nothing else does.

use crate::native::Came;
use crate::sides::{args, word};
use crate::{Sides, check_cases};
use proptest::prelude::*;

const ROOT: u64 = 64;
/// Three levels, none of them full.
const COUNT: u64 = 5000;
const ANYWHERE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { goal: u64, want: u64 },
    Share { start: u64, len: u64 },
    Give { start: u64, len: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let goal = prop_oneof![1 => Just(ANYWHERE), 3 => 0..COUNT + 10];
    let len = prop_oneof![3 => 0..70_u64, 1 => 0..4200_u64];
    let run = (0..COUNT, len.clone());
    prop_oneof![
        4 => (goal, len).prop_map(|(goal, want)| Step::Take { goal, want }),
        1 => run.clone().prop_map(|(start, len)| Step::Share { start, len }),
        4 => run.prop_map(|(start, len)| Step::Give { start, len }),
    ]
}

/// Users of each block, and where the next search begins.
struct Model {
    users: Vec<u8>,
    next: usize,
}

impl Model {
    fn new() -> Self {
        Self { users: vec![0; at(COUNT)], next: 0 }
    }

    fn take(&mut self, goal: u64, want: u64) -> Option<(u64, u64)> {
        let from = if goal < COUNT { at(goal) } else { self.next };
        let free = |from: usize| (from..self.users.len()).find(|block| self.users[*block] == 0);
        let start = free(from).or_else(|| free(0)).filter(|_| want > 0)?;
        let most = at(want).min(4096);
        let run = self.users[start..].iter_mut().take(most).take_while(|users| **users == 0);
        let len = run.map(|users| *users = 1).count();
        self.next = start + len;
        Some((start as u64, len as u64))
    }

    /// The code of the failure.
    fn change(&mut self, (start, len): (u64, u64), change: fn(u8) -> Result<u8, i32>) -> i32 {
        if len > 4096 || start + len > COUNT {
            return 114;
        }
        let run = at(start)..at(start + len);
        match self.users[run.clone()]
            .iter()
            .map(|users| change(*users))
            .collect::<Result<Vec<_>, _>>()
        {
            Ok(changed) => {
                self.users[run].copy_from_slice(&changed);
                0
            }
            Err(code) => code,
        }
    }

    fn free(&self) -> u64 {
        self.users.iter().filter(|users| **users == 0).count() as u64
    }
}

fn at(block: u64) -> usize {
    usize::try_from(block).unwrap_or(usize::MAX)
}

fn shared(users: u8) -> Result<u8, i32> {
    if users == 0 { Err(115) } else { users.checked_add(1).ok_or(116) }
}

fn given(users: u8) -> Result<u8, i32> {
    users.checked_sub(1).ok_or(115)
}

fn code(sides: &mut Sides, name: &str, (start, len): (u64, u64)) -> i32 {
    match sides.execute(name, &args(&[ROOT, start, len], b"")) {
        Came::Done(_) => 0,
        Came::Failed(code, _) => code,
        other => panic!("{name}: {other:?}"),
    }
}

/// A store of which all blocks are free.
fn begin(sides: &mut Sides) {
    sides.write(ROOT, &vec![0; at(COUNT) + 2048]);
    sides.done("blocks.init", &args(&[ROOT, COUNT], b""));
}

#[test]
fn runs_are_taken_shared_and_given_as_the_model_says() {
    let operations = prop::collection::vec(step(), 1..60);
    check_cases(1 << 16, operations, begin, |sides, steps| {
        let mut model = Model::new();
        for step in steps {
            match *step {
                Step::Take { goal, want } => {
                    let came = sides.execute("blocks.take", &args(&[ROOT, goal, want], b""));
                    match (came, model.take(goal, want)) {
                        (Came::Done(run), Some(expected)) => {
                            assert_eq!((word(&run, 0), word(&run, 8)), expected);
                        }
                        (Came::Failed(113, _), None) => {}
                        (came, expected) => panic!("{came:?} {expected:?}"),
                    }
                }
                Step::Share { start, len } => {
                    let expected = model.change((start, len), shared);
                    assert_eq!(code(sides, "blocks.share", (start, len)), expected);
                }
                Step::Give { start, len } => {
                    let expected = model.change((start, len), given);
                    assert_eq!(code(sides, "blocks.give", (start, len)), expected);
                }
            }
        }
        let stats = sides.done("blocks.stats", &args(&[ROOT], b""));
        assert_eq!(
            [word(&stats, 0), word(&stats, 8), word(&stats, 16)],
            [COUNT, model.free(), model.next as u64]
        );
        for block in (0..COUNT).step_by(97) {
            let users = sides.number("blocks.users", &args(&[ROOT, block], b""));
            assert_eq!(users, u64::from(model.users[at(block)]), "{block}");
        }
    });
}

#[test]
fn the_last_free_block_of_many_is_found() {
    let mut sides = Sides::new(1 << 16);
    begin(&mut sides);
    for start in [0, 4096] {
        let taken = sides.done("blocks.take", &args(&[ROOT, start, 4096], b""));
        assert_eq!([word(&taken, 0), word(&taken, 8)], [start, (COUNT - start).min(4096)]);
    }
    assert_eq!(sides.failure("blocks.take", &args(&[ROOT, 0, 1], b"")), 113);
    for free in [0, 63, 64, 4095, 4096, COUNT - 1] {
        sides.done("blocks.give", &args(&[ROOT, free, 1], b""));
        for goal in [0, free, COUNT - 1, ANYWHERE] {
            let found = sides.done("blocks.take", &args(&[ROOT, goal, 9], b""));
            assert_eq!([word(&found, 0), word(&found, 8)], [free, 1], "from {goal}");
            sides.done("blocks.give", &args(&[ROOT, free, 1], b""));
        }
        sides.done("blocks.take", &args(&[ROOT, free, 1], b""));
    }
}

#[test]
fn a_block_has_no_more_users_than_are_counted() {
    let mut sides = Sides::new(1 << 16);
    begin(&mut sides);
    sides.done("blocks.take", &args(&[ROOT, 7, 1], b""));
    for _ in 1..255 {
        sides.done("blocks.share", &args(&[ROOT, 7, 1], b""));
    }
    assert_eq!(code(&mut sides, "blocks.share", (7, 1)), 116);
    for _ in 0..255 {
        sides.done("blocks.give", &args(&[ROOT, 7, 1], b""));
    }
    assert_eq!(code(&mut sides, "blocks.give", (7, 1)), 115);
}

#[test]
fn wrong_places_are_refused() {
    let mut sides = Sides::new(1 << 16);
    for wrong in [[ROOT, 0], [3, COUNT], [ROOT, 1 << 20], [1 << 40, 64], [ROOT, u64::MAX]] {
        assert_eq!(sides.failure("blocks.init", &args(&wrong, b"")), 114, "{wrong:?}");
    }
    assert_eq!(sides.failure("blocks.take", &args(&[ROOT, 0, 1], b"")), 112);
    begin(&mut sides);
    for wrong in [(COUNT, 1), (COUNT - 1, 2), (0, 4097), (u64::MAX, 1), (1, u64::MAX)] {
        assert_eq!(code(&mut sides, "blocks.give", wrong), 114, "{wrong:?}");
        assert_eq!(code(&mut sides, "blocks.share", wrong), 114, "{wrong:?}");
    }
    assert_eq!(sides.failure("blocks.users", &args(&[ROOT, COUNT], b"")), 114);
}
