//! A word that a lock protects: it takes values only with a token that is not older than the last.
//!
//! This is what makes a lease safe. It knows no lock: tokens are numbers that grow.

use crate::error::AppError;
use outboard_active::{ActiveClient, RemoteRegion};

/// The largest token that fits beside a value.
const TOKEN_MAX: u64 = u32::MAX as u64;
/// How often a write begins again because others were faster.
const TRIES: usize = 10_000;

/// A word of a region: a value of 32 bits, and the newest token that has written it. Any place of
/// zero bytes is one, whose value is 0.
#[derive(Clone, Debug)]
pub struct FencedWord {
    region: RemoteRegion,
    at: u64,
}

impl FencedWord {
    /// The word at an offset, a multiple of 8. No round trip.
    #[must_use]
    pub fn new(region: &RemoteRegion, at: u64) -> Self {
        Self { region: region.clone(), at }
    }

    /// The newest token and the value. One Read.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn read(&self, client: &mut ActiveClient) -> Result<(u64, u32), AppError> {
        let bytes = self.region.read(client, self.at, 8)?;
        Ok(parts(crate::bytes::word(&bytes, 0)?))
    }

    /// Stores a value if no newer token has written; whether it did. A Read and a CompareSwap, and
    /// a CompareSwap more whenever another client was faster.
    ///
    /// # Errors
    /// [`AppError`]. Tokens have 32 bits here.
    pub fn write(
        &self,
        client: &mut ActiveClient,
        token: u64,
        value: u32,
    ) -> Result<bool, AppError> {
        if token > TOKEN_MAX {
            let what = "a fencing token";
            return Err(AppError::TooMuch { what, found: token, limit: TOKEN_MAX });
        }
        let (newest, old) = self.read(client)?;
        let mut from = newest << 32 | u64::from(old);
        for _ in 0..TRIES {
            if parts(from).0 > token {
                return Ok(false);
            }
            let to = token << 32 | u64::from(value);
            let found = self.region.compare_swap(client, self.at, from, to)?;
            if found == from {
                return Ok(true);
            }
            from = found;
        }
        Err(AppError::Changing { what: "the fenced word", tries: TRIES })
    }
}

/// Token and value.
#[expect(clippy::cast_possible_truncation, reason = "the low half is the value")]
fn parts(word: u64) -> (u64, u32) {
    (word >> 32, word as u32)
}
