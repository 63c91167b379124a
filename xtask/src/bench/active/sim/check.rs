//! Workloads on real nodes, and what the simulation says of the same: how wrong it is.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::load::{ActiveNode, ActivePrograms, NodeSetup, Where};
use super::super::redis::Protection;
use super::costs::{CheckedOn, LONG};
use super::model::{Model, ModelCase, ModelSide};
use crate::bench::active::rounds;
use crate::bench::measure::{Server, Summary, number};
use crate::bench::report::Table;
use crate::bench::stack::section::table;
use crate::lab::{Delay, DelayedPair, Link};

const ROUNDS_LOOPBACK: usize = 3;
const ROUNDS_DELAYED: usize = 1;
const SIDES: [(ModelSide, &str); 2] = [(ModelSide::Plain, "plain"), (ModelSide::Active, "active")];
/// Pieces of work that each simulated client does.
const PIECES: u32 = 400;

/// What is compared.
#[derive(Clone, Copy, Debug)]
enum Compared {
    /// The middle time of a piece of work.
    Median,
    /// Pieces a second of all clients.
    Rate,
}

/// A workload, in the words of both.
#[derive(Clone, Copy, Debug)]
struct Workload {
    name: &'static str,
    /// Of `active_load`; where the side and the duration go in between and behind is the kind's.
    kind: &'static str,
    what: Option<&'static str>,
    /// Of the simulation.
    simulated: &'static str,
    size: u64,
    clients: u32,
    compared: Compared,
}

const fn one(
    name: &'static str,
    kind: &'static str,
    what: Option<&'static str>,
    (simulated, size): (&'static str, u64),
) -> Workload {
    Workload { name, kind, what, simulated, size, clients: 1, compared: Compared::Median }
}

const WORKLOADS: [Workload; 8] = [
    one("list get, 10 hops in", "list", Some("get"), ("list-get", 10)),
    one("list get, 100 hops in", "list", Some("get"), ("list-get", 100)),
    one("list put, 100 hops in", "list", Some("put"), ("list-put", 100)),
    one("hash get, one Read (16 B)", "table", Some("get"), ("hash-get", 16)),
    one("hash get, two Reads (64 B)", "table", Some("get"), ("hash-get", 64)),
    one("hash put, 64 B", "table", Some("put"), ("hash-put", 64)),
    one("lock: acquired, refused once, released", "lock", None, ("lock-refused", 0)),
    one("top 10 of 32 KiB", "topk", None, ("top-k", 32 << 10)),
];
/// Clients that sleep while they wait can contend on one processor.
const CONTENDED: Workload = Workload {
    clients: 4,
    compared: Compared::Rate,
    ..one("lock: 4 clients contend", "lock", None, ("lock", 0))
};

/// Real figures of one workload, of each side: microseconds or pieces a second, and round trips.
#[derive(Debug, Serialize, Deserialize)]
struct RealFigures {
    name: String,
    samples: [Vec<f64>; 2],
    round_trips: [Option<f64>; 2],
}

/// All of one path.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CheckedPath {
    title: String,
    note: String,
    found: Vec<RealFigures>,
}

/// Both sides spin.
pub(super) fn on_loopback() -> Result<CheckedPath> {
    let programs = ActivePrograms::build()?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "always" };
    let node = programs.node(Where::Loopback, setup)?;
    let (_keeper, _line) = Server::start_with_line(&mut node.load("awake", &["table"]))?;
    let found = real(&node, ["spin", "250"], &WORKLOADS, rounds(ROUNDS_LOOPBACK))?;
    let title = "Checked on loopback, both sides spinning".to_owned();
    let note =
        "On loopback the client is on processor 0, the node on processor 1. The node's loop \
                looks for messages for 1 ms behind the last one, and a second client, also on \
                processor 0, executes an empty module every 0.4 ms: plain verbs, too, find the \
                node awake."
            .to_owned();
    Ok(CheckedPath { title, note, found })
}

