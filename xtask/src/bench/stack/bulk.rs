//! Long messages with CRCs beside `bulk.c`, which does the same work in plain C: copy, sum, send;
//! receive, sum, copy.
//!
//! The speed of the plain program depends on the number of bytes for each system call, so it runs
//! with three sizes, and Outboard's result is divided by the best of them. All run in turns of
//! under a second.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::ours::Outboard;
use super::section::{Limit, Runs, Section, Target, ratio};
use super::{ROUNDS, bytes};
use crate::bench::measure::{Contender, Summary, alternate, json as printed};
use crate::bench::report::Panel;
use crate::command;

const WRITE: &str = "Outboard Write";
const READ: &str = "Outboard Read";
/// Bytes for each system call of the plain program, and its name in charts.
const PIECES: [(usize, &str); 3] = [
    (128 << 10, "plain C, pieces of 128 KiB"),
    (512 << 10, "plain C, pieces of 512 KiB"),
    (1 << 20, "plain C, pieces of 1 MiB"),
];
/// Memory that the plain program sends repeatedly, as `outboard perf` does.
const MESSAGE_MIN: usize = 1 << 20;

/// Writes and Reads with CRCs, spinning.
pub(super) fn bandwidth(ours: &Outboard) -> Result<Section> {
    let program = build()?;
    let points = &["64 KiB", "1 MiB"];
    let options = ["--seconds", "0.6"];
    let mut contenders = vec![ours.contender(WRITE, "write-bw", &options)];
    contenders.extend(PIECES.map(|(piece, name)| plain(&program, name, "spin", piece)));
    contenders.push(ours.contender(READ, "read-bw", &options));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "MiB/s, more is better";
    let panel = runs.panel("Bandwidth with CRCs, spinning", unit, "message", "/mib_per_s")?;
    let mut targets = Vec::new();
    for (index, point) in points.iter().enumerate() {
        for name in [WRITE, READ] {
            let what = format!("{point} {name}, CRC on / plain C at its best, bandwidth");
            let figure = ratio(&panel, name, best(&panel, index)?, index)?;
            targets.push(Target::new(&what, Limit::AtLeast(0.9), figure));
        }
    }
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

/// Processor time of both sides, blocking when there is no work.
pub(super) fn cpu(ours: &Outboard) -> Result<Section> {
    let program = build()?;
    let points = &["64 KiB"];
    let options = ["--seconds", "0.6", "--wait", "block"];
    let mut contenders = vec![ours.contender(WRITE, "write-bw", &options)];
    contenders.extend(PIECES.map(|(piece, name)| plain(&program, name, "block", piece)));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "CPU seconds per GiB, both sides, less is better";
    let panel = runs.panel("Cost with CRCs, blocking", unit, "message", "/cpu_s_per_gib")?;
    let speed = runs.panel("", "", "", "/mib_per_s")?;
    let figure = ratio(&panel, WRITE, best(&speed, 0)?, 0)?;
    let what = "CPU per GiB, Write CRC on / plain C at its fastest, blocking";
    let targets = vec![Target::new(what, Limit::AtMost(1.1), figure)];
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

/// The name of the plain program's fastest size at a point, by the median.
fn best(speed: &Panel, point: usize) -> Result<&'static str> {
    let median = |name: &str| {
        let series = speed.series.iter().find(|series| series.name == name)?;
        Some(Summary::of(&series.samples[point])?.median)
    };
    let fastest = PIECES.iter().max_by(|one, other| {
        median(one.1).unwrap_or(0.0).total_cmp(&median(other.1).unwrap_or(0.0))
    });
    fastest.map(|(_, name)| *name).context("there is no size")
}

fn plain<'a>(
    program: &'a Path,
    name: &'a str,
    wait: &'a str,
    piece: usize,
) -> Contender<'a, Value> {
    let measure = move |point: &str| {
        let message = bytes(point)?.max(MESSAGE_MIN);
        let mut command = Command::new(program);
        command.args(["crc", wait, &piece.to_string(), &message.to_string(), "600"]);
        let report = printed(&mut command)?;
        Ok(json!({
            "mib_per_s": report["mib_per_s"],
            "cpu_s_per_gib": report["cpu_s_per_gib"],
        }))
    };
    Contender { name, measure: Box::new(measure) }
}

fn build() -> Result<PathBuf> {
    let program = command::target_dir().join("bulk");
    let source = command::root().join("xtask/src/bench/stack/bulk.c");
    let crc = if cfg!(target_arch = "x86_64") { "-msse4.2" } else { "-march=armv8-a+crc" };
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", crc, "-o"]).arg(&program).arg(source);
    command::run(&mut compiler)?;
    Ok(program)
}
