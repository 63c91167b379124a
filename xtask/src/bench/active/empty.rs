//! What executing costs by itself: an empty module beside a Send ping-pong, both spinning.

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{ActivePrograms, NodeSetup, Where};
use super::redis::Protection;
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, Summary, alternate, pinned};
use crate::bench::stack::section::{Runs, ratio};
use crate::builds;
use crate::command;

const ROUNDS: usize = 5;
const MS: &str = "600";
const SEND: &str = "Send ping-pong";
const EXECUTE: &str = "Execute, empty module";
const MODES: [(&str, Protection); 2] =
    [("trusted", Protection::Trusted), ("encrypted", Protection::Encrypted)];

/// One connection, both sides spinning.
pub(super) fn beside_send() -> Result<AimedFindings> {
    let programs = ActivePrograms::build()?;
    let node =
        |(_, protection)| programs.node(Where::Loopback, NodeSetup { protection, spin: "always" });
    let nodes = MODES.into_iter().map(node).collect::<Result<Vec<_>>>()?;
    let mode = |point: &str| MODES.iter().position(|(name, _)| *name == point).context("no mode");
    let mut contenders: [Contender<'_, Value>; 2] = [
        Contender {
            name: EXECUTE,
            measure: Box::new(|point| nodes[mode(point)?].measure("empty", &["table", "spin", MS])),
        },
        Contender {
            name: SEND,
            measure: Box::new(|point| programs.ping(MODES[mode(point)?].1, "spin", MS)),
        },
    ];
    let points = MODES.map(|(name, _)| name);
    let series = alternate(&mut contenders, &points, ROUNDS)?;
    let runs = Runs { points: &points, series };
    let unit = "µs of a round trip, less is better";
    let panel = runs.panel("Empty module, spinning: median", unit, "session", "/p50_us")?;
    let mut figures = vec![ratio(&panel, EXECUTE, SEND, 0)?, ratio(&panel, EXECUTE, SEND, 1)?];
    figures.push(Summary::of(&alone()?));
    Ok(AimedFindings { figures, panels: vec![panel], ..AimedFindings::default() })
}

/// Microseconds of an empty execution in the executor alone, without a connection.
fn alone() -> Result<Vec<f64>> {
    let program = builds::example("executor_latency")?;
    let run = |_| {
        let said = command::output(&mut pinned("0", &program.to_string_lossy(), &[]))?;
        microseconds(&said).with_context(|| format!("executor_latency printed {said:?}"))
    };
    (0..super::rounds(ROUNDS)).map(run).collect()
}

/// Those of the line `empty: 312.5ns`.
fn microseconds(said: &str) -> Option<f64> {
    let time = said.lines().find_map(|line| line.strip_prefix("empty: "))?;
    let micro = time.strip_suffix("µs").and_then(|number| number.parse().ok());
    let nano = || Some(time.strip_suffix("ns")?.parse::<f64>().ok()? / 1e3);
    micro.or_else(nano)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_units_are_understood() {
        assert_eq!(microseconds("empty: 312ns\ncount: 1.5µs\n"), Some(0.312));
        assert_eq!(microseconds("count: 2µs\nempty: 1.25µs\n"), Some(1.25));
        assert_eq!(microseconds("empty: 1s"), None);
    }
}
