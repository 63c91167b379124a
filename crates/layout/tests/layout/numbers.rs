//! Numbers without a pattern, the same for the same seed; the example uses them too.
//!
//! Never seeded by anything but the caller.

/// A generator of numbers (splitmix64).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end.max(1) as u64).unwrap_or(0)
    }
}
