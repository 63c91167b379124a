//! The only accesses to memory that others may change at the same time.
//!
//! The model: every access to shared memory is a set of relaxed atomic accesses of single bytes
//! in unspecified order, with a fence beside it. 64-bit accesses are no exception: in the model
//! they are eight byte accesses, so bytes and words never race as mixed sizes, which Rust does
//! not define. The hardware gives more, and the API promises it: a 64-bit access does not tear
//! against another one. Rust has no per-byte atomic copy yet (RFC 3301), so x86-64 and aarch64
//! use assembly, opaque to the compiler; everything else, and sanitizers, use `AtomicU8`.
//! Never here: `copy_nonoverlapping`, volatile or plain accesses to shared memory.
//!
//! Memory that the caller allocated or that a file backs may be missing: unmapped, or behind the
//! end of its file. With assembly, `fault` makes an access to it fail; with `AtomicU8`, it ends the
//! process.

use std::sync::atomic::{Ordering, fence};

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, outboard_bytewise))
))]
mod fault;

#[cfg(all(target_arch = "x86_64", not(any(miri, outboard_bytewise))))]
#[path = "racy/x86_64.rs"]
mod imp;

#[cfg(all(target_arch = "aarch64", not(any(miri, outboard_bytewise))))]
#[path = "racy/aarch64.rs"]
mod imp;

#[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri, outboard_bytewise))]
#[path = "racy/bytewise.rs"]
mod imp;

/// From now on, an access to missing memory fails where `fault` is compiled in.
pub(crate) fn expect_missing() {
    #[cfg(all(
        any(target_arch = "x86_64", target_arch = "aarch64"),
        not(any(miri, outboard_bytewise))
    ))]
    fault::handle_faults();
}

/// Shared memory is not mapped, or its rights forbid the access; a part may have been copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing;

/// The result of an access, of which assembly returns 0 if all memory was there.
#[inline]
fn outcome(missing: u32) -> Result<(), Missing> {
    if missing == 0 { Ok(()) } else { Err(Missing) }
}

/// Copies `len` bytes of shared memory to private memory, then fences (acquire).
///
/// # Safety
/// `shared` is valid for reads of `len` bytes, or not mapped, and everyone accesses it by this
/// module's rules; `private` is valid for writes of `len` bytes, no other code uses it, and the two
/// are disjoint.
#[inline]
pub(crate) unsafe fn load(shared: *const u8, private: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller's contract is the callee's.
    let missing = unsafe { imp::load(shared, private, len) };
    fence(Ordering::Acquire);
    outcome(missing)
}

/// Fences (release), then copies `len` bytes of private memory to shared memory.
///
/// # Safety
/// `shared` is valid for writes of `len` bytes, or not mapped, and everyone accesses it by this
/// module's rules; `private` is valid for reads of `len` bytes, no code writes it, and the two are
/// disjoint.
#[inline]
pub(crate) unsafe fn store(shared: *mut u8, private: *const u8, len: usize) -> Result<(), Missing> {
    fence(Ordering::Release);
    // SAFETY: the caller's contract is the callee's.
    outcome(unsafe { imp::store(shared, private, len) })
}

/// Loads eight bytes at once (acquire).
///
/// # Safety
/// `shared` is 8-aligned, valid for reads or not mapped, and accessed by everyone by this module's
/// rules.
#[inline]
pub(crate) unsafe fn load_u64(shared: *const u64) -> Result<u64, Missing> {
    let mut value = 0;
    // SAFETY: the caller's contract is the callee's.
    outcome(unsafe { imp::load_u64(shared, &mut value) }).map(|()| value)
}

/// Stores eight bytes at once (release).
///
/// # Safety
/// `shared` is 8-aligned, valid for writes or not mapped, and accessed by everyone by this module's
/// rules.
#[inline]
pub(crate) unsafe fn store_u64(shared: *mut u64, value: u64) -> Result<(), Missing> {
    // SAFETY: the caller's contract is the callee's.
    outcome(unsafe { imp::store_u64(shared, value) })
}

/// Replaces `current` by `new` at once (acquire and release); returns what was there before,
/// which equals `current` exactly if the exchange took place.
///
/// # Safety
/// `shared` is 8-aligned, valid for reads and writes or not mapped, and accessed by everyone by
/// this module's rules.
#[inline]
pub(crate) unsafe fn compare_exchange_u64(
    shared: *mut u64,
    current: u64,
    new: u64,
) -> Result<u64, Missing> {
    let mut found = 0;
    // SAFETY: the caller's contract is the callee's.
    outcome(unsafe { imp::compare_exchange_u64(shared, current, new, &mut found) }).map(|()| found)
}

#[cfg(all(test, not(loom)))]
mod tests;
