//! Expiry, counters, limits and compare-and-set, against a model with a clock.

use crate::check_cases;
use crate::sides::{Sides, args, word};
use proptest::prelude::*;
use std::collections::BTreeMap;

const ROOT: u64 = 64;
const START_NS: u64 = 1_795_000_000_000_000_000;
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Debug)]
enum Step {
    Set(u8, usize, u64),
    Get(u8),
    Delete(u8),
    Incr(u8, u64),
    /// Keys with whether they are expected as they are, and the new value's length.
    Cas(Vec<(u8, bool, Option<usize>)>),
    Wait(u64),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..12_u8;
    let change = (key(), prop::bool::weighted(0.9), prop::option::of(0..60_usize));
    let ttl = || prop_oneof![Just(0_u64), 1..100_u64];
    prop_oneof![
        5 => (key(), 0..60_usize, ttl()).prop_map(|(key, len, ttl)| Step::Set(key, len, ttl)),
        4 => key().prop_map(Step::Get),
        1 => key().prop_map(Step::Delete),
        2 => (key(), any::<u64>()).prop_map(|(key, delta)| Step::Incr(key, delta)),
        3 => prop::collection::vec(change, 1..5).prop_map(Step::Cas),
        2 => (1..80_u64).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
    ]
}

/// Values with their expiry, 0 for none.
#[derive(Default)]
struct Model {
    items: BTreeMap<Vec<u8>, (Vec<u8>, u64)>,
    now: u64,
}

impl Model {
    fn get(&self, key: &[u8]) -> Option<&(Vec<u8>, u64)> {
        self.items.get(key).filter(|(_, expiry)| *expiry == 0 || *expiry > self.now)
    }
}

fn key(number: u8) -> Vec<u8> {
    vec![b'k' ^ number; 3 + usize::from(number) * 4]
}

fn lengths(one: usize, other: usize) -> u64 {
    one as u64 | (other as u64) << 32
}

fn incr(sides: &mut Sides, model: &mut Model, key: &[u8], delta: u64) {
    let old = model.get(key).cloned();
    let call = args(&[ROOT, delta], key);
    if old.as_ref().is_some_and(|(value, _)| value.len() != 8) {
        assert_eq!(sides.failure("script.incr", &call), 97);
        return;
    }
    let (before, expiry) = old.map_or((0, 0), |(value, expiry)| (word(&value, 0), expiry));
    let sum = before.wrapping_add(delta);
    assert_eq!(sides.number("script.incr", &call), sum);
    model.items.insert(key.to_vec(), (sum.to_le_bytes().to_vec(), expiry));
}

fn cas(sides: &mut Sides, model: &mut Model, changes: &[(u8, bool, Option<usize>)]) {
    let mut changes = changes.to_vec();
    changes.sort_unstable();
    changes.dedup_by_key(|change| change.0);
    let (mut heads, mut pieces) = (Vec::new(), Vec::new());
    let mut failed = changes.len();
    for (index, (number, is_right, len)) in changes.iter().enumerate() {
        let key = key(*number);
        let expected = match (model.get(&key), is_right) {
            (found, true) => found.map(|(value, _)| value.clone()),
            (Some(_), false) => None,
            (None, false) => Some(b"wrong".to_vec()),
        };
        failed = if *is_right { failed } else { failed.min(index) };
        let narrow = |len: usize| u32::try_from(len).expect("small");
        let absent = |len: Option<usize>| len.map_or(ABSENT, narrow);
        heads.extend(narrow(key.len()).to_le_bytes());
        heads.extend(absent(expected.as_ref().map(Vec::len)).to_le_bytes());
        heads.extend(absent(*len).to_le_bytes());
        heads.extend([0; 12]);
        pieces.extend(key);
        pieces.extend(expected.unwrap_or_default());
        pieces.extend(vec![0x5a; len.unwrap_or(0)]);
    }
    let call = args(&[ROOT, changes.len() as u64], &[heads, pieces].concat());
    let result = sides.done("script.cas", &call);
    let is_stored = failed == changes.len();
    assert_eq!((word(&result, 0), word(&result, 8)), (is_stored.into(), failed as u64));
    for (number, _, len) in changes.into_iter().filter(|_| is_stored) {
        match len {
            Some(len) => model.items.insert(key(number), (vec![0x5a; len], 0)),
            None => model.items.remove(&key(number)),
        };
    }
}

