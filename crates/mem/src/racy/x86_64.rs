//! Shared memory on x86-64, in assembly.
//!
//! All copies run from low to high addresses with plain loads and stores, which this processor
//! family keeps in order, so the last byte of a copy becomes visible last; only the head and the
//! tail may store a byte twice, and never the last one. No `rep movsb`: it is slower below
//! 4 KiB, no faster above (`cargo bench -p outboard-mem`) and gives up that order.
//!
//! It is code of its own, not inlined: `fault` knows it by its addresses. Nothing here uses the
//! stack, so that a function that finds memory missing can return from anywhere.

use std::arch::global_asm;

/// From this length on, 32-byte registers are worth testing for.
const WIDE_FROM: usize = 128;

unsafe extern "sysv64" {
    fn outboard_racy_bytes(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_4(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_8(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_two(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_narrow(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_wide(to: *mut u8, from: *const u8, len: usize) -> u32;
    fn outboard_racy_load(shared: *const u64, into: *mut u64) -> u32;
    fn outboard_racy_store(shared: *mut u64, value: u64) -> u32;
    fn outboard_racy_exchange(shared: *mut u64, old: u64, new: u64, into: *mut u64) -> u32;
}

/// See [`super::load`].
#[inline]
pub(super) unsafe fn load(shared: *const u8, private: *mut u8, len: usize) -> u32 {
    // SAFETY: the caller's contract covers `len` bytes at both.
    unsafe { copy(private, shared, len) }
}

/// See [`super::store`].
#[inline]
pub(super) unsafe fn store(shared: *mut u8, private: *const u8, len: usize) -> u32 {
    // SAFETY: the caller's contract covers `len` bytes at both.
    unsafe { copy(shared, private, len) }
}

/// Copies `len` bytes between disjoint ranges; the caller vouches for both.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) -> u32 {
    // SAFETY: each arm passes exactly `len` on, within the range the callee demands.
    unsafe {
        match len {
            0 => 0,
            1..=3 | 5..=7 => outboard_racy_bytes(to, from, len),
            4 => outboard_racy_4(to, from, len),
            8 => outboard_racy_8(to, from, len),
            9..=16 => outboard_racy_two(to, from, len),
            17..WIDE_FROM => outboard_racy_narrow(to, from, len),
            _ if is_x86_feature_detected!("avx") => outboard_racy_wide(to, from, len),
            _ => outboard_racy_narrow(to, from, len),
        }
    }
}

/// See [`super::load_u64`]. Loads acquire on this processor family.
#[inline]
pub(super) unsafe fn load_u64(shared: *const u64, into: &mut u64) -> u32 {
    // SAFETY: reads eight aligned bytes that the caller vouches for; one instruction.
    unsafe { outboard_racy_load(shared, into) }
}

/// See [`super::store_u64`]. Stores release on this processor family.
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
    // SAFETY: reads and writes eight aligned bytes that the caller vouches for; one instruction.
    unsafe { outboard_racy_exchange(shared, current, new, into) }
}

// Functions of the calling convention System V: arguments in rdi, rsi, rdx and rcx, the result in
// eax, and no other register changed than that convention gives away. All accesses to shared memory
// stand between the two labels, in one block, which keeps them together.
global_asm!(
    r#".pushsection .text.outboard_racy, "ax", @progbits
    .macro outboard_function name
        .p2align 4
        .globl \name
        .hidden \name
        .type \name, @function
        \name:
        .cfi_startproc
    .endm
    .macro outboard_end
        xor eax, eax
        ret
        .cfi_endproc
    .endm

    .globl outboard_racy_start
    .hidden outboard_racy_start
    outboard_racy_start:

    // One byte at a time; the length is at least 1.
    outboard_function outboard_racy_bytes
        add rsi, rdx
        add rdi, rdx
        neg rdx
    2:  mov al, byte ptr [rsi + rdx]
        mov byte ptr [rdi + rdx], al
        inc rdx
        jnz 2b
    outboard_end

    outboard_function outboard_racy_4
        mov eax, dword ptr [rsi]
        mov dword ptr [rdi], eax
    outboard_end

    outboard_function outboard_racy_8
        mov rax, qword ptr [rsi]
        mov qword ptr [rdi], rax
    outboard_end

    // Two words that may overlap, for 9 to 16 bytes: both lie in the range.
    outboard_function outboard_racy_two
        mov rax, qword ptr [rsi]
        mov rcx, qword ptr [rsi + rdx - 8]
        mov qword ptr [rdi], rax
        mov qword ptr [rdi + rdx - 8], rcx
    outboard_end

    // 16-byte registers; the length is at least 17. Each round copies 64 or 16 bytes while more
    // than that remain, so 1 to 16 bytes remain at the tail, whose 16 bytes end at the range's end
    // and start inside it. SSE2 is part of x86-64.
    outboard_function outboard_racy_narrow
        cmp rdx, 64
        jbe 3f
    2:  movdqu xmm0, [rsi]
        movdqu xmm1, [rsi + 16]
        movdqu xmm2, [rsi + 32]
        movdqu xmm3, [rsi + 48]
        movdqu [rdi], xmm0
        movdqu [rdi + 16], xmm1
        movdqu [rdi + 32], xmm2
        movdqu [rdi + 48], xmm3
        add rsi, 64
        add rdi, 64
        sub rdx, 64
        cmp rdx, 64
        ja 2b
    3:  cmp rdx, 16
        jbe 4f
        movdqu xmm0, [rsi]
        movdqu [rdi], xmm0
        add rsi, 16
        add rdi, 16
        sub rdx, 16
        jmp 3b
    4:  movdqu xmm0, [rsi + rdx - 16]
        movdqu [rdi + rdx - 16], xmm0
    outboard_end

    // 32-byte registers, stores aligned; the length is at least 64 and the processor has AVX. The
    // head copies 32 bytes and advances by 1 to 32, up to the next aligned store; each round copies
    // 128 or 32 bytes while more than that remain; the tail's 32 bytes end at the range's end.
    outboard_function outboard_racy_wide
        vmovdqu ymm0, [rsi]
        vmovdqu [rdi], ymm0
        mov rcx, rdi
        and rcx, 31
        sub rcx, 32
        sub rsi, rcx
        sub rdi, rcx
        add rdx, rcx
        cmp rdx, 128
        jbe 3f
        .p2align 4
    2:  vmovdqu ymm0, [rsi]
        vmovdqu ymm1, [rsi + 32]
        vmovdqu ymm2, [rsi + 64]
        vmovdqu ymm3, [rsi + 96]
        vmovdqa [rdi], ymm0
        vmovdqa [rdi + 32], ymm1
        vmovdqa [rdi + 64], ymm2
        vmovdqa [rdi + 96], ymm3
        sub rsi, -128
        sub rdi, -128
        add rdx, -128
        cmp rdx, 128
        ja 2b
    3:  cmp rdx, 32
        jbe 4f
        vmovdqu ymm0, [rsi]
        vmovdqa [rdi], ymm0
        add rsi, 32
        add rdi, 32
        sub rdx, 32
        jmp 3b
    4:  vmovdqu ymm0, [rsi + rdx - 32]
        vmovdqu [rdi + rdx - 32], ymm0
        vzeroupper
    outboard_end

    outboard_function outboard_racy_load
        mov rax, qword ptr [rdi]
        mov qword ptr [rsi], rax
    outboard_end

    outboard_function outboard_racy_store
        mov qword ptr [rdi], rsi
    outboard_end

    outboard_function outboard_racy_exchange
        mov rax, rsi
        lock cmpxchg qword ptr [rdi], rdx
        mov qword ptr [rcx], rax
    outboard_end

    outboard_function outboard_racy_missing
        mov eax, 1
        ret
        .cfi_endproc

    .purgem outboard_function
    .purgem outboard_end
    .popsection"#,
    options(raw)
);

/// Each way to copy alone, since which of them `copy` takes depends on the processor.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::racy::tests::Fenced;

    type Way = unsafe extern "sysv64" fn(*mut u8, *const u8, usize) -> u32;

    fn check(lens: std::ops::Range<usize>, way: Way) {
        for len in lens {
            // SAFETY: `each_alignment` passes disjoint ranges of `len` bytes.
            Fenced::each_alignment(len, |to, from| assert_eq!(unsafe { way(to, from, len) }, 0));
        }
    }

    #[test]
    fn bytes() {
        check(1..40, outboard_racy_bytes);
    }

    #[test]
    fn two_words() {
        check(9..17, outboard_racy_two);
    }

    #[test]
    fn narrow() {
        check(17..300, outboard_racy_narrow);
    }

    #[test]
    fn wide() {
        if is_x86_feature_detected!("avx") {
            check(64..400, outboard_racy_wide);
        } else {
            println!("skipped: this processor has no AVX");
        }
    }
}
