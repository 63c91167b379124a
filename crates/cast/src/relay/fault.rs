//! What ends the connection with a peer.

/// What a peer did that no peer of this program does: its connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RelayFault {
    /// A chunk that was not asked of this peer, or in another slot.
    #[error("it sent chunk {chunk} into slot {slot}, which was not asked of it")]
    Unasked {
        /// The chunk.
        chunk: u32,
        /// The slot.
        slot: u32,
    },
    /// A chunk that is still wanted, or was never.
    #[error("it drops the chunk for slot {slot}, which was not cancelled")]
    NotCancelled {
        /// The slot for it.
        slot: u32,
    },
    /// Two chunks in one slot.
    #[error("it wants chunk {chunk} in slot {slot}, in which it waits for another one")]
    SlotTaken {
        /// The chunk.
        chunk: u32,
        /// The slot.
        slot: u32,
    },
    /// A question for a chunk that there is not.
    #[error("it wants chunk {chunk} of a cast that has {chunks}")]
    NoSuchChunk {
        /// The chunk.
        chunk: u32,
        /// Chunks of the cast.
        chunks: u32,
    },
}
