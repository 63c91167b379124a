//! What a hub has done since it was made: plain numbers, which the loop that owns the hub counts
//! and reads.

use outboard_verbs::{EngineCounters, SendOp};
use serde::Serialize;

/// Counters of a hub, as [`Hub::counters`](super::Hub::counters) returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HubCounters {
    /// Peers that are connected now.
    pub peers_now: u64,
    /// Peers that were taken in.
    pub peers: u64,
    /// Peers that left, or whose connection ended.
    pub peers_gone: u64,
    /// Messages that were sent, immediate data too.
    pub messages_sent: u64,
    /// Bytes of messages that were sent.
    pub messages_sent_bytes: u64,
    /// Messages that came, immediate data too.
    pub messages_received: u64,
    /// Bytes of messages that came.
    pub messages_received_bytes: u64,
    /// Reads of peers' memory.
    pub reads: u64,
    /// Bytes of these Reads.
    pub reads_bytes: u64,
    /// Writes into peers' memory.
    pub writes: u64,
    /// Bytes of these Writes.
    pub writes_bytes: u64,
    /// Atomic operations on peers' memory.
    pub atomics: u64,
    /// Requests that wait now for room in a send queue.
    pub waiting_now: u64,
    /// Bytes of the requests that wait now.
    pub waiting_now_bytes: u64,
    /// The engine under it.
    pub engine: EngineCounters,
}

impl HubCounters {
    /// Counts a request that is posted.
    pub(super) fn post(&mut self, op: SendOp, len: usize) {
        let len = len as u64;
        let (count, bytes) = match op {
            SendOp::Send { .. } | SendOp::SendWithImm { .. } | SendOp::Immediate { .. } => {
                (&mut self.messages_sent, &mut self.messages_sent_bytes)
            }
            SendOp::Read { .. } => (&mut self.reads, &mut self.reads_bytes),
            SendOp::Write { .. } | SendOp::WriteWithImm { .. } => {
                (&mut self.writes, &mut self.writes_bytes)
            }
            SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. } => return self.atomics += 1,
        };
        *count += 1;
        *bytes += len;
    }

    /// Counts a message of a peer.
    pub(super) fn receive(&mut self, len: usize) {
        self.messages_received += 1;
        self.messages_received_bytes += len as u64;
    }
}
