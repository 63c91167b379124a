//! The superblock: what a store is. Bytes only, no file.
//!
//! Layout, little-endian: "obfstore", version (4 bytes), 0 (4), the store's number (16), blocks
//! (8), bytes of the region (8), epoch (8), incarnation of the run (8), base of the run (8), eight
//! runs before it, the latest first, each with its epoch (8), incarnation (8) and last commit (8),
//! BLAKE3 of all that (32). Version 1 had no runs before.

use super::error::FsStoreError;

/// What it begins with.
const MAGIC: &[u8; 8] = b"obfstore";
/// The version that this release writes and reads.
pub const STORE_VERSION: u32 = 2;
/// Runs before the present one that are remembered.
const ENDED_RUNS: usize = 8;
/// Bytes before the runs that have ended.
const HEAD: usize = 72;
/// Bytes of the hash.
const HASH: usize = 32;
/// Bytes without the hash.
const BODY: usize = HEAD + ENDED_RUNS * 24;
/// Its bytes.
pub const SUPERBLOCK_LEN: usize = BODY + HASH;
/// Its file.
pub(super) const NAME: &str = "superblock";

/// A run that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedRun {
    /// The epoch that it served.
    pub epoch: u64,
    /// Its journal's number; 0: there is no such run.
    pub incarnation: u64,
    /// The last of its commits that the store still has, as its journal numbers them. Later ones
    /// were acknowledged, perhaps, and are lost.
    pub last: u64,
}

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
    /// The runs before, the latest first.
    pub ended: [EndedRun; ENDED_RUNS],
}

impl Superblock {
    /// The superblock of the run after this one, whose last commit that the store still has is
    /// `last`, as the store numbers them.
    #[must_use]
    pub fn after(&self, last: u64) -> Self {
        let Self { epoch, incarnation, base, mut ended, .. } = *self;
        if incarnation != 0 {
            ended.rotate_right(1);
            ended[0] = EndedRun { epoch, incarnation, last: last.wrapping_sub(base) };
        }
        Self { ended, ..*self }
    }

    /// Its bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut bytes = [0; SUPERBLOCK_LEN];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&STORE_VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.uuid);
        let words = [self.block_count, self.region_len, self.epoch, self.incarnation, self.base];
        let ended = self.ended.iter().flat_map(|run| [run.epoch, run.incarnation, run.last]);
        for (word, place) in words.into_iter().chain(ended).zip(bytes[32..BODY].chunks_exact_mut(8))
        {
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
        let body = bytes.len().checked_sub(HASH).and_then(|len| bytes.split_at_checked(len));
        let is_whole =
            body.is_some_and(|(body, hash)| blake3::hash(body).as_bytes().as_slice() == hash);
        match body {
            Some((body, _)) if is_whole && (found, body.len()) == (STORE_VERSION, BODY) => {
                Ok(Self::of(body))
            }
            Some((body, _)) if is_whole && (found, body.len()) == (1, HEAD) => Ok(Self::of(body)),
            // A version that is not ours may have another length and another hash.
            _ if found != 1 && found != STORE_VERSION => {
                Err(FsStoreError::OtherVersion { found, expected: STORE_VERSION })
            }
            _ => Err(damaged("its hash is another one")),
        }
    }

    fn of(body: &[u8]) -> Self {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&body[16..32]);
        let word = |index: usize| {
            let word = body.get(32 + index * 8..).and_then(|rest| rest.first_chunk());
            word.map_or(0, |word| u64::from_le_bytes(*word))
        };
        let run = |index: usize| EndedRun {
            epoch: word(5 + 3 * index),
            incarnation: word(6 + 3 * index),
            last: word(7 + 3 * index),
        };
        Self {
            uuid,
            block_count: word(0),
            region_len: word(1),
            epoch: word(2),
            incarnation: word(3),
            base: word(4),
            ended: std::array::from_fn(run),
        }
    }
}
