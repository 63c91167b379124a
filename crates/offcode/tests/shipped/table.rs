//! The hash table, with executions and a one-sided client in turn, against an ordinary map.

use crate::sides::{Sides, args, word};
use crate::{check_cases, peer};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const ROOT: u64 = 128;
const LEN: u64 = 250_000;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, usize),
    Delete(u64),
    /// By a CompareSwap of the slot, if the key's slot allows it.
    PutByPeer(u64, usize),
    DeleteByPeer(u64),
    Grow(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![4 => 0..24_usize, 2 => 24..80_usize, 1 => 500..3000_usize];
    let key = || 0..60_u64;
    prop_oneof![
        10 => (key(), len()).prop_map(|(key, len)| Step::Put(key, len)),
        4 => key().prop_map(Step::Delete),
        3 => (key(), len()).prop_map(|(key, len)| Step::PutByPeer(key, len)),
        1 => key().prop_map(Step::DeleteByPeer),
        1 => (0..5_u64).prop_map(Step::Grow),
    ]
}

/// Keys of many lengths.
fn key(number: u64) -> Vec<u8> {
    let len = match number % 10 {
        0 => 1024,
        1 => 100,
        rest => 1 + usize::try_from(rest).expect("small") * 3,
    };
    let mut key = vec![number.to_le_bytes()[0]; len];
    key[0] = number.to_le_bytes()[0];
    key
}

fn value(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 + number).to_le_bytes()[0]).collect()
}

