//! Costs besides moving data: connections made and ended, a target that is busy with other work,
//! and the memory of an idle connection.

use anyhow::Result;

use super::ROUNDS;
use super::ours::Outboard;
use super::section::{Limit, Runs, Section, Target, ratio};
use crate::bench::measure::{Contender, Summary, alternate};
use crate::bench::report::Series;
use crate::command::{self, cargo};

/// Connections made and ended, with all objects of both sides.
pub(in crate::bench) fn connect(ours: &Outboard) -> Result<Section> {
    let points = &["1 B"];
    let (rdma, tcp) = ("Outboard, all objects", "TCP connect and a round trip");
    let options = ["--seconds", "0.6", "--wait", "block"];
    let mut contenders = [
        ours.contender(rdma, "connect-lat", &options),
        ours.contender(tcp, "tcp-connect-lat", &options),
    ];
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "µs, less is better";
    let panel = runs.panel("Connect and end: median", unit, "round trip", "/p50_us")?;
    let what = "connect, accept and end with PD, CQ, MR, QP / TCP connect, round trip and end";
    let figure = ratio(&panel, rdma, tcp, 0)?;
    let target = Target { paper: "8.5", ..Target::new(what, Limit::AtMost(2.5), figure) };
    Ok(Section { targets: vec![target], panels: vec![panel], ..Section::default() })
}

/// Reads from a process whose program sleeps, and from one whose program computes. Each has a
/// server to itself: a computing process would slow down another.
pub(super) fn busy_target(program: &str) -> Result<Section> {
    let points = &["64 B"];
    let read = |load: &'static str| {
        move |point: &str| {
            let server = Outboard::start(program, &["--pin", "1", "--load", load])?;
            server.perf("read-lat", point, &["--seconds", "0.6", "--wait", "block"])
        }
    };
    let mut contenders = [
        Contender { name: "target sleeps", measure: Box::new(read("sleep")) },
        Contender { name: "target computes", measure: Box::new(read("compute")) },
    ];
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let both = |(median, tail): (Series, Series)| Series {
        samples: [median.samples, tail.samples].concat(),
        ..median
    };
    let mut panel =
        runs.panel("64 B Read from a busy process", "µs, less is better", "Read", "/p50_us")?;
    let tails = runs.panel("", "", "", "/p99_us")?;
    panel.series = panel.series.into_iter().zip(tails.series).map(both).collect();
    panel.points = vec!["median".to_owned(), "99th percentile".to_owned()];
    let beside_idle = |busy: &Series| {
        let idle = panel.series[0].samples[0].iter();
        let ratios: Vec<f64> = busy.samples[1].iter().zip(idle).map(|(b, i)| b / i).collect();
        Summary::of(&ratios)
    };
    let target = |who: &str, series: &Series| {
        let what = format!("99th percentile of 64 B Read, target {who} / median, target sleeps");
        Target::new(&what, Limit::AtMost(3.0), beside_idle(series))
    };
    let targets = vec![target("sleeps", &panel.series[0]), target("computes", &panel.series[1])];
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

/// Memory of idle connections, as measured by the test with ten thousand of them.
pub(super) fn idle_connections() -> Section {
    let test = ["test", "--release", "--package=outboard-verbs", "--test=connections"];
    let text = command::output(cargo(test).args(["--", "--nocapture"])).unwrap_or_default();
    let target = |side| {
        let what = format!("KiB of memory for an idle connection, {side}");
        Target::new(&what, Limit::AtMost(24.0), weight(&text, side))
    };
    let targets = vec![target("client"), target("server")];
    Section { targets, ..Section::default() }
}

/// The number before ` KiB at the SIDE`; `None` when the test could not run.
pub(super) fn weight(text: &str, side: &str) -> Option<Summary> {
    let (before, _) = text.split_once(&format!(" KiB at the {side}"))?;
    Summary::of(&[before.split_whitespace().last()?.parse().ok()?])
}
