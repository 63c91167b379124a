//! The paper's structures: a list and a hash table in a node's memory, on which a client works by
//! plain verbs or by executions; on loopback, both sides spinning, and over 100 µs one way, both
//! sleeping. Draws the paper's table again.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{ActiveNode, ActivePrograms, NodeSetup, Where};
use super::redis::Protection;
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, Summary, alternate, number};
use crate::bench::report::{Panel, Series, Table};
use crate::bench::stack::section::{Runs, ratio, table};
use crate::lab::{Delay, DelayedPair, Link};

const ROUNDS: usize = 5;
const ONE_WAY: Duration = Duration::from_micros(100);
const HOPS: &str = "100";
const PLAIN: &str = "plain verbs";
const ACTIVE: &str = "Execute";

/// What is done to a structure.
struct Work {
    name: &'static str,
    /// Of `active_load`: the structure, what to do, and hops or bytes of a value.
    words: [&'static str; 3],
    /// The paper's milliseconds, by RDMA and by active code, if it has this row.
    paper: Option<[f64; 2]>,
}

/// Values of 16 bytes are in their bucket, so that plain verbs need one Read.
const WORKS: [Work; 5] = [
    Work { name: LIST_GET, words: ["list", "get", HOPS], paper: Some([19.38, 0.245]) },
    Work { name: LIST_PUT, words: ["list", "put", HOPS], paper: Some([39.675, 0.33]) },
    Work { name: "table get, 16 B", words: ["table", "get", "16"], paper: None },
    Work { name: "table get, 64 B", words: ["table", "get", "64"], paper: Some([1.739, 0.239]) },
    Work { name: "table put, 64 B", words: ["table", "put", "64"], paper: Some([1.919, 0.245]) },
];
const LIST_GET: &str = "list get, 100 hops in";
const LIST_PUT: &str = "list put, 100 hops in";

/// Everything on one path.
struct PathRuns {
    times: Panel,
    series: Vec<Series<Value>>,
}

/// On both paths.
pub(super) fn both_paths() -> Result<AimedFindings> {
    let programs = ActivePrograms::build()?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "always" };
    let node = programs.node(Where::Loopback, setup)?;
    let loopback = runs(&node, "spin", "500", "loopback")?;
    drop(node);
    let (pair, check) = DelayedPair::checked(Delay { one_way: ONE_WAY, link: Link::Unlimited })?;
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "never" };
    let node = programs.node(Where::Hosts(pair.hosts()), setup)?;
    let delayed = runs(&node, "block", "1000", "100 µs one way")?;
    drop(node);
    let report = pair.finish()?;
    let note = format!(
        "The delayed link, checked before: {check}. Then it passed {} packets, late by at most {} \
         µs (99 %).",
        report.packets, report.late_p99_us
    );
    let faster = |path: &PathRuns, work| ratio(&path.times, PLAIN, ACTIVE, work);
    let slower = |path: &PathRuns, work| ratio(&path.times, ACTIVE, PLAIN, work);
    let figures = vec![
        faster(&loopback, 0)?,
        faster(&loopback, 1)?,
        faster(&delayed, 0)?,
        faster(&delayed, 1)?,
        slower(&loopback, 2)?,
        faster(&loopback, 3)?,
        faster(&loopback, 4)?,
        slower(&delayed, 2)?,
        faster(&delayed, 3)?,
        faster(&delayed, 4)?,
    ];
    let tables = vec![round_trips(&loopback, &delayed)?, papers(&loopback, &delayed)];
    let panels = vec![loopback.times, delayed.times];
    Ok(AimedFindings { figures, notes: vec![note], tables, panels })
}

