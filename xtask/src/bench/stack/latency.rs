//! Ping-pongs: short and long messages, spinning and blocking.

use anyhow::Result;

use super::ROUNDS;
use super::ours::Outboard;
use super::rivals::{libfabric, ucx};
use super::section::{Limit, Runs, Section, Target, ratio};
use crate::bench::measure::alternate;

const ON: &str = "Outboard Write, CRC on";
const OFF: &str = "Outboard Write, CRC off";
const TCP: &str = "raw TCP";
const UNIT: &str = "µs, less is better";

/// Each side writes into the other's memory and polls its own.
pub(super) fn spinning(ours: &Outboard) -> Result<Section> {
    let points = &["8 B", "64 KiB"];
    let mut contenders = vec![
        ours.contender(ON, "write-lat", &["--seconds", "0.4"]),
        ours.contender(OFF, "write-lat", &["--seconds", "0.4", "--crc", "off"]),
        ours.contender(TCP, "tcp-lat", &["--seconds", "0.4"]),
    ];
    contenders.extend(libfabric());
    contenders.extend(ucx("UCX put", "ucp_put_lat", &[]));
    contenders.extend(ucx("UCX tag", "tag_lat", &[]));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let medians = runs.panel("Latency, spinning: median", UNIT, "message", "/p50_us")?;
    let means = runs.panel("Latency, spinning: mean", UNIT, "message", "/mean_us")?;
    let short = ratio(&medians, ON, TCP, 0)?;
    let fabric = ratio(&means, ON, "libfabric", 0)?;
    let (long, long_on) = (ratio(&medians, OFF, TCP, 1)?, ratio(&medians, ON, TCP, 1)?);
    let targets = vec![
        Target::new("8 B Write / raw TCP, spinning, CRC on", Limit::AtMost(1.2), short),
        Target::new("8 B Write / libfabric, means", Limit::AtMost(1.0), fabric),
        Target {
            paper: "1.10",
            ..Target::new("64 KiB Write / raw TCP, spinning, CRC off", Limit::AtMost(1.08), long)
        },
        Target {
            paper: "2.24",
            ..Target::new("64 KiB Write / raw TCP, spinning, CRC on", Limit::AtMost(1.25), long_on)
        },
    ];
    Ok(Section { targets, panels: vec![medians, means], ..Section::default() })
}

/// Sends, both sides sleeping until the kernel wakes them.
pub(super) fn blocking(ours: &Outboard) -> Result<Section> {
    let points = &["8 B"];
    let send = "Outboard Send, CRC on";
    let options = ["--seconds", "1", "--wait", "block"];
    let mut contenders =
        vec![ours.contender(send, "send-lat", &options), ours.contender(TCP, "tcp-lat", &options)];
    contenders.extend(ucx("UCX tag, sleeping", "tag_lat", &["-E", "sleep"]));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let panel = runs.panel("Latency, blocking: median", UNIT, "message", "/p50_us")?;
    let what = "8 B Send / raw TCP, blocking, CRC on";
    let target = Target::new(what, Limit::AtMost(1.1), ratio(&panel, send, TCP, 0)?);
    Ok(Section { targets: vec![target], panels: vec![panel], ..Section::default() })
}
