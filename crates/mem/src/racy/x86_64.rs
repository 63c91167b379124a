//! Shared memory on x86-64, in assembly.
//!
//! All copies run from low to high addresses with plain loads and stores, which this processor
//! family keeps in order, so the last byte of a copy becomes visible last; only the head and the
//! tail may store a byte twice, and never the last one. No `rep movsb`: it is slower below
//! 4 KiB, no faster above (`cargo bench -p outboard-mem`) and gives up that order.

use std::arch::asm;

/// From this length on, 32-byte registers are worth testing for.
const WIDE_FROM: usize = 128;

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

/// Copies `len` bytes between disjoint ranges; the caller vouches for both.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each arm passes exactly `len` on, within the range the callee demands.
    unsafe {
        match len {
            0 => {}
            1..=3 | 5..=7 => copy_bytes(to, from, len),
            4 => copy_4(to, from),
            8 => copy_8(to, from),
            9..=16 => copy_9_to_16(to, from, len),
            17..WIDE_FROM => copy_narrow(to, from, len),
            _ if is_x86_feature_detected!("avx") => copy_wide(to, from, len),
            _ => copy_narrow(to, from, len),
        }
    }
}

/// One byte at a time; `len` is at least 1.
#[inline]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: touches bytes `0..len` of both ranges, which the caller vouches for; the assembly
    // clobbers only the registers it names and the flags.
    unsafe {
        asm!(
            "add {from}, {len}",
            "add {to}, {len}",
            "neg {len}",
            "2:",
            "mov {b}, byte ptr [{from} + {len}]",
            "mov byte ptr [{to} + {len}], {b}",
            "inc {len}",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            b = out(reg_byte) _,
            options(nostack),
        );
    }
}

