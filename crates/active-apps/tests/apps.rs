//! Every client at a service: what both sides find is the same, in as many round trips as their
//! methods say.

#[path = "../../cluster/tests/support/sessions.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod sessions;
#[path = "../../active/tests/support/stage.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod stage;

use outboard_active_apps::bytes::words;
use outboard_active_apps::{
    ActiveCounter, ActiveExpiry, ActiveHashTable, ActiveList, ActiveLock, ActiveSwap, ActiveTopK,
    AppError, FailureKind, FencedWord, PlainCounter, PlainHashTable, PlainList, PlainLock,
    PlainTopK, RecordArray, RecordPredicate, Structure, SwapAnswer, SwapKey, create_locks,
};
use stage::Stage;
use std::time::Duration;

const ROOT: u64 = 4096;
const END: u64 = 1 << 19;
const MINUTE: Duration = Duration::from_secs(60);

/// Round trips since the last look.
struct Trips(u64);

impl Trips {
    fn are(&mut self, now: u64, expected: u64, what: &str) {
        assert_eq!(now - std::mem::replace(&mut self.0, now), expected, "{what}");
    }
}

fn trips(structure: &Structure) -> u64 {
    structure.round_trips()
}

#[test]
fn both_clients_of_a_list_agree() {
    let stage = Stage::new();
    let client = &mut stage.client();
    let region = &client.attach("kv").expect("attached");
    let mut active = ActiveList::create(client, region, ROOT..END).expect("a list");
    for key in 0..5 {
        active.put(client, u64::MAX, (key, b"value")).expect("room");
    }
    let mut plain = PlainList::open(client, region, ROOT).expect("a list");
    let (mut seen, mut called) = (Trips(0), Trips(trips(active.structure())));
    let node = plain.at(client, 3).expect("read").expect("a node");
    seen.are(trips(plain.structure()), 5, "at");
    assert_eq!(active.at(client, 3).expect("a call"), Some(node));
    called.are(trips(active.structure()), 1, "at");
    plain.put(client, 2, (77, b"new")).expect("room");
    seen.are(trips(plain.structure()), 5, "put, with the first take");
    plain.put(client, 2, (78, b"new")).expect("room");
    seen.are(trips(plain.structure()), 4, "put");
    assert_eq!(active.get(client, 77).expect("a call").expect("a node").hops, 3);
    assert_eq!(plain.get(client, 77).expect("read").expect("a node").value, b"new");
    assert!(active.remove(client, 3).expect("a call"));
    assert_eq!(active.count(client).expect("a call"), plain.count(client).expect("read"));
    assert_eq!(plain.get(client, 3).expect("read"), None);
}

#[test]
fn both_clients_of_a_table_agree() {
    let stage = Stage::new();
    let client = &mut stage.client();
    let region = &client.attach("kv").expect("attached");
    let nothing = PlainHashTable::open(client, region, ROOT).and_then(|mut t| t.get(client, b"k"));
    assert!(matches!(nothing, Err(AppError::Broken { .. })), "{nothing:?}");
    let mut active = ActiveHashTable::open(client, region, ROOT).expect("a module");
    let nothing = active.get(client, b"k");
    let kind = FailureKind::NoStructure;
    assert!(matches!(&nothing, Err(AppError::Failed { kind: found, .. }) if *found == kind));
    active.init(client, END - ROOT, 6).expect("a table");
    active.put(client, b"small", b"one").expect("room");
    active.put(client, b"large", &[7; 100]).expect("room");
    let mut plain = PlainHashTable::open(client, region, ROOT).expect("a table");
    plain.count(client).expect("read");
    let mut seen = Trips(trips(plain.structure()));
    assert_eq!(plain.get(client, b"small").expect("read").as_deref(), Some(&b"one"[..]));
    seen.are(trips(plain.structure()), 1, "get of a small one");
    assert_eq!(plain.get(client, b"large").expect("read"), Some(vec![7; 100]));
    seen.are(trips(plain.structure()), 2, "get of a large one");
    assert!(plain.put(client, b"large", &[8; 100]).expect("stored"));
    seen.are(trips(plain.structure()), 4, "put, with the first take");
    assert!(plain.put(client, b"large", &[9; 100]).expect("stored"));
    seen.are(trips(plain.structure()), 3, "put");
    assert_eq!(active.get(client, b"large").expect("a call"), Some(vec![9; 100]));
    for number in 0..200_u8 {
        let key = [b'k', number];
        assert!(!plain.put(client, &key, &[number; 50]).expect("stored"));
        assert_eq!(active.get(client, &key).expect("a call"), Some(vec![number; 50]));
    }
    let (mut pages, mut cursor) = (0, Some(0));
    while let Some(from) = cursor {
        let page = active.scan(client, from, 50).expect("a page");
        (pages, cursor) = (pages + page.items.len(), page.next);
    }
    assert_eq!(pages, 202);
    assert!(plain.delete(client, b"small").expect("gone"));
    assert!(!active.delete(client, b"small").expect("a call"));
    assert_eq!(active.count(client).expect("a call"), plain.count(client).expect("read"));
}

