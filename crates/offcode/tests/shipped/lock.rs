//! Locks, against a model of leases and tokens.

use crate::check_cases;
use crate::sides::{Sides, args, word};
use proptest::prelude::*;
use std::collections::HashMap;

const ROOT: u64 = 256;
const MS: u64 = 1_000_000;
/// 2026, in milliseconds since 1970.
const START_MS: u64 = 1_795_000_000_000;

#[derive(Clone, Debug)]
enum Step {
    Acquire(u8, u64),
    /// With the latest token, or another.
    Renew(u8, u64, u64),
    Release(u8, u64),
    Look(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..6_u8;
    prop_oneof![
        4 => (name(), 1..50_u64).prop_map(|(name, ms)| Step::Acquire(name, ms)),
        2 => (name(), 0..2_u64, 1..50_u64).prop_map(|(name, by, ms)| Step::Renew(name, by, ms)),
        2 => (name(), 0..2_u64).prop_map(|(name, by)| Step::Release(name, by)),
        1 => name().prop_map(Step::Look),
        2 => (0..60_u64).prop_map(Step::Wait),
    ]
}

#[derive(Clone, Copy, Default)]
struct ModelLock {
    token: u64,
    expiry_ms: u64,
}

fn run(sides: &mut Sides, model: &mut HashMap<u8, ModelLock>, now_ms: &mut u64, step: &Step) {
    let (name, entry, words) = match *step {
        Step::Wait(ms) => {
            *now_ms += ms;
            sides.set_time(*now_ms * MS + 17);
            return;
        }
        Step::Acquire(name, ms) => (name, "acquire", vec![ROOT, 7, ms * MS]),
        Step::Renew(name, by, ms) => {
            let token = model.get(&name).map_or(0, |lock| lock.token);
            (name, "renew", vec![ROOT, token.wrapping_sub(by), ms * MS])
        }
        Step::Release(name, by) => {
            let token = model.get(&name).map_or(0, |lock| lock.token);
            (name, "release", vec![ROOT, token.wrapping_sub(by)])
        }
        Step::Look(name) => (name, "look", vec![ROOT]),
    };
    let result = sides.done(&format!("lock.{entry}"), &args(&words, &[b'a' + name; 9]));
    let (status, token) = (word(&result, 0), word(&result, 8));
    let lock = model.entry(name).or_default();
    let is_held = lock.expiry_ms > *now_ms;
    let is_latest = words.get(1) == Some(&lock.token);
    let lease_ends = |index: usize| *now_ms + words[index].div_ceil(MS);
    let expected = match *step {
        Step::Acquire(..) if is_held => 2,
        Step::Acquire(..) => {
            *lock = ModelLock { token: lock.token + 1, expiry_ms: lease_ends(2) };
            1
        }
        Step::Renew(..) if is_held && is_latest => {
            lock.expiry_ms = lease_ends(2);
            1
        }
        Step::Release(..) if is_held && is_latest => {
            lock.expiry_ms = 0;
            1
        }
        Step::Look(_) => u64::from(is_held) * 2,
        _ => 3,
    };
    assert_eq!((status, token), (expected, lock.token), "{step:?}");
}

#[test]
fn a_lock_has_one_holder_and_tokens_grow() {
    let operations = prop::collection::vec(step(), 1..80);
    let begin = |sides: &mut Sides| {
        sides.set_time(START_MS * MS);
        sides.done("lock.init", &args(&[ROOT, 8], b""));
    };
    check_cases(1 << 13, operations, begin, |sides, steps| {
        let (mut model, mut now_ms) = (HashMap::new(), START_MS);
        for step in steps {
            run(sides, &mut model, &mut now_ms, step);
        }
    });
}

#[test]
fn a_peer_takes_a_lock_by_one_compare_swap() {
    let mut sides = Sides::new(1 << 13);
    sides.set_time(START_MS * MS);
    sides.done("lock.init", &args(&[ROOT, 8], b""));
    let entry = sides.number("lock.locate", &args(&[ROOT], b"name"));
    let expiry = START_MS - 1_577_836_800_000 + 100;
    // Its Write of the whole token is late; nothing depends on it.
    sides.write(entry, &(1 << 40 | expiry).to_le_bytes());
    let held = sides.done("lock.acquire", &args(&[ROOT, 1, MS], b"name"));
    assert_eq!((word(&held, 0), word(&held, 8)), (2, 1));
    assert_eq!(word(&sides.done("lock.renew", &args(&[ROOT, 1, MS * 200], b"name")), 0), 1);
    sides.set_time((START_MS + 250) * MS);
    let granted = sides.done("lock.acquire", &args(&[ROOT, 1, MS], b"name"));
    assert_eq!((word(&granted, 0), word(&granted, 8)), (1, 2));
}

#[test]
fn wrong_arguments_are_refused() {
    let mut sides = Sides::new(1 << 13);
    sides.set_time(START_MS * MS);
    assert_eq!(sides.failure("lock.look", &args(&[ROOT], b"x")), 64);
    for wrong in [[ROOT + 8, 8], [ROOT, 7], [ROOT, 0], [ROOT, 64], [ROOT, 1 << 60]] {
        assert_eq!(sides.failure("lock.init", &args(&wrong, b"")), 66, "{wrong:?}");
    }
    sides.done("lock.init", &args(&[ROOT, 2], b""));
    assert_eq!(sides.failure("lock.acquire", &args(&[ROOT, 1, MS], b"")), 67);
    assert_eq!(sides.failure("lock.acquire", &args(&[ROOT, 1, MS], &[b'x'; 95])), 67);
    assert_eq!(sides.failure("lock.acquire", &args(&[ROOT, 1, 0], b"x")), 68);
    assert_eq!(sides.failure("lock.acquire", &args(&[ROOT, 1, u64::MAX], b"x")), 68);
    for name in ["a", "b"] {
        sides.done("lock.acquire", &args(&[ROOT, 1, MS], name.as_bytes()));
    }
    assert_eq!(sides.failure("lock.acquire", &args(&[ROOT, 1, MS], b"c")), 65);
}
