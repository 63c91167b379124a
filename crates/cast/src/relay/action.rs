//! What a relay wants done.

use super::ChunkWant;

/// What the node must do for its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Tell a node what this one wants of it.
    Tell {
        /// The sender.
        to: u32,
        /// The chunk.
        chunk: u32,
        /// The slot for it, or that it is not needed.
        want: ChunkWant,
    },
    /// Tell a node that what this one wants of it is waited for, here or further on.
    Hurry {
        /// The sender.
        to: u32,
        /// The chunk.
        chunk: u32,
    },
    /// Tell a node that a chunk, which it no longer wants, was not sent and will not be.
    Drop {
        /// The receiver.
        to: u32,
        /// The receiver's slot for it.
        slot: u32,
    },
    /// Check the chunk in a slot, and write it to its files; then [`Relay::kept`].
    Keep {
        /// The chunk.
        chunk: u32,
        /// Where it is.
        slot: u32,
    },
    /// Read a chunk that this node holds from its files into a slot; then [`Relay::loaded`].
    Load {
        /// The chunk.
        chunk: u32,
        /// Where it goes.
        slot: u32,
    },
    /// Write a chunk into another node's slot; then [`Relay::sent`].
    Send {
        /// The receiver.
        to: u32,
        /// The chunk.
        chunk: u32,
        /// This node's slot.
        from: u32,
        /// The receiver's slot.
        into: u32,
    },
}
