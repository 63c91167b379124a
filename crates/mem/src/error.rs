//! What can go wrong here: [`MemError`] is the caller's fault or this machine's, [`AccessError`]
//! is the peer's and maps one to one onto an RDMAP protection error (RFC 5040 §4.8, fig. 9).

use thiserror::Error;

/// A local operation on memory failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MemError {
    /// Caller: the range does not lie inside the memory.
    #[error("caller asked for {len} bytes at {offset} of memory that has only {size}")]
    OutOfBounds {
        /// First byte asked for.
        offset: usize,
        /// How many bytes were asked for.
        len: usize,
        /// How many bytes there are.
        size: usize,
    },
    /// Caller (or the peer whose request is served): a 64-bit access must be 8-aligned.
    #[error("64-bit access at offset {offset} is at address {addr:#x}; it must be 8-aligned")]
    Unaligned {
        /// Offset asked for, in bytes.
        offset: usize,
        /// Address it falls on.
        addr: usize,
    },
    /// Caller: the local memory was never registered, or is no longer.
    #[error("caller's list names {len} bytes that are not registered, or no longer")]
    Gone {
        /// Length of the piece in bytes.
        len: usize,
    },
    /// Caller: the last remote offset of the registration would exceed 64 bits.
    #[error(
        "caller registered {len} bytes at remote offset {base:#x}, which wraps; lower the base"
    )]
    BaseWraps {
        /// Remote offset of the first byte.
        base: u64,
        /// Length of the registration in bytes.
        len: usize,
    },
    /// Caller: the STag is not registered, or was deregistered before.
    #[error("caller named STag {stag:#010x}, which is not registered here")]
    UnknownStag {
        /// The STag as given.
        stag: u32,
    },
    /// This machine: every slot of the table is in use.
    #[error("all {capacity} STags are in use; deregister some or make the table larger")]
    TableFull {
        /// How many registrations the table can hold at once.
        capacity: u32,
    },
    /// This machine: no memory to map.
    #[error("cannot map {len} bytes: {}", std::io::Error::from_raw_os_error(*errno))]
    Map {
        /// Bytes asked for.
        len: usize,
        /// The operating system's error number.
        errno: i32,
    },
    /// Caller: the file can still change, so that it must not be mapped.
    #[error("the caller's file can still change; seal it, or give it neither name nor writers")]
    Unsteady,
    /// This machine: no random numbers for STag keys.
    #[error("cannot draw an STag key: {}", std::io::Error::from_raw_os_error(*errno))]
    Random {
        /// The operating system's error number.
        errno: i32,
    },
}

/// A peer's access was refused. Checked in the order of the variants, except that a wrap is
/// found before bounds; the RFC 5040 fig. 9 code of a remote protection error is given for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccessError {
    /// The STag names no registration, or a stale one (code 0x00).
    #[error("peer named an STag that is not valid")]
    InvalidStag,
    /// The STag belongs to another protection domain (code 0x03).
    #[error("peer named an STag of another protection domain")]
    OtherDomain,
    /// The registration does not grant this operation (code 0x02).
    #[error("peer lacks the access right for this operation")]
    NoRight,
    /// Some byte lies before or behind the registered memory (code 0x01).
    #[error("peer's range leaves the registered memory")]
    OutOfBounds,
    /// The sum of offset and length does not fit 64 bits (code 0x04, RFC 5041 §7.1 item 5).
    #[error("peer's range wraps around 2^64")]
    Wraps,
}
