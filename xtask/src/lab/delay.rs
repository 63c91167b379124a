//! Two hosts and a link between them that delays every packet (`delay.c`), because this kernel need
//! not have netem.
//!
//! The link treats all contenders alike: it knows packets, not programs. It takes one processor for
//! itself while packets are under way, so on a machine with two the hosts share the other: programs
//! that spin on both would fight for it, those that block do not, since only one of the two has
//! something to do at a time. A rate is set where the packets are sent, as for every link of a lab.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::janitor::Janitor;
use super::{Ground, Group, Host, Link, NEEDS_ROOT, network};
use crate::command;
use crate::process::reap;

/// What a link does to packets.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    /// How long a packet takes from one host to the other.
    pub one_way: Duration,
    /// What each host sends at most.
    pub link: Link,
}

/// Two hosts, A and B; see the first lines of this file.
#[derive(Debug)]
pub struct DelayedPair {
    hosts: Vec<Host>,
    delay: Delay,
    pub(super) wire: Wire,
    // The last field, because dropping it removes what the others use.
    _janitor: Janitor,
}

/// What the link did, as it says at its end.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct WireReport {
    /// Packets that went from either host to the other; a GSO packet counts once.
    pub packets: u64,
    /// Their bytes, with all headers.
    pub bytes: u64,
    /// Packets that the receiving host did not take.
    pub refused: u64,
    /// How often a packet found the link asleep, and was late by a wake-up.
    pub woken: u64,
    /// How late half of all packets were at most, in microseconds.
    pub late_p50_us: u64,
    /// The same for 99 of 100.
    pub late_p99_us: u64,
    /// The same for all.
    pub late_most_us: u64,
}

/// The process that is the link.
#[derive(Debug)]
pub(super) struct Wire {
    child: Child,
    output: BufReader<ChildStdout>,
    group: Group,
}

/// Where things run: the two hosts' processors and the link's.
#[derive(Debug)]
struct Places {
    hosts: [&'static str; 2],
    wire: &'static str,
}

impl Places {
    fn of(processors: usize) -> Self {
        match processors {
            0 | 1 => Self { hosts: ["0", "0"], wire: "0" },
            2 => Self { hosts: ["0", "0"], wire: "1" },
            _ => Self { hosts: ["0", "1"], wire: "2" },
        }
    }
}

impl DelayedPair {
    /// A pair on the machine's first processors.
    ///
    /// # Errors
    /// When this user is not root, there is no C compiler, or the kernel lacks network namespaces,
    /// control groups or TAP devices.
    pub fn new(delay: Delay) -> Result<Self> {
        let places = Places::of(thread::available_parallelism()?.get());
        let program = command::compile_c("xtask/src/lab/delay.c", &[])?;
        let ground = Ground::new(2)?;
        network::make_bare(&ground.namespaces).context(NEEDS_ROOT)?;
        let group = ground.group.child("wire")?;
        // Above the usual priority, because the hosts' kernels work on any processor.
        let mut wire = group.command("nice");
        wire.args(["--adjustment=-20", "taskset", "--cpu-list", places.wire]).arg(program);
        wire.arg(delay.one_way.as_nanos().to_string());
        for (index, namespace) in ground.namespaces.iter().enumerate() {
            wire.arg(namespace).arg(network::hardware(index));
        }
        let wire = Wire::start(&mut wire, group)?;
        network::configure(&ground.namespaces, delay.link)?;
        ground.namespaces.iter().try_for_each(|host| network::widen(host))?;
        let hosts = ground.hosts(&places.hosts)?;
        Ok(Self { hosts, delay, wire, _janitor: ground.janitor })
    }

    /// A and B.
    ///
    /// # Panics
    /// Never: there are two.
    #[must_use]
    pub fn hosts(&self) -> [&Host; 2] {
        [&self.hosts[0], &self.hosts[1]]
    }

    /// What the link was made for.
    #[must_use]
    pub fn delay(&self) -> Delay {
        self.delay
    }

    /// Processor time of the link itself so far, with the work of the hosts' kernels that its
    /// packets caused.
    ///
    /// # Errors
    /// When the kernel's counter cannot be read.
    pub fn wire_cpu(&self) -> Result<Duration> {
        self.wire.group.cpu()
    }

    /// Ends the link; says what it did.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn finish(mut self) -> Result<WireReport> {
        self.wire.finish()
    }
}

impl Wire {
    fn start(command: &mut Command, group: Group) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child =
            child.with_context(|| format!("cannot start {}", command::line(command)))?;
        let output = child.stdout.take().context("a pipe was asked for")?;
        let mut wire = Self { child, output: BufReader::new(output), group };
        let mut line = String::new();
        wire.output.read_line(&mut line)?;
        if line != "up\n" {
            bail!("the link with a delay did not come up (it needs /dev/net/tun)");
        }
        Ok(wire)
    }

    /// Its number.
    #[cfg(test)]
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    fn finish(&mut self) -> Result<WireReport> {
        drop(self.child.stdin.take());
        let mut said = String::new();
        self.output.read_to_string(&mut said)?;
        serde_json::from_str(&said).with_context(|| format!("the link ended early: {said:?}"))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // If it has ended already, the error is expected.
        let _ = reap(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_has_a_processor_to_itself_where_there_are_two() {
        for processors in [2, 3, 64] {
            let places = Places::of(processors);
            assert!(!places.hosts.contains(&places.wire), "{places:?}");
        }
    }
}
