//! A table by Reads, Writes and CompareSwaps, as `table.h` describes under A CLIENT'S GET, PUT and
//! REMOVAL.
//!
//! It changes no bucket, no link and no cell: what would need that it has executed.

use super::layout::{
    BUCKET_LEN, CELL_LEN, COUNT, EMPTY, HEADER_LEN, ITEM, ITEM_HEAD, KEY_MAX, SLOTS, VALUE_MAX,
    bucket_of, depth, has_fingerprint, home_slot, item, item_place, kind, link, next_nonce,
    parse_cell, parse_item,
};
use super::layout::{GEOMETRY, MAGIC, SEED};
use super::store::ItemStore;
use super::{ActiveHashTable, TableCount};
use crate::bytes::{hash, word, word_in};
use crate::error::AppError;
use crate::structure::Structure;
use outboard_active::{ActiveClient, RemoteRegion};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Buckets of a chain, at most, as the module has it.
const CHAIN_MAX: usize = 64;
/// How often an operation begins again because others have changed what it reads.
const TRIES: usize = 10_000;

/// A table, by one-sided verbs.
///
/// The first method that is called reads the table's header, one round trip, which is kept. A table
/// that grows has it read again now and then.
#[derive(Clone, Debug)]
pub struct PlainHashTable {
    active: ActiveHashTable,
    /// As it was read last.
    header: Vec<u8>,
    items: ItemStore,
    random: u64,
}

/// Where a key is, or could be put.
#[derive(Clone, Debug)]
pub(crate) struct TableFound {
    slot: u64,
    word: u64,
    /// `None`: the slot is the key's home, and empty.
    pub(crate) value: Option<Vec<u8>>,
}

/// What a walk through a chain came to.
enum Walk {
    Found(TableFound),
    /// It is not there, and its home slot is another's.
    Absent,
    /// What was read does not belong together.
    Torn,
    /// The table has grown.
    Moved,
}

/// What a slot holds.
enum Held {
    Value(Vec<u8>),
    OtherKey,
    Torn,
}

