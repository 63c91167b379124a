//! The superblock: what a store is. Bytes only, no file.
//!
//! Layout, little-endian: "obfstore", version (4 bytes), 0 (4), the store's number (16), blocks
//! (8), bytes of the region (8), epoch (8), incarnation of the run (8), base of the run (8), BLAKE3
//! of all that (32).

use super::error::FsStoreError;

/// What it begins with.
const MAGIC: &[u8; 8] = b"obfstore";
/// The version that this release writes and reads.
pub const STORE_VERSION: u32 = 1;
/// Bytes without the hash.
const BODY: usize = 72;
/// Its bytes.
pub const SUPERBLOCK_LEN: usize = BODY + 32;
/// Its file.
pub(super) const NAME: &str = "superblock";

/// See this file's first lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The store's own random number.
    pub uuid: [u8; 16],
    /// Blocks of the data.
    pub block_count: u64,
    /// Bytes of the region of metadata.
    pub region_len: u64,
    /// Grows when a replica is promoted: who has a smaller one is not the store any more.
    pub epoch: u64,
    /// Which journal the run has that goes on, or was the last.
    pub incarnation: u64,
    /// What the store's numbers of commits are ahead of that journal's.
    pub base: u64,
}

impl Superblock {
    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&STORE_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.uuid);
        let words = [self.block_count, self.region_len, self.epoch, self.incarnation, self.base];
        for (word, place) in words.into_iter().zip(bytes[32..BODY].chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let hash = blake3::hash(&bytes[..BODY]);
        bytes[BODY..].copy_from_slice(hash.as_bytes());
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`FsStoreError::OtherVersion`], [`FsStoreError::Damaged`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FsStoreError> {
        let damaged = |what: &str| FsStoreError::damaged(NAME, what);
        let Some(head) = bytes.first_chunk::<12>().filter(|head| &head[..8] == MAGIC) else {
            return Err(damaged("it does not begin as a store's does"));
        };
        let found = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let whole: Option<&[u8; SUPERBLOCK_LEN]> = bytes.try_into().ok();
        let is_whole =
            whole.is_some_and(|whole| blake3::hash(&whole[..BODY]).as_bytes() == &whole[BODY..]);
        match whole {
            // A version that is not ours may have another length and another hash.
            _ if found != STORE_VERSION && !is_whole => {
                Err(FsStoreError::OtherVersion { found, expected: STORE_VERSION })
            }
            Some(whole) if is_whole => Ok(Self::of(whole)),
            _ => Err(damaged("its hash is another one")),
        }
    }

    fn of(whole: &[u8; SUPERBLOCK_LEN]) -> Self {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&whole[16..32]);
        let word = |index: usize| {
            whole[32 + index * 8..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
        };
        Self {
            uuid,
            block_count: word(0),
            region_len: word(1),
            epoch: word(2),
            incarnation: word(3),
            base: word(4),
        }
    }
}
