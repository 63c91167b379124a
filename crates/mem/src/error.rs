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
    /// This machine: pages cannot be fetched when they are touched.
    #[error(
        "this machine refuses userfaultfd ({}): it needs Linux 5.11, and no filter of system calls \
         that forbids it; read all pages beforehand, or let the node do the work",
        std::io::Error::from_raw_os_error(*errno)
    )]
    Lazy {
        /// The system's number for it.
        errno: i32,
    },
    /// Caller: a region's pages come from one filler, once.
    #[error("the caller's region has had a filler of its pages before; make another region")]
    Filled,
    /// Caller: the kernel would write into memory with a gate, which it cannot wait for.
    #[error("the caller's memory has a gate, so that it is written by copies only; copy into it")]
    Gated,
    /// Caller: something is mapped there already, or the one private part is.
    #[error(
        "the caller maps {len} bytes at offset {offset} of a reservation where something is mapped \
         already, or a second private part; choose addresses that are free"
    )]
    Occupied {
        /// Offset in the reservation.
        offset: usize,
        /// How many bytes.
        len: usize,
    },
    /// Caller: the memory is not mapped any more, or lies behind the end of its file.
    #[error(
        "caller's {len} bytes at {addr:#x} are not there; deregister memory before it is unmapped \
         and before its file is shortened"
    )]
    Missing {
        /// Address of the first byte that was asked for.
        addr: usize,
        /// How many bytes were asked for.
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
    /// This machine: the kernel refuses the mapping.
    #[error(
        "cannot map {len} bytes: {}{}",
        std::io::Error::from_raw_os_error(*errno),
        map_advice(*errno)
    )]
    Map {
        /// Bytes asked for.
        len: usize,
        /// The operating system's error number.
        errno: i32,
    },
    /// Caller: the file can still change, so it is not mapped.
    #[error("the caller's file can still change; seal it, or give it neither name nor writers")]
    Unsteady,
    /// Caller (or the process that made the memfd): its length can still change, or it cannot be
    /// written.
    #[error(
        "the caller's descriptor {}; hand over a memfd with F_SEAL_SHRINK and F_SEAL_GROW and \
         without F_SEAL_WRITE and F_SEAL_FUTURE_WRITE",
        seals_text(*found)
    )]
    Seals {
        /// The seals that it has; `None` for a file on a disk.
        found: Option<i32>,
    },
    /// Caller: the file does not have these bytes.
    #[error(
        "the caller asked for the bytes {start}..{end} of a file that has only {size}; lengthen \
         it, or have the space reserved"
    )]
    FileRange {
        /// First byte asked for.
        start: u64,
        /// Behind the last byte asked for.
        end: u64,
        /// How many bytes the file has.
        size: u64,
    },
    /// Caller: something is mapped that is not a regular file.
    #[error("the caller's descriptor is not a regular file; only such a file is mapped")]
    NotRegular,
    /// Caller: mappings begin and end where pages do.
    #[error(
        "the caller maps {len} bytes from offset {offset} at address {addr:#x} (0: any); each must \
         be a multiple of the page size, {page}, and the length of a second mapping as well"
    )]
    Pages {
        /// Address asked for; 0 if the kernel chooses it.
        addr: usize,
        /// Offset asked for.
        offset: u64,
        /// How many bytes were asked for.
        len: usize,
        /// Length of a page in bytes.
        page: usize,
    },
    /// Caller: the region has no descriptor.
    #[error(
        "the caller's region has no descriptor, so that it cannot be handed over or mapped again; \
         make it by `memfd`, `from_memfd` or `map_file`"
    )]
    NotShared,
    /// This machine: no space in the file system, or no memory.
    #[error(
        "cannot reserve {len} bytes: {}; free some, or ask for less",
        std::io::Error::from_raw_os_error(*errno)
    )]
    Reserve {
        /// Bytes asked for.
        len: u64,
        /// The operating system's error number.
        errno: i32,
    },
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

fn seals_text(found: Option<i32>) -> String {
    match found {
        Some(seals) => format!("has the seals {seals:#x}"),
        None => "is no memfd".into(),
    }
}

/// What to do when the kernel refuses a mapping, after a semicolon; may be empty.
fn map_advice(errno: i32) -> &'static str {
    match errno {
        libc::ENOMEM => {
            "; raise this process's limit of address space (ulimit -v), or have more memory \
             (vm.overcommit_memory)"
        }
        libc::EMFILE | libc::ENFILE => "; raise the limit of open files (ulimit -n)",
        _ => "",
    }
}

/// The error number of the system call that has just failed.
pub(crate) fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mapping_names_the_limit() {
        let told = |errno| MemError::Map { len: 4096, errno }.to_string();
        assert!(told(libc::ENOMEM).contains("ulimit -v"));
        assert!(told(libc::EMFILE).contains("ulimit -n"));
        assert!(told(libc::EACCES).ends_with("(os error 13)"));
    }
}
