//! What a delayed link does, in figures (`probe.c`), and whether that is what was asked for: a
//! benchmark checks its link before it uses it.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::Value;

use super::delay::{Delay, DelayedPair};
use crate::bench::measure::{Summary, json, number};
use crate::command;

/// How much longer than twice the delay half of the round trips may take, in microseconds: what
/// the hosts' kernels and the link itself need.
const MORE_US: f64 = 30.0;
/// The part of a TCP stream without delay that one with it must keep.
const KEPT_LEAST: f64 = 0.95;
const ROUND_TRIPS: &str = "1000";
/// Streams of each path; the ratio of their medians counts.
const STREAMS: usize = 3;
/// How often a link is looked at before it is refused: others use the machine too.
const ATTEMPTS: u32 = 3;

/// What passes between two hosts.
#[derive(Clone, Copy, Debug)]
pub struct PathFigures {
    /// The middle round trip of eight bytes by UDP, in microseconds.
    pub udp_us: f64,
    /// The same by TCP.
    pub tcp_us: f64,
    /// The 99th percentile by TCP.
    pub tcp_p99_us: f64,
}

/// A delayed link beside the same without delay.
#[derive(Clone, Copy, Debug)]
pub struct LinkCheck {
    one_way: Duration,
    /// With the delay.
    pub delayed: PathFigures,
    /// Without it.
    pub direct: PathFigures,
    /// Bytes a second of a TCP stream, with the delay.
    pub stream: f64,
    /// That divided by the same without it.
    pub kept: f64,
}

impl DelayedPair {
    /// A pair whose link was found to do what it should.
    ///
    /// # Errors
    /// When it cannot be made (see [`Self::new`]), or its figures are wrong time after time.
    pub fn checked(delay: Delay) -> Result<(Self, LinkCheck)> {
        let (pair, direct) =
            (Self::new(delay)?, Self::new(Delay { one_way: Duration::ZERO, ..delay })?);
        let program = command::compile_c("xtask/src/lab/probe.c", &[])?;
        let mut check = LinkCheck::of(&program, &pair, &direct)?;
        for _ in 1..ATTEMPTS {
            if check.wrong().is_none() {
                break;
            }
            check = LinkCheck::of(&program, &pair, &direct)?;
        }
        match check.wrong() {
            Some(wrong) => bail!("the link with a delay is not usable: {wrong}: {check}"),
            None => Ok((pair, check)),
        }
    }

    /// Runs `probe.c` on the processors of A.
    pub(super) fn probe(&self, program: &Path, what: &str, amount: &str) -> Result<Value> {
        let [a, b] = self.hosts();
        let mut probe = a.command(program);
        json(probe.args([what, &a.namespace, &b.namespace, &b.address.to_string(), amount]))
    }

    fn path(&self, program: &Path) -> Result<PathFigures> {
        let udp = self.probe(program, "udp", ROUND_TRIPS)?;
        let tcp = self.probe(program, "tcp", ROUND_TRIPS)?;
        Ok(PathFigures {
            udp_us: number(&udp, "/p50_us")?,
            tcp_us: number(&tcp, "/p50_us")?,
            tcp_p99_us: number(&tcp, "/p99_us")?,
        })
    }

    fn stream(&self, program: &Path, milliseconds: u128) -> Result<f64> {
        number(&self.probe(program, "stream", &milliseconds.to_string())?, "/bytes_per_s")
    }
}

impl LinkCheck {
    fn of(program: &Path, delayed: &DelayedPair, direct: &DelayedPair) -> Result<Self> {
        let one_way = delayed.delay().one_way;
        // TCP needs some dozen round trips to fill the link.
        let milliseconds = 400 + 60 * one_way.as_millis();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for _ in 0..STREAMS {
            with.push(delayed.stream(program, milliseconds)?);
            without.push(direct.stream(program, milliseconds)?);
        }
        let middle = |samples: &[f64]| Summary::of(samples).map_or(0.0, |found| found.median);
        let stream = middle(&with);
        Ok(Self {
            one_way,
            delayed: delayed.path(program)?,
            direct: direct.path(program)?,
            stream,
            kept: stream / middle(&without),
        })
    }

    /// What is not as it should be.
    #[must_use]
    pub fn wrong(&self) -> Option<&'static str> {
        let twice = 2.0 * self.one_way.as_secs_f64() * 1e6;
        let fits = |round_trip: f64| (twice..twice + MORE_US).contains(&round_trip);
        if !fits(self.delayed.udp_us) || !fits(self.delayed.tcp_us) {
            return Some("a round trip is not twice the delay");
        }
        (self.kept < KEPT_LEAST).then_some("TCP does not keep its rate")
    }
}

impl fmt::Display for LinkCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { one_way, delayed, direct, stream, kept } = self;
        write!(
            f,
            "{one_way:?} one way: round trips of 8 bytes are {:.1} µs by UDP, {:.1} µs by TCP \
             (99th percentile {:.1}), without delay {:.1} and {:.1}; a TCP stream has {:.0} \
             Mbit/s, {kept:.2} of that without delay",
            delayed.udp_us,
            delayed.tcp_us,
            delayed.tcp_p99_us,
            direct.udp_us,
            direct.tcp_us,
            stream * 8e-6,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(udp_us: f64, tcp_us: f64, kept: f64) -> LinkCheck {
        let path = |udp_us, tcp_us| PathFigures { udp_us, tcp_us, tcp_p99_us: tcp_us };
        LinkCheck {
            one_way: Duration::from_micros(100),
            delayed: path(udp_us, tcp_us),
            direct: path(8.0, 10.0),
            stream: 1e8,
            kept,
        }
    }

    #[test]
    fn a_link_is_refused_that_is_too_early_late_or_slow() {
        assert_eq!(check(207.0, 209.0, 0.97).wrong(), None);
        assert!(check(199.0, 209.0, 0.97).wrong().is_some());
        assert!(check(207.0, 231.0, 0.97).wrong().is_some());
        assert_eq!(check(207.0, 209.0, 0.94).wrong(), Some("TCP does not keep its rate"));
    }
}