fn put_args(key: &[u8], value: &[u8]) -> Vec<u8> {
    let lengths = key.len() as u64 | (value.len() as u64) << 32;
    args(&[ROOT, lengths], &[key, value].concat())
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn get(sides: &mut Sides, key: &[u8]) -> Option<Vec<u8>> {
    let result = sides.done("table.get", &args(&[ROOT], key));
    (word(&result, 0) == 1).then(|| result[8..].to_vec())
}

fn add_to_count(sides: &mut Sides, delta: u64) {
    let at = usize::try_from(ROOT).expect("small") + 16;
    let count = word(&sides.region(), at).wrapping_add(delta);
    sides.write(ROOT + 16, &count.to_le_bytes());
}

fn put_by_peer(sides: &mut Sides, model: &mut Model, key: &[u8], value: &[u8]) {
    let found = peer::find(&sides.region(), ROOT, key);
    if !found.is_usable() {
        return;
    }
    let len = 16 + key.len() as u64 + value.len() as u64;
    let offset = sides.number("table.take", &args(&[ROOT, len, 1], b""));
    let (bytes, slot) = peer::item(key, value, len % 8192, offset);
    sides.write(offset, &bytes);
    sides.write(found.slot, &slot.to_le_bytes());
    if found.value.is_none() {
        add_to_count(sides, 1);
    } else if found.word & 3 == 1 {
        sides.done("table.give", &args(&[ROOT, (found.word >> 36) * 16], b""));
    }
    model.insert(key.to_vec(), value.to_vec());
}

fn delete_by_peer(sides: &mut Sides, model: &mut Model, key: &[u8]) {
    let found = peer::find(&sides.region(), ROOT, key);
    if found.value.is_none() {
        return;
    }
    let empty = (found.word ^ 0x1234_5678).wrapping_mul(4);
    sides.write(found.slot, &empty.to_le_bytes());
    add_to_count(sides, u64::MAX);
    if found.word & 3 == 1 {
        sides.done("table.give", &args(&[ROOT, (found.word >> 36) * 16], b""));
    }
    model.remove(key);
}

/// All items, by scanning in small steps.
fn scan(sides: &mut Sides) -> Model {
    let (mut items, mut cursor) = (Model::new(), 0);
    while cursor != u64::MAX {
        let result = sides.done("table.scan", &args(&[ROOT, cursor, 5], b""));
        cursor = word(&result, 0);
        let mut rest = &result[16..];
        for _ in 0..word(&result, 8) {
            let lengths = word(rest, 0);
            let key_len = usize::try_from(lengths & 0xffff_ffff).expect("small");
            let value_len = usize::try_from(lengths >> 32).expect("small");
            let (key, value) = rest[8..8 + key_len + value_len].split_at(key_len);
            assert!(items.insert(key.to_vec(), value.to_vec()).is_none(), "an item twice");
            rest = &rest[8 + key_len + value_len..];
        }
        assert!(rest.is_empty());
    }
    items
}

fn run(sides: &mut Sides, model: &mut Model, step: &Step) {
    match *step {
        Step::Put(number, len) => {
            let (key, value) = (key(number), value(number, len));
            let replaced = sides.number("table.put", &put_args(&key, &value));
            assert_eq!(replaced == 1, model.insert(key, value).is_some());
        }
        Step::Delete(number) => {
            let key = key(number);
            let deleted = sides.number("table.delete", &args(&[ROOT], &key));
            assert_eq!(deleted == 1, model.remove(&key).is_some());
        }
        Step::PutByPeer(number, len) => {
            put_by_peer(sides, model, &key(number), &value(number + 7, len));
        }
        Step::DeleteByPeer(number) => delete_by_peer(sides, model, &key(number)),
        Step::Grow(splits) => {
            sides.number("table.grow", &args(&[ROOT, splits], b""));
        }
    }
}

fn compare(sides: &mut Sides, model: &Model) {
    let region = sides.region();
    for number in 0..60 {
        let key = key(number);
        let expected = model.get(&key).cloned();
        assert_eq!(get(sides, &key), expected, "by execution: key {number}");
        assert_eq!(peer::find(&region, ROOT, &key).value, expected, "by Reads: key {number}");
    }
    assert_eq!(&scan(sides), model);
    let count = sides.done("table.count", &args(&[ROOT], b""));
    assert_eq!(word(&count, 0), model.len() as u64);
}

#[test]
fn executions_and_peers_see_one_map() {
    let operations = prop::collection::vec(step(), 1..90);
    let begin = |sides: &mut Sides| {
        sides.done("table.init", &args(&[ROOT, LEN, 1], b""));
    };
    check_cases(256 << 10, operations, begin, |sides, steps| {
        let mut model = Model::new();
        for step in steps {
            run(sides, &mut model, step);
        }
        compare(sides, &model);
        // All memory comes back.
        let keys: BTreeSet<Vec<u8>> = model.keys().cloned().collect();
        for key in keys {
            assert_eq!(sides.number("table.delete", &args(&[ROOT], &key)), 1);
        }
        assert!(scan(sides).is_empty());
    });
}

#[test]
fn it_grows_to_thousands_of_items_and_says_when_it_is_full() {
    let mut sides = Sides::new(256 << 10);
    sides.done("table.init", &args(&[ROOT, LEN, 0], b""));
    let item = |number: u64| put_args(&number.to_le_bytes(), &(number * 3).to_le_bytes());
    let mut stored = 0_u64;
    let full = loop {
        match sides.execute("table.put", &item(stored)) {
            crate::native::Came::Done(_) => stored += 1,
            other => break other,
        }
    };
    assert!(matches!(full, crate::native::Came::Failed(35, _)), "{full:?}");
    assert!(stored > 1500, "{stored} items in {LEN} bytes");
    for number in (0..stored).step_by(17) {
        let expected = Some((number * 3).to_le_bytes().to_vec());
        assert_eq!(get(&mut sides, &number.to_le_bytes()), expected, "{number}");
    }
    assert_eq!(get(&mut sides, &stored.to_le_bytes()), None);
}

#[test]
fn large_values_and_wrong_arguments() {
    let mut sides = Sides::new(256 << 10);
    assert_eq!(sides.failure("table.get", &args(&[ROOT], b"key")), 32);
    for wrong in [[ROOT + 8, LEN, 0], [ROOT, LEN * 2, 0], [ROOT, 100, 0], [ROOT, LEN, 15]] {
        assert_eq!(sides.failure("table.init", &args(&wrong, b"")), 36, "{wrong:?}");
    }
    sides.done("table.init", &args(&[ROOT, LEN, 4], b""));
    let large = value(1, 65536);
    sides.done("table.put", &put_args(b"large", &large));
    assert_eq!(get(&mut sides, b"large"), Some(large.clone()));
    assert_eq!(sides.failure("table.put", &put_args(b"large", &value(1, 65537))), 34);
    assert_eq!(sides.failure("table.put", &put_args(&[], b"")), 33);
    assert_eq!(sides.failure("table.put", &put_args(&[1; 1025], b"")), 33);
    assert_eq!(sides.failure("table.put", &args(&[ROOT, 100], b"short")), 1);
    assert_eq!(get(&mut sides, b"large"), Some(large));
}
