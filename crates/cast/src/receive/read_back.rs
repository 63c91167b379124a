//! Reading back what is held, to serve it to others: relays and nodes that join late.
//!
//! Bytes are given as the files have them. Published files belong to their owner, who may change
//! them: the reader at the other end checks every chunk, as it does with any relay's.

use super::bitmap::ChunkBitmap;
use super::error::ReceiveError;
use super::shared::ReceiverShared;
use std::sync::Arc;

/// Reads chunks that a receiver holds, from several threads if need be, for as long as the
/// receiver exists and after it has published.
#[derive(Clone, Debug)]
pub struct ReadBack {
    pub(super) shared: Arc<ReceiverShared>,
}

impl ReadBack {
    /// Which chunks are held.
    #[must_use]
    pub fn bitmap(&self) -> &ChunkBitmap {
        self.shared.bitmap()
    }

    /// Reads a chunk; `into` then has exactly its bytes, and nothing of use after an error.
    ///
    /// # Errors
    /// [`ReceiveError::NotHeld`]; [`ReceiveError::Disturbed`] when its files are not there any
    /// more, or shorter.
    pub fn read_chunk(&self, chunk: u32, into: &mut Vec<u8>) -> Result<(), ReceiveError> {
        if !self.bitmap().is_held(chunk) {
            return Err(ReceiveError::NotHeld { chunk });
        }
        self.shared.read(chunk, into)
    }
}
