//! Shared memory on aarch64, in assembly.
//!
//! Plain loads and stores for copies, in no promised order; the fences beside them are in
//! `racy.rs`. Only instructions of the base architecture (no LSE), so that it runs everywhere.

use std::arch::asm;

/// See [`super::load`].
#[inline]
pub(super) unsafe fn load(shared: *const u8, private: *mut u8, len: usize) {
    // SAFETY: the caller's contract covers `len` bytes at both.
    unsafe { copy(private, shared, len) };
}

/// See [`super::store`].
#[inline]
pub(super) unsafe fn store(shared: *mut u8, private: *const u8, len: usize) {
    // SAFETY: the caller's contract covers `len` bytes at both.
    unsafe { copy(shared, private, len) };
}

/// Copies 64, then 8, then 1 byte at a time between disjoint ranges.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each round first checks that its bytes remain, so all accesses lie in `0..len`,
    // which the caller vouches for.
    unsafe {
        asm!(
            "2:",
            "subs {left}, {len}, #64",
            "b.lo 3f",
            "ldp {a:q}, {b:q}, [{from}]",
            "ldp {c:q}, {d:q}, [{from}, #32]",
            "stp {a:q}, {b:q}, [{to}]",
            "stp {c:q}, {d:q}, [{to}, #32]",
            "add {from}, {from}, #64",
            "add {to}, {to}, #64",
            "mov {len}, {left}",
            "b 2b",
            "3:",
            "subs {left}, {len}, #8",
            "b.lo 4f",
            "ldr {word}, [{from}], #8",
            "str {word}, [{to}], #8",
            "mov {len}, {left}",
            "b 3b",
            "4:",
            "cbz {len}, 5f",
            "ldrb {word:w}, [{from}], #1",
            "strb {word:w}, [{to}], #1",
            "sub {len}, {len}, #1",
            "b 4b",
            "5:",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            left = out(reg) _,
            word = out(reg) _,
            a = out(vreg) _,
            b = out(vreg) _,
            c = out(vreg) _,
            d = out(vreg) _,
            options(nostack),
        );
    }
}

/// See [`super::load_u64`].
#[inline]
pub(super) unsafe fn load_u64(shared: *const u64) -> u64 {
    let value;
    // SAFETY: reads eight aligned bytes that the caller vouches for.
    unsafe {
        asm!(
            "ldar {value}, [{at}]",
            at = in(reg) shared,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value
}

/// See [`super::store_u64`].
#[inline]
pub(super) unsafe fn store_u64(shared: *mut u64, value: u64) {
    // SAFETY: writes eight aligned bytes that the caller vouches for.
    unsafe {
        asm!(
            "stlr {value}, [{at}]",
            at = in(reg) shared,
            value = in(reg) value,
            options(nostack, preserves_flags),
        );
    }
}

/// See [`super::compare_exchange_u64`].
#[inline]
pub(super) unsafe fn compare_exchange_u64(shared: *mut u64, current: u64, new: u64) -> u64 {
    let found;
    // SAFETY: reads and writes eight aligned bytes that the caller vouches for; nothing but
    // registers is touched between the exclusive load and store.
    unsafe {
        asm!(
            "2:",
            "ldaxr {found}, [{at}]",
            "cmp {found}, {current}",
            "b.ne 3f",
            "stlxr {failed:w}, {new}, [{at}]",
            "cbnz {failed:w}, 2b",
            "b 4f",
            "3:",
            "clrex",
            "4:",
            at = in(reg) shared,
            current = in(reg) current,
            new = in(reg) new,
            found = out(reg) found,
            failed = out(reg) _,
            options(nostack),
        );
    }
    found
}
