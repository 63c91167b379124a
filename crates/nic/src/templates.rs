//! The bodies that are shipped, what authors of others need, and configurations as values.
//!
//! Never builds an object: `cargo xtask modules build` does, and a test compares. The layouts are
//! those of `bpf/offcode_bpf.h` and the three sources beside it, which describe them.

use std::net::IpAddr;

/// `offcode_bpf.h`, with which bodies are written.
pub const HEADER: &str = include_str!("../bpf/offcode_bpf.h");
/// Passes or drops packets by rules, and sends the first bytes of those that match.
pub const FILTER: &[u8] = include_bytes!("../bpf/built/filter.o");
/// Its source, to begin a body of one's own with.
pub const FILTER_SOURCE: &str = include_str!("../bpf/filter.c");
/// Counts packets and bytes by protocol and port.
pub const COUNT: &[u8] = include_bytes!("../bpf/built/count.o");
/// Its source.
pub const COUNT_SOURCE: &str = include_str!("../bpf/count.c");
/// Sends the first bytes of every nth packet that matches.
pub const SAMPLE: &[u8] = include_bytes!("../bpf/built/sample.o");
/// Its source.
pub const SAMPLE_SOURCE: &str = include_str!("../bpf/sample.c");

/// Most rules of a filter.
pub const RULES_MAX: usize = 12;
/// Most ports that `count` tells apart.
pub const PORTS_MAX: usize = 16;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowVerdict {
    /// It goes on to the kernel.
    #[default]
    Pass,
    /// It ends here.
    Drop,
}

/// An address and how many of its first bits count. A prefix that is too long means all bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPrefix {
    /// The address.
    pub address: IpAddr,
    /// Bits that must be the same.
    pub bits: u8,
}

impl From<IpAddr> for FlowPrefix {
    /// That address alone.
    fn from(address: IpAddr) -> Self {
        Self { address, bits: u8::MAX }
    }
}

/// Which packets are meant; what is absent, or 0, may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowRule {
    /// IP's number of the protocol: 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// The port that it comes from.
    pub source_port: u16,
    /// The port that it goes to.
    pub destination_port: u16,
    /// Where it comes from.
    pub source: Option<FlowPrefix>,
    /// Where it goes to. If both are given, they are of one family.
    pub destination: Option<FlowPrefix>,
    /// What becomes of it.
    pub verdict: FlowVerdict,
    /// How many of its first bytes are sent, at most 2048; 0: it is not sent by `filter`, and
    /// without any bytes by `sample`.
    pub capture_bytes: u32,
}

impl FlowRule {
    /// `struct oc_rule`.
    fn emit(&self, into: &mut Vec<u8>) {
        into.extend([self.family(), self.protocol]);
        into.extend(self.source_port.to_le_bytes());
        into.extend(self.destination_port.to_le_bytes());
        into.extend((self.verdict as u16).to_le_bytes());
        into.extend(self.capture_bytes.to_le_bytes());
        for prefix in [self.source, self.destination] {
            let (address, mask) = masked(prefix);
            into.extend(address);
            into.extend(mask);
        }
    }

    fn family(&self) -> u8 {
        match self.source.or(self.destination).map(|prefix| prefix.address) {
            None => 0,
            Some(IpAddr::V4(_)) => 4,
            Some(IpAddr::V6(_)) => 6,
        }
    }
}

/// The address with all bits cleared that do not count, and a mask of those that do.
fn masked(prefix: Option<FlowPrefix>) -> ([u8; 16], [u8; 16]) {
    let (mut address, mut mask) = ([0; 16], [0; 16]);
    let Some(prefix) = prefix else { return (address, mask) };
    let (octets, length): ([u8; 16], usize) = match prefix.address {
        IpAddr::V4(v4) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&v4.octets());
            (octets, 4)
        }
        IpAddr::V6(v6) => (v6.octets(), 16),
    };
    let bits = u32::from(prefix.bits);
    for (index, byte) in (0..).zip(mask.iter_mut().take(length)) {
        let ones = bits.saturating_sub(8 * index).min(8);
        *byte = u8::MAX.checked_shl(8 - ones).unwrap_or(0);
    }
    for ((to, from), mask) in address.iter_mut().zip(octets).zip(mask) {
        *to = from & mask;
    }
    (address, mask)
}

/// The configuration of `filter`: the first rule that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterConfig {
    /// At most [`RULES_MAX`]; more are not looked at.
    pub rules: Vec<FlowRule>,
    /// What becomes of IP packets that no rule matches. What is no IP always passes.
    pub otherwise: FlowVerdict,
}

impl FilterConfig {
    /// The bytes for [`crate::BodyStart`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let rules = &self.rules[..self.rules.len().min(RULES_MAX)];
        let mut bytes = count_of(rules.len());
        bytes.extend((self.otherwise as u32).to_le_bytes());
        rules.iter().for_each(|rule| rule.emit(&mut bytes));
        bytes
    }
}

/// The configuration of `count`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountConfig {
    /// Ports that have counters of their own (`port_0` is the first), at most [`PORTS_MAX`].
    pub ports: Vec<u16>,
}

impl CountConfig {
    /// The bytes for [`crate::BodyStart`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let ports = &self.ports[..self.ports.len().min(PORTS_MAX)];
        let mut bytes = count_of(ports.len());
        bytes.extend(ports.iter().flat_map(|port| port.to_le_bytes()));
        bytes
    }
}

/// The configuration of `sample`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleConfig {
    /// One of how many matching packets is sent; 0: none.
    pub every: u32,
    /// Which packets are meant; its verdict is not looked at.
    pub rule: FlowRule,
}

impl SampleConfig {
    /// The bytes for [`crate::BodyStart`].
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = self.every.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        self.rule.emit(&mut bytes);
        bytes
    }
}

fn count_of(length: usize) -> Vec<u8> {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::CONFIG_BYTES;

    #[test]
    fn configurations_fit_whatever_is_in_them() {
        let rule = FlowRule::default();
        let filter = FilterConfig { rules: vec![rule; 100], otherwise: FlowVerdict::Drop };
        assert_eq!(filter.emit().len(), 8 + RULES_MAX * 76);
        assert!(filter.emit().len() <= CONFIG_BYTES);
        let count = CountConfig { ports: vec![80; 100] };
        assert_eq!(count.emit().len(), 4 + PORTS_MAX * 2);
        assert_eq!(SampleConfig { every: 10, rule }.emit().len(), 84);
    }

    #[test]
    fn prefixes_become_masks() {
        let prefix = |text: &str, bits| Some(FlowPrefix { address: text.parse().unwrap(), bits });
        let (address, mask) = masked(prefix("10.1.255.7", 17));
        assert_eq!(address[..5], [10, 1, 128, 0, 0]);
        assert_eq!(mask[..5], [255, 255, 128, 0, 0]);
        assert_eq!(masked(prefix("10.1.2.3", 200)).1[..5], [255, 255, 255, 255, 0]);
        assert_eq!(masked(prefix("fe80::1", 10)).0[..2], [0xfe, 0x80]);
        assert_eq!(masked(prefix("ffff::1", 0)), ([0; 16], [0; 16]));
        assert_eq!(masked(None), ([0; 16], [0; 16]));
    }
}
