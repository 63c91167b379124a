//! Contents as they lie in the memory: packed by Zstandard (RFC 8878) where that makes them much
//! shorter, as it does sources. Packed once, read by every server.

use crate::record::Contents;
use std::fmt;
use zstd::bulk;

/// Zstandard's own default: a quarter of a C source is left, and it takes half as long as hashing
/// and copying the rest of a build's files.
const LEVEL: i32 = 3;
/// What is shorter is not worth it.
const LEN_MIN: usize = 512;

/// Packs contents; keeps its memory from one to the next.
pub(crate) struct Packer {
    compressor: Option<bulk::Compressor<'static>>,
    room: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self { compressor: bulk::Compressor::new(LEVEL).ok(), room: Vec::new() }
    }

    /// Packed octets; nothing if they would not be an eighth shorter at least.
    pub(crate) fn pack(&mut self, octets: &[u8]) -> Option<&[u8]> {
        let compressor = self.compressor.as_mut().filter(|_| octets.len() >= LEN_MIN)?;
        let len_max = octets.len() - octets.len() / 8;
        self.room.clear();
        self.room.resize(len_max, 0);
        // It says so when there is not enough room.
        let len = compressor.compress_to_buffer(octets, &mut self.room[..]).ok()?;
        self.room.get(..len)
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Contents {
    /// What was read from a client's memory, as the file has it; nothing unless it is what was
    /// promised. Takes memory for [`len`](Self::len) octets, which is the client's word.
    #[must_use]
    pub fn open(&self, octets: Vec<u8>) -> Option<Vec<u8>> {
        let octets = if self.packed == self.len {
            octets
        } else {
            bulk::decompress(&octets, usize::try_from(self.len).ok()?).ok()?
        };
        let is_whole = octets.len() as u64 == self.len;
        (is_whole && *blake3::hash(&octets).as_bytes() == self.hash).then_some(octets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(octets: &[u8], packed: u64) -> Contents {
        let (hash, len) = (*blake3::hash(octets).as_bytes(), octets.len() as u64);
        Contents { dev: 0, ino: 0, version: 0, hash, at: 0, len, packed }
    }

    #[test]
    fn what_was_packed_is_opened_and_nothing_else() {
        let octets = b"int main(void);\n".repeat(1000);
        let packed = Packer::new().pack(&octets).expect("it repeats itself").to_vec();
        assert!(packed.len() < octets.len() / 10);
        let whole = contents(&octets, packed.len() as u64);
        assert_eq!(whole.open(packed.clone()), Some(octets.clone()));
        let longer = Contents { len: whole.len + 1, ..whole };
        let shorter = Contents { len: whole.len - 1, ..whole };
        let other = Contents { hash: [0; 32], ..whole };
        for lie in [longer, shorter, other] {
            assert_eq!(lie.open(packed.clone()), None);
        }
        assert_eq!(whole.open(packed[1..].to_vec()), None);
        assert_eq!(contents(b"abc", 3).open(b"abc".to_vec()), Some(b"abc".to_vec()));
    }

    #[test]
    fn what_does_not_get_shorter_stays() {
        let mut packer = Packer::new();
        let mut random = vec![0; 100_000];
        blake3::Hasher::new().finalize_xof().fill(&mut random);
        assert_eq!(packer.pack(&random), None);
        assert_eq!(packer.pack(b"short"), None);
        assert!(packer.pack(&[0; 512]).is_some());
    }
}