#[test]
fn both_clients_of_a_lock_agree() {
    let stage = Stage::new();
    let client = &mut stage.client();
    let region = &client.attach("kv").expect("attached");
    create_locks(client, region, ROOT, 16).expect("locks");
    let mut active = ActiveLock::open(client, region, ROOT, b"it").expect("a module");
    let mut plain = PlainLock::open(client, region, ROOT, b"it").expect("a lock");
    let (mut seen, word) = (Trips(1), FencedWord::new(region, 64));
    let first = active.acquire(client, 1, MINUTE).expect("a call").granted().expect("free");
    assert_eq!(plain.acquire(client, 2, MINUTE).expect("read").granted(), None);
    seen.are(trips(plain.structure()), 1, "refused");
    let first = plain.renew(client, &first, MINUTE).expect("swapped").expect("held");
    seen.are(trips(plain.structure()), 1, "renew");
    assert!(active.release(client, &first).expect("a call"));
    let second = plain.acquire(client, 2, MINUTE).expect("read").granted().expect("free");
    seen.are(trips(plain.structure()), 2, "acquire");
    assert_eq!(second.token, first.token + 1);
    assert_eq!(active.look(client).expect("a call"), plain.look(client).expect("read"));
    assert!(word.write(client, second.token, 5).expect("swapped"));
    assert!(!word.write(client, first.token, 6).expect("read"), "an old token");
    assert_eq!(word.read(client).expect("read"), (second.token, 5));
    assert_eq!(active.renew(client, &first, MINUTE).expect("a call"), None);
    assert!(plain.release(client, &second).expect("swapped"));
    assert!(!plain.release(client, &second).expect("swapped"));
}

#[test]
fn counters_swaps_and_values_that_expire_share_a_table() {
    let stage = Stage::new();
    let client = &mut stage.client();
    let region = &client.attach("kv").expect("attached");
    let mut values = ActiveExpiry::create(client, region, ROOT..END, 6).expect("a table");
    let mut active = ActiveCounter::open(client, region, ROOT).expect("a module");
    let mut plain = PlainCounter::open(client, region, ROOT).expect("a module");
    let sums = [active.add(client, b"hits", 3), plain.add(client, b"hits", 4)];
    assert_eq!(sums.map(|sum| sum.expect("added")), [3, 7]);
    assert_eq!(active.add(client, b"hits", 1).expect("a call"), 8);
    let three = (1, 3, MINUTE);
    let allowed = [
        plain.take(client, b"alice", three),
        active.take(client, b"alice", three),
        plain.take(client, b"alice", three),
        active.take(client, b"alice", three),
        plain.take(client, b"alice", three),
    ];
    let allowed = allowed.map(|answer| answer.expect("counted")).map(|it| (it.allowed, it.left));
    assert_eq!(allowed, [(true, 2), (true, 1), (true, 0), (false, 0), (false, 0)]);
    values.set(client, (b"soon", b"gone"), Some(Duration::from_millis(1))).expect("stored");
    values.set(client, (b"ever", b"there"), None).expect("stored");
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(values.get(client, b"soon").expect("a call"), None);
    assert_eq!(values.get(client, b"ever").expect("a call").expect("there").value, b"there");
    assert_eq!(values.sweep(client, 0, 1000).expect("a call"), (1, None));
    let mut swap = ActiveSwap::open(client, region, ROOT).expect("a module");
    let key = |key, expected, value| SwapKey { key, expected, value, ttl: None };
    let keys = [key(b"ever", Some(b"there"), Some(b"x")), key(b"soon", None, Some(b"y"))];
    assert_eq!(swap.swap(client, &keys).expect("a call"), SwapAnswer::Stored);
    assert_eq!(swap.swap(client, &keys).expect("a call"), SwapAnswer::Differs { key: 0 });
    assert_eq!(values.get(client, b"soon").expect("a call").expect("there").value, b"y");
}

#[test]
fn both_scans_find_the_same_records() {
    let stage = Stage::new();
    let client = &mut stage.client();
    let region = &client.attach("kv").expect("attached");
    let records: Vec<u64> = (0..4000_u64).flat_map(|at| [at % 100, at * 7919 % 1000, at]).collect();
    region.write(client, ROOT, &words(&records)).expect("written");
    let array = RecordArray { offset: ROOT, number: 4000, record_len: 24 };
    let mut active = ActiveTopK::open(client, region).expect("a module");
    let mut plain = PlainTopK::open(client, region).expect("a module");
    for predicate in [
        RecordPredicate::All,
        RecordPredicate::KeyRange(10, 20),
        RecordPredicate::ValueBelow(500),
        RecordPredicate::KeyMask(3, 1),
    ] {
        let found = active.top(client, &array, (25, predicate)).expect("a call");
        assert_eq!(found, plain.top(client, &array, (25, predicate)).expect("read"));
        assert_eq!(found.best.len(), 25);
    }
    let endless = RecordArray { number: u64::MAX, ..array };
    let refused = plain.top(client, &endless, (25, RecordPredicate::All));
    assert!(matches!(refused, Err(AppError::TooMuch { .. })), "{refused:?}");
}
