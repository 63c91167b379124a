//! Gets and puts of a hash table (`modules/table/table.h`) by plain verbs, as well as they can be
//! done, or by one execution.

use crate::Failure;
use crate::list::Side;
use crate::many::Calling;
use crate::session::{connect, connect_all};
use crate::shipped::{ROOT, ShippedModule, word, words};
use crate::timing::{Timing, milliseconds};
use serde_json::{Value, json};

const SEED: u64 = 0x0074_6162_6c65;
const SEGMENTS: u64 = ROOT + 64;
const BUCKET: usize = 128;
const SLOTS: usize = 3;
const ITEM: u64 = 1;
const INLINE: u64 = 2;
/// The logarithm of the number of buckets: enough that the table does not grow.
const FIRST: u32 = 14;
const KEYS: u64 = 10_000;
const KEY: usize = 8;
/// Items that a client has in store.
const TAKEN: u64 = 16;

/// As `ob_mix` in `modules/include/outboard.h`.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 32)
}

/// As `ob_hash` there.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mixed = bytes.chunks(8).fold(seed, |mixed, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(mixed, u64::from_le_bytes(word))
    });
    mix(mixed, bytes.len() as u64)
}

/// A table, and what a client that uses plain verbs keeps.
pub(crate) struct TableWork {
    pub(crate) module: ShippedModule,
    value: Vec<u8>,
    /// The first segment of buckets, which never moves.
    buckets: u64,
    /// Memory of items that is the client's.
    own: Vec<u64>,
    random: u64,
    round_trips: u64,
}

/// Where a key is: the slot's offset and word.
struct Slot {
    at: u64,
    word: u64,
}

fn key(number: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key.copy_from_slice(format!("{number:08x}").as_bytes());
    key
}

fn put_args(key: &[u8; KEY], value: &[u8]) -> Vec<u8> {
    let mut args = words(&[ROOT, KEY as u64 | (value.len() as u64) << 32]);
    args.extend(key);
    args.extend(value);
    args
}

fn get_args(key: &[u8; KEY]) -> Vec<u8> {
    let mut args = words(&[ROOT]);
    args.extend(key);
    args
}

impl TableWork {
    pub(crate) fn new(module: ShippedModule, value_len: usize) -> Result<Self, Failure> {
        let (value, random) = (vec![b'v'; value_len], 88_172_645_463_325_252);
        let own = Vec::new();
        let mut work = Self { module, value, buckets: 0, own, random, round_trips: 0 };
        let len = work.module.region.len() - ROOT;
        work.module.call("init", &words(&[ROOT, len, u64::from(FIRST)]))?;
        for number in 0..KEYS {
            work.module.call("put", &put_args(&key(number), &work.value))?;
        }
        work.buckets = word(&work.read(SEGMENTS, 8)?, 0)?;
        let item_len = 16 + KEY as u64 + value_len as u64;
        let taken = work.module.call("take", &words(&[ROOT, item_len, TAKEN]))?;
        work.own = taken.chunks(8).map(|item| word(item, 0)).collect::<Result<_, _>>()?;
        Ok(work)
    }

    fn next_key(&mut self) -> [u8; KEY] {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        key(self.random % KEYS)
    }

    fn read(&mut self, at: u64, len: usize) -> Result<Vec<u8>, Failure> {
        self.round_trips += 1;
        Ok(self.module.region.read(&mut self.module.client, at, len)?)
    }

    /// Finds a key by plain verbs: its slot and its value.
    fn find(&mut self, key: &[u8; KEY]) -> Result<(Slot, Vec<u8>), Failure> {
        let hashed = hash(SEED, key);
        let mut at = self.buckets + (hashed & ((1 << FIRST) - 1)) * BUCKET as u64;
        while at != 0 {
            let bucket = self.read(at, BUCKET)?;
            for slot in 0..SLOTS {
                let word = word(&bucket, 8 + 8 * slot)?;
                let found = Slot { at: at + 8 + 8 * slot as u64, word };
                if let Some(value) =
                    self.value_in(&found, hashed, key, &bucket[32 * (slot + 1)..])?
                {
                    return Ok((found, value));
                }
            }
            at = (word(&bucket, 0)? >> 8 & 0xfff_ffff) * 16;
        }
        Err("an entry is lost".into())
    }