fn sweep(sides: &mut Sides, model: &mut Model) {
    let (mut cursor, mut deleted) = (0, 0);
    while cursor != u64::MAX {
        let result = sides.done("script.sweep", &args(&[ROOT, cursor, 4], b""));
        (cursor, deleted) = (word(&result, 0), deleted + word(&result, 8));
    }
    let before = model.items.len();
    let now = model.now;
    model.items.retain(|_, (_, expiry)| *expiry == 0 || *expiry > now);
    assert_eq!(deleted, (before - model.items.len()) as u64);
}

fn run(sides: &mut Sides, model: &mut Model, step: &Step) {
    match step {
        Step::Set(number, len, ttl) => {
            let (key, value) = (key(*number), vec![*number; *len]);
            let call = args(
                &[ROOT, *ttl, lengths(key.len(), *len)],
                &[key.clone(), value.clone()].concat(),
            );
            let replaced = sides.number("script.set", &call);
            assert_eq!(replaced == 1, model.get(&key).is_some());
            let expiry = if *ttl == 0 { 0 } else { model.now + ttl };
            model.items.insert(key, (value, expiry));
        }
        Step::Get(number) => {
            let key = key(*number);
            let result = sides.done("script.get", &args(&[ROOT], &key));
            let found = (word(&result, 0) == 1).then(|| (result[16..].to_vec(), word(&result, 8)));
            assert_eq!(found.as_ref(), model.get(&key));
        }
        Step::Delete(number) => {
            let key = key(*number);
            let deleted = sides.number("script.delete", &args(&[ROOT], &key));
            assert_eq!(deleted == 1, model.get(&key).is_some());
            model.items.remove(&key);
        }
        Step::Incr(number, delta) => incr(sides, model, &key(*number), *delta),
        Step::Cas(changes) => cas(sides, model, changes),
        Step::Wait(ns) => {
            model.now += ns;
            sides.set_time(model.now);
        }
        Step::Sweep => sweep(sides, model),
    }
}

#[test]
fn values_expire_and_change_together() {
    let operations = prop::collection::vec(step(), 1..80);
    let begin = |sides: &mut Sides| {
        sides.set_time(START_NS);
        sides.done("script.init", &args(&[ROOT, 60_000, 1], b""));
    };
    check_cases(1 << 16, operations, begin, |sides, steps| {
        let mut model = Model { now: START_NS, ..Model::default() };
        for step in steps {
            run(sides, &mut model, step);
        }
    });
}

#[test]
fn a_limit_holds_in_each_window() {
    let mut sides = Sides::new(1 << 16);
    sides.set_time(START_NS);
    sides.done("script.init", &args(&[ROOT, 60_000, 1], b""));
    let ask = |sides: &mut Sides, cost: u64| {
        let result = sides.done("script.limit", &args(&[ROOT, 10, 1000, cost], b"user"));
        (word(&result, 0), word(&result, 8), word(&result, 16))
    };
    assert_eq!(ask(&mut sides, 4), (1, 6, 1000));
    sides.set_time(START_NS + 600);
    assert_eq!(ask(&mut sides, 7), (0, 6, 400));
    assert_eq!(ask(&mut sides, 6), (1, 0, 400));
    assert_eq!(ask(&mut sides, 1), (0, 0, 400));
    sides.set_time(START_NS + 1000);
    assert_eq!(ask(&mut sides, 1), (1, 9, 1000));
    assert_eq!(ask(&mut sides, u64::MAX), (0, 9, 1000));
}
