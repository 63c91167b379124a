//! Table 1 and Figure 2 of "Design and Implementation of the iWarp Protocol in Software", beside
//! Outboard's figures. The paper's ran on 2.8 GHz Pentium 4 and gigabit Ethernet, Outboard's on
//! loopback.

use anyhow::{Context, Result};

use super::FIGURE_ROUNDS;
use super::ours::Outboard;
use super::section::{Runs, Section, table};
use crate::bench::measure::{Contender, Summary, alternate};
use crate::bench::report::Series;
use serde_json::Value;

/// Runs of fifty round trips, as many as the paper has.
const FIFTIES: usize = 9;
/// Rows of Table 1: mean and standard deviation at 4 B and 64 kB, in microseconds.
const TABLE_1: &[(&str, [f64; 4])] = &[
    ("hw→hw", [15.0, 0.9, 609.7, 5.9]),
    ("sw→sw, CRC off", [62.7, 7.2, 687.5, 27.6]),
    ("sw→sw, CRC on", [62.2, 1.3, 1401.9, 265.5]),
    ("hw→sw", [62.8, 2.9, 950.4, 45.9]),
    ("sw→hw", [61.2, 2.8, 937.9, 16.0]),
    ("TCP→TCP", [62.7, 4.7, 624.5, 23.0]),
];
const FIGURE_2: &str = "Figure 2 of the paper: raw TCP and the stack with CRC off reach the full \
    rate of its gigabit link, CRC on about 100 Mbit/s less.";

fn contenders<'a>(
    ours: &'a Outboard,
    tests: [&'a str; 2],
    [on, off]: [&'a [&'a str]; 2],
) -> [Contender<'a, Value>; 3] {
    [
        ours.contender("Outboard, CRC on", tests[0], on),
        ours.contender("Outboard, CRC off", tests[0], off),
        ours.contender("raw TCP", tests[1], on),
    ]
}

/// Table 1: half round trips of Writes, fifty of each, means and standard deviations.
pub(super) fn latency(ours: &Outboard) -> Result<Section> {
    let points = &["4 B", "64 KiB"];
    let options: [&[&str]; 2] = [&["--iters", "50"], &["--iters", "50", "--crc", "off"]];
    let mut contenders = contenders(ours, ["write-lat", "tcp-lat"], options);
    let series = alternate(&mut contenders, points, FIFTIES)?;
    let mut rows: Vec<(String, [f64; 4])> =
        TABLE_1.iter().map(|(name, row)| (format!("the paper's {name}"), *row)).collect();
    for series in &series {
        rows.push((format!("{}, here", series.name), row(series)?));
    }
    let (theirs, here) = (rows[5].1, rows[8].1);
    let cells = |(index, (name, row)): (usize, &(String, [f64; 4]))| {
        let tcp = if index < TABLE_1.len() { theirs } else { here };
        let cell = |at: usize| format!("{:.1} ± {:.1}", row[at], row[at + 1]);
        let ratio = |at: usize| format!("{:.2}", row[at] / tcp[at]);
        vec![name.clone(), cell(0), ratio(0), cell(2), ratio(2)]
    };
    let rows = rows.iter().enumerate().map(cells).collect();
    let title = "Table 1: half round trips in µs, means of 50 and standard deviations";
    let head = ["", "4 B", "/ TCP", "64 kB", "/ TCP"];
    Ok(Section { tables: vec![table(title, &head, rows)], ..Section::default() })
}

/// The median of the means and the median of the standard deviations at each point.
fn row(series: &Series<Value>) -> Result<[f64; 4]> {
    let (means, deviations) = (series.numbers("/mean_us")?, series.numbers("/sd_us")?);
    let middle = |series: &Series, point| {
        let summary: Summary = series.summary(point).context("there are no samples")?;
        anyhow::Ok(summary.median)
    };
    Ok([middle(&means, 0)?, middle(&deviations, 0)?, middle(&means, 1)?, middle(&deviations, 1)?])
}

/// Figure 2: throughput of Writes of every size.
pub(super) fn throughput(ours: &Outboard) -> Result<Section> {
    let points = &[
        "1 B", "4 B", "16 B", "64 B", "256 B", "1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB",
        "1 MiB",
    ];
    let options: [&[&str]; 2] = [&["--seconds", "0.2"], &["--seconds", "0.2", "--crc", "off"]];
    let mut contenders = contenders(ours, ["write-bw", "tcp-bw"], options);
    let runs = Runs { points, series: alternate(&mut contenders, points, FIGURE_ROUNDS)? };
    let title = "Figure 2: throughput by message size, spinning";
    let panel = runs.panel(title, "MiB/s, more is better", "message", "/mib_per_s")?;
    let notes = vec![FIGURE_2.to_owned()];
    Ok(Section { notes, panels: vec![panel], ..Section::default() })
}
