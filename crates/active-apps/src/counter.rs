//! Counters with limits: as entries `incr` and `limit` of `modules/script/script.h` say, on a table
//! whose values may expire ([`ActiveExpiry`](crate::ActiveExpiry) makes one).
//!
//! A counter is a value of 8 bytes, without a limit or with one for each window of time, at the end
//! of which it expires. A key is counted in one way or in the other.

use crate::bytes::{word, word_in, words, words_then};
use crate::error::AppError;
use crate::expiry::EXPIRY_LEN;
use crate::structure::{Structure, handle_on_structure};
use crate::table::{PlainHashTable, TableFound};
use outboard_active::{ActiveClient, RemoteRegion};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a plain client begins again because another one was faster.
const TRIES: usize = 10_000;
/// Bytes of a counter in its table.
const LEN: usize = EXPIRY_LEN + 8;

/// Whether a limit allows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// It does, and it was counted.
    pub allowed: bool,
    /// How many more in this window.
    pub left: u64,
    /// When the window ends.
    pub reset: Duration,
}

/// Counters of a table, by executions: one round trip for each method.
#[derive(Clone, Debug)]
pub struct ActiveCounter {
    structure: Structure,
}

handle_on_structure!(ActiveCounter, Script);

impl ActiveCounter {
    /// Adds to a counter, which is 0 if it is not there; the sum, which wraps. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn add(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        delta: u64,
    ) -> Result<u64, AppError> {
        let args = words_then(&[self.structure.root(), delta], &[key]);
        self.structure.number(client, "incr", &args)
    }

    /// Counts `cost` if that is not more than `limit` in the window, which begins with the first
    /// call after the last one has ended. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn take(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        (cost, limit, window): (u64, u64, Duration),
    ) -> Result<LimitAnswer, AppError> {
        let fixed = [self.structure.root(), limit, nanoseconds(window).max(1), cost];
        let answer = self.structure.call(client, "limit", &words_then(&fixed, &[key]))?;
        Ok(LimitAnswer {
            allowed: word(&answer, 0)? == 1,
            left: word(&answer, 8)?,
            reset: Duration::from_nanos(word(&answer, 16)?),
        })
    }
}

/// Counters of a table, by one-sided verbs: read, computed with, and stored if nobody was faster.
///
/// Windows begin and end by the client's clock. Many clients of one counter are in each other's
/// way: for each one that stores, the others begin again.
#[derive(Clone, Debug)]
pub struct PlainCounter {
    active: ActiveCounter,
    table: PlainHashTable,
}

/// What is to be stored, and the method's result.
type Change<T> = (Option<(u64, u64)>, T);

impl PlainCounter {
    /// As [`ActiveCounter::open`].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
    ) -> Result<Self, AppError> {
        let active = ActiveCounter::open(client, region, root)?;
        Ok(Self { active, table: PlainHashTable::open(client, region, root)? })
    }

    /// Round trips that it has waited for: see [`Structure::round_trips`].
    #[must_use]
    pub fn round_trips(&self) -> u64 {
        self.active.structure.round_trips() + self.table.structure().round_trips()
    }

    /// As [`ActiveCounter::add`]: three round trips, two Reads and a Write with a CompareSwap (the
    /// first Read suffices while the counter lies in a cell, where executions put small ones); or
    /// an execution, for a new counter whose place is taken. Again whenever another client was
    /// faster.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn add(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        delta: u64,
    ) -> Result<u64, AppError> {
        let added = self.change(client, key, |now_ns, old| {
            let (expiry, old) = old.filter(|old| is_there(*old, now_ns)).unwrap_or_default();
            let sum = old.wrapping_add(delta);
            (Some((expiry, sum)), sum)
        })?;
        added.map_or_else(|| self.active.add(client, key, delta), Ok)
    }

    /// As [`ActiveCounter::take`]: [`Self::add`]'s round trips, without the last one if nothing is
    /// counted.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn take(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        (cost, limit, window): (u64, u64, Duration),
    ) -> Result<LimitAnswer, AppError> {
        let taken = self.change(client, key, |now_ns, old| {
            let fresh = (now_ns.saturating_add(nanoseconds(window).max(1)), 0);
            let (expiry, used) = old.filter(|old| is_there(*old, now_ns)).unwrap_or(fresh);
            let left = limit.saturating_sub(used);
            let (allowed, reset) =
                (cost <= left, Duration::from_nanos(expiry.saturating_sub(now_ns)));
            let left = if allowed { left - cost } else { left };
            let answer = LimitAnswer { allowed, left, reset };
            (allowed.then(|| (expiry, used + cost)), answer)
        })?;
        taken.map_or_else(|| self.active.take(client, key, (cost, limit, window)), Ok)
    }

    /// Computes a counter's next expiry and number from the time and what it has; `None`: an
    /// execution must do it.
    fn change<T>(
        &mut self,
        client: &mut ActiveClient,
        key: &[u8],
        compute: impl Fn(u64, Option<(u64, u64)>) -> Change<T>,
    ) -> Result<Option<T>, AppError> {
        for _ in 0..TRIES {
            let Some(found) = self.table.find(client, key)? else { return Ok(None) };
            let (stored, result) = compute(now_ns(), number_of(&found)?);
            let Some((expiry, number)) = stored else { return Ok(Some(result)) };
            if self.table.replace(client, &found, (key, &words(&[expiry, number])))? {
                return Ok(Some(result));
            }
        }
        Err(AppError::Changing { what: "the counter", tries: TRIES })
    }
}

/// Expiry and number, in the table's value.
fn number_of(found: &TableFound) -> Result<Option<(u64, u64)>, AppError> {
    match &found.value {
        None => Ok(None),
        Some(value) if value.len() == LEN => Ok(Some((word_in(value, 0), word_in(value, 8)))),
        Some(value) => {
            let (what, found) = ("the length of a counter's value", value.len() as u64);
            Err(AppError::Broken { what, found, expected: LEN as u64 })
        }
    }
}

fn is_there((expiry, _): (u64, u64), now_ns: u64) -> bool {
    expiry == 0 || expiry > now_ns
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// This machine's wall clock.
fn now_ns() -> u64 {
    nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
