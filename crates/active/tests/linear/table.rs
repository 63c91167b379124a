//! Clients that work on one hash table at the same time, by executions and by plain verbs, as
//! modules/table/table.h says.

use crate::checker::Event;
use crate::clients::{Missing, ModuleClient, hash, word, words};
use std::time::Instant;

pub(crate) const ROOT: u64 = 4096;
const COUNT: u64 = ROOT + 16;
const HEADER_LEN: usize = 384;
const GEOMETRY: usize = 24;
const SEGMENTS: usize = 64;
const SEED: u64 = 0x0074_6162_6c65;
const BUCKET: usize = 128;
const SLOTS: usize = 3;
const KIND: u64 = 3;
const EMPTY: u64 = 0;
const ITEM: u64 = 1;
/// Bytes of a long value; a short one is a word, which lies in a cell.
const LONG: usize = 64;
/// Bytes of a key, and of an item with a long value.
const KEY: usize = 8;
const ITEM_LEN: usize = 16 + KEY + LONG;
/// Keys that are there all the time.
const OTHERS: usize = 12;
/// Buckets of a chain, at most.
const CHAIN_MAX: usize = 64;
/// A get that finds something torn so often is stuck.
const TRIES: usize = 100_000;

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

/// Where a key is, or could be put.
struct Found {
    slot: u64,
    word: u64,
    /// `None`: the slot is the key's home, and empty.
    value: Option<u64>,
}

/// What a walk through a chain came to.
enum Walk {
    Found(Found),
    /// It is not there, and its home slot is another's.
    Absent,
    /// Something was torn or has moved.
    Again,
}

/// See this file's first lines.
pub(crate) struct TableClient {
    pub(crate) own: ModuleClient,
    /// The header as it was read last.
    header: Vec<u8>,
    /// Memory for items.
    items: Vec<u64>,
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
    let value = word(bytes, 0);
    assert_eq!(bytes, value_bytes(value), "a mixture of values");
    value
}

impl TableClient {
    pub(crate) fn new(own: ModuleClient, number: u64) -> Self {
        Self { own, header: Vec::new(), items: Vec::new(), next: number << 32 }
    }

    /// A table that has one bucket, and others' keys.
    pub(crate) fn init(&mut self) {
        let len = self.own.region.len() - ROOT;
        self.own.call("init", &words(&[ROOT, len, 0])).expect("a table");
        // Others of the same chain, so that it has several buckets.
        for (key, number) in keys_of_one_chain(OTHERS + 3)[3..].iter().zip(0..) {
            self.put_by_call(key, number).expect("room");
        }
    }

    /// There is another table now.
    pub(crate) fn forget(&mut self) {
        self.header.clear();
        self.items.clear();
    }

    /// One operation on a key, by a call or by verbs; `None` if it was not carried out.
    pub(crate) fn step(&mut self, key: &[u8; KEY]) -> Option<Event<TableOp>> {
        let (what, is_plain, begun) = (self.own.random(8), self.own.random(2) == 1, Instant::now());
        self.next += 1;
        // Values that clients put by verbs are items.
        let value = if is_plain { self.next * 2 } else { self.next };
        let (op, came) = match (what, is_plain) {
            (0..=3, false) => (None, self.get_by_call(key).map(TableOp::Get)),
            (0..=3, true) => (None, self.get(key).map(TableOp::Get)),
            (4 | 5, _) => {
                let put =
                    if is_plain { self.put(key, value) } else { self.put_by_call(key, value) };
                (
                    Some(TableOp::Put(value, false)),
                    put.map(|replaced| TableOp::Put(value, replaced)),
                )
            }
            (6, _) => {
                let gone = if is_plain { self.delete(key) } else { self.delete_by_call(key) };
                (Some(TableOp::Delete(false)), gone.map(TableOp::Delete))
            }
            _ => {
                // The table grows; no key changes.
                let _grown = self.own.call("grow", &words(&[ROOT, 1]));
                return None;
            }
        };
        match (came, op) {
            (Ok(op), _) => Some(Event { op, begun, ended: Some(Instant::now()) }),
            (Err(Missing::Unknown), Some(op)) => Some(Event { op, begun, ended: None }),
            (Err(_), _) => None,
        }
    }

