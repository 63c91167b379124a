//! Random numbers from a seed: the same whenever a simulation is run. Not for secrets.

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of all.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a limit that is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// An exponentially distributed time with such a mean, in the mean's unit.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
    pub fn exponential(&mut self, mean: f64) -> u64 {
        // In (0, 1].
        let uniform = ((self.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * mean).round() as u64
    }
}
