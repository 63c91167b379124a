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
    Take {
        goal: u64,
        want: u64,
        users: u8,
    },
    /// An entry for a run of blocks.
    Change {
        entry: &'static str,
        start: u64,
        len: u64,
    },
    Sweep {
        from: u64,
        most: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let goal = prop_oneof![1 => Just(ANYWHERE), 3 => 0..COUNT + 10];
    let len = prop_oneof![3 => 0..70_u64, 1 => 0..4200_u64];
    let run = (0..COUNT, len.clone());
    let entry =
        prop_oneof![1 => Just("share"), 4 => Just("give"), 2 => Just("use"), 1 => Just("drop")];
    let most = prop_oneof![1 => Just(u64::MAX), 3 => 0..500_u64];
    prop_oneof![
        6 => (goal, len, 0..2_u8).prop_map(|(goal, want, users)| Step::Take { goal, want, users }),
        6 => (entry, run).prop_map(|(entry, (start, len))| Step::Change { entry, start, len }),
        1 => (0..COUNT + 100, most).prop_map(|(from, most)| Step::Sweep { from, most }),
    ]
}

/// Users of each block that is not free, and where the next search begins.
struct Model {
    users: Vec<Option<u8>>,
    next: usize,
}

impl Model {
    fn new() -> Self {
        Self { users: vec![None; at(COUNT)], next: 0 }
    }

    fn take(&mut self, goal: u64, want: u64, first: u8) -> Option<(u64, u64)> {
        let from = if goal < COUNT { at(goal) } else { self.next };
        let free = |from: usize| (from..self.users.len()).find(|at| self.users[*at].is_none());
        let start = free(from).or_else(|| free(0)).filter(|_| want > 0)?;
        let most = at(want).min(4096);
        let run = self.users[start..].iter_mut().take(most).take_while(|users| users.is_none());
        let len = run.map(|users| *users = Some(first)).count();
        self.next = start + len;
        Some((start as u64, len as u64))
    }

    /// The code of the failure.
    fn change(&mut self, (start, len): (u64, u64), change: Changed) -> i32 {
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

    /// Where to go on.
    fn sweep(&mut self, from: u64, most: u64) -> u64 {
        let first = at(from / 64 * 64);
        let end = at(from.saturating_add(most.max(64)).div_ceil(64).saturating_mul(64));
        let end = end.min(self.users.len());
        let swept = self.users.iter_mut().take(end).skip(first);
        swept.filter(|users| **users == Some(0)).for_each(|users| *users = None);
        if end < self.users.len() { end as u64 } else { 0 }
    }

    fn free(&self) -> u64 {
        self.users.iter().filter(|users| users.is_none()).count() as u64
    }
}

/// What a block comes to be, or the failure's code.
type Changed = fn(Option<u8>) -> Result<Option<u8>, i32>;

fn at(block: u64) -> usize {
    usize::try_from(block).unwrap_or(usize::MAX)
}

fn shared(users: Option<u8>) -> Result<Option<u8>, i32> {
    match users {
        None | Some(0) => Err(115),
        Some(users) => users.checked_add(1).map(Some).ok_or(116),
    }
}

fn given(users: Option<u8>) -> Result<Option<u8>, i32> {
    let left = users.ok_or(115)?.saturating_sub(1);
    Ok(Some(left).filter(|left| *left > 0))
}

fn used(users: Option<u8>) -> Result<Option<u8>, i32> {
    if users == Some(0) { Ok(Some(1)) } else { Err(117) }
}

fn dropped(users: Option<u8>) -> Result<Option<u8>, i32> {
    if users == Some(0) { Ok(None) } else { Err(117) }
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
                Step::Take { goal, want, users } => {
                    let entry = if users == 0 { "blocks.reserve" } else { "blocks.take" };
                    let came = sides.execute(entry, &args(&[ROOT, goal, want], b""));
                    match (came, model.take(goal, want, users)) {
                        (Came::Done(run), Some(expected)) => {
                            assert_eq!((word(&run, 0), word(&run, 8)), expected);
                        }
                        (Came::Failed(113, _), None) => {}
                        (came, expected) => panic!("{came:?} {expected:?}"),
                    }
                }
                Step::Change { entry, start, len } => {
                    let change: Changed = match entry {
                        "share" => shared,
                        "give" => given,
                        "use" => used,
                        _ => dropped,
                    };
                    let expected = model.change((start, len), change);
                    let came = code(sides, &format!("blocks.{entry}"), (start, len));
                    assert_eq!(came, expected, "{step:?}");
                }
                Step::Sweep { from, most } => {
                    let next = sides.number("blocks.sweep", &args(&[ROOT, from, most], b""));
                    assert_eq!(next, model.sweep(from, most), "{step:?}");
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
            assert_eq!(users, u64::from(model.users[at(block)].unwrap_or(0)), "{block}");
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

/// Blocks that are reserved, used and free in all words and at their borders: only the first ones go.
#[test]
fn a_sweep_frees_what_is_reserved_and_nothing_else() {
    let mut sides = Sides::new(1 << 16);
    begin(&mut sides);
    let mut model = Model::new();
    let mut start = 0;
    for len in [1, 63, 64, 65, 1, 2, 200, 3, 61, 64, 1000, 7].into_iter().cycle() {
        if start + len > COUNT {
            break;
        }
        let users = u8::try_from(start % 3).expect("small");
        let entry = if users == 0 { "blocks.reserve" } else { "blocks.take" };
        sides.done(entry, &args(&[ROOT, start, len], b""));
        model.take(start, len, users.min(1));
        start += len + start % 2;
    }
    let before = model.free();
    assert_eq!(sides.number("blocks.sweep", &args(&[ROOT, 0, ANYWHERE], b"")), 0);
    assert_eq!(model.sweep(0, ANYWHERE), 0);
    assert!(model.free() > before + 500);
    let stats = sides.done("blocks.stats", &args(&[ROOT], b""));
    assert_eq!(word(&stats, 8), model.free());
    for wrong in [(0, 4097), (COUNT, 1), (u64::MAX, 1)] {
        assert_eq!(code(&mut sides, "blocks.use", wrong), 114, "{wrong:?}");
        assert_eq!(code(&mut sides, "blocks.drop", wrong), 114, "{wrong:?}");
    }
}

/// Where the last word of blocks is full, what follows it are no blocks.
#[test]
fn a_run_ends_where_the_store_ends() {
    let mut sides = Sides::new(1 << 16);
    for count in [64, 128, 4096, 64 * 65] {
        sides.write(ROOT, &vec![0; at(count) + 2048]);
        sides.done("blocks.init", &args(&[ROOT, count], b""));
        for entry in ["blocks.take", "blocks.reserve"] {
            let run = sides.done(entry, &args(&[ROOT, count - 10, 100], b""));
            assert_eq!([word(&run, 0), word(&run, 8)], [count - 10, 10]);
            sides.done("blocks.give", &args(&[ROOT, count - 10, 10], b""));
        }
    }
}
