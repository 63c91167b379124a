//! A lock by Reads and CompareSwaps, as `lock.h` describes under ONE-SIDED CLIENTS.
//!
//! Leases begin and end by the client's clock, which must be near the node's: a clock that is ahead
//! takes locks whose leases have not passed.

use super::layout::{ENTRY_LEN, OWNER, TOKEN, WORD, expiry_of, is_grant_of, token_of, word_of};
use super::{ActiveLock, LockAnswer, LockGrant, LockLook, lease_ns};
use crate::bytes::{word_in, words};
use crate::error::AppError;
use crate::structure::Structure;
use outboard_active::{ActiveClient, RemoteRegion};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MS: u64 = 1_000_000;
/// How often an operation begins again because the word is not what was read.
const TRIES: usize = 100;

/// A lock, by one-sided verbs.
#[derive(Clone, Debug)]
pub struct PlainLock {
    active: ActiveLock,
    entry: u64,
}

impl PlainLock {
    /// The lock of this name. One round trip, an execution that finds or makes its entry.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
        name: &[u8],
    ) -> Result<Self, AppError> {
        let active = ActiveLock::open(client, region, root, name)?;
        Self::of(client, active)
    }

    /// The same lock as another handle's. One round trip, as [`Self::open`].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn of(client: &mut ActiveClient, mut active: ActiveLock) -> Result<Self, AppError> {
        let entry = active.locate(client)?;
        Ok(Self { active, entry })
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        self.active.structure()
    }

    /// As [`ActiveLock::acquire`]: a Read, and, if the lock is free, a CompareSwap: one round trip
    /// or two; a CompareSwap more whenever another client was faster. (And a Write for those who
    /// look, which nobody waits for.) If one of them was, its owner is 0 in the answer.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn acquire(
        &mut self,
        client: &mut ActiveClient,
        owner: u64,
        lease: Duration,
    ) -> Result<LockAnswer, AppError> {
        // The moment before the Read: what it finds held was held since.
        let (lease_ms, now_ms) = (lease_ns(lease)?.div_ceil(MS), now_ms());
        let (mut held, mut latest, mut their_owner) = self.entry(client)?;
        for _ in 0..TRIES {
            if latest.expiry_ms > now_ms {
                return Ok(LockAnswer::Held { grant: latest, owner: their_owner });
            }
            let grant =
                LockGrant { token: latest.token.saturating_add(1), expiry_ms: now_ms + lease_ms };
            let (entry, to) = (self.entry, word_of(grant.token, grant.expiry_ms));
            let structure = &mut self.active.structure;
            let found = structure.swap(client, (entry + WORD as u64, held, to))?;
            if found == held {
                // The lock is taken, whatever becomes of this. Token and owner lie side by side.
                let told = words(&[grant.token, owner]);
                let _told = structure.write(client, entry + TOKEN as u64, &told);
                return Ok(LockAnswer::Granted(grant));
            }
            // Another one was faster, and may have given the lock up again.
            let token = token_of(found, latest.token);
            (held, latest, their_owner) = (found, grant_of(found, token), 0);
        }
        Err(AppError::Changing { what: "the lock's word", tries: TRIES })
    }

    /// As [`ActiveLock::renew`], also if the lease passes meanwhile and nobody has taken the lock:
    /// one CompareSwap; two if the lease was renewed elsewhere meanwhile.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn renew(
        &mut self,
        client: &mut ActiveClient,
        grant: &LockGrant,
        lease: Duration,
    ) -> Result<Option<LockGrant>, AppError> {
        let lease_ms = lease_ns(lease)?.div_ceil(MS);
        let renewed = LockGrant { token: grant.token, expiry_ms: now_ms() + lease_ms };
        Ok(self.change(client, grant, renewed.expiry_ms)?.then_some(renewed))
    }

    /// As [`ActiveLock::release`]: one CompareSwap; two if the lease was renewed elsewhere
    /// meanwhile.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn release(
        &mut self,
        client: &mut ActiveClient,
        grant: &LockGrant,
    ) -> Result<bool, AppError> {
        self.change(client, grant, 0)
    }

    /// As [`ActiveLock::look`]: one Read.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn look(&mut self, client: &mut ActiveClient) -> Result<LockLook, AppError> {
        let now_ms = now_ms();
        let (_, latest, owner) = self.entry(client)?;
        Ok(LockLook { is_held: latest.expiry_ms > now_ms, latest, owner })
    }

    /// Gives a grant that has not passed another end.
    fn change(
        &mut self,
        client: &mut ActiveClient,
        grant: &LockGrant,
        expiry_ms: u64,
    ) -> Result<bool, AppError> {
        let (entry, to) = (self.entry + WORD as u64, word_of(grant.token, expiry_ms));
        let mut from = word_of(grant.token, grant.expiry_ms);
        for _ in 0..TRIES {
            if expiry_of(from) <= now_ms() || !is_grant_of(from, grant.token) {
                return Ok(false);
            }
            let found = self.active.structure.swap(client, (entry, from, to))?;
            if found == from {
                return Ok(true);
            }
            from = found;
        }
        Err(AppError::Changing { what: "the lock's word", tries: TRIES })
    }

    /// The entry's word, its latest grant, and owner.
    fn entry(&mut self, client: &mut ActiveClient) -> Result<(u64, LockGrant, u64), AppError> {
        let entry = self.active.structure.read(client, self.entry, ENTRY_LEN)?;
        let held = word_in(&entry, WORD);
        let token = token_of(held, word_in(&entry, TOKEN));
        Ok((held, grant_of(held, token), word_in(&entry, OWNER)))
    }
}

fn grant_of(word: u64, token: u64) -> LockGrant {
    LockGrant { token, expiry_ms: expiry_of(word) }
}

/// This machine's wall clock.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
