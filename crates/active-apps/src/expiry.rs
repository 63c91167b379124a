//! Values that expire: as `modules/script/script.h` says, on a table of its own or of another's.
//!
//! The node's wall clock decides, one moment for a whole execution. A value in the table has 8
//! bytes in front: when it expires, in nanoseconds since 1970, or 0. Keys have 1 to 1024 bytes,
//! values up to 65,528; with their arguments 48 KiB at most.
//!
//! There is no client on one-sided verbs: whether a value is there would depend on whose clock
//! reads it, and removing what has expired is a scan with writes. A
//! [`PlainHashTable`](crate::PlainHashTable) of the same place does read values, with the 8 bytes
//! in front.

use crate::bytes::{word, words, words_then};
use crate::error::AppError;
use crate::structure::{Structure, handle_on_structure};
use outboard_active::{ActiveClient, RemoteRegion};
use std::ops::Range;
use std::time::Duration;

/// `SCRIPT_VALUE_MAX`.
pub const VALUE_MAX: usize = 65528;
/// Bytes in front of a value in its table.
pub const EXPIRY_LEN: usize = 8;

/// A value that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiringValue {
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it expires, in nanoseconds since 1970; `None`: never.
    pub expiry_ns: Option<u64>,
}

/// Values that expire, by executions: one round trip for each method.
#[derive(Clone, Debug)]
pub struct ActiveExpiry {
    structure: Structure,
}

/// Nanoseconds of a time to live; 0 is for ever.
pub(crate) fn ttl_ns(ttl: Option<Duration>) -> u64 {
    ttl.map_or(0, |ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX).max(1))
}

handle_on_structure!(ActiveExpiry, Script);

impl ActiveExpiry {
    /// A new, empty table in these bytes of a region, as [`ActiveHashTable::create`] makes it. One
    /// round trip.
    ///
    /// [`ActiveHashTable::create`]: crate::ActiveHashTable::create
    ///
    /// # Errors
    /// [`AppError`].
    pub fn create(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        place: Range<u64>,
        first: u32,
    ) -> Result<Self, AppError> {
        let mut values = Self::open(client, region, place.start)?;
        let len = place.end.saturating_sub(place.start);
        let args = words(&[place.start, len, first.into()]);
        values.structure.call(client, "init", &args)?;
        Ok(values)
    }

    /// Stores a value for so long, or for ever; whether it replaced one that had not expired. One
    /// round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn set(
        &mut self,
        client: &mut ActiveClient,
        (key, value): (&[u8], &[u8]),
        ttl: Option<Duration>,
    ) -> Result<bool, AppError> {
        let lengths = key.len() as u64 | (value.len() as u64) << 32;
        let fixed = [self.structure.root(), ttl_ns(ttl), lengths];
        let args = words_then(&fixed, &[key, value]);
        Ok(self.structure.number(client, "set", &args)? == 1)
    }

    /// A key's value. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn get(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
    ) -> Result<Option<ExpiringValue>, AppError> {
        let args = words_then(&[self.structure.root()], &[key]);
        let found = self.structure.call(client, "get", &args)?;
        if word(&found, 0)? != 1 {
            return Ok(None);
        }
        let expiry_ns = Some(word(&found, 8)?).filter(|expiry| *expiry != 0);
        Ok(Some(ExpiringValue { value: found[16..].to_vec(), expiry_ns }))
    }

    /// Removes a key; whether it was there and had not expired. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn delete(&mut self, client: &mut ActiveClient, key: &[u8]) -> Result<bool, AppError> {
        let args = words_then(&[self.structure.root()], &[key]);
        Ok(self.structure.number(client, "delete", &args)? == 1)
    }

    /// Removes what has expired, whose memory is used again then: about `items` values are looked
    /// at, up to 1000, from a cursor on, which is 0 at first. How many were removed, and the next
    /// cursor; `None`: those were the last. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn sweep(
        &mut self,
        client: &mut ActiveClient,
        cursor: u64,
        items: u64,
    ) -> Result<(u64, Option<u64>), AppError> {
        let args = words(&[self.structure.root(), cursor, items]);
        let swept = self.structure.call(client, "sweep", &args)?;
        let next = Some(word(&swept, 0)?).filter(|next| *next != u64::MAX);
        Ok((word(&swept, 8)?, next))
    }
}
