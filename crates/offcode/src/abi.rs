//! Where everything is in the memory that a module sees, and the names of what it may import.
//! Plain numbers: nothing here executes.
//!
//! | address | what |
//! | --- | --- |
//! | 0 .. 0x1000 | no access: null pointers and a stack that overflows trap |
//! | 0x1000 .. 0x1_0000 | stack, from its end downwards |
//! | 0x1_0000 .. 0x1_1000 | the call block |
//! | 0x1_1000 .. | data of all modules, then arguments, then the result |
//! | [`SCRATCH_LEN`] .. | the region, read-only |

/// The module name of host calls.
pub const HOST_MODULE: &str = "ob";
/// The module name of what every position-independent module imports.
pub const ENV_MODULE: &str = "env";

/// Where the stack begins, which grows towards 0.
pub const STACK_TOP: u32 = 0x1_0000;
/// The lowest address that is accessible.
pub const STACK_END: u32 = 0x1000;
/// Where the call block is.
pub const CALL_BLOCK: u32 = 0x1_0000;
/// Where data may begin.
pub const DATA_START: u32 = 0x1_1000;
/// Bytes of memory that an execution has for itself; the region follows.
pub const SCRATCH_LEN: u32 = 1 << 20;
/// Bytes of a region, at most: what fits behind the scratch memory with room to spare.
pub const REGION_MAX: u64 = 3 << 30;

/// Bytes of a WebAssembly page.
pub const PAGE: u32 = 0x1_0000;
/// Bytes of one line: the unit of [`CallBlock::WRITTEN`].
pub const LINE: u64 = 64;

/// What an execution is told of its call, in the layout of `struct ob_call` (modules/include).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBlock {
    /// Bytes of the region.
    pub region_len: u64,
    /// Address of the arguments.
    pub args: u32,
    /// Bytes of the arguments.
    pub args_len: u32,
    /// Address for the result.
    pub out: u32,
    /// Bytes that the result may have.
    pub out_cap: u32,
    /// Nanoseconds of the monotonic clock.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// The caller's identity.
    pub caller: [u8; 32],
    /// Bits of [`CallBlock::AT_CLIENT`].
    pub flags: u64,
    /// Random bits, the same when the execution is run again.
    pub seed: u64,
}

impl CallBlock {
    /// Where the word of written lines is: bit `line & 63` is set for each line of the region that
    /// the write set touches.
    pub const WRITTEN: u32 = CALL_BLOCK + 64;
    /// The flag of an execution at the client, which cannot write.
    pub const AT_CLIENT: u64 = 1;
    /// Bytes of the block.
    pub const LEN: usize = 120;

    /// The block's bytes, with no line written yet.
    #[must_use]
    pub fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [
            (0, u64::from(SCRATCH_LEN)),
            (8, self.region_len),
            (16, self.args.into()),
            (24, self.args_len.into()),
            (32, self.out.into()),
            (40, self.out_cap.into()),
            (48, self.monotonic_ns),
            (56, self.wall_ns),
            (104, self.flags),
            (112, self.seed),
        ];
        for (at, word) in words {
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes[72..104].copy_from_slice(&self.caller);
        bytes
    }
}

/// The bit of [`CallBlock::WRITTEN`] for the line of an offset.
#[must_use]
pub fn line_bit(offset: u64) -> u64 {
    1 << ((offset / LINE) % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_has_every_field_at_its_place() {
        let block = CallBlock {
            region_len: 1,
            args: 2,
            args_len: 3,
            out: 4,
            out_cap: 5,
            monotonic_ns: 6,
            wall_ns: 7,
            caller: [9; 32],
            flags: 10,
            seed: 11,
        };
        let bytes = block.bytes();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        let words: Vec<u64> = (0..9).map(|index| word(index * 8)).collect();
        assert_eq!(words, [1 << 20, 1, 2, 3, 4, 5, 6, 7, 0]);
        assert_eq!((&bytes[72..104], word(104), word(112)), (&[9; 32][..], 10, 11));
        assert_eq!(CallBlock::WRITTEN as usize, CALL_BLOCK as usize + 64);
    }

    #[test]
    fn each_line_has_a_bit_and_64_lines_share_it() {
        assert_eq!((line_bit(0), line_bit(63), line_bit(64)), (1, 1, 2));
        assert_eq!(line_bit(64 * 64 + 5), 1);
    }
}
