//! What channels cost, by what carries them and by the size of a message: time, and processor time
//! of the whole machine.
//!
//! It measures nothing itself: [`crate::measure`] does. Until somebody has measured this machine,
//! costs are guesses, and say so.

use crate::request::CarrierKind;
use serde::{Deserialize, Serialize};

/// Sizes of messages at which carriers are measured, in bytes.
pub const SIZES: [u32; 5] = [64, 1024, 16 << 10, 64 << 10, 1 << 20];
/// Messages a second of a channel of which nothing is known.
pub const MESSAGES_PER_S: u64 = 1000;
/// Bytes of a message of a channel of which nothing is known.
pub const MESSAGE_BYTES: u32 = 1024;

/// One carrier at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeCost {
    /// Bytes of a message.
    pub bytes: u32,
    /// From its sending to its receiver's entry, when nothing else is on the way: half a round
    /// trip, in nanoseconds.
    pub latency_ns: u64,
    /// Messages a second, one behind the other.
    pub messages_per_s: u64,
    /// Processor time of the whole machine for a message of such a stream, in nanoseconds.
    pub cpu_ns: u64,
}

/// One carrier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarrierCosts {
    /// Its costs, by growing size.
    pub sizes: Vec<SizeCost>,
}

/// All carriers of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelCosts {
    /// Nobody has measured this machine.
    pub is_guess: bool,
    /// Between offcodes of one device.
    pub inside: CarrierCosts,
    /// Through shared memory.
    pub ring: CarrierCosts,
    /// Through the runtime, to and from nodes and the application.
    pub session: CarrierCosts,
}

impl Default for ChannelCosts {
    /// Guesses.
    fn default() -> Self {
        let guess = |base: u64, per_kib: u64| CarrierCosts {
            sizes: SIZES
                .iter()
                .map(|bytes| {
                    let cpu_ns = base + per_kib * u64::from(*bytes) / 1024;
                    let messages_per_s = 1_000_000_000 / cpu_ns;
                    SizeCost { bytes: *bytes, latency_ns: cpu_ns, messages_per_s, cpu_ns }
                })
                .collect(),
        };
        Self {
            is_guess: true,
            inside: guess(300, 50),
            ring: guess(1_000, 150),
            session: guess(30_000, 1_000),
        }
    }
}

impl CarrierCosts {
    /// Processor time of a message of so many bytes, between the sizes that were measured on a
    /// straight line.
    #[must_use]
    pub fn cpu_ns(&self, bytes: u32) -> u64 {
        let above = self.sizes.iter().position(|size| size.bytes >= bytes);
        match above {
            Some(0) => self.sizes[0].cpu_ns,
            Some(at) => between(&self.sizes[at - 1], &self.sizes[at], bytes),
            None => self.sizes.last().map_or(0, |last| {
                let times = u64::from(bytes) / u64::from(last.bytes.max(1));
                last.cpu_ns.saturating_mul(times.max(1))
            }),
        }
    }
}

fn between(below: &SizeCost, above: &SizeCost, bytes: u32) -> u64 {
    let span = u64::from(above.bytes - below.bytes).max(1);
    let more = u64::from(bytes - below.bytes);
    let rise = above.cpu_ns.saturating_sub(below.cpu_ns);
    below.cpu_ns + rise.saturating_mul(more) / span
}

impl ChannelCosts {
    /// The costs of a carrier.
    #[must_use]
    pub fn carrier(&self, kind: CarrierKind) -> &CarrierCosts {
        match kind {
            CarrierKind::Inside => &self.inside,
            CarrierKind::Ring => &self.ring,
            CarrierKind::Session => &self.session,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_lie_between_those_measured() {
        let size = |bytes, cpu_ns| SizeCost { bytes, latency_ns: 0, messages_per_s: 0, cpu_ns };
        let costs = CarrierCosts { sizes: vec![size(100, 1000), size(200, 3000)] };
        assert_eq!(costs.cpu_ns(1), 1000);
        assert_eq!(costs.cpu_ns(150), 2000);
        assert_eq!(costs.cpu_ns(200), 3000);
        assert_eq!(costs.cpu_ns(600), 9000);
    }
}
