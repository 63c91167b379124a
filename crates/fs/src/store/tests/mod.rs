//! The store on a disk of memory that records every call, so that a power cut can come anywhere.

mod crash;
mod damage;
mod full;
mod recorded;
mod world;

use std::num::Wrapping;

/// Numbers that look random, the same ones for the same seed.
#[derive(Clone, Debug)]
struct Random(Wrapping<u64>);

impl Random {
    fn new(seed: u64) -> Self {
        Self(Wrapping(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xdead_beef))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0 * Wrapping(6_364_136_223_846_793_005) + Wrapping(1_442_695_040_888_963_407);
        (self.0.0 >> 33) % end.max(1)
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below the end")
    }
}

fn is_full() -> bool {
    std::env::var_os("OUTBOARD_FULL").is_some()
}
