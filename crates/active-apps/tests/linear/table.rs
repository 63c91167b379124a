//! Clients that work on one hash table at the same time, by executions and by plain verbs.

use crate::checker::Event;
use crate::clients::{Missing, RandomClient, missing};
use outboard_active_apps::bytes::{hash, word, words};
use outboard_active_apps::table::layout::SEED;
use outboard_active_apps::{ActiveHashTable, PlainHashTable};
use std::time::Instant;

pub(crate) const ROOT: u64 = 4096;
/// Bytes of a long value; a short one is a word, which lies in a cell.
const LONG: usize = 64;
/// Bytes of a key.
const KEY: usize = 8;
/// Keys that are there all the time.
const OTHERS: usize = 12;

/// An operation on one key, and its result. Values are numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TableOp {
    /// What was found.
    Get(Option<u64>),
    /// A value, and whether it replaced one.
    Put(u64, bool),
    /// Whether there was one.
    Delete(bool),
}

/// A key's value after an operation: see [`crate::checker::is_linearizable`].
pub(crate) fn apply(state: &Option<u64>, op: &TableOp, is_known: bool) -> Option<Option<u64>> {
    let fits = |was: bool| !is_known || state.is_some() == was;
    match *op {
        TableOp::Get(found) => (*state == found).then_some(*state),
        TableOp::Put(value, replaced) => fits(replaced).then_some(Some(value)),
        TableOp::Delete(was) => fits(was).then_some(None),
    }
}

/// See this file's first lines.
pub(crate) struct TableClient {
    pub(crate) own: RandomClient,
    active: ActiveHashTable,
    plain: PlainHashTable,
    /// The next value of this client's: no other has the same.
    next: u64,
}

pub(crate) fn key(number: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key.copy_from_slice(format!("key{number:05}").as_bytes());
    key
}

/// Even numbers are long values, each word of which is the number.
fn value_bytes(value: u64) -> Vec<u8> {
    let count = if value.is_multiple_of(2) { LONG / 8 } else { 1 };
    words(&vec![value; count])
}

fn value_of(bytes: &[u8]) -> u64 {
    let value = word(bytes, 0).expect("a value");
    assert_eq!(bytes, value_bytes(value), "a mixture of values");
    value
}

impl TableClient {
    pub(crate) fn new(mut own: RandomClient, number: u64) -> Self {
        let active = ActiveHashTable::open(&mut own.client, &own.region, ROOT).expect("a module");
        let plain = PlainHashTable::on(active.structure().clone());
        Self { own, active, plain, next: number << 32 }
    }

    /// A table that has one bucket, and others' keys.
    pub(crate) fn init(&mut self) {
        let len = self.own.region.len() - ROOT;
        self.active.init(&mut self.own.client, len, 0).expect("a table");
        // Others of the same chain, so that it has several buckets.
        for (key, number) in keys_of_one_chain(OTHERS + 3)[3..].iter().zip(0..) {
            let value = value_bytes(number);
            self.active.put(&mut self.own.client, key, &value).expect("room");
        }
    }

    /// There is another table now.
    pub(crate) fn forget(&mut self) {
        self.plain = PlainHashTable::on(self.active.structure().clone());
    }

    /// One operation on a key, by a call or by verbs; `None` if it was not carried out.
    pub(crate) fn step(&mut self, key: &[u8; KEY]) -> Option<Event<TableOp>> {
        let (what, is_plain, begun) = (self.own.random(8), self.own.random(2) == 1, Instant::now());
        self.next += 1;
        // Values that clients put by verbs are items.
        let value = if is_plain { self.next * 2 } else { self.next };
        let (op, came) = match what {
            0..=3 => (None, self.get(key, is_plain).map(TableOp::Get)),
            4 | 5 => {
                let put = self.put(key, value, is_plain);
                let noted = put.map(|replaced| TableOp::Put(value, replaced));
                (Some(TableOp::Put(value, false)), noted)
            }
            6 => {
                let gone = self.delete(key, is_plain);
                (Some(TableOp::Delete(false)), gone.map(TableOp::Delete))
            }
            _ => {
                // The table grows; no key changes.
                let _grown = self.active.grow(&mut self.own.client, 1);
                return None;
            }
        };
        match (came, op) {
            (Ok(op), _) => Some(Event { op, begun, ended: Some(Instant::now()) }),
            (Err(Missing::Unknown), Some(op)) => Some(Event { op, begun, ended: None }),
            (Err(_), _) => None,
        }
    }

    pub(crate) fn get(&mut self, key: &[u8; KEY], plain: bool) -> Result<Option<u64>, Missing> {
        let Self { own, active, plain: verbs, .. } = self;
        let client = &mut own.client;
        let found = if plain { verbs.get(client, key) } else { active.get(client, key) };
        Ok(found.map_err(missing)?.map(|value| value_of(&value)))
    }

    fn put(&mut self, key: &[u8; KEY], value: u64, plain: bool) -> Result<bool, Missing> {
        let Self { own, active, plain: verbs, .. } = self;
        let (client, value) = (&mut own.client, value_bytes(value));
        let put = match plain {
            true => verbs.put(client, key, &value),
            false => active.put(client, key, &value),
        };
        put.map_err(missing)
    }

    fn delete(&mut self, key: &[u8; KEY], plain: bool) -> Result<bool, Missing> {
        let Self { own, active, plain: verbs, .. } = self;
        let client = &mut own.client;
        let gone = if plain { verbs.delete(client, key) } else { active.delete(client, key) };
        gone.map_err(missing)
    }
}

/// Keys whose hashes end in the same four bits: they share a chain until the table has grown.
pub(crate) fn keys_of_one_chain(count: usize) -> Vec<[u8; KEY]> {
    (0..).map(key).filter(|key| hash(SEED, key) & 15 == 5).take(count).collect()
}
