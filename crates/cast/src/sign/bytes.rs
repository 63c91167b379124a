//! The bytes of a chunk: in memory of this program's alone, or in memory that peers write. The
//! second is hashed and written to files without being copied whole; a peer's access to it must
//! have ended before.

use super::run::ChunkHash;
use outboard_verbs::SharedSlice;
use rustix::fd::AsFd;
use rustix::io::{Errno, pwrite, retry_on_intr};
use std::cell::RefCell;
use std::ops::Range;

/// Bytes that are copied and hashed at a time: they stay in the processor's cache.
const PIECE: usize = 64 << 10;

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub enum ChunkBytes<'b> {
    /// Nothing else changes them.
    Own(&'b [u8]),
    /// Registered memory.
    Shared(&'b SharedSlice),
}

impl<'b> From<&'b [u8]> for ChunkBytes<'b> {
    fn from(bytes: &'b [u8]) -> Self {
        Self::Own(bytes)
    }
}

impl ChunkBytes<'_> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Shared(memory) => memory.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their hash; `None` for memory of which pages are missing.
    pub(super) fn hash(&self) -> Option<ChunkHash> {
        match self {
            Self::Own(bytes) => Some(ChunkHash::of(bytes)),
            Self::Shared(memory) => hash_memory(memory),
        }
    }

    /// Writes a range of them into a file, at a place in it.
    pub(crate) fn write_to(
        &self,
        range: Range<usize>,
        file: impl AsFd,
        at: u64,
    ) -> Result<(), Errno> {
        match self {
            Self::Own(bytes) => write_all_at(file, bytes.get(range).ok_or(Errno::INVAL)?, at),
            Self::Shared(memory) => memory
                .write_to(range, file, at)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

fn hash_memory(memory: &SharedSlice) -> Option<ChunkHash> {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let mut hasher = blake3::Hasher::new();
        for at in (0..memory.len()).step_by(PIECE) {
            let piece = &mut scratch[..PIECE.min(memory.len() - at)];
            memory.copy_out(at, piece).ok()?;
            hasher.update(piece);
        }
        Some(ChunkHash(hasher.finalize().into()))
    })
}

/// Writes all bytes at a place in a file.
pub(crate) fn write_all_at(file: impl AsFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let len = retry_on_intr(|| pwrite(&file, bytes, at))?;
        (bytes, at) = (&bytes[len..], at + len as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_verbs::SharedRegion;
    use std::fs;

    #[test]
    fn shared_memory_has_the_hash_and_the_bytes_of_its_own_copy() {
        let directory = tempfile::tempdir().expect("a directory");
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
            let region = SharedRegion::zeroed(len + 10).expect("memory");
            region.copy_in(10, &bytes).expect("inside");
            let memory = region.slice(10..len + 10).expect("inside");
            let (own, shared) = (ChunkBytes::Own(&bytes), ChunkBytes::Shared(&memory));
            assert_eq!((own.len(), own.is_empty()), (shared.len(), shared.is_empty()));
            assert_eq!(shared.hash(), own.hash());
            for (bytes, name) in [(own, "own"), (shared, "shared")] {
                let file = fs::File::create(directory.path().join(name)).expect("made");
                bytes.write_to(0..len, &file, 3).expect("written");
                assert_eq!(bytes.write_to(0..len + 1, &file, 3), Err(Errno::INVAL));
            }
            let written = ["own", "shared"].map(|name| fs::read(directory.path().join(name)));
            let [own, shared] = written.map(|read| read.expect("there"));
            assert!(own == shared && own.len() == if len == 0 { 0 } else { len + 3 });
        }
    }
}
