//! Compare-and-set of several keys, all or none: as entry `cas` of `modules/script/script.h` says,
//! on a table whose values may expire ([`ActiveExpiry`](crate::ActiveExpiry) makes one).
//!
//! Up to 64 keys, all different; 48 KiB of them with their values.
//!
//! There is no client on one-sided verbs. The literature's (`FaRM`, `DrTM`) lock each key by a
//! CompareSwap, check, write and unlock, with leases or logs for those who die in between: four
//! round trips at least, and everybody else, modules too, would have to respect such locks. This
//! table has none.

use crate::bytes::{word, words};
use crate::error::AppError;
use crate::expiry::ttl_ns;
use crate::structure::{Structure, handle_on_structure};
use outboard_active::ActiveClient;
use std::time::Duration;

/// `SCRIPT_KEYS_MAX`.
pub const KEYS_MAX: usize = 64;
/// `SCRIPT_ABSENT`.
const ABSENT: u64 = u32::MAX as u64;

/// A key, what it must have, and what it is to have.
#[derive(Clone, Copy, Debug)]
pub struct SwapKey<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its value; `None`: it is not there, or has expired.
    pub expected: Option<&'a [u8]>,
    /// Its new value; `None`: it is removed.
    pub value: Option<&'a [u8]>,
    /// How long the new value is there; `None`: for ever.
    pub ttl: Option<Duration>,
}

/// What became of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapAnswer {
    /// All keys were as expected, and have their new values.
    Stored,
    /// Nothing has changed.
    Differs {
        /// The first key that was not as expected.
        key: usize,
    },
}

/// Compare-and-set of several keys, by one execution.
#[derive(Clone, Debug)]
pub struct ActiveSwap {
    structure: Structure,
}

handle_on_structure!(ActiveSwap, Script);

impl ActiveSwap {
    /// Stores all new values if all keys are as expected. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn swap(
        &mut self,
        client: &mut ActiveClient,
        keys: &[SwapKey<'_>],
    ) -> Result<SwapAnswer, AppError> {
        let (what, found, limit) = ("the number of keys", keys.len() as u64, KEYS_MAX as u64);
        if found > limit {
            return Err(AppError::TooMuch { what, found, limit });
        }
        let mut args = words(&[self.structure.root(), found]);
        let len = |value: Option<&[u8]>| value.map_or(ABSENT, |value| value.len() as u64);
        for SwapKey { key, expected, value, ttl } in keys {
            let first = key.len() as u64 | len(*expected) << 32;
            args.extend(words(&[first, len(*value), ttl_ns(*ttl)]));
        }
        for SwapKey { key, expected, value, .. } in keys {
            let parts = [*key, expected.unwrap_or_default(), value.unwrap_or_default()];
            parts.iter().for_each(|part| args.extend_from_slice(part));
        }
        let answer = self.structure.call(client, "cas", &args)?;
        if word(&answer, 0)? == 1 {
            return Ok(SwapAnswer::Stored);
        }
        let key = usize::try_from(word(&answer, 8)?).unwrap_or(usize::MAX);
        Ok(SwapAnswer::Differs { key })
    }
}
