//! What things cost on a machine, and what a simulated node and link are made of. All of it comes
//! from measurements (`cargo xtask bench active-sim`); nothing here measures.
//!
//! A message costs its sender and its receiver the same at both ends. A Read, a Write and a
//! CompareSwap cost a node one figure each, from the request's first byte to the answer's last,
//! because they are served by its engine alone. An execution costs messages at both ends and, on
//! the node's core, a fixed part, its fuel, and its commit.
//!
//! Latency and occupancy are two figures: an engine that is busy takes several requests with one
//! system call, so that it can serve more of them a second than one behind the other.

use serde::{Deserialize, Serialize};

/// Nanoseconds of each step. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Posting a message, until its bytes are on their way.
    pub send_ns: f64,
    /// Receiving a message, from its arrival until a program has it.
    pub receive_ns: f64,
    /// Each byte of a message, half of it at either end.
    pub byte_ns: f64,
    /// A Read at the node's engine.
    pub read_ns: f64,
    /// A Write at the node's engine.
    pub write_ns: f64,
    /// A CompareSwap at the node's engine.
    pub atomic_ns: f64,
    /// What every execution takes on the host's core, besides its messages.
    pub execute_ns: f64,
    /// A unit of fuel on the host's core.
    pub fuel_ns: f64,
    /// A commit that writes, besides its lines.
    pub commit_ns: f64,
    /// Each line of 64 bytes that is committed.
    pub line_ns: f64,
    /// How long a Read or a CompareSwap occupies a busy engine.
    pub verb_busy_ns: f64,
    /// How long an execution's request and its answer, together, occupy a busy engine.
    pub messages_busy_ns: f64,
}

impl Default for Costs {
    /// As measured on loopback between two processors of an Intel Xeon in a virtual machine (Linux
    /// 6.18), both sides spinning, AES-256-GCM. `docs/benchmarks/active-sim.json` has the figures
    /// from which they follow.
    fn default() -> Self {
        Self {
            send_ns: 3387.0,
            receive_ns: 293.5,
            byte_ns: 0.5196,
            read_ns: 3721.34,
            write_ns: 4323.75,
            atomic_ns: 3696.34,
            execute_ns: 1273.83,
            fuel_ns: 0.0831,
            commit_ns: 581.86,
            line_ns: 72.82,
            verb_busy_ns: 2775.9,
            messages_busy_ns: 4221.95,
        }
    }
}

/// Whether executions have a processor of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cores {
    /// One processor serves messages and executes: Outboard's node, with a loop that spins.
    Shared,
    /// An engine serves messages while a core executes: a network card with a core.
    Apart,
}

/// A node and the links to it, relative to the machine that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Who executes.
    pub cores: Cores,
    /// How many times slower the executing core is than the host's.
    pub core_slowdown: f64,
    /// How many times less all messages cost at both ends, as if a card in hardware handled them.
    /// 1 is what was measured.
    pub engine_speedup: f64,
    /// What a packet takes from one end to the other, besides its bytes, in nanoseconds.
    pub delay_ns: f64,
    /// Bits a second of a link, each way; infinite is a link that never makes anything wait.
    #[serde(with = "rate")]
    pub bits_per_s: f64,
}

impl Default for Hardware {
    /// Loopback: the machine that was measured.
    fn default() -> Self {
        Self {
            cores: Cores::Shared,
            core_slowdown: 1.0,
            engine_speedup: 1.0,
            delay_ns: 0.0,
            bits_per_s: f64::INFINITY,
        }
    }
}

/// JSON has no infinity: null stands for it.
mod rate {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rate: &f64, to: S) -> Result<S::Ok, S::Error> {
        rate.is_finite().then_some(*rate).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(f64::INFINITY))
    }
}

/// Bytes around each message on a link: Ethernet with its gap, IP, TCP, MPA, DDP and RDMAP headers,
/// a record's tag.
const AROUND: f64 = 140.0;

/// How long a step takes, and how long it keeps what works at it from other work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Nanoseconds until it is done.
    pub takes_ns: f64,
    /// Nanoseconds until other work can begin: never more.
    pub busy_ns: f64,
}

impl Work {
    fn of(takes_ns: f64, busy_ns: f64) -> Self {
        Self { takes_ns, busy_ns: busy_ns.min(takes_ns) }
    }

    /// One behind the other.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self { takes_ns: self.takes_ns + next.takes_ns, busy_ns: self.busy_ns + next.busy_ns }
    }
}

/// Costs on some hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// On the machine that was measured.
    pub costs: Costs,
    /// What is simulated.
    pub hardware: Hardware,
}

impl Prices {
    fn bytes_ns(&self, bytes: usize) -> f64 {
        self.costs.byte_ns / 2.0 * bytes as f64
    }

    fn engine(&self, takes_ns: f64, busy_ns: f64, bytes: usize) -> Work {
        let (speedup, bytes_ns) = (self.hardware.engine_speedup, self.bytes_ns(bytes));
        Work::of((takes_ns + bytes_ns) / speedup, (busy_ns + bytes_ns) / speedup)
    }

    /// A message of so many bytes leaves a client.
    #[must_use]
    pub fn client_send_ns(&self, bytes: usize) -> f64 {
        self.engine(self.costs.send_ns, self.costs.send_ns, bytes).takes_ns
    }

    /// A message arrives at a client.
    #[must_use]
    pub fn client_receive_ns(&self, bytes: usize) -> f64 {
        self.engine(self.costs.receive_ns, self.costs.receive_ns, bytes).takes_ns
    }

    /// A Read of so many bytes at the engine.
    #[must_use]
    pub fn read(&self, bytes: usize) -> Work {
        self.engine(self.costs.read_ns, self.costs.verb_busy_ns, bytes)
    }

    /// A Write of so many bytes at the engine.
    #[must_use]
    pub fn write(&self, bytes: usize) -> Work {
        self.engine(self.costs.write_ns, self.costs.write_ns, bytes)
    }

    /// A CompareSwap at the engine.
    #[must_use]
    pub fn atomic(&self) -> Work {
        self.engine(self.costs.atomic_ns, self.costs.verb_busy_ns, 0)
    }

    /// A request to execute arrives at the engine.
    #[must_use]
    pub fn request(&self, bytes: usize) -> Work {
        self.engine(self.costs.receive_ns, self.costs.messages_busy_ns / 2.0, bytes)
    }

    /// Its answer leaves the engine.
    #[must_use]
    pub fn answer(&self, bytes: usize) -> Work {
        self.engine(self.costs.send_ns, self.costs.messages_busy_ns / 2.0, bytes)
    }

    /// An execution on the core that used so much fuel and wrote so many lines.
    #[must_use]
    pub fn execution(&self, fuel: u64, lines: u64) -> Work {
        let Costs { execute_ns, commit_ns, line_ns, fuel_ns, .. } = self.costs;
        let commit_ns = if lines == 0 { 0.0 } else { commit_ns + line_ns * lines as f64 };
        let host_ns = execute_ns + fuel_ns * fuel as f64 + commit_ns;
        let takes_ns = host_ns * self.hardware.core_slowdown;
        Work::of(takes_ns, takes_ns)
    }

    /// How long a message of so many bytes occupies a link.
    #[must_use]
    pub fn transmission_ns(&self, bytes: usize) -> f64 {
        (bytes as f64 + AROUND) * 8e9 / self.hardware.bits_per_s
    }
}
