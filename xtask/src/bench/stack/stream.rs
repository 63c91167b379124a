//! Many operations under way: bandwidth, its processor time, and the rate of small messages.

use anyhow::Result;

use super::ROUNDS;
use super::ours::Outboard;
use super::rivals::ucx;
use super::section::{Limit, Runs, Section, Target, ratio};
use crate::bench::measure::alternate;

const WRITE: &str = "Outboard Write, CRC on";
const WRITE_OFF: &str = "Outboard Write, CRC off";
const READ: &str = "Outboard Read, CRC on";
const READ_OFF: &str = "Outboard Read, CRC off";
const TCP: &str = "raw TCP";

/// Writes and Reads of large messages, spinning.
pub(super) fn bandwidth(ours: &Outboard) -> Result<Section> {
    let points = &["64 KiB", "1 MiB"];
    let (on, off) = (["--seconds", "0.6"], ["--seconds", "0.6", "--crc", "off"]);
    let mut contenders = vec![
        ours.contender(WRITE, "write-bw", &on),
        ours.contender(WRITE_OFF, "write-bw", &off),
        ours.contender(READ, "read-bw", &on),
        ours.contender(READ_OFF, "read-bw", &off),
        ours.contender(TCP, "tcp-bw", &on),
    ];
    contenders.extend(ucx("UCX put", "ucp_put_bw", &[]));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "MiB/s, more is better";
    let panel = runs.panel("Bandwidth, spinning", unit, "message", "/mib_per_s")?;
    let mut targets = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let aims = [(WRITE_OFF, 0.97), (READ_OFF, 0.97)];
        for (name, least) in aims {
            let what = format!("{point} {} / raw TCP, bandwidth", name.trim_start_matches(OURS));
            let figure = ratio(&panel, name, TCP, index)?;
            targets.push(Target::new(&what, Limit::AtLeast(least), figure));
        }
    }
    Ok(Section { targets, panels: vec![panel], ..Section::default() })
}

const OURS: &str = "Outboard ";

/// Processor time of both sides for the bytes that they move, blocking when there is no work.
pub(super) fn cpu(ours: &Outboard) -> Result<Section> {
    let points = &["64 KiB"];
    let block = ["--seconds", "1", "--wait", "block"];
    let off = ["--seconds", "1", "--wait", "block", "--crc", "off"];
    let mut contenders = [
        ours.contender(WRITE, "write-bw", &block),
        ours.contender(WRITE_OFF, "write-bw", &off),
        ours.contender(TCP, "tcp-bw", &block),
    ];
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "CPU seconds per GiB, both sides, less is better";
    let panel = runs.panel("Cost, blocking", unit, "message", "/cpu_s_per_gib")?;
    let speed =
        runs.panel("Bandwidth, blocking", "MiB/s, more is better", "message", "/mib_per_s")?;
    let figure = ratio(&panel, WRITE_OFF, TCP, 0)?;
    let what = "CPU per GiB, Write CRC off / raw TCP, blocking";
    let targets = vec![Target::new(what, Limit::AtMost(1.1), figure)];
    Ok(Section { targets, panels: vec![panel, speed], ..Section::default() })
}

/// Small messages on one queue pair, posted in batches.
pub(super) fn rate(ours: &Outboard) -> Result<Section> {
    let points = &["64 B"];
    let send = "Outboard Send, CRC on";
    let options = ["--seconds", "0.6"];
    let mut contenders = vec![
        ours.contender(send, "send-rate", &options),
        ours.contender("raw TCP, a system call each", "tcp-bw", &options),
    ];
    contenders.extend(ucx("UCX active message", "ucp_am_bw", &[]));
    let runs = Runs { points, series: alternate(&mut contenders, points, ROUNDS)? };
    let unit = "messages per second, more is better";
    let panel = runs.panel("Small messages, spinning", unit, "message", "/messages_per_s")?;
    let what = "64 B Sends per second / UCX active messages";
    let figure = ratio(&panel, send, "UCX active message", 0)?;
    let target = Target::new(what, Limit::AtLeast(3.0), figure);
    Ok(Section { targets: vec![target], panels: vec![panel], ..Section::default() })
}
