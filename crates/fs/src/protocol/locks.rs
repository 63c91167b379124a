//! Locks of files as clients ask for them: entries that the service handles itself, as it does
//! `sync`. Each takes [`FsLockArgs`] and answers [`FsLockAnswer`].
//!
//! `lock` answers [`GRANTED`]; or [`QUEUED`], if it has a number to wait under: then
//! [`FsNotice::Granted`](super::FsNotice::Granted) says when it is, on the same connection; or it
//! fails with EAGAIN, EDEADLK, ENOLCK. `unlock` gives a range up. `test_lock` answers [`TAKEN`]
//! with a lock that is in the way, or [`GRANTED`]. `cancel_lock` answers [`GRANTED`] if a wait is
//! over by it, and [`TAKEN`] if there was none: granted before, or lost with its connection.
//!
//! Every one may be asked again: it comes to the same. A client that has made a new connection asks
//! again for what waits, and says what it holds by `lock` with [`RECLAIM`], which fails with ESTALE
//! if its time was over.

use super::layout::layouts;
use super::structures::FsInode;

/// Of [`FsLockArgs::kind`]: others may have shared locks, too.
pub const SHARED: u32 = 1;
/// Nobody else has any.
pub const EXCLUSIVE: u32 = 2;
/// Of [`FsLockArgs::flags`]: the client has it already.
pub const RECLAIM: u32 = 1;
/// Of [`FsLockAnswer::status`]: it is done.
pub const GRANTED: u32 = 0;
/// It waits.
pub const QUEUED: u32 = 1;
/// Something is in the way.
pub const TAKEN: u32 = 2;

layouts! {
    /// Arguments of `lock`, `unlock`, `test_lock` and `cancel_lock`.
    FsLockArgs {
        /// The client: random numbers that stay the same for all its connections.
        session: [u64; 2],
        /// Which file.
        inode: FsInode,
        /// For whom, by the client's own number.
        owner: u64,
        /// First byte.
        start: u64,
        /// Last byte.
        end: u64,
        /// The number under which it waits; 0: it does not.
        wait: u64,
        /// [`SHARED`], [`EXCLUSIVE`].
        kind: u32,
        /// [`RECLAIM`].
        flags: u32,
        /// Which process of the client's machine asks: others there are told.
        pid: u32,
        /// 0.
        zero: u32,
    }

    /// Their answer.
    FsLockAnswer {
        /// [`GRANTED`], [`QUEUED`], [`TAKEN`].
        status: u32,
        /// Of what is in the way: [`SHARED`], [`EXCLUSIVE`].
        kind: u32,
        /// Its first byte.
        start: u64,
        /// Its last byte.
        end: u64,
        /// Its process, 0 if it is not of the machine that asks.
        pid: u32,
        /// 0.
        zero: u32,
    }
}

/// How a range is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Others may have such locks, too.
    Shared,
    /// Nobody else has any.
    Exclusive,
}

impl LockKind {
    /// The kind of a number; `None` for one that says none.
    #[must_use]
    pub fn of(number: u32) -> Option<Self> {
        match number {
            SHARED => Some(Self::Shared),
            EXCLUSIVE => Some(Self::Exclusive),
            _ => None,
        }
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Shared => SHARED,
            Self::Exclusive => EXCLUSIVE,
        }
    }

    /// Whether two owners cannot have both of one byte.
    #[must_use]
    pub fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

impl FsLockArgs {
    /// Whether a client of this version says such a thing.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.start <= self.end && self.flags & !RECLAIM == 0 && self.zero == 0
    }
}

impl FsLockAnswer {
    /// An answer that says nothing more.
    #[must_use]
    pub fn plain(status: u32) -> Self {
        Self { status, ..Self::default() }
    }
}
