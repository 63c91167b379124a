//! Reads and changes as clients ask for them: what the module answers with extents, the service
//! answers with the bytes, and what the module takes as extents, the service takes as bytes.
//!
//! `read`: arguments [`FsReadArgs`](super::FsReadArgs); the result is an
//! [`FsAnswer`](super::FsAnswer), then the bytes, as many as the file has there; holes are zeroes.
//!
//! `change`: arguments [`FsChangeArgs`], then the bytes themselves ([`FROM_HERE`]), or, in
//! postcard's format, memory of the client's that has `size` bytes ([`FROM_MEMORY`]), which the
//! service reads. Where the service cannot reach that memory it fails with [`MEMORY_GONE`], and
//! nothing was changed. The result is an [`FsAnswer`](super::FsAnswer).
//!
//! `sync`: arguments [`FsInodeArgs`](super::FsInodeArgs); no result: it is answered when everything
//! that this client has been told of is durable.

use super::layout::{FsLayout, layouts};
use super::structures::{FsAttrArgs, FsInode, FsWho};
use outboard_cluster::hub::Exposed;

/// The bytes are behind the arguments.
pub const FROM_HERE: u32 = 0;
/// The bytes are in memory that the client has exposed.
pub const FROM_MEMORY: u32 = 1;
/// The bytes go behind the file's end, wherever that is; `offset` does not count.
pub const APPEND: u32 = 1 << 8;
/// The range becomes a hole; there are no bytes.
pub const PUNCH: u32 = 1 << 9;
/// The answer comes when the change is durable.
pub const SYNC: u32 = 1 << 10;
/// It is made only while the client has a lock of the file: one that was cut off writes nothing on
/// what it knew when it had.
pub const LOCKED: u32 = 1 << 11;
/// The failure of a change whose memory the service cannot reach: EFAULT.
pub const MEMORY_GONE: i32 = super::ERRNO + 14;
/// A change with [`LOCKED`] of a file of which the client has no lock (ENOLCK).
pub const LOCK_GONE: i32 = super::ERRNO + 37;

layouts! {
    /// Arguments of a client's `change`; the bytes, or where they are, follow. No bytes with
    /// [`GROW`](super::GROW) make the file no shorter than `offset`.
    FsChangeArgs {
        /// Who asks.
        who: FsWho,
        /// Which file.
        inode: FsInode,
        /// Where.
        offset: u64,
        /// How many bytes; for a resize, the new size.
        size: u64,
        /// What is changed: [`GROW`](super::GROW), [`RESIZE`](super::RESIZE), [`APPEND`],
        /// [`PUNCH`], [`SYNC`].
        which: u32,
        /// Where the bytes are: [`FROM_HERE`], [`FROM_MEMORY`].
        source: u32,
        /// Attributes that are set with it, afterwards, as far as its `which` says; its `who` and
        /// `inode` do not count.
        set: FsAttrArgs,
    }
}

/// Where a change's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsSource<'a> {
    /// Here.
    Here(&'a [u8]),
    /// In memory of the client's.
    Memory(Exposed),
}

impl FsChangeArgs {
    /// The arguments with their bytes; `source` is set by it.
    #[must_use]
    pub fn with(mut self, source: FsSource<'_>) -> Vec<u8> {
        self.source = match source {
            FsSource::Here(_) => FROM_HERE,
            FsSource::Memory(_) => FROM_MEMORY,
        };
        let mut out = self.bytes();
        match source {
            FsSource::Here(bytes) => out.extend_from_slice(bytes),
            // Three numbers: they always have bytes.
            FsSource::Memory(memory) => {
                out.extend(postcard::to_stdvec(&memory).unwrap_or_default());
            }
        }
        out
    }

    /// The arguments and where their bytes are; `None` for what no client of this version sends,
    /// and where there are fewer or more bytes than are to be changed.
    #[must_use]
    pub fn parse(args: &[u8]) -> Option<(Self, FsSource<'_>)> {
        let (change, rest) = Self::split(args)?;
        let expected = if change.has_bytes() { change.size } else { 0 };
        match change.source {
            FROM_HERE if rest.len() as u64 == expected => Some((change, FsSource::Here(rest))),
            FROM_MEMORY => {
                let memory: Exposed = postcard::from_bytes(rest).ok()?;
                let is_exact = memory.len() == expected;
                is_exact.then_some((change, FsSource::Memory(memory)))
            }
            _ => None,
        }
    }

    /// Whether bytes belong to it: a resize and a hole have none.
    #[must_use]
    pub fn has_bytes(&self) -> bool {
        self.which & (super::RESIZE | PUNCH) == 0
    }
}
