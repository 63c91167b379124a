//! Directories: names are found, keep their places, and are listed once each, whatever comes and
//! goes meanwhile.

use crate::native::Came;
use crate::sides::{args, word};
use crate::{Sides, check_cases};
use proptest::prelude::*;
use std::collections::BTreeMap;

const REGION: usize = 1 << 19;
const TABLE: u64 = 64;
const PARENTS: [u64; 2] = [1, 1 << 40];

#[derive(Clone, Debug)]
enum Step {
    Add(usize, Vec<u8>, u64),
    Remove(usize, Vec<u8>),
    Set(usize, Vec<u8>, u64),
    /// Whoever lists goes on by so many names.
    List(usize),
    /// All that there are.
    Clear(usize),
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let short = (0..60_u8).prop_map(|number| format!("n{number}").into_bytes());
    let long = (0..9_u8, 200..=255_usize).prop_map(|(byte, len)| [byte, 0xff].repeat(len / 2));
    prop_oneof![6 => short, 1 => long, 1 => Just(vec![b'/'; 1])]
}

fn step() -> impl Strategy<Value = Step> {
    let dir = || 0..2_usize;
    let number = 1..1_u64 << 56;
    prop_oneof![
        8 => (dir(), name(), number.clone()).prop_map(|(dir, name, to)| Step::Add(dir, name, to)),
        5 => (dir(), name()).prop_map(|(dir, name)| Step::Remove(dir, name)),
        1 => (dir(), name(), number).prop_map(|(dir, name, to)| Step::Set(dir, name, to)),
        2 => (1..6_usize).prop_map(Step::List),
        1 => dir().prop_map(Step::Clear),
    ]
}

/// A directory: number, kind and place of each name, and what a reader has seen that began when it
/// had the names of `since`, fewer those that were removed.
#[derive(Debug, Default)]
struct Dir {
    parent: u64,
    at: u64,
    names: BTreeMap<Vec<u8>, (u64, u64, u64)>,
    reader: Reader,
}

#[derive(Debug, Default)]
struct Reader {
    at: u64,
    since: Vec<Vec<u8>>,
    seen: Vec<Vec<u8>>,
}

/// Number, kind, place, name.
type Listed = (u64, u64, u64, Vec<u8>);

impl Dir {
    fn new(sides: &mut Sides, parent: u64) -> Self {
        Self { parent, at: sides.number("names.new", &args(&[TABLE], b"")), ..Self::default() }
    }

    fn args(&self, more: &[u64], name: &[u8]) -> Vec<u8> {
        args(&[&[TABLE, self.parent, self.at], more].concat(), name)
    }

    fn list(&self, sides: &mut Sides, at: u64) -> Vec<Listed> {
        let listed = sides.done("names.list", &self.args(&[at], b""));
        let (mut rest, mut all) = (&listed[..], Vec::new());
        while !rest.is_empty() {
            let lens = word(rest, 16);
            let (kind, len) = (lens & 0xffff_ffff, usize::try_from(lens >> 32).expect("short"));
            all.push((word(rest, 0), kind, word(rest, 8), rest[24..24 + len].to_vec()));
            rest = &rest[24 + len.next_multiple_of(8)..];
        }
        all
    }

    fn check(&self, sides: &mut Sides) {
        let mut listed: Vec<Listed> = Vec::new();
        loop {
            let from = listed.last().map_or(0, |(_, _, at, name)| at + record_len(name.len()));
            let more = self.list(sides, from);
            if more.is_empty() {
                break;
            }
            listed.extend(more);
        }
        assert!(listed.is_sorted_by_key(|(_, _, at, _)| *at));
        let found: BTreeMap<_, _> = listed
            .iter()
            .map(|(number, kind, at, name)| (name.clone(), (*number, *kind, *at)))
            .collect();
        assert_eq!((found.len(), &found), (listed.len(), &self.names));
        assert_eq!(sides.number("names.count", &self.args(&[0], b"")), found.len() as u64);
    }

    fn read_on(&mut self, sides: &mut Sides, count: usize) {
        if self.reader.at == 0 {
            let since = self.names.keys().cloned().collect();
            self.reader = Reader { at: 0, since, seen: Vec::new() };
        }
        let more = self.list(sides, self.reader.at);
        for (_, _, at, name) in more.iter().take(count) {
            self.reader.at = at + record_len(name.len());
            self.reader.seen.push(name.clone());
        }
        if more.len() < count {
            let Reader { since, seen, .. } = std::mem::take(&mut self.reader);
            for name in since {
                let times = seen.iter().filter(|seen| **seen == name).count();
                assert_eq!(times, 1, "{name:x?} of {seen:x?}");
            }
        }
    }

    fn forget(&mut self, name: &[u8]) {
        self.names.remove(name);
        self.reader.since.retain(|known| known != name);
    }
}

fn record_len(name_len: usize) -> u64 {
    (16 + name_len).next_multiple_of(16).max(32) as u64
}

