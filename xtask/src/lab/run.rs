//! `cargo xtask lab delay`: a command on two hosts with a delayed link. Makes and checks them, and
//! says at the end what the link did; what the command does is its own affair.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Delay, DelayedPair, Host, Link};
use crate::command;

/// How the command is used.
pub const EXAMPLES: &str = "\
The command runs on host A. It finds in its environment the hosts' addresses, A and B, and the words
ON_A and ON_B that make a program run on a host:

  cargo xtask lab delay --one-way 100us
  cargo xtask lab delay --one-way 1ms --rate 1gbit -- sh -c '
      $ON_B iperf3 -s -1 -D; sleep 1; iperf3 -c $B'

Needs root. The link takes one processor while packets are under way.";

/// Runs a command on host A of a checked pair; without one, only checks.
///
/// # Errors
/// When the pair cannot be made, the link does not do what it should, or the command fails.
pub fn delay(one_way: Duration, rate: Option<u64>, words: &[OsString]) -> Result<()> {
    let link = rate.map_or(Link::Unlimited, Link::BitsPerSecond);
    let (pair, check) = DelayedPair::checked(Delay { one_way, link })?;
    eprintln!("{check}");
    let [program, arguments @ ..] = words else { return Ok(()) };
    let [a, b] = pair.hosts();
    let mut command = a.command(program);
    command.args(arguments).env("A", a.address.to_string()).env("B", b.address.to_string());
    command.env("ON_A", on(a)).env("ON_B", on(b));
    let (began, cpu) = (Instant::now(), pair.wire_cpu()?);
    let ran = command::run(&mut command);
    let (took, cpu) = (began.elapsed(), pair.wire_cpu()? - cpu);
    let report = pair.finish()?;
    eprintln!(
        "{} packets of {} bytes in all, late by at most {} µs (50 %), {} µs (99 %), {} µs (all); \
         {} wake-ups, {} packets refused; the link took {:.2} s of a processor in {:.2} s",
        report.packets,
        report.bytes,
        report.late_p50_us,
        report.late_p99_us,
        report.late_most_us,
        report.woken,
        report.refused,
        cpu.as_secs_f64(),
        took.as_secs_f64(),
    );
    ran
}

/// The words in front of a program, for a shell.
fn on(host: &Host) -> String {
    host.prefix().join(" ")
}
