//! How many bytes move at a time: TCP may cut its stream anywhere.
//!
//! Random means reproducible: the sequence follows from the seed alone.

/// How many bytes one step of the network moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunks {
    /// Everything there is.
    Whole,
    /// This many bytes.
    Every(usize),
    /// 1 to 1,500 bytes, small numbers more often, from this seed on.
    Random(u64),
}

impl Chunks {
    /// The size of the next piece, at least 1.
    pub fn next_len(&mut self) -> usize {
        match self {
            Self::Whole => usize::MAX,
            Self::Every(count) => (*count).max(1),
            Self::Random(state) => {
                let word = next_word(state);
                let bound = [4, 32, 256, 1500][(word >> 60) as usize & 3];
                1 + usize::try_from(word % bound).unwrap_or(0)
            }
        }
    }
}

/// Xorshift64*: the next pseudo-random word of a sequence.
pub fn next_word(state: &mut u64) -> u64 {
    let mut x = *state | 1;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    x.wrapping_mul(0x2545_F491_4F6C_DD1D)
}
