//! Protection domains and access rights: what a registration lets others do.
//!
//! The boundary between peers that do not trust each other is the protection domain, not the
//! secrecy of an STag (RFC 5042 §6.1.1; 32 bits can be guessed).

use bitflags::bitflags;

bitflags! {
    /// What may be done with registered memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// Receives and Reads that this program posts may be placed in it. A program that holds a
        /// segment of the region can do that without this right: it documents the registration's
        /// purpose and protects nothing.
        const LOCAL_WRITE = 1;
        /// A peer may read it (RDMA Read, RFC 5040 §4.4).
        const REMOTE_READ = 2;
        /// A peer may write it (RDMA Write, RFC 5040 §4.3).
        const REMOTE_WRITE = 4;
        /// A peer may run atomic operations on it (RFC 7306 §5).
        const REMOTE_ATOMIC = 8;
        /// A peer may take the STag back with a Send with Invalidate (RFC 5040 §5.3). Only for
        /// memory that one connection alone uses: it takes the STag from all (§8.1.1 rule 7).
        const REMOTE_INVALIDATE = 16;
    }
}

impl Access {
    /// Every right that a peer can use.
    pub const REMOTE: Self = Self::REMOTE_READ
        .union(Self::REMOTE_WRITE)
        .union(Self::REMOTE_ATOMIC)
        .union(Self::REMOTE_INVALIDATE);
}

/// A protection domain: an STag works only for connections of the domain it was registered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PdId(pub u32);
