//! Locks by name, with leases and fencing tokens: as `modules/lock/lock.h` says.
//!
//! A lock is held until it is released or its lease has passed. A holder cannot know how long it
//! was asleep: what the lock protects must refuse tokens that are older than one that it has seen,
//! as
//! [`FencedWord`] does. Names have 1 to 94 bytes, leases 1 ms to 24 hours; a place for locks has up
//! to 16,384 names, which are never forgotten.
//!
//! Modules in reading order: this one (by executions, by the node's clock), `plain` (by one-sided
//! verbs, by the client's clock), `fence` (a word that is protected), [`layout`].

mod fence;
pub mod layout;
mod plain;

pub use fence::FencedWord;
pub use plain::PlainLock;

use crate::bytes::{word, words, words_then};
use crate::error::AppError;
use crate::shipped::AppModule;
use crate::structure::Structure;
use outboard_active::{ActiveClient, RemoteRegion};
use std::sync::Arc;
use std::time::Duration;

/// A lock that is held until its lease has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockGrant {
    /// Larger than those of all grants before: for whatever the lock protects.
    pub token: u64,
    /// When the lease ends, in ms since 1970.
    pub expiry_ms: u64,
}

/// What became of an attempt to acquire a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockAnswer {
    /// It is the caller's.
    Granted(LockGrant),
    /// Somebody else has it.
    Held {
        /// Their grant.
        grant: LockGrant,
        /// The number that they call themselves by.
        owner: u64,
    },
}

impl LockAnswer {
    /// The caller's grant, if it got one.
    #[must_use]
    pub fn granted(self) -> Option<LockGrant> {
        match self {
            Self::Granted(grant) => Some(grant),
            Self::Held { .. } => None,
        }
    }
}

/// What a look at a lock finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLook {
    /// Whether somebody holds it.
    pub is_held: bool,
    /// The latest grant. Of a lock that was released the lease ends at 0; token 0: there was none.
    pub latest: LockGrant,
    /// The number that its holder called itself by.
    pub owner: u64,
}

/// `enum lock_status`.
const GRANTED: u64 = 1;
const HELD: u64 = 2;

/// A lock, by executions: one round trip for each method.
#[derive(Clone, Debug)]
pub struct ActiveLock {
    structure: Structure,
    name: Arc<[u8]>,
}

/// A place for so many locks (a power of two up to 16,384) at an offset of a region, a multiple of
/// 128. Forgets what was there. One round trip.
///
/// # Errors
/// [`AppError`].
pub fn create_locks(
    client: &mut ActiveClient,
    region: &RemoteRegion,
    root: u64,
    entries: u64,
) -> Result<(), AppError> {
    let mut structure = Structure::shipped(client, region, root, AppModule::Lock)?;
    structure.call(client, "init", &words(&[root, entries])).map(drop)
}

impl ActiveLock {
    /// The lock of this name. No round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(
        client: &mut ActiveClient,
        region: &RemoteRegion,
        root: u64,
        name: &[u8],
    ) -> Result<Self, AppError> {
        Ok(Self::on(Structure::shipped(client, region, root, AppModule::Lock)?, name))
    }

    /// The same with a module of the caller's choice.
    #[must_use]
    pub fn on(structure: Structure, name: &[u8]) -> Self {
        Self { structure, name: name.into() }
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// One attempt, for an owner who goes by any number. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn acquire(
        &mut self,
        client: &mut ActiveClient,
        owner: u64,
        lease: Duration,
    ) -> Result<LockAnswer, AppError> {
        let root = self.structure.root();
        let (status, grant, owner) =
            self.call(client, "acquire", &[root, owner, lease_ns(lease)?])?;
        Ok(match status {
            GRANTED => LockAnswer::Granted(grant),
            _ => LockAnswer::Held { grant, owner },
        })
    }

    /// Makes the lease end so long from now; `None`: it has passed, or was released. One round
    /// trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn renew(
        &mut self,
        client: &mut ActiveClient,
        grant: &LockGrant,
        lease: Duration,
    ) -> Result<Option<LockGrant>, AppError> {
        let args = [self.structure.root(), grant.token, lease_ns(lease)?];
        let (status, grant, _) = self.call(client, "renew", &args)?;
        Ok((status == GRANTED).then_some(grant))
    }

    /// Gives the lock up; whether it was still held. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn release(
        &mut self,
        client: &mut ActiveClient,
        grant: &LockGrant,
    ) -> Result<bool, AppError> {
        let args = [self.structure.root(), grant.token];
        Ok(self.call(client, "release", &args)?.0 == GRANTED)
    }

    /// Who has it. One round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn look(&mut self, client: &mut ActiveClient) -> Result<LockLook, AppError> {
        let (status, latest, owner) = self.call(client, "look", &[self.structure.root()])?;
        Ok(LockLook { is_held: status == HELD, latest, owner })
    }

    /// Offset of the lock's entry, which never moves. One round trip.
    pub(super) fn locate(&mut self, client: &mut ActiveClient) -> Result<u64, AppError> {
        let args = words_then(&[self.structure.root()], &[&self.name]);
        self.structure.number(client, "locate", &args)
    }

    /// Status, latest grant and owner.
    fn call(
        &mut self,
        client: &mut ActiveClient,
        entry: &'static str,
        args: &[u64],
    ) -> Result<(u64, LockGrant, u64), AppError> {
        let result = self.structure.call(client, entry, &words_then(args, &[&self.name]))?;
        let grant = LockGrant { token: word(&result, 8)?, expiry_ms: word(&result, 24)? };
        Ok((word(&result, 0)?, grant, word(&result, 16)?))
    }
}

/// A lease as the module takes it.
fn lease_ns(lease: Duration) -> Result<u64, AppError> {
    let (what, limit) = ("a lease in nanoseconds", layout::LEASE_MAX);
    let found = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
    if found > limit {
        return Err(AppError::TooMuch { what, found, limit });
    }
    Ok(found.max(1))
}
