//! A hash table: as `modules/table/table.h` says.
//!
//! Keys have 1 to 1024 bytes, values up to 65,536; through executions, which take arguments of 60
//! KB at most, fewer. The table grows by itself.
//!
//! Modules in reading order: this one (by executions), `plain` (by one-sided verbs), [`layout`],
//! `store` (a plain client's memory for items).

pub mod layout;
mod plain;
mod store;

pub use plain::PlainHashTable;
pub(crate) use plain::TableFound;

use crate::bytes::{word, words, words_then};
use crate::error::AppError;
use crate::structure::{Structure, handle_on_structure};
use outboard_active::{ActiveClient, RemoteRegion};
use std::ops::Range;

/// How large a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableCount {
    /// Items.
    pub items: u64,
    /// Buckets.
    pub buckets: u64,
}

/// Some items of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePage {
    /// Keys and values.
    pub items: Vec<(Vec<u8>, Vec<u8>)>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<u64>,
}

/// A table, by executions: one round trip for each method.
#[derive(Clone, Debug)]
pub struct ActiveHashTable {
    structure: Structure,
}

handle_on_structure!(ActiveHashTable, Table);

impl ActiveHashTable {
    /// A new, empty table in these bytes of a region, whose start is a multiple of 64; with
    /// `2^first` buckets, `first` up to 14. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn create(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        place: Range<u64>,
        first: u32,
    ) -> Result<Self, AppError> {
        let mut table = Self::open(client, region, place.start)?;
        table.init(client, place.end.saturating_sub(place.start), first)?;
        Ok(table)
    }

    pub(crate) fn structure_mut(&mut self) -> &mut Structure {
        &mut self.structure
    }

    /// Forgets all items: an empty table of so many bytes, with `2^first` buckets. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn init(
        &mut self,
        client: &mut ActiveClient,
        len: u64,
        first: u32,
    ) -> Result<(), AppError> {
        let args = words(&[self.structure.root(), len, first.into()]);
        self.structure.call(client, "init", &args).map(drop)
    }

    /// A key's value. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn get(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, AppError> {
        let args = self.get_args(key);
        let found = self.structure.call(client, "get", &args)?;
        Ok((word(&found, 0)? == 1).then(|| found[8..].to_vec()))
    }

    /// Stores a value; whether it replaced one. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn put(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, AppError> {
        let args = self.put_args(key, value);
        Ok(self.structure.number(client, "put", &args)? == 1)
    }

    /// Removes a key; whether it was there. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn delete(&mut self, client: &mut ActiveClient, key: &[u8]) -> Result<bool, AppError> {
        let args = words_then(&[self.structure.root()], &[key]);
        Ok(self.structure.number(client, "delete", &args)? == 1)
    }

    /// How large it is. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn count(&mut self, client: &mut ActiveClient) -> Result<TableCount, AppError> {
        let count = self.structure.call(client, "count", &words(&[self.structure.root()]))?;
        Ok(TableCount { items: word(&count, 0)?, buckets: word(&count, 8)? })
    }

    /// Items of whole buckets: about `limit`, from a cursor on, which is 0 at first and then the
    /// page's `next`. An item that is there all the time is in one of the pages, or, if the table
    /// grows meanwhile, in two. One round trip.
    ///
    /// # Errors
    /// [`AppError`]. Items of one bucket that do not fit into a result of 48 KiB cannot be scanned.
    pub fn scan(
        &mut self,
        client: &mut ActiveClient,
        cursor: u64,
        limit: u64,
    ) -> Result<TablePage, AppError> {
        let args = words(&[self.structure.root(), cursor, limit]);
        let page = self.structure.call(client, "scan", &args)?;
        let next = Some(word(&page, 0)?).filter(|next| *next != u64::MAX);
        let (count, mut at, mut items) = (word(&page, 8)?, 16, Vec::new());
        for _ in 0..count {
            let lengths = word(&page, at)?;
            let (key, value) = ((lengths & 0xffff_ffff) as usize, (lengths >> 32) as usize);
            let both = page.get(at + 8..at + 8 + key + value);
            let (what, found, expected) = ("a page of items", page.len() as u64, lengths);
            let (key, value) =
                both.ok_or(AppError::Broken { what, found, expected })?.split_at(key);
            at += 8 + key.len() + value.len();
            items.push((key.to_vec(), value.to_vec()));
        }
        Ok(TablePage { items, next })
    }

    /// Splits so many buckets, up to 500, as inserting does by and by; how many there are then. One
    /// round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn grow(&mut self, client: &mut ActiveClient, splits: u64) -> Result<u64, AppError> {
        let args = words(&[self.structure.root(), splits]);
        self.structure.number(client, "grow", &args)
    }

    /// The arguments of entry `get`, for callers that submit many calls at once.
    #[must_use]
    pub fn get_args(&self, key: &[u8]) -> Vec<u8> {
        words_then(&[self.structure.root()], &[key])
    }

    /// The arguments of entry `put`.
    #[must_use]
    pub fn put_args(&self, key: &[u8], value: &[u8]) -> Vec<u8> {
        let lengths = key.len() as u64 | (value.len() as u64) << 32;
        words_then(&[self.structure.root(), lengths], &[key, value])
    }
}