#[inline]
unsafe fn copy_4(to: *mut u8, from: *const u8) {
    // SAFETY: touches bytes `0..4` of both ranges, which the caller vouches for.
    unsafe {
        asm!(
            "mov {w:e}, dword ptr [{from}]",
            "mov dword ptr [{to}], {w:e}",
            from = in(reg) from,
            to = in(reg) to,
            w = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[inline]
unsafe fn copy_8(to: *mut u8, from: *const u8) {
    // SAFETY: touches bytes `0..8` of both ranges, which the caller vouches for.
    unsafe {
        asm!(
            "mov {w}, qword ptr [{from}]",
            "mov qword ptr [{to}], {w}",
            from = in(reg) from,
            to = in(reg) to,
            w = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// Two words that may overlap.
#[inline]
unsafe fn copy_9_to_16(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: `8 < len <= 16`, so both words lie in `0..len`, which the caller vouches for.
    unsafe {
        asm!(
            "mov {a}, qword ptr [{from}]",
            "mov {b}, qword ptr [{from} + {len} - 8]",
            "mov qword ptr [{to}], {a}",
            "mov qword ptr [{to} + {len} - 8], {b}",
            from = in(reg) from,
            to = in(reg) to,
            len = in(reg) len,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

/// 16-byte registers; `len` is at least 17.
#[inline]
unsafe fn copy_narrow(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each round copies 64 or 16 bytes while more than that remain, so 1 to 16 bytes
    // remain at the tail, whose 16 bytes end at `len` and start at 1 or later: all accesses lie
    // in `0..len`, which the caller vouches for. SSE2 is part of x86-64.
    unsafe {
        asm!(
            "cmp {len}, 64",
            "jbe 3f",
            "2:",
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            "movdqu [{to}], {a}",
            "movdqu [{to} + 16], {b}",
            "movdqu [{to} + 32], {c}",
            "movdqu [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "cmp {len}, 64",
            "ja 2b",
            "3:",
            "cmp {len}, 16",
            "jbe 4f",
            "movdqu {a}, [{from}]",
            "movdqu [{to}], {a}",
            "add {from}, 16",
            "add {to}, 16",
            "sub {len}, 16",
            "jmp 3b",
            "4:",
            "movdqu {a}, [{from} + {len} - 16]",
            "movdqu [{to} + {len} - 16], {a}",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack),
        );
    }
}

/// 32-byte registers, stores aligned; `len` is at least 64 and the processor has AVX.
unsafe fn copy_wide(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the head copies 32 bytes and advances by 1 to 32, up to the next aligned store;
    // each round copies 128 or 32 bytes while more than that remain; the tail's 32 bytes end at
    // `len`. With `len >= 64` all accesses lie in `0..len`, which the caller vouches for. The
    // caller has checked for AVX; an `xmm` output names the whole 32-byte register.
    unsafe {
        asm!(
            "vmovdqu ymm0, [{from}]",
            "vmovdqu [{to}], ymm0",
            "mov {skip}, {to}",
            "and {skip}, 31",
            "sub {skip}, 32",
            "sub {from}, {skip}",
            "sub {to}, {skip}",
            "add {len}, {skip}",
            "cmp {len}, 128",
            "jbe 3f",
            ".p2align 4",
            "2:",
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + 32]",
            "vmovdqu ymm2, [{from} + 64]",
            "vmovdqu ymm3, [{from} + 96]",
            "vmovdqa [{to}], ymm0",
            "vmovdqa [{to} + 32], ymm1",
            "vmovdqa [{to} + 64], ymm2",
            "vmovdqa [{to} + 96], ymm3",
            "sub {from}, -128",
            "sub {to}, -128",
            "add {len}, -128",
            "cmp {len}, 128",
            "ja 2b",
            "3:",
            "cmp {len}, 32",
            "jbe 4f",
            "vmovdqu ymm0, [{from}]",
            "vmovdqa [{to}], ymm0",
            "add {from}, 32",
            "add {to}, 32",
            "sub {len}, 32",
            "jmp 3b",
            "4:",
            "vmovdqu ymm0, [{from} + {len} - 32]",
            "vmovdqu [{to} + {len} - 32], ymm0",
            "vzeroupper",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            skip = out(reg) _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            options(nostack),
        );
    }
}

/// See [`super::load_u64`]. Loads acquire on this processor family.
#[inline]
pub(super) unsafe fn load_u64(shared: *const u64) -> u64 {
    let value;
    // SAFETY: reads eight aligned bytes that the caller vouches for; one instruction.
    unsafe {
        asm!(
            "mov {value}, qword ptr [{at}]",
            at = in(reg) shared,
            value = out(reg) value,
            options(nostack, preserves_flags),
        );
    }
    value
}

/// See [`super::store_u64`]. Stores release on this processor family.
#[inline]
pub(super) unsafe fn store_u64(shared: *mut u64, value: u64) {
    // SAFETY: writes eight aligned bytes that the caller vouches for; one instruction.
    unsafe {
        asm!(
            "mov qword ptr [{at}], {value}",
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
    // SAFETY: reads and writes eight aligned bytes that the caller vouches for.
    unsafe {
        asm!(
            "lock cmpxchg qword ptr [{at}], {new}",
            at = in(reg) shared,
            new = in(reg) new,
            inout("rax") current => found,
            options(nostack),
        );
    }
    found
}

/// Each way to copy alone, since which of them `copy` takes depends on the processor.
#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::racy::tests::Fenced;

    fn check(lens: std::ops::Range<usize>, way: unsafe fn(*mut u8, *const u8, usize)) {
        for len in lens {
            // SAFETY: `each_alignment` passes disjoint ranges of `len` bytes.
            Fenced::each_alignment(len, |to, from| unsafe { way(to, from, len) });
        }
    }

    #[test]
    fn bytes() {
        check(1..40, copy_bytes);
    }

    #[test]
    fn two_words() {
        check(9..17, copy_9_to_16);
    }

    #[test]
    fn narrow() {
        check(17..300, copy_narrow);
    }

    #[test]
    fn wide() {
        if is_x86_feature_detected!("avx") {
            check(64..400, copy_wide);
        } else {
            println!("skipped: this processor has no AVX");
        }
    }
}