fn perform(sides: &mut Sides, dirs: &mut [Dir; 2], step: &Step) {
    match step {
        Step::Add(index, name, number) => {
            let dir = &mut dirs[*index];
            let kind = number % 256;
            let came = sides.execute("names.add", &dir.args(&[*number, kind], name));
            match (came, dir.names.contains_key(name)) {
                (Came::Done(entry), false) => {
                    dir.names.insert(name.clone(), (*number, kind, word(&entry, 8)));
                }
                (Came::Failed(145, _), true) => {}
                (came, expected) => panic!("{came:?} {expected}"),
            }
        }
        Step::Remove(index, name) => {
            let dir = &mut dirs[*index];
            let came = sides.execute("names.remove", &dir.args(&[], name));
            match (came, dir.names.get(name)) {
                (Came::Done(entry), Some(known)) => assert_eq!(word(&entry, 0), known.0),
                (Came::Failed(146, _), None) => {}
                (came, expected) => panic!("{came:?} {expected:?}"),
            }
            dir.forget(name);
        }
        Step::Set(index, name, number) => {
            let dir = &mut dirs[*index];
            let came = sides.execute("names.set", &dir.args(&[*number, 7], name));
            match (came, dir.names.get_mut(name)) {
                (Came::Done(_), Some(known)) => (known.0, known.1) = (*number, 7),
                (Came::Failed(146, _), None) => {}
                (came, expected) => panic!("{came:?} {expected:?}"),
            }
        }
        Step::List(count) => dirs.iter_mut().for_each(|dir| dir.read_on(sides, *count)),
        Step::Clear(index) => {
            let dir = &mut dirs[*index];
            for name in dir.names.keys().cloned().collect::<Vec<_>>() {
                sides.done("names.remove", &dir.args(&[], &name));
                dir.forget(&name);
            }
        }
    }
}

fn begin(sides: &mut Sides) {
    sides.clear();
    sides.done("table.init", &args(&[TABLE, REGION as u64 - TABLE, 4], b""));
}

#[test]
fn names_are_found_and_listed_whatever_comes_and_goes() {
    let operations = prop::collection::vec(step(), 1..150);
    check_cases(REGION, operations, begin, |sides, steps| {
        let held = |sides: &mut Sides| {
            let heap = word(&sides.region(), usize::try_from(TABLE).expect("small") + 8);
            word(&sides.done("alloc.stats", &args(&[heap], b"")), 0)
        };
        let mut dirs = PARENTS.map(|parent| Dir::new(sides, parent));
        for step in steps {
            perform(sides, &mut dirs, step);
        }
        for dir in &mut dirs {
            dir.check(sides);
            for (name, known) in &dir.names {
                let found = sides.done("names.find", &dir.args(&[], name));
                assert_eq!((word(&found, 0), word(&found, 8)), (known.0, known.2));
            }
            if !dir.names.is_empty() {
                assert_eq!(sides.failure("names.drop", &dir.args(&[], b"")), 148);
            }
        }
        let before = held(sides);
        for (index, dir) in dirs.iter_mut().enumerate() {
            let all: Vec<_> = dir.names.keys().cloned().collect();
            for name in all {
                perform_remove(sides, dir, &name);
            }
            sides.done("names.drop", &dir.args(&[], b""));
            assert!(held(sides) < before, "directory {index} gives its memory back");
        }
    });
}

fn perform_remove(sides: &mut Sides, dir: &mut Dir, name: &[u8]) {
    sides.done("names.remove", &dir.args(&[], name));
    dir.forget(name);
}

#[test]
fn a_large_directory_takes_places_again_and_its_memory_comes_back() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let mut dir = Dir::new(&mut sides, 3);
    let name = |number: u64| format!("file-{number:05}").into_bytes();
    for number in 1..=2000 {
        let entry = sides.done("names.add", &dir.args(&[number, 8], &name(number)));
        dir.names.insert(name(number), (number, 8, word(&entry, 8)));
    }
    let end = |dir: &Dir| dir.names.values().map(|(_, _, at)| *at).max();
    let before = end(&dir);
    for number in (1..=2000).step_by(2) {
        perform_remove(&mut sides, &mut dir, &name(number));
    }
    for number in 3001..=4000 {
        let entry = sides.done("names.add", &dir.args(&[number, 8], &name(number)));
        dir.names.insert(name(number), (number, 8, word(&entry, 8)));
    }
    assert_eq!(end(&dir), before, "no place behind the others was needed");
    dir.check(&mut sides);
}

#[test]
fn wrong_names_are_refused() {
    let mut sides = Sides::new(REGION);
    begin(&mut sides);
    let dir = Dir::new(&mut sides, 1);
    for wrong in [&b""[..], &[1; 256]] {
        assert_eq!(sides.failure("names.add", &dir.args(&[1, 1], wrong)), 144);
        assert_eq!(sides.failure("names.find", &dir.args(&[], wrong)), 144);
        assert_eq!(sides.failure("names.remove", &dir.args(&[], wrong)), 144);
    }
    for wrong in [[0, 1], [1 << 56, 1], [1, 256]] {
        assert_eq!(sides.failure("names.add", &dir.args(&wrong, b"name")), 144);
    }
}
