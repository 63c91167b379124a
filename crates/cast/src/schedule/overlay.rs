//! What every kind of schedule answers: a rank's sends and receives, one at a time and each in
//! constant or logarithmic time.
//!
//! Ranks are 0 (the root, which holds every chunk or gets it in time) to n − 1; chunks are
//! positions 0 to m − 1. Knows nothing of nodes, of what is held already, or of slow nodes.

/// One transfer as a rank sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RankTransfer {
    /// The step of lock-step execution.
    pub(super) step: u64,
    /// The chunk's position.
    pub(super) chunk: u32,
    /// The rank at the other end.
    pub(super) peer: u32,
}

/// How many ranks serve a leaf at most, where any number could: each is one more connection.
pub(super) const FEEDERS_MAX: u32 = 8;

/// A schedule over ranks. Slots enumerate a rank's transfers in the order of their steps; a slot
/// may be empty, but never many in a row.
pub(super) trait Overlay: std::fmt::Debug + Send + Sync {
    /// Steps of lock-step execution.
    fn steps(&self) -> u64;

    /// Slots of what a rank sends.
    fn send_slots(&self, rank: u32) -> u64;

    /// What a rank sends in one of its slots.
    fn send_in(&self, rank: u32, slot: u64) -> Option<RankTransfer>;

    /// Slots of what a rank receives.
    fn receive_slots(&self, rank: u32) -> u64;

    /// What a rank receives in one of its slots.
    fn receive_in(&self, rank: u32, slot: u64) -> Option<RankTransfer>;

    /// The ranks to which a rank sends, ascending.
    fn receivers(&self, rank: u32) -> Vec<u32>;

    /// The ranks from which a rank receives, ascending.
    fn senders(&self, rank: u32) -> Vec<u32>;

    /// Ranks whose sending is not all used, in turn: an additional leaf's chunk b comes from
    /// entry b modulo the length. Never empty.
    fn feeders(&self) -> Vec<u32>;

    /// How many transfers a chunk needs to reach the last rank, at most.
    fn hops(&self) -> u32;

    /// Of how many chunks, the last that it received, a rank must still have the bytes in
    /// lock-step execution, in order to send them.
    fn window(&self) -> u32;
}
