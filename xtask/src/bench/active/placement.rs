//! Where entries that only read are executed: the client library's choice beside always the node
//! and always the client, by all the time that the calls took.

use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{ActiveNode, ActivePrograms, NodeSetup, Where};
use super::redis::Protection;
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, Server, Summary, alternate};
use crate::bench::report::Panel;
use crate::bench::stack::section::Runs;

const ROUNDS: usize = 5;
const MS: &str = "1000";
const PLACES: [(&str, &str); 3] =
    [("auto", "auto"), ("always the node", "remote"), ("always the client", "local")];
/// What is called, and whether eight clients keep the node busy meanwhile.
const POINTS: [(&str, &str, bool); 4] = [
    ("table get", "get", false),
    ("100 hops of a list", "hops", false),
    ("top 10 of 1 MiB", "top", false),
    ("top 10 of 1 MiB, node busy", "top", true),
];
/// Eight clients' modules of 1 ms, for longer than a measurement takes.
const BURN: [&str; 4] = ["scan", "8", "1000", "60000"];
const BEGUN: Duration = Duration::from_millis(800);

/// All points on loopback, with adaptive spinning on both sides.
pub(super) fn choices() -> Result<AimedFindings> {
    let programs = ActivePrograms::build()?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "adaptive" };
    let node = programs.node(Where::Loopback, setup)?;
    let node = &node;
    let contender = |(name, place): (&'static str, &'static str)| Contender {
        name,
        measure: Box::new(move |point: &str| measure(node, place, point)),
    };
    let mut contenders: [Contender<'_, Value>; 3] = PLACES.map(contender);
    let points = POINTS.map(|(name, _, _)| name);
    let series = alternate(&mut contenders, &points, ROUNDS)?;
    let runs = Runs { points: &points, series };
    let unit = "µs of a call, mean, less is better";
    let panel = runs.panel("Where read-only entries run", unit, "entry", "/mean_us")?;
    let figures = vec![worst(&panel)];
    Ok(AimedFindings { figures, panels: vec![panel], ..AimedFindings::default() })
}

fn measure(node: &ActiveNode<'_>, place: &str, point: &str) -> Result<Value> {
    let found = POINTS.iter().find(|(name, _, _)| *name == point);
    let (_, what, is_busy) = *found.with_context(|| format!("nothing is called {point}"))?;
    let run = || node.shipped("placed", &["adaptive", place, what, MS]);
    if !is_busy {
        return run();
    }
    let mut burn = node.load("burn", &BURN);
    let _burning = Server::start(burn.stdout(Stdio::null()))?;
    sleep(BEGUN);
    run()
}

/// The largest ratio, of all points, of the choice to the better side in the same round.
fn worst(panel: &Panel) -> Option<Summary> {
    let [auto, node, client] = &panel.series[..] else { return None };
    let at = |point: usize| {
        let rounds = auto.samples[point].iter().zip(&node.samples[point]);
        let rounds = rounds.zip(&client.samples[point]);
        let ratios: Vec<f64> = rounds.map(|((auto, a), b)| auto / a.min(*b)).collect();
        Summary::of(&ratios)
    };
    let all = (0..panel.points.len()).filter_map(at);
    all.max_by(|one, other| one.median.total_cmp(&other.median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Series;

    #[test]
    fn the_worst_point_counts_against_its_better_side() {
        let series = |name: &str, samples: [f64; 2]| Series {
            name: name.to_owned(),
            samples: samples.map(|sample| vec![sample]).into(),
        };
        let panel = Panel {
            title: String::new(),
            unit: String::new(),
            axis: String::new(),
            points: vec!["one".into(), "two".into()],
            series: vec![
                series("auto", [11.0, 30.0]),
                series("node", [10.0, 100.0]),
                series("client", [50.0, 25.0]),
            ],
        };
        assert_eq!(worst(&panel).map(|found| found.median), Some(1.2));
    }
}
