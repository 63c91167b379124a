//! What a step costs: the model of a node's link.
//!
//! A step takes τ = c/B + o for chunks of c bytes; a chunk that is passed on waits for the latency
//! of each hop besides. Steps do not wait for it: in the tests' events a binomial pipeline takes
//! longer by one to two latencies a hop, however many chunks there are.

use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;

/// The link of nodes without a rate limit, in Gbit/s: a choice depends on it for small casts
/// only.
const ASSUMED_GIGABITS: f64 = 1.0;

/// A link and the node behind it. All nodes are alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LinkModel {
    /// B: what one stream carries, in bytes a second.
    pub bytes_per_second: f64,
    /// o: what a chunk costs a node besides the time of its bytes, in seconds.
    pub chunk_overhead_s: f64,
    /// From the last byte's sending until the receiver can send the chunk on: latency of the
    /// network, waking and verifying, in seconds.
    pub hop_latency_s: f64,
    /// How much longer a step takes than in lock-step where several nodes send to one in turn: as
    /// soon as they are not in the same step, two send to it at once and another one waits.
    pub turns_stretch: f64,
    /// What a node needs for one more connection, in seconds; 0 if connections are there.
    pub connect_s: f64,
}

impl LinkModel {
    /// Assumptions for a link of some Gbit/s of payload with connections that are there: 20 µs
    /// a chunk and 100 µs a hop, of which most is waking processes and verifying 1 MiB; put
    /// measured values in their place where there are any. Turns: casts of 100 MB to 16 nodes at
    /// 100 Mbit/s took 1.2 times their steps by the binomial pipeline, and 1.03 by the chain.
    #[must_use]
    pub fn gigabits(per_second: f64) -> Self {
        Self {
            bytes_per_second: per_second * 1e9 / 8.0,
            chunk_overhead_s: 20e-6,
            hop_latency_s: 100e-6,
            turns_stretch: 1.2,
            connect_s: 0.0,
        }
    }

    /// The link that a cast and its plan count with: the nodes' rate limit, or 1 Gbit/s without
    /// one.
    #[must_use]
    pub fn of_rate(rate: Option<NonZeroU64>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a model's rate needs no 53 bits")]
        let gigabits = rate.map_or(ASSUMED_GIGABITS, |rate| rate.get() as f64 * 8e-9);
        Self::gigabits(gigabits)
    }

    /// τ: the seconds of one step.
    #[must_use]
    pub fn step_s(&self, chunk_bytes: f64) -> f64 {
        chunk_bytes / self.bytes_per_second + self.chunk_overhead_s
    }
}
