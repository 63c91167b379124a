//! Measures copies into and out of shared memory against `memcpy`, and the STag table.
//!
//! `cargo bench -p outboard-mem`; give the median of several runs of each, in nanoseconds.

use std::hint::black_box;
use std::time::Instant;

use outboard_mem::{Access, PdId, SharedRegion, StagTable};

const ROUNDS: usize = 15;

/// Median time of one call in nanoseconds.
fn time(calls: u32, mut f: impl FnMut()) -> f64 {
    let mut samples: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..calls).for_each(|_| f());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[ROUNDS / 2]
}

#[cfg(target_arch = "x86_64")]
fn rep_movsb(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    // SAFETY: both slices have that length and cannot overlap.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rdi") to.as_mut_ptr() => _,
            inout("rsi") from.as_ptr() => _,
            inout("rcx") to.len() => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn rep_movsb(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
}

fn copies(skew: usize) {
    println!("copies, shared memory {skew} bytes off alignment [ns]");
    println!(
        "{:>7} {:>9} {:>9} {:>9} {:>10}",
        "bytes", "memcpy", "copy_in", "copy_out", "rep movsb"
    );
    for len in [1, 3, 8, 16, 20, 32, 48, 64, 100, 128, 256, 512, 1024, 1460, 4096, 16384, 65536] {
        let region = SharedRegion::zeroed(len + skew).expect("memory");
        let mut target = vec![0u8; len + 64 + skew];
        let source = vec![7u8; len];
        let mut private = vec![0u8; len];
        let calls = u32::try_from(4_000_000 / (len + 40)).expect("small");
        let off = target.as_ptr().align_offset(64) + skew;
        let target = &mut target[off..off + len];
        let memcpy = time(calls, || black_box(&mut *target).copy_from_slice(black_box(&source)));
        let rep = time(calls, || rep_movsb(black_box(&mut *target), black_box(&source)));
        let into = time(calls, || region.copy_in(skew, black_box(&source)).expect("in range"));
        let out = time(calls, || region.copy_out(skew, black_box(&mut private)).expect("in range"));
        println!("{len:>7} {memcpy:>9.2} {into:>9.2} {out:>9.2} {rep:>10.2}");
    }
}

fn table() {
    let table = StagTable::new(65_536);
    let stags: Vec<u32> = (0..1024)
        .map(|_| {
            let region = SharedRegion::zeroed(4096).expect("memory");
            table.register(PdId(1), region.into(), 0, Access::REMOTE).expect("room")
        })
        .collect();
    let resolve = |stag, len| table.resolve(stag, PdId(1), Access::REMOTE_WRITE, 0, len);
    let one = time(400_000, || drop(black_box(resolve(stags[0], 64))));
    let mut at = 0;
    let many = time(400_000, || {
        at = (at + 389) % stags.len();
        drop(black_box(resolve(stags[at], 64)));
    });
    let stale = time(400_000, || drop(black_box(resolve(stags[0] ^ 1, 64))));
    let bytes = [1u8; 64];
    let place = time(400_000, || {
        let placement = resolve(stags[0], 64).expect("registered");
        placement.copy_in(0, black_box(&bytes)).expect("in range");
    });
    let region = SharedRegion::zeroed(4096).expect("memory");
    let register = time(100_000, || {
        let slice = region.clone().into();
        let stag = table.register(PdId(1), slice, 0, Access::REMOTE).expect("room");
        table.deregister(stag).expect("registered");
    });
    println!("resolve + drop: one {one:.1}, 1024 in turn {many:.1}, stale {stale:.1} [ns]");
    println!("resolve + place 64 bytes {place:.1}, register + deregister {register:.1} [ns]");
}

fn main() {
    copies(0);
    copies(3);
    table();
}