/// Both sides sleep.
pub(super) fn over_a_delay() -> Result<CheckedPath> {
    let programs = ActivePrograms::build()?;
    let pair = DelayedPair::new(Delay { one_way: LONG, link: Link::Unlimited })?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "never" };
    let node = programs.node(Where::Hosts(pair.hosts()), setup)?;
    let workloads: Vec<Workload> = WORKLOADS.into_iter().chain([CONTENDED]).collect();
    let found = real(&node, ["block", "600"], &workloads, rounds(ROUNDS_DELAYED))?;
    drop(node);
    let report = pair.finish()?;
    let note = format!(
        "The link of {} µs one way passed {} packets, late by {} µs at the median and {} µs at the \
         99th percentile.",
        LONG.as_micros(),
        report.packets,
        report.late_p50_us,
        report.late_p99_us,
    );
    Ok(CheckedPath {
        title: "Checked over 100 µs one way, both sides sleeping".into(),
        note,
        found,
    })
}

fn real(
    node: &ActiveNode<'_>,
    how: [&str; 2],
    workloads: &[Workload],
    rounds: usize,
) -> Result<Vec<RealFigures>> {
    let figures = |workload: &Workload| RealFigures {
        name: workload.name.to_owned(),
        samples: [Vec::new(), Vec::new()],
        round_trips: [None, None],
    };
    let mut found: Vec<RealFigures> = workloads.iter().map(figures).collect();
    for _ in 0..rounds {
        for (workload, found) in workloads.iter().zip(&mut found) {
            for (index, (_, side)) in SIDES.iter().enumerate() {
                let sample = workload.measure(node, how, side)?;
                let figure = workload.figure(&sample)?;
                eprintln!("{}, {side}: {figure:.2}", workload.name);
                found.samples[index].push(figure);
                found.round_trips[index] = sample["round_trips"].as_f64();
            }
        }
    }
    Ok(found)
}

impl Workload {
    fn measure(&self, node: &ActiveNode<'_>, [wait, ms]: [&str; 2], side: &str) -> Result<Value> {
        let number = match self.kind {
            "lock" => self.clients.to_string(),
            _ => self.size.to_string(),
        };
        let words: Vec<&str> =
            [wait, side].into_iter().chain(self.what).chain([&*number, ms]).collect();
        node.shipped(self.kind, &words)
    }

    fn figure(&self, sample: &Value) -> Result<f64> {
        match self.compared {
            Compared::Median => number(sample, "/p50_us"),
            Compared::Rate => number(sample, "/calls_per_s"),
        }
    }
}

fn workload(name: &str) -> Result<Workload> {
    let mut all = WORKLOADS.into_iter().chain([CONTENDED]);
    all.find(|workload| workload.name == name).context("the part is of an older benchmark")
}

impl CheckedPath {
    /// The real figures beside the simulation's, and a sentence about the link and the errors.
    pub(super) fn beside(&self, model: &Model, on: CheckedOn<'_>) -> Result<(Table, String)> {
        let (costs, hardware) = on;
        let mut cases = Vec::new();
        for found in &self.found {
            let Workload { simulated, size, clients, .. } = workload(&found.name)?;
            let case = |(side, _)| ModelCase {
                costs: costs.clone(),
                hardware,
                workload: simulated,
                size,
                side,
                clients,
                pieces: PIECES,
            };
            cases.extend(SIDES.map(case));
        }
        let figures = model.figures(&cases)?;
        let (mut rows, mut errors) = (Vec::new(), Vec::new());
        for (found, figures) in self.found.iter().zip(figures.chunks(2)) {
            let compared = workload(&found.name)?.compared;
            for (index, figures) in figures.iter().enumerate() {
                let real = Summary::of(&found.samples[index]).context("it was measured")?;
                let (simulated, unit) = match compared {
                    Compared::Median => (figures.median_us, "µs"),
                    Compared::Rate => (figures.per_second, "a second"),
                };
                let error = (simulated / real.median - 1.0) * 100.0;
                errors.push(error.abs());
                let trips =
                    |trips: Option<f64>| trips.map_or_else(String::new, |t| format!("{t:.2}"));
                rows.push(vec![
                    format!("{}, {}", found.name, SIDES[index].1),
                    format!("{real} {unit}"),
                    format!("{simulated:.2} {unit}"),
                    format!("{error:+.1} %"),
                    trips(found.round_trips[index]),
                    format!("{:.2}", figures.round_trips),
                ]);
            }
        }
        let head = ["what", "real", "simulated", "error", "round trips, real", "simulated"];
        let errors = Summary::of(&errors).context("something was measured")?;
        let note = format!(
            "{} There the simulation is wrong by {:.1} % at the median and {:.1} % at most.",
            self.note, errors.median, errors.most
        );
        Ok((table(&self.title, &head, rows), note))
    }
}
