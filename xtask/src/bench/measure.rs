//! Running contenders in turn and summarizing their samples.
//!
//! Contenders alternate within each round, so that a slow minute of the machine affects all alike.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::Series;
use crate::{command, process};

/// How long a server may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(10);

/// One way of doing the work: Outboard's, or a rival's.
pub struct Contender<'a, S = f64> {
    /// Its name in the chart's legend.
    pub name: &'a str,
    /// Does the work once at one point (such as a message size) and returns the measured sample.
    pub measure: Box<Measure<'a, S>>,
}

/// The work at one point, giving one sample: a number, or an object with several.
pub type Measure<'a, S = f64> = dyn FnMut(&str) -> Result<S> + 'a;

impl<S> fmt::Debug for Contender<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How often something is measured: `OUTBOARD_ROUNDS` may ask for less than usual.
pub fn rounds(usual: usize) -> usize {
    let asked = env::var("OUTBOARD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.map_or(usual, |asked: usize| asked.clamp(1, usual))
}

/// Measures every contender at every point, as many times as [`rounds`] says, in turn.
///
/// # Errors
/// When a contender fails; the error says which, and where.
pub fn alternate<S: fmt::Display>(
    contenders: &mut [Contender<'_, S>],
    points: &[&str],
    usual: usize,
) -> Result<Vec<Series<S>>> {
    let empty = |contender: &Contender<'_, S>| Series {
        name: contender.name.to_owned(),
        samples: points.iter().map(|_| Vec::new()).collect(),
    };
    let mut series: Vec<Series<S>> = contenders.iter().map(empty).collect();
    let rounds = rounds(usual);
    for round in 1..=rounds {
        for (index, point) in points.iter().enumerate() {
            for (contender, series) in contenders.iter_mut().zip(&mut series) {
                let value = (contender.measure)(point);
                let value = value.with_context(|| format!("{} at {point}", contender.name))?;
                eprintln!("round {round}/{rounds}, {point}: {} {value}", contender.name);
                series.samples[index].push(value);
            }
        }
    }
    Ok(series)
}

/// `program` on the given processors only (`0`, `1`, `0-3`), by `taskset`.
pub fn pinned(processors: &str, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", processors, program]).args(arguments).current_dir(command::root());
    command
}

/// Runs a command that prints JSON, and parses it.
///
/// # Errors
/// When the command fails or prints something else.
pub fn json(command: &mut Command) -> Result<Value> {
    let text = command::output(command)?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} printed no JSON: {text}", command::line(command)))
}

/// The number at `pointer` (such as `/latency/p50`) in the output of a command.
///
/// # Errors
/// When there is none.
pub fn number(value: &Value, pointer: &str) -> Result<f64> {
    let number = value.pointer(pointer).and_then(Value::as_f64);
    number.with_context(|| format!("no number at {pointer} in {value}"))
}

/// A server under measurement, stopped when dropped.
#[derive(Debug)]
pub struct Server(Child);

impl Server {
    /// Starts `command`. Its client must wait until the server listens.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn();
        Ok(Self(child.with_context(|| format!("cannot start {}", command::line(command)))?))
    }
}

impl Server {
    /// Starts `command` and waits for its first line of output, which says that it listens.
    ///
    /// # Errors
    /// When it cannot be started or ends without a line.
    pub fn start_with_line(command: &mut Command) -> Result<(Self, String)> {
        let mut server = Self::start(command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        if let Some(stdout) = server.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.is_empty() {
            bail!("{} ended without any output", command::line(command));
        }
        Ok((server, line))
    }
}

/// Runs a client against a server, which listens on `port`, and returns what the client printed.
///
/// # Errors
/// When one of them cannot be started, the server does not listen, or the client fails.
pub fn against(server: &mut Command, port: u16, client: &mut Command) -> Result<String> {
    let mut running = Server::start(server.stdout(Stdio::null()))?;
    process::wait_listening(&mut running.0, port, Instant::now() + LISTEN_MAX)
        .with_context(|| command::line(server))?;
    command::output(client)
}

/// A port of this machine's that is free now.
///
/// # Errors
/// When none is.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Drop for Server {
    /// Both calls fail only if the server has ended by itself, which is expected.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Statistics of one contender's samples at one point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle sample, or the mean of the two in the middle.
    pub median: f64,
    /// The smallest sample.
    pub least: f64,
    /// The largest sample.
    pub most: f64,
}

impl Summary {
    /// `None` without samples.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self { median: f64::midpoint(sorted[lower], sorted[upper]), least, most })
    }
}