impl PlainHashTable {
    /// The table at an offset. No round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
    ) -> Result<Self, AppError> {
        Ok(Self::on(ActiveHashTable::open(client, region, root)?.structure))
    }

    /// The same with a module of the caller's choice.
    #[must_use]
    pub fn on(structure: Structure) -> Self {
        // Nonces only have to differ from those before.
        let random = RandomState::new().build_hasher().finish() | 1;
        let (header, items) = (Vec::new(), ItemStore::default());
        Self { active: ActiveHashTable::on(structure), header, items, random }
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        self.active.structure()
    }

    /// As [`ActiveHashTable::get`]: one round trip for an item in a cell (key and value of up to 30
    /// bytes) or a key that is not there, two for any other; one more for each bucket of a chain
    /// behind the first.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn get(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, AppError> {
        Ok(self.find(client, key)?.and_then(|found| found.value))
    }

    /// As [`ActiveHashTable::put`]: [`Self::get`]'s round trips and one, a Write with a
    /// CompareSwap; or, for a new key whose place is taken, an execution. Again whenever another
    /// client was faster. An execution more for every 16 items of a new size, to take their memory;
    /// a new key is counted in one round trip more.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn put(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, AppError> {
        for _ in 0..TRIES {
            let Some(found) = self.find(client, key)? else {
                return self.active.put(client, key, value);
            };
            if self.replace(client, &found, (key, value))? {
                return Ok(found.value.is_some());
            }
        }
        Err(AppError::Changing { what: "the item", tries: TRIES })
    }

    /// As [`ActiveHashTable::delete`]: [`Self::get`]'s round trips and two, a CompareSwap and a
    /// FetchAdd that counts. Again whenever another client was faster.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn delete(&mut self, client: &mut ActiveClient, key: &[u8]) -> Result<bool, AppError> {
        for _ in 0..TRIES {
            let Some(TableFound { slot, word, value: Some(_) }) = self.find(client, key)? else {
                return Ok(false);
            };
            let empty = self.next_random() << 2;
            if self.active.structure_mut().swap(client, (slot, word, empty))? == word {
                self.replaced(client, word, u64::MAX);
                return Ok(true);
            }
        }
        Err(AppError::Changing { what: "the item", tries: TRIES })
    }

    /// As [`ActiveHashTable::count`]: one Read.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn count(&mut self, client: &mut ActiveClient) -> Result<TableCount, AppError> {
        self.read_header(client)?;
        let geometry = word_in(&self.header, GEOMETRY);
        let buckets = (1 << (geometry & 0x3f)) + (geometry >> 16);
        Ok(TableCount { items: word_in(&self.header, COUNT), buckets })
    }

    /// Where a key is; `None`: it is not there, and an execution must put it.
    pub(crate) fn find(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
    ) -> Result<Option<TableFound>, AppError> {
        check_length("a key's length", key.len(), KEY_MAX)?;
        for _ in 0..TRIES {
            if self.header.is_empty() {
                self.read_header(client)?;
            }
            match self.walk(client, key)? {
                Walk::Found(found) => return Ok(Some(found)),
                Walk::Absent => return Ok(None),
                Walk::Torn => {}
                Walk::Moved => self.header.clear(),
            }
        }
        Err(AppError::Changing { what: "the key's bucket", tries: TRIES })
    }

    /// Stores a value where its key was found, if that has not changed; whether it was so.
    pub(crate) fn replace(
        &mut self,
        client: &mut ActiveClient,
        found: &TableFound,
        (key, value): (&[u8], &[u8]),
    ) -> Result<bool, AppError> {
        check_length("a value's length", value.len(), VALUE_MAX)?;
        let len = (ITEM_HEAD + key.len() + value.len()) as u64;
        let structure = self.active.structure_mut();
        let piece = self.items.take(structure, client, len)?;
        let nonce = match kind(found.word) {
            ITEM => next_nonce(found.word),
            _ => self.next_random() & 0x1fff,
        };
        let (bytes, fresh) = item(key, value, (piece.0, nonce));
        let (item, swap) = ((piece.0, &bytes[..]), (found.slot, found.word, fresh));
        // Memory that may be written, or found, later is not used again: an error loses it.
        let is_stored = self.active.structure_mut().write_then_swap(client, item, swap)?;
        match is_stored {
            true => self.replaced(client, found.word, u64::from(found.value.is_none())),
            false => self.items.put_back(piece),
        }
        Ok(is_stored)
    }

    /// A slot's item is this client's now, and the table has so many more.
    fn replaced(&mut self, client: &mut ActiveClient, word: u64, more: u64) {
        let structure = self.active.structure_mut();
        if kind(word) == ITEM {
            self.items.replaced(structure, client, word);
        }
        if more != 0 {
            let count = structure.root() + COUNT as u64;
            // The count says when the table grows, and nothing about a key: a lost one is no error
            // of an operation that is done.
            let _counted = structure.add(client, count, more);
        }
    }

    fn read_header(&mut self, client: &mut ActiveClient) -> Result<(), AppError> {
        let root = self.active.structure().root();
        self.header = self.active.structure_mut().read(client, root, HEADER_LEN)?;
        let (found, expected) = (word_in(&self.header, 0), MAGIC);
        if found != expected {
            self.header.clear();
            return Err(AppError::Broken { what: "the magic word of a table", found, expected });
        }
        Ok(())
    }

    fn walk(&mut self, client: &mut ActiveClient, key: &[u8]) -> Result<Walk, AppError> {
        let hashed = hash(SEED, key);
        let (what, found) = ("a table's geometry", word_in(&self.header, GEOMETRY));
        let broken = AppError::Broken { what, found, expected: 50 };
        let (first, index) = bucket_of(&self.header, hashed).ok_or(broken)?;
        let home = first + home_slot(hashed);
        let (mut at, mut first_meta, mut empty_home) = (first, None, None);
        for _ in 0..CHAIN_MAX {
            let bucket = self.active.structure_mut().read(client, at, BUCKET_LEN)?;
            let meta = word(&bucket, 0)?;
            let wanted = depth(*first_meta.get_or_insert(meta));
            if depth(meta) != wanted || wanted > 50 || hashed & ((1 << wanted) - 1) != index {
                return Ok(Walk::Moved);
            }
            if at == first && kind(word_in(&bucket, as_usize(home - at))) == EMPTY {
                let word = word_in(&bucket, as_usize(home - at));
                empty_home = Some(TableFound { slot: home, word, value: None });
            }
            if let Some(walk) = self.look(client, (at, &bucket), (hashed, key))? {
                return Ok(walk);
            }
            if link(meta) == 0 {
                let absent = empty_home.map_or(Walk::Absent, Walk::Found);
                // Behind a link, what was read first may be old by now.
                let is_old = at != first && Some(self.meta(client, first)?) != first_meta;
                return Ok(if is_old { Walk::Torn } else { absent });
            }
            at = link(meta);
        }
        Ok(Walk::Torn)
    }

    fn meta(&mut self, client: &mut ActiveClient, bucket: u64) -> Result<u64, AppError> {
        word(&self.active.structure_mut().read(client, bucket, 8)?, 0)
    }

    /// Looks for a key in a bucket.
    fn look(
        &mut self,
        client: &mut ActiveClient,
        (at, bucket): (u64, &[u8]),
        (hashed, key): (u64, &[u8]),
    ) -> Result<Option<Walk>, AppError> {
        for slot in 0..SLOTS {
            let held = word_in(bucket, 8 + 8 * slot);
            if !has_fingerprint(held, hashed) {
                continue;
            }
            let cell = &bucket[CELL_LEN * (slot + 1)..][..CELL_LEN];
            match self.held(client, held, (key, cell))? {
                Held::OtherKey => {}
                Held::Torn => return Ok(Some(Walk::Torn)),
                Held::Value(value) => {
                    let (slot, word) = (at + 8 + 8 * slot as u64, held);
                    return Ok(Some(Walk::Found(TableFound { slot, word, value: Some(value) })));
                }
            }
        }
        Ok(None)
    }

    /// What is in a slot of the key's fingerprint.
    fn held(
        &mut self,
        client: &mut ActiveClient,
        slot: u64,
        (key, cell): (&[u8], &[u8]),
    ) -> Result<Held, AppError> {
        let item;
        let parsed = if kind(slot) == ITEM {
            let ((at, len), size) = (item_place(slot), self.structure().region().len());
            if len == 0 || at + len > size {
                return Ok(Held::Torn);
            }
            item = self.active.structure_mut().read(client, at, as_usize(len))?;
            parse_item(slot, &item)
        } else {
            parse_cell(slot, cell)
        };
        Ok(match parsed {
            None => Held::Torn,
            Some((found, value)) if found == key => Held::Value(value.to_vec()),
            Some(_) => Held::OtherKey,
        })
    }

    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

fn check_length(what: &'static str, found: usize, limit: usize) -> Result<(), AppError> {
    match found > limit {
        true => Err(AppError::TooMuch { what, found: found as u64, limit: limit as u64 }),
        false => Ok(()),
    }
}

/// Of numbers that are known to be small.
fn as_usize(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
