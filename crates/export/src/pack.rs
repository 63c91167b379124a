//! Packing of contents by Zstandard (RFC 8878), where that makes them much shorter, as it does with
//! sources. Contents are packed once and read by every server.

use crate::record::Contents;
use std::cell::RefCell;
use std::fmt;
use zstd::bulk;

/// Zstandard's default: it leaves a quarter of a C source, and takes half as long as hashing and
/// copying a build's other files.
const LEVEL: i32 = 3;
/// Shorter contents are not packed.
const LEN_MIN: usize = 512;

/// Packs contents; reuses its memory.
pub(crate) struct Packer {
    compressor: Option<bulk::Compressor<'static>>,
    room: Vec<u8>,
}

impl Packer {
    pub(crate) fn new() -> Self {
        Self { compressor: bulk::Compressor::new(LEVEL).ok(), room: Vec::new() }
    }

    /// The packed bytes, if they are at least an eighth shorter.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let compressor = self.compressor.as_mut().filter(|_| bytes.len() >= LEN_MIN)?;
        let len_max = bytes.len() - bytes.len() / 8;
        self.room.clear();
        self.room.resize(len_max, 0);
        // An error says that the output did not fit.
        let len = compressor.compress_to_buffer(bytes, &mut self.room[..]).ok()?;
        self.room.get(..len)
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

/// At most `len` bytes. Each thread keeps the library's memory: to allocate and clear it takes as
/// long as to unpack a short source.
fn unpack(packed: &[u8], len: usize) -> Option<Vec<u8>> {
    thread_local! {
        static DECOMPRESSOR: RefCell<Option<bulk::Decompressor<'static>>> =
            RefCell::new(bulk::Decompressor::new().ok());
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.as_mut()?.decompress(packed, len).ok())
}

impl Contents {
    /// The file's contents from the bytes read from a client's memory; `None` unless they have the
    /// expected hash. Allocates [`len`](Self::len) bytes, a length that the client has announced.
    #[must_use]
    pub fn open(&self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let bytes = if self.packed == self.len {
            bytes
        } else {
            unpack(&bytes, usize::try_from(self.len).ok()?)?
        };
        let is_whole = bytes.len() as u64 == self.len;
        (is_whole && *blake3::hash(&bytes).as_bytes() == self.hash).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(bytes: &[u8], packed: u64) -> Contents {
        let (hash, len) = (*blake3::hash(bytes).as_bytes(), bytes.len() as u64);
        Contents { dev: 0, ino: 0, version: 0, hash, at: 0, len, packed }
    }

    #[test]
    fn what_was_packed_is_opened_and_nothing_else() {
        let bytes = b"int main(void);\n".repeat(1000);
        let packed = Packer::new().pack(&bytes).expect("it repeats itself").to_vec();
        assert!(packed.len() < bytes.len() / 10);
        let whole = contents(&bytes, packed.len() as u64);
        assert_eq!(whole.open(packed.clone()), Some(bytes.clone()));
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
