//! The linked list, against a vector.

use crate::check_cases;
use crate::sides::{Sides, args, word};
use proptest::prelude::*;

const ROOT: u64 = 64;

#[derive(Clone, Debug)]
enum Step {
    Put(u64, u64, usize),
    Get(u64),
    At(u64),
    Remove(u64),
    /// At the end, by a client of its own.
    PutByPeer(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let hops = prop_oneof![0..12_u64, Just(u64::MAX)];
    prop_oneof![
        5 => (hops, 0..20_u64, 0..41_usize).prop_map(|(hops, key, len)| Step::Put(hops, key, len)),
        2 => (0..20_u64).prop_map(Step::Get),
        1 => (0..30_u64).prop_map(Step::At),
        2 => (0..20_u64).prop_map(Step::Remove),
        1 => (0..20_u64).prop_map(Step::PutByPeer),
    ]
}

type Model = Vec<(u64, Vec<u8>)>;

fn check(result: &[u8], model: &Model, place: Option<usize>) {
    let Some((key, value)) = place.map(|place| &model[place]) else {
        assert_eq!((word(result, 0), word(result, 8)), (0, model.len() as u64));
        return;
    };
    let hops = place.map_or(0, |place| place as u64);
    assert_eq!((word(result, 0), word(result, 8)), (1, hops));
    assert_eq!((word(result, 24), &result[32..]), (*key, &value[..]));
}

fn put_by_peer(sides: &mut Sides, key: u64) {
    let node = sides.number("list.take", &args(&[ROOT, 1], b""));
    let region = sides.region();
    let mut link = ROOT + 8;
    loop {
        let next = word(&region, usize::try_from(link).expect("small"));
        if next == 0 {
            break;
        }
        link = next;
    }
    sides.write(node, &args(&[0, key, 0], &[0; 40]));
    sides.write(link, &node.to_le_bytes());
}

fn run(sides: &mut Sides, model: &mut Model, step: &Step) {
    match *step {
        Step::Put(hops, key, len) => {
            let value = vec![key.to_le_bytes()[0]; len];
            sides.done("list.put", &args(&[ROOT, hops, key], &value));
            let place = usize::try_from(hops).unwrap_or(usize::MAX).min(model.len());
            model.insert(place, (key, value));
        }
        Step::Get(key) => {
            let result = sides.done("list.get", &args(&[ROOT, key], b""));
            check(&result, model, model.iter().position(|(other, _)| *other == key));
        }
        Step::At(hops) => {
            let result = sides.done("list.at", &args(&[ROOT, hops], b""));
            let place = usize::try_from(hops).expect("small");
            check(&result, model, (place < model.len()).then_some(place));
        }
        Step::Remove(key) => {
            let removed = sides.number("list.remove", &args(&[ROOT, key], b""));
            let place = model.iter().position(|(other, _)| *other == key);
            assert_eq!(removed == 1, place.map(|place| model.remove(place)).is_some());
        }
        Step::PutByPeer(key) => {
            put_by_peer(sides, key);
            model.push((key, Vec::new()));
        }
    }
}

#[test]
fn a_list_is_a_vector() {
    let operations = prop::collection::vec(step(), 1..60);
    let begin = |sides: &mut Sides| {
        sides.done("list.init", &args(&[ROOT, 16_000], b""));
    };
    check_cases(1 << 14, operations, begin, |sides, steps| {
        let mut model = Model::new();
        for step in steps {
            run(sides, &mut model, step);
        }
        assert_eq!(sides.number("list.count", &args(&[ROOT], b"")), model.len() as u64);
    });
}

#[test]
fn a_full_list_takes_nodes_again_that_were_removed() {
    let mut sides = Sides::new(1 << 14);
    assert_eq!(sides.failure("list.get", &args(&[ROOT, 1], b"")), 48);
    assert_eq!(sides.failure("list.init", &args(&[ROOT, 1 << 20], b"")), 50);
    sides.done("list.init", &args(&[ROOT, 64 + 3 * 64], b""));
    for key in 0..3 {
        sides.done("list.put", &args(&[ROOT, u64::MAX, key], b"x"));
    }
    assert_eq!(sides.failure("list.put", &args(&[ROOT, 0, 9], b"")), 49);
    assert_eq!(sides.failure("list.put", &args(&[ROOT, 0, 9], &[0; 41])), 51);
    assert_eq!(sides.number("list.remove", &args(&[ROOT, 1], b"")), 1);
    sides.done("list.put", &args(&[ROOT, 1, 9], b"y"));
    assert_eq!(sides.failure("list.put", &args(&[ROOT, 0, 9], b"")), 49);
}
