//! The scan, against sorting everything.

use crate::check_cases;
use crate::sides::{Sides, args, word};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Scan {
    records: Vec<(u64, u64)>,
    len: u64,
    k: u64,
    predicate: u64,
    a: u64,
    b: u64,
}

fn scan() -> impl Strategy<Value = Scan> {
    let value = prop_oneof![0..50_u64, any::<u64>(), Just(u64::MAX)];
    let records = prop::collection::vec((0..64_u64, value), 0..200);
    let bounds = (0..64_u64, 0..64_u64);
    (records, 2..9_u64, 1..40_u64, 0..4_u64, bounds).prop_map(
        |(records, words, k, predicate, (a, b))| {
            let (a, b) = if predicate == 1 { (a.min(b), a.max(b)) } else { (a, b & a) };
            Scan { records, len: words * 8, k, predicate, a, b }
        },
    )
}

impl Scan {
    fn selects(&self, (key, value): (u64, u64)) -> bool {
        match self.predicate {
            0 => true,
            1 => (self.a..=self.b).contains(&key),
            2 => value < self.a,
            _ => key & self.a == self.b,
        }
    }

    fn expected(&self) -> (u64, Vec<[u64; 3]>) {
        let numbered = self.records.iter().zip(0..);
        let selected = numbered.filter(|(record, _)| self.selects(**record));
        let mut all: Vec<[u64; 3]> =
            selected.map(|((key, value), index)| [*key, *value, index]).collect();
        let count = all.len() as u64;
        all.sort_by_key(|[_, value, index]| (std::cmp::Reverse(*value), *index));
        all.truncate(usize::try_from(self.k).expect("small"));
        (count, all)
    }

    fn args(&self, offset: u64) -> Vec<u8> {
        let lengths = self.len | self.k << 32;
        let count = self.records.len() as u64;
        args(&[offset, count, lengths, self.predicate, self.a, self.b], b"")
    }
}

fn check(sides: &mut Sides, scan: &Scan) {
    let mut bytes = Vec::new();
    for (key, value) in &scan.records {
        bytes.extend(args(&[*key, *value], b""));
        bytes.resize(bytes.len() + usize::try_from(scan.len).expect("small") - 16, 0xee);
    }
    sides.write(64, &bytes);
    let result = sides.done("topk.top", &scan.args(64));
    let (selected, best) = scan.expected();
    assert_eq!((word(&result, 0), word(&result, 8)), (best.len() as u64, selected));
    let words: Vec<u64> = (16..result.len()).step_by(8).map(|at| word(&result, at)).collect();
    assert_eq!(words, best.concat());
}

#[test]
fn the_largest_are_found() {
    let operations = prop::collection::vec(scan(), 1..8);
    check_cases(
        1 << 15,
        operations,
        |_| {},
        |sides, scans| scans.iter().for_each(|scan| check(sides, scan)),
    );
}

#[test]
fn wrong_arguments_are_refused() {
    let mut sides = Sides::new(1 << 12);
    let right = Scan { records: vec![(0, 0); 9], len: 16, k: 1, predicate: 0, a: 0, b: 0 };
    sides.done("topk.top", &right.args(8));
    for wrong in [
        Scan { len: 8, ..right.clone() },
        Scan { len: 20, ..right.clone() },
        Scan { len: 72, ..right.clone() },
        Scan { k: 0, ..right.clone() },
        Scan { k: 1001, ..right.clone() },
        Scan { predicate: 4, ..right.clone() },
        Scan { predicate: 1, a: 2, b: 1, ..right.clone() },
    ] {
        assert_eq!(sides.failure("topk.top", &wrong.args(8)), 80, "{wrong:?}");
    }
    assert_eq!(sides.failure("topk.top", &right.args(9)), 80);
    let came = sides.execute("topk.top", &right.args(4096 - 64));
    assert_eq!(came, crate::native::Came::Trap);
    let came = sides.execute("topk.top", &right.args(u64::MAX - 7));
    assert_eq!(came, crate::native::Came::Trap);
}