    /// The value in a slot if it holds the key. Nobody else writes here, so that nothing is torn; a
    /// check that does not fit is an error.
    fn value_in(
        &mut self,
        slot: &Slot,
        hashed: u64,
        key: &[u8; KEY],
        cell: &[u8],
    ) -> Result<Option<Vec<u8>>, Failure> {
        if slot.word >> 2 & 0xff != hashed >> 56 {
            return Ok(None);
        }
        if slot.word & 3 == INLINE {
            let (key_len, value_len) = (usize::from(cell[0]), usize::from(cell[1]));
            let whole = &cell[..2 + key_len + value_len];
            if hash(SEED, whole) >> 10 != slot.word >> 10 {
                return Err("a cell is torn".into());
            }
            let is_it = &whole[2..2 + key_len] == key;
            return Ok(is_it.then(|| whole[2 + key_len..].to_vec()));
        }
        if slot.word & 3 != ITEM {
            return Ok(None);
        }
        let units = usize::try_from(slot.word >> 23 & 0x1fff)?;
        let item = self.read((slot.word >> 36) * 16, 16 * units)?;
        let second = word(&item, 8)?;
        let (key_len, value_len) = ((second >> 16 & 0xffff) as usize, (second >> 32) as usize);
        let (found, value) = item[16..16 + key_len + value_len].split_at(key_len);
        let check = hash(hash(second, found), value);
        if check != word(&item, 0)? || second & 0xffff != slot.word >> 10 & 0x1fff {
            return Err("an item is torn".into());
        }
        Ok((found == key).then(|| value.to_vec()))
    }

    fn get(&mut self, side: Side) -> Result<Vec<u8>, Failure> {
        let key = self.next_key();
        if side == Side::Plain {
            return self.find(&key).map(|(_, value)| value);
        }
        self.round_trips += 1;
        let result = self.module.call("get", &get_args(&key))?;
        (word(&result, 0)? == 1).then(|| result[8..].to_vec()).ok_or_else(|| "it is lost".into())
    }

    fn put(&mut self, side: Side) -> Result<(), Failure> {
        let key = self.next_key();
        if side == Side::Active {
            self.round_trips += 1;
            let args = put_args(&key, &self.value);
            return self.module.call("put", &args).map(drop);
        }
        loop {
            let (slot, _) = self.find(&key)?;
            let item = self.own.pop().ok_or("the client has no memory left")?;
            let (bytes, fresh) = self.item(&key, item);
            let ShippedModule { client, region, .. } = &mut self.module;
            self.round_trips += 1;
            let swap = (slot.at, slot.word, fresh);
            if region.write_then_swap(client, (item, &bytes), swap)? == slot.word {
                if slot.word & 3 == ITEM {
                    self.own.push((slot.word >> 36) * 16);
                }
                return Ok(());
            }
            self.own.push(item);
        }
    }

    /// An item's bytes and the slot's word for it.
    fn item(&self, key: &[u8; KEY], at: u64) -> (Vec<u8>, u64) {
        let nonce = self.random >> 40 & 0x1fff;
        let value_len = self.value.len() as u64;
        let second = nonce | (KEY as u64) << 16 | value_len << 32;
        let check = hash(hash(second, key), &self.value);
        let mut bytes = words(&[check, second]);
        bytes.extend(key);
        bytes.extend(&self.value);
        let units = (bytes.len() as u64).div_ceil(16);
        let fingerprint = hash(SEED, key) >> 56;
        (bytes, ((at / 16) << 36) | (units << 23) | (nonce << 10) | (fingerprint << 2) | ITEM)
    }
}

/// Gets or puts, one after the other.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [side, what, value_len, ms]: [&str; 4],
) -> Result<Value, Failure> {
    let module = ShippedModule::load(connect(host, "table", wait)?, modules, "table")?;
    let (side, mut work) = (Side::parse(side)?, TableWork::new(module, value_len.parse()?)?);
    for side in [Side::Plain, Side::Active] {
        if work.get(side)? != work.value {
            return Err("a value is another".into());
        }
    }
    let (mut calls, time) = (0, milliseconds(ms)?);
    work.round_trips = 0;
    let timing = Timing::of(time, || {
        calls += 1;
        match what {
            "get" => work.get(side).map(drop),
            _ => work.put(side),
        }
    })?;
    let mut found = timing.json();
    found["round_trips"] = json!(work.round_trips as f64 / f64::from(calls));
    Ok(found)
}

/// Executions of gets or puts on many connections, several under way on each.
pub(crate) fn many(
    [host, modules]: [&str; 2],
    [what, value_len, connections, depth, ms]: [&str; 5],
) -> Result<Value, Failure> {
    let module = ShippedModule::load(connect(host, "table", "spin")?, modules, "table")?;
    let mut work = TableWork::new(module, value_len.parse()?)?;
    let all = connect_all(host, "table", connections.parse()?)?;
    let (entry, is_get) = (what, what == "get");
    let module = work.module.module;
    let next_args = &mut || {
        let key = work.next_key();
        if is_get { get_args(&key) } else { put_args(&key, &work.value) }
    };
    let mut calling = Calling { module, entry, next_args, depth: depth.parse()? };
    Ok(calling.run(all, milliseconds(ms)?)?.json())
}
