//! What long executions do to others: plain Reads from a node that is idle, and from one for which
//! eight clients have modules computed.
//!
//! Those clients run beside the reader, on its processor but only when it sleeps: on other
//! machines they would not disturb it either.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{ActiveNode, ActivePrograms, NodeSetup, Where};
use super::redis::Protection;
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate};
use crate::bench::stack::section::{Runs, ratio};
use crate::command;

const ROUNDS: usize = 5;
const IDLE: &str = "idle";
const BUSY: &str = "8 clients run 1 ms modules";
const READS: [&str; 3] = ["table", "block", "1000"];
/// Eight clients, microseconds of a module, milliseconds: longer than the Reads take.
const BURN: [&str; 4] = ["scan", "8", "1000", "2500"];
/// Until the modules are loaded and running.
const BEGUN: Duration = Duration::from_millis(1000);

/// Reads beside executions, in an encrypted session.
pub(super) fn of_reads() -> Result<AimedFindings> {
    let programs = ActivePrograms::build()?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "adaptive" };
    let node = programs.node(Where::Loopback, setup)?;
    let points = &["Read of 64 B"];
    let mut contenders: [Contender<'_, Value>; 2] = [
        Contender { name: BUSY, measure: Box::new(|_| beside(&node)) },
        Contender { name: IDLE, measure: Box::new(|_| node.measure("reads", &READS)) },
    ];
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "µs, less is better";
    let medians = runs.panel("Reads beside long modules: median", unit, "Read", "/p50_us")?;
    let tails =
        runs.panel("Reads beside long modules: 99th percentile", unit, "Read", "/p99_us")?;
    let figures = vec![ratio(&tails, BUSY, IDLE, 0)?];
    Ok(AimedFindings { figures, panels: vec![medians, tails], ..AimedFindings::default() })
}

/// Reads while others execute. Says how many of their modules ran in a second.
fn beside(node: &ActiveNode<'_>) -> Result<Value> {
    let mut burn = node.load("burn", &BURN);
    let mut idle = std::process::Command::new("chrt");
    idle.args(["--idle", "0"]).arg(burn.get_program()).args(burn.get_args());
    idle.envs(burn.get_envs().filter_map(|(name, value)| Some((name, value?))));
    burn = idle;
    let child = burn.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", command::line(&burn)))?;
    sleep(BEGUN);
    let mut reads = node.measure("reads", &READS)?;
    let burned = child.wait_with_output()?;
    let burned: Value = serde_json::from_slice(&burned.stdout)
        .with_context(|| format!("{} failed", command::line(&burn)))?;
    reads["executed"] = burned["executed"].clone();
    Ok(reads)
}
