//! Shared memory on aarch64, in assembly.
//!
//! Plain loads and stores for copies, in no promised order; the fences beside them are in
//! `racy.rs`. Only instructions of the base architecture (no LSE), so that it runs everywhere.
//!
//! It is code of its own, not inlined: `fault` knows it by its addresses. Nothing here uses the
//! stack or the link register, so that a function that finds memory missing can return from
//! anywhere.

use std::arch::global_asm;

unsafe extern "C" {
    fn outboard_racy_copy(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_load(shared: *const u64, into: *mut u64) -> u32;
    fn outboard_racy_store(shared: *mut u64, value: u64) -> u32;
    fn outboard_racy_exchange(shared: *mut u64, old: u64, new: u64, into: *mut u64) -> u32;
}

/// See [`super::load`].
#[inline]
pub(super) unsafe fn load(shared: *const u8, private: *mut u8, len: usize) -> u32 {
    // SAFETY: the caller's contract covers `len` bytes at both, and they are disjoint.
    unsafe { outboard_racy_copy(private, shared, len) }
}

/// See [`super::store`].
#[inline]
pub(super) unsafe fn store(shared: *mut u8, private: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's contract covers `len` bytes at both, and they are disjoint.
    unsafe { outboard_racy_copy(shared, private, len) }
}

/// See [`super::load_u64`].
#[inline]
pub(super) unsafe fn load_u64(shared: *const u64, into: &mut u64) -> u32 {
    // SAFETY: reads eight aligned bytes that the caller vouches for; one instruction.
    unsafe { outboard_racy_load(shared, into) }
}

/// See [`super::store_u64`].
#[inline]
pub(super) unsafe fn store_u64(shared: *mut u64, value: u64) -> u32 {
    // SAFETY: writes eight aligned bytes that the caller vouches for; one instruction.
    unsafe { outboard_racy_store(shared, value) }
}

/// See [`super::compare_exchange_u64`].
#[inline]
pub(super) unsafe fn compare_exchange_u64(
    shared: *mut u64,
    current: u64,
    new: u64,
    into: &mut u64,
) -> u32 {
    // SAFETY: reads and writes eight aligned bytes that the caller vouches for; nothing but
    // registers is touched between the exclusive load and store.
    unsafe { outboard_racy_exchange(shared, current, new, into) }
}

// Functions of the calling convention AAPCS64: arguments in x0 to x3, the result in w0, and no
// other register changed than that convention gives away. All accesses to shared memory stand
// between the two labels, in one block, which keeps them together.
global_asm!(
    r#".pushsection .text.outboard_racy, "ax", %progbits
    .macro outboard_function name
        .p2align 4
        .globl \name
        .hidden \name
        .type \name, %function
        \name:
        .cfi_startproc
    .endm
    .macro outboard_end
        mov w0, #0
        ret
        .cfi_endproc
    .endm

    .globl outboard_racy_start
    .hidden outboard_racy_start
    outboard_racy_start:

    // Copies 64, then 8, then 1 byte at a time.
    outboard_function outboard_racy_copy
    2:  subs x3, x2, #64
        b.lo 3f
        ldp q0, q1, [x1]
        ldp q2, q3, [x1, #32]
        stp q0, q1, [x0]
        stp q2, q3, [x0, #32]
        add x1, x1, #64
        add x0, x0, #64
        mov x2, x3
        b 2b
    3:  subs x3, x2, #8
        b.lo 4f
        ldr x4, [x1], #8
        str x4, [x0], #8
        mov x2, x3
        b 3b
    4:  cbz x2, 5f
        ldrb w4, [x1], #1
        strb w4, [x0], #1
        sub x2, x2, #1
        b 4b
    5:
    outboard_end

    outboard_function outboard_racy_load
        ldar x2, [x0]
        str x2, [x1]
    outboard_end

    outboard_function outboard_racy_store
        stlr x1, [x0]
    outboard_end

    outboard_function outboard_racy_exchange
    2:  ldaxr x4, [x0]
        cmp x4, x1
        b.ne 3f
        stlxr w5, x2, [x0]
        cbnz w5, 2b
        b 4f
    3:  clrex
    4:  str x4, [x3]
    outboard_end

    outboard_function outboard_racy_missing
        mov w0, #1
        ret
        .cfi_endproc

    .purgem outboard_function
    .purgem outboard_end
    .popsection"#,
    options(raw)
);
