//! Shared memory by `AtomicU8` alone: sound by the language's own rules on every target.
//!
//! Slow; chosen where there is no assembly for the processor, and for Miri and sanitizers.
//! 64-bit accesses exclude each other by a lock, so they do not tear within this process.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Memory that is not there ends the process.
const PRESENT: u32 = 0;

/// Serialises the 64-bit accesses; byte copies do not take it.
static WORDS: Mutex<()> = Mutex::new(());

fn lock_words() -> MutexGuard<'static, ()> {
    WORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See [`super::load`].
pub(super) unsafe fn load(shared: *const u8, private: *mut u8, len: usize) -> u32 {
    for at in 0..len {
        // SAFETY: `at < len` and both are valid for `len` bytes by the caller's contract; the
        // shared byte is only ever accessed atomically, the private one only by us.
        unsafe {
            let byte = AtomicU8::from_ptr(shared.cast_mut().add(at)).load(Ordering::Relaxed);
            private.add(at).write(byte);
        }
    }
    PRESENT
}

/// See [`super::store`].
pub(super) unsafe fn store(shared: *mut u8, private: *const u8, len: usize) -> u32 {
    for at in 0..len {
        // SAFETY: as in `load`, in the other direction.
        unsafe {
            let byte = private.add(at).read();
            AtomicU8::from_ptr(shared.add(at)).store(byte, Ordering::Relaxed);
        }
    }
    PRESENT
}

/// See [`super::load_u64`].
pub(super) unsafe fn load_u64(shared: *const u64, into: &mut u64) -> u32 {
    let _guard = lock_words();
    // SAFETY: the caller's contract covers the eight bytes.
    *into = unsafe { load_bytes(shared) };
    PRESENT
}

/// See [`super::store_u64`].
pub(super) unsafe fn store_u64(shared: *mut u64, value: u64) -> u32 {
    let _guard = lock_words();
    // SAFETY: the caller's contract covers the eight bytes.
    unsafe { store_bytes(shared, value) };
    PRESENT
}

/// See [`super::compare_exchange_u64`].
pub(super) unsafe fn compare_exchange_u64(
    shared: *mut u64,
    current: u64,
    new: u64,
    into: &mut u64,
) -> u32 {
    let _guard = lock_words();
    // SAFETY: the caller's contract covers the eight bytes.
    unsafe {
        let found = load_bytes(shared);
        if found == current {
            store_bytes(shared, new);
        }
        *into = found;
    }
    PRESENT
}

unsafe fn load_bytes(shared: *const u64) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: the caller vouches for eight bytes, the array has eight. The mutex orders this
    // access against other 64-bit accesses.
    unsafe { load(shared.cast(), bytes.as_mut_ptr(), 8) };
    std::sync::atomic::fence(Ordering::Acquire);
    u64::from_ne_bytes(bytes)
}

unsafe fn store_bytes(shared: *mut u64, value: u64) {
    std::sync::atomic::fence(Ordering::Release);
    // SAFETY: the caller vouches for eight bytes, the array has eight.
    unsafe { store(shared.cast(), value.to_ne_bytes().as_ptr(), 8) };
}
