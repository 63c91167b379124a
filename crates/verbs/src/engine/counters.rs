//! What an engine has done since it was made. Each count costs a relaxed add; reading them stops
//! no thread, so that they are exact each for itself, not together.

use crate::ended::EndReason;
use outboard_secure::SessionError;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a context's engine, as [`Context::counters`](crate::Context::counters) returns
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineCounters {
    /// Connections that were set up.
    pub connections: u64,
    /// Connections that ended because one side left in order.
    pub ended_in_order: u64,
    /// Connections that ended with the peer's Terminate.
    pub ended_by_peer: u64,
    /// Connections that we ended with a Terminate: a fault of the peer's, or of a request of ours.
    pub ended_by_us: u64,
    /// Connections that ended because what came did not decrypt.
    pub ended_by_decryption: u64,
    /// Connections that TCP lost, or whose stream was cut off.
    pub ended_by_loss: u64,
    /// Bytes that came from sockets.
    pub received_bytes: u64,
    /// Bytes that went to sockets.
    pub sent_bytes: u64,
    /// Times that a thread went to sleep on the sockets.
    pub sleeps: u64,
    /// Panics of the engine's thread, each a defect of Outboard.
    pub panics: u64,
}

/// The counters while they are counted.
#[derive(Debug, Default)]
pub(crate) struct EngineCounts {
    connections: AtomicU64,
    ended: [AtomicU64; 5],
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    sleeps: AtomicU64,
    panics: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl EngineCounts {
    pub(crate) fn connected(&self) {
        add(&self.connections, 1);
    }

    pub(crate) fn ended(&self, reason: &EndReason) {
        add(&self.ended[row(reason)], 1);
    }

    pub(crate) fn received(&self, bytes: usize) {
        if bytes > 0 {
            add(&self.received_bytes, bytes as u64);
        }
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self, bytes: usize) {
        if bytes > 0 {
            add(&self.sent_bytes, bytes as u64);
        }
    }

    pub(crate) fn slept(&self) {
        add(&self.sleeps, 1);
    }

    pub(crate) fn panicked(&self) {
        add(&self.panics, 1);
    }

    pub(crate) fn snapshot(&self) -> EngineCounters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let [in_order, by_peer, by_us, by_decryption, by_loss] = &self.ended;
        EngineCounters {
            connections: read(&self.connections),
            ended_in_order: read(in_order),
            ended_by_peer: read(by_peer),
            ended_by_us: read(by_us),
            ended_by_decryption: read(by_decryption),
            ended_by_loss: read(by_loss),
            received_bytes: read(&self.received_bytes),
            sent_bytes: read(&self.sent_bytes),
            sleeps: read(&self.sleeps),
            panics: read(&self.panics),
        }
    }
}

fn row(reason: &EndReason) -> usize {
    match reason {
        EndReason::Left => 0,
        EndReason::Terminated(ended) if ended.by_peer => 1,
        EndReason::Terminated(_) => 2,
        EndReason::Lost | EndReason::SessionFailed(SessionError::Truncated { .. }) => 4,
        EndReason::SessionFailed(_) => 3,
    }
}
