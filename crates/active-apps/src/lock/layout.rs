//! What `modules/lock/lock.h` says of an entry's layout, and of its word.

/// `LOCK_HEADER_LEN`.
pub const HEADER_LEN: u64 = 128;
/// `LOCK_ENTRY_LEN`.
pub const ENTRY_LEN: usize = 128;
/// `LOCK_NAME_MAX`.
pub const NAME_MAX: usize = 94;
/// `LOCK_EPOCH_MS`: the start of 2020.
pub const EPOCH_MS: u64 = 1_577_836_800_000;
/// `LOCK_LEASE_MAX`, in nanoseconds.
pub const LEASE_MAX: u64 = 86_400_000_000_000;
/// Offset in an entry of the word that grants are made by.
pub const WORD: usize = 0;
/// Of the latest token, or a little less.
pub const TOKEN: usize = 8;
/// Of the owner.
pub const OWNER: usize = 16;

const EXPIRY_BITS: u32 = 40;
const EXPIRY_MASK: u64 = (1 << EXPIRY_BITS) - 1;
const TOKEN_MASK: u64 = 0xff_ffff;

/// An entry's word for a token and the end of its lease, in ms since 1970; 0: it was released.
pub(super) fn word_of(token: u64, expiry_ms: u64) -> u64 {
    (token & TOKEN_MASK) << EXPIRY_BITS | (expiry_ms.saturating_sub(EPOCH_MS) & EXPIRY_MASK)
}

/// When a word's lease ends, in ms since 1970; 0: it was released.
pub(super) fn expiry_of(word: u64) -> u64 {
    match word & EXPIRY_MASK {
        0 => 0,
        expiry => expiry + EPOCH_MS,
    }
}

/// The token of a word's grant: the smallest from the entry's on that has the word's bits.
pub(super) fn token_of(word: u64, hint: u64) -> u64 {
    hint.saturating_add((word >> EXPIRY_BITS).wrapping_sub(hint) & TOKEN_MASK)
}

/// Whether a word is a grant of this token that was not released.
pub(super) fn is_grant_of(word: u64, token: u64) -> bool {
    word >> EXPIRY_BITS == token & TOKEN_MASK && word & EXPIRY_MASK != 0
}
