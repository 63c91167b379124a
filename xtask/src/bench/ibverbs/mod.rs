//! `cargo xtask bench ibverbs`: stock programs on Outboard's C libraries beside the same work
//! without them: perftest beside `outboard perf`, fio's rdma engine beside its net engine; and
//! perftest on Outboard's libraries beside perftest on Linux's siw.
//!
//! Reading order: `programs` (running a stock program once), `guest` (beside siw), then the other
//! sections of the page in this file.

mod guest;
mod programs;

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::measure::{Contender, alternate, number};
use super::report::Report;
use super::stack::ours::{self, Outboard};
use super::stack::section::{self, Limit, Runs, Section, Target, ratio};
use crate::test::needs::Need;
use crate::{libs, siw};
use programs::Stock;

/// What it needs.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(siw::PACKAGES),
    Need::Packages(&["fio", "gcc", "libc6-dev", "perftest", "util-linux"]),
];

/// Rounds of everything.
const ROUNDS: usize = 5;

/// Measures everything; takes about five minutes.
///
/// # Errors
/// When Outboard does not build, or a program fails.
pub(super) fn run() -> Result<Report> {
    let program = ours::build()?;
    let libraries = libs::build(true)?;
    let emulated = guest::section(Path::new(&program), &libraries)?;
    let ours = Outboard::start(&program, &["--pin", "1"])?;
    let stock = Stock { outboard: program };
    let sections = [bandwidth(&ours, &stock)?, latency(&ours, &stock)?, fio(&stock)?, emulated];
    Ok(section::report("Stock programs on the C libraries", CONDITIONS, sections))
}

const CONDITIONS: &[&str] = &[
    "Client on processor 0, server on processor 1, loopback, personality iwarp, CRC on. Both ends \
     of a stock program are on the libraries; perftest connects with -R.",
    "`outboard perf` does the same work without C in between: as many operations under way, of the \
     same size, polling. Both post lists: perftest 16 requests a call (`-l 16`), and beside it one \
     request a call, which is what it does unless told.",
    "Latency is half a round trip, except that of Reads, which is the whole.",
    "ib_write_lat never polls a completion queue while it waits, it looks at memory only: what \
     arrives is placed by the background engine, a thread beside the one that looks. Pinned, both \
     share a processor; otherwise they share all.",
    "fio sends blocks of the size given: on the rdma engine Writes, 16 under way, on the net \
     engine one after another through a TCP socket, without `outboard run`.",
];

/// Many operations under way.
fn bandwidth(ours: &Outboard, stock: &Stock) -> Result<Section> {
    let points = &["64 KiB", "1 MiB"];
    let mut section = Section::default();
    for test in ["write", "read", "send"] {
        let (with, without) = (format!("ib_{test}_bw"), format!("outboard perf {test}-bw"));
        let perf = format!("{test}-bw");
        let options = ["--seconds", "1", "--depth", "32"];
        let singly = format!("{with}, a call each");
        let one_by_one = stock.perftest(&with, &["-t", "32"], true);
        let mut contenders = [
            stock.perftest(&with, &["-t", "32", "-l", "16"], true),
            only("/mib_per_s", ours.contender(&without, &perf, &options)),
            Contender { name: &singly, ..one_by_one },
        ];
        let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
        let unit = "MiB/s, more is better";
        let panel = runs.panel(&format!("Bandwidth: {test}"), unit, "message", "/mib_per_s")?;
        for (index, point) in points.iter().enumerate() {
            let figure = ratio(&panel, &with, &without, index)?;
            let what = format!("{point} {with} / {without}");
            section.targets.push(Target::new(&what, Limit::AtLeast(0.92), figure));
        }
        section.panels.push(panel);
    }
    Ok(section)
}

/// One operation at a time.
fn latency(ours: &Outboard, stock: &Stock) -> Result<Section> {
    let points = &["8 B"];
    let mut section = Section::default();
    for test in ["send", "read", "write"] {
        let (with, without) = (format!("ib_{test}_lat"), format!("outboard perf {test}-lat"));
        let loose = format!("{with}, on any processor");
        let perf = format!("{test}-lat");
        let options = ["--seconds", "0.5"];
        let mut contenders = vec![
            stock.perftest(&with, &[], true),
            only("/p50_us", ours.contender(&without, &perf, &options)),
        ];
        if test == "write" {
            let unpinned = stock.perftest(&with, &[], false);
            contenders.push(Contender { name: &loose, ..unpinned });
        }
        let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
        let unit = "µs, less is better";
        let panel = runs.panel(&format!("Latency: {test}, median"), unit, "message", "/p50_us")?;
        if test != "write" {
            let figure = ratio(&panel, &with, &without, 0)?;
            let what = format!("8 B {with} / {without}");
            section.targets.push(Target::new(&what, Limit::AtMost(1.15), figure));
        }
        section.panels.push(panel);
    }
    Ok(section)
}

/// A contender whose report is reduced to one figure.
fn only<'a>(figure: &'static str, contender: Contender<'a, Value>) -> Contender<'a, Value> {
    let Contender { name, mut measure } = contender;
    let measure = move |point: &str| {
        let figure_name = figure.trim_start_matches('/');
        Ok(json!({ figure_name: number(&measure(point)?, figure)? }))
    };
    Contender { name, measure: Box::new(measure) }
}

/// The same file transfer over RDMA and over TCP.
fn fio(stock: &Stock) -> Result<Section> {
    let points = &["64 KiB", "1 MiB"];
    let (rdma, net) = ("fio, rdma engine", "fio, net engine");
    let mut contenders = [stock.fio(rdma, "rdma"), stock.fio(net, "net")];
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "MiB/s, more is better";
    let panel = runs.panel("fio", unit, "block", "/mib_per_s")?;
    let mut targets = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let figure = ratio(&panel, rdma, net, index)?;
        targets.push(Target::new(&format!("{point} {rdma} / {net}"), Limit::AtLeast(0.9), figure));
    }
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}