fn runs(node: &ActiveNode<'_>, wait: &str, ms: &str, path: &str) -> Result<PathRuns> {
    let side = |name: &'static str, side: &'static str| Contender {
        name,
        measure: Box::new(move |point: &str| {
            let work = WORKS.iter().find(|work| work.name == point).context("no such work")?;
            let [structure, what, size] = work.words;
            node.shipped(structure, &[wait, side, what, size, ms])
        }),
    };
    let mut contenders: [Contender<'_, Value>; 2] = [side(ACTIVE, "active"), side(PLAIN, "plain")];
    let points = WORKS.map(|work| work.name);
    let series = alternate(&mut contenders, &points, ROUNDS)?;
    let runs = Runs { points: &points, series };
    let title = format!("List and table: median, {path}");
    let times = runs.panel(&title, "µs, less is better", "what", "/p50_us")?;
    Ok(PathRuns { times, series: runs.series })
}

/// How often a client waited for the node, by its own count.
fn round_trips(loopback: &PathRuns, delayed: &PathRuns) -> Result<Table> {
    let count = |path: &PathRuns, side: usize, work: usize| -> Result<String> {
        let last = path.series[side].samples[work].last().context("there is a sample")?;
        Ok(format!("{:.2}", number(last, "/round_trips")?))
    };
    let row = |(index, work): (usize, &Work)| {
        Ok(vec![
            work.name.to_owned(),
            count(loopback, 1, index)?,
            count(loopback, 0, index)?,
            count(delayed, 1, index)?,
            count(delayed, 0, index)?,
        ])
    };
    let rows = WORKS.iter().enumerate().map(row).collect::<Result<_>>()?;
    let head = ["what", "plain, loopback", "Execute, loopback", "plain, 100 µs", "Execute, 100 µs"];
    Ok(table("Round trips of a call", &head, rows))
}

/// The paper's table, with ours beside it.
fn papers(loopback: &PathRuns, delayed: &PathRuns) -> Table {
    let of = |path: &PathRuns, side: usize, work: usize| {
        path.times.series[side].summary(work).map_or_else(String::new, |it| ms(&it))
    };
    let mut rows = Vec::new();
    for (index, work) in WORKS.iter().enumerate() {
        let Some(paper) = work.paper else { continue };
        for (side, name, paper) in [(1, "RDMA", paper[0]), (0, "Active", paper[1])] {
            let name = format!("{}, {name}", work.name);
            let cells = [of(loopback, side, index), of(delayed, side, index), format!("{paper}")];
            rows.push([name].into_iter().chain(cells).collect());
        }
    }
    let head = ["what", "ours on loopback, ms", "ours over 100 µs one way, ms", "the paper's, ms"];
    table("The paper's table", &head, rows)
}

/// Of microseconds.
fn ms(summary: &Summary) -> String {
    format!("{:.4}", summary.median / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> PathRuns {
        let series = [(ACTIVE, 10.0), (PLAIN, 1000.0)].map(|(name, us)| Series {
            name: name.to_owned(),
            samples: WORKS.iter().map(|_| vec![us]).collect(),
        });
        let counted = series.each_ref().map(|series| Series {
            name: series.name.clone(),
            samples: WORKS
                .iter()
                .map(|_| vec![serde_json::json!({ "round_trips": series.samples[0][0] / 10.0 })])
                .collect(),
        });
        let times = Panel {
            title: String::new(),
            unit: String::new(),
            axis: String::new(),
            points: WORKS.map(|work| work.name.to_owned()).into(),
            series: series.into(),
        };
        PathRuns { times, series: counted.into() }
    }

    #[test]
    fn the_papers_rows_stand_beside_ours() {
        let drawn = papers(&path(), &path());
        assert_eq!(drawn.rows.len(), 8);
        assert_eq!(drawn.rows[0], ["list get, 100 hops in, RDMA", "1.0000", "1.0000", "19.38"]);
        assert_eq!(drawn.rows[1], ["list get, 100 hops in, Active", "0.0100", "0.0100", "0.245"]);
    }

    #[test]
    fn round_trips_are_those_that_the_client_counted() {
        let drawn = round_trips(&path(), &path()).unwrap();
        assert_eq!(drawn.rows[1][1..], ["100.00", "1.00", "100.00", "1.00"]);
    }
}
