//! Reserves what a cast needs: memory, and a staging directory that no other cast writes to.

use super::source_fault::SourceFault;
use super::storage::NodeStore;
use crate::member::{WINDOW_BYTES, WINDOW_SLOTS_MAX, WINDOW_SLOTS_MIN};
use crate::sign::ChunkHashes;
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

/// So long threads may be busy with a chunk of a cast that has ended.
const LEAVING_MAX: Duration = Duration::from_secs(2);

/// What there is for a cast that begins.
pub(super) struct SessionRoom {
    /// Bytes of memory that other casts have left.
    pub(super) memory: u64,
    /// Files of casts that have ended: their staging directory may be this cast's.
    pub(super) leaving: Vec<Weak<NodeStore>>,
}

impl SessionRoom {
    /// Waits until threads have ended what they did for casts that have ended.
    pub(super) fn wait(&self) {
        let until = Instant::now() + LEAVING_MAX;
        let is_there = |files: &Weak<NodeStore>| files.strong_count() > 0;
        while self.leaving.iter().any(is_there) && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Bytes of the window, of the memory that is left: half of it at most, so that there is some for
/// the next cast.
pub(super) fn window(hashes: &ChunkHashes, memory: u64) -> Result<u64, SourceFault> {
    let chunk_len = u64::from(hashes.header().shape.chunk_len().bytes());
    let expected = WINDOW_SLOTS_MIN * chunk_len;
    match memory {
        found if found < expected => Err(SourceFault::Memory { found, expected }),
        found => Ok((found / 2).min(WINDOW_BYTES).min(WINDOW_SLOTS_MAX * chunk_len).max(expected)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receive::tests::TestCast;

    #[test]
    fn each_cast_leaves_memory_for_the_next() {
        let cast = TestCast::of_stream(b"m", vec![vec![b'm'; 4096]; 4], 4096);
        let mut left = 256 << 10;
        let mut windows = Vec::new();
        while let Ok(window) = window(&cast.hashes, left) {
            windows.push(window >> 10);
            left -= window;
        }
        assert_eq!(windows, [128, 64, 32, 16, 16]);
        let large = window(&cast.hashes, 1 << 30).expect("enough");
        assert_eq!(large, 128 * 4096, "no more than it has slots");
    }
}
