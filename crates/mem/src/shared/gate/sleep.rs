//! Threads that sleep until a word changes (futex(2)).

use std::ptr;
use std::sync::atomic::AtomicU32;

/// Sleeps unless the word has changed already, until it is said to have changed; or returns sooner.
pub(super) fn while_unchanged(word: &AtomicU32, value: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is valid memory as long as the call lasts, and the kernel only reads it.
    let _woken = unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, ptr::null::<u8>())
    };
}

/// Wakes all that sleep because of the word.
pub(super) fn wake_all(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel uses the address only as a name.
    let _count = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}