    pub(crate) fn get_by_call(&mut self, key: &[u8; KEY]) -> Result<Option<u64>, Missing> {
        let result = self.own.call("get", &[&words(&[ROOT])[..], key].concat())?;
        Ok((word(&result, 0) == 1).then(|| value_of(&result[8..])))
    }

    fn put_by_call(&mut self, key: &[u8; KEY], value: u64) -> Result<bool, Missing> {
        let bytes = value_bytes(value);
        let lens = KEY as u64 | (bytes.len() as u64) << 32;
        let result = self.own.call("put", &[&words(&[ROOT, lens])[..], key, &bytes].concat())?;
        Ok(word(&result, 0) == 1)
    }

    fn delete_by_call(&mut self, key: &[u8; KEY]) -> Result<bool, Missing> {
        let result = self.own.call("delete", &[&words(&[ROOT])[..], key].concat())?;
        Ok(word(&result, 0) == 1)
    }

    fn get(&mut self, key: &[u8; KEY]) -> Result<Option<u64>, Missing> {
        Ok(self.find(key)?.and_then(|found| found.value))
    }

    /// `None`: the key is not there, and an execution must put it.
    fn find(&mut self, key: &[u8; KEY]) -> Result<Option<Found>, Missing> {
        for _ in 0..TRIES {
            if self.header.is_empty() {
                self.header = self.own.read(ROOT, HEADER_LEN)?;
            }
            match self.walk(key)? {
                Walk::Found(found) => return Ok(Some(found)),
                Walk::Absent => return Ok(None),
                Walk::Again => self.header.clear(),
            }
        }
        panic!("a key is never read whole")
    }

    /// Offset and index of the bucket of a hash, as the header says.
    fn bucket_of(&self, hashed: u64) -> (u64, u64) {
        let geometry = word(&self.header, GEOMETRY);
        let (level, first, split) = (geometry & 0xff, geometry >> 8 & 0xff, geometry >> 16);
        let low = |bits: u64| hashed & ((1 << bits) - 1);
        let index = if low(level) < split { low(level + 1) } else { low(level) };
        let (segment, at) = match index >> first {
            0 => (0, index),
            _ => (u64::from(index.ilog2()) - first + 1, index - (1 << index.ilog2())),
        };
        let start = word(&self.header, SEGMENTS + 8 * usize::try_from(segment).expect("few"));
        (start + at * BUCKET as u64, index)
    }

    fn walk(&mut self, key: &[u8; KEY]) -> Result<Walk, Missing> {
        let hashed = hash(SEED, key);
        let (first, index) = self.bucket_of(hashed);
        let home = first + 8 + (hashed >> 40) % 3 * 8;
        let (mut at, mut first_meta, mut empty_home) = (first, None, None);
        for _ in 0..CHAIN_MAX {
            let bucket = self.own.read(at, BUCKET)?;
            let meta = word(&bucket, 0);
            let depth = *first_meta.get_or_insert(meta) & 0xff;
            if meta & 0xff != depth || depth > 40 || hashed & ((1 << depth) - 1) != index {
                return Ok(Walk::Again);
            }
            for slot in 0..SLOTS {
                let (slot_at, held) = (at + 8 + 8 * slot as u64, word(&bucket, 8 + 8 * slot));
                if held & KIND == EMPTY && slot_at == home {
                    empty_home = Some(Found { slot: home, word: held, value: None });
                }
                if held & KIND == EMPTY || held >> 2 & 0xff != hashed >> 56 {
                    continue;
                }
                let cell = &bucket[32 * (slot + 1)..][..32];
                match self.value_in(held, key, cell)? {
                    None => return Ok(Walk::Again),
                    Some(None) => {}
                    Some(value) => {
                        return Ok(Walk::Found(Found { slot: slot_at, word: held, value }));
                    }
                }
            }
            let link = (meta >> 8 & 0xfff_ffff) * 16;
            if link == 0 {
                // Behind a link, what was read first may be old by now.
                let is_old = at != first && Some(word(&self.own.read(first, 8)?, 0)) != first_meta;
                let absent = empty_home.map_or(Walk::Absent, Walk::Found);
                return Ok(if is_old { Walk::Again } else { absent });
            }
            at = link;
        }
        Ok(Walk::Again)
    }

    /// The value of a slot of the key's fingerprint: `Some(None)` if it is another key's, `None` if
    /// what was read does not belong together.
    fn value_in(
        &mut self,
        held: u64,
        key: &[u8; KEY],
        cell: &[u8],
    ) -> Result<Option<Option<u64>>, Missing> {
        if held & KIND != ITEM {
            let (key_len, value_len) = (usize::from(cell[0]), usize::from(cell[1]));
            let Some(whole) = cell.get(..2 + key_len + value_len) else { return Ok(None) };
            if hash(SEED, whole) >> 10 != held >> 10 {
                return Ok(None);
            }
            let (found, value) = whole[2..].split_at(key_len);
            return Ok(Some((found == key).then(|| value_of(value))));
        }
        let units = usize::try_from(held >> 23 & 0x1fff).expect("few");
        let at = (held >> 36) * 16;
        if units == 0 || at + 16 * units as u64 > self.own.region.len() {
            return Ok(None);
        }
        let item = self.own.read(at, 16 * units)?;
        let second = word(&item, 8);
        let (key_len, value_len) = ((second >> 16 & 0xffff) as usize, (second >> 32) as usize);
        let Some(both) = item.get(16..16 + key_len + value_len) else { return Ok(None) };
        let (found, value) = both.split_at(key_len);
        let check = hash(hash(second, found), value);
        if check != word(&item, 0) || second & 0xffff != held >> 10 & 0x1fff {
            return Ok(None);
        }
        Ok(Some((found == key).then(|| value_of(value))))
    }

    fn put(&mut self, key: &[u8; KEY], value: u64) -> Result<bool, Missing> {
        loop {
            let Some(found) = self.find(key)? else { return self.put_by_call(key, value) };
            let item = self.item()?;
            let nonce = match found.word & KIND {
                ITEM => ((found.word >> 10) + 1) & 0x1fff,
                _ => self.own.random(1 << 13),
            };
            let (bytes, fresh) = item_bytes(key, value, (item, nonce));
            let swap = (found.slot, found.word, fresh);
            // An item that may be written or found later is not used again.
            if self.own.write_then_swap((item, &bytes), swap)? {
                self.replaced(found.word, u64::from(found.value.is_none()));
                return Ok(found.value.is_some());
            }
            self.items.push(item);
        }
    }

    fn delete(&mut self, key: &[u8; KEY]) -> Result<bool, Missing> {
        loop {
            let Some(found @ Found { value: Some(_), .. }) = self.find(key)? else {
                return Ok(false);
            };
            let empty = self.own.random(1 << 50) << 2;
            if self.own.swap(found.slot, found.word, empty)? {
                self.replaced(found.word, u64::MAX);
                return Ok(true);
            }
        }
    }

    /// A slot's item is this client's now, and the table has more or fewer.
    fn replaced(&mut self, held: u64, more: u64) {
        if held & KIND == ITEM {
            self.items.push((held >> 36) * 16);
        }
        if more != 0 {
            let ModuleClient { client, region, .. } = &mut self.own;
            // A count that a kill makes wrong is no key's.
            let _counted = region.fetch_add(client, COUNT, more);
        }
    }

    fn item(&mut self) -> Result<u64, Missing> {
        if self.items.is_empty() {
            let taken = self.own.call("take", &words(&[ROOT, ITEM_LEN as u64, 8]));
            // What it took is lost, no more.
            let taken = taken.map_err(|_| Missing::NotDone)?;
            self.items.extend(taken.chunks(8).map(|item| word(item, 0)));
        }
        Ok(self.items.pop().expect("some were taken"))
    }
}

/// An item's bytes and the slot's word for it.
fn item_bytes(key: &[u8; KEY], value: u64, (at, nonce): (u64, u64)) -> (Vec<u8>, u64) {
    let value = value_bytes(value);
    let second = nonce | (KEY as u64) << 16 | (value.len() as u64) << 32;
    let check = hash(hash(second, key), &value);
    let bytes = [&words(&[check, second])[..], key, &value].concat();
    let units = (bytes.len() as u64).div_ceil(16);
    let fingerprint = hash(SEED, key) >> 56;
    (bytes, (at / 16) << 36 | units << 23 | nonce << 10 | fingerprint << 2 | ITEM)
}

/// Keys whose hashes end in the same four bits: they share a chain until the table has grown.
pub(crate) fn keys_of_one_chain(count: usize) -> Vec<[u8; KEY]> {
    (0..).map(key).filter(|key| hash(SEED, key) & 15 == 5).take(count).collect()
}
