//! Running perftest and fio once, client and server, and parsing their output.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::measure::{Contender, against, free_port, number, pinned};
use crate::bench::stack::bytes;

/// Starts stock programs on the C libraries.
#[derive(Debug)]
pub(super) struct Stock {
    /// The program `outboard`.
    pub(super) outboard: String,
}

impl Stock {
    /// One of perftest's programs, connected by rdma_cm; `pinned` to a processor for each end, or
    /// not. Its server tells the client to connect and then listens, sometimes too late: such a run
    /// is repeated.
    pub(super) fn perftest<'a>(
        &'a self,
        name: &'a str,
        options: &'a [&'a str],
        pinned: bool,
    ) -> Contender<'a, Value> {
        let once = move |size: usize| {
            let port = free_port()?;
            let work = format!("-R -F -s {size} -n {} -p {port}", count(size));
            let start = |processor: &str| {
                let mut command = self.command(pinned.then_some(processor), name);
                command.args(work.split(' ')).args(options);
                command
            };
            against(&mut start("1"), port, start("0").arg("127.0.0.1"))
        };
        let measure = move |point: &str| {
            let size = bytes(point)?;
            parse_perftest(&once(size).or_else(|_| once(size)).or_else(|_| once(size))?)
        };
        Contender { name, measure: Box::new(measure) }
    }

    /// fio with one of its engines, moving two GiB.
    pub(super) fn fio<'a>(&'a self, name: &'a str, engine: &'a str) -> Contender<'a, Value> {
        let measure = move |point: &str| {
            let (size, port) = (bytes(point)?, free_port()?);
            let fio = |processor| {
                let mut command = match engine {
                    "rdma" => self.command(Some(processor), "fio"),
                    _ => pinned(processor, "fio", &[]),
                };
                command.args(["--thread", "--iodepth=16"]);
                command.args([format!("--ioengine={engine}"), format!("--port={port}")]);
                command.arg(format!("--bs={size}"));
                command
            };
            let mut server = fio("1");
            server.args(["--name=receiver", "--rw=read"]).args(receiver(engine));
            let mut client = fio("0");
            client.args(["--name=sender", "--rw=write", "--hostname=127.0.0.1", "--size=2g"]);
            client.arg("--output-format=json");
            client.args((engine == "rdma").then_some("--verb=write"));
            parse_fio(&against(&mut server, port, &mut client)?)
        };
        Contender { name, measure: Box::new(measure) }
    }

    /// `outboard run` of a program, on one processor or on all.
    fn command(&self, processor: Option<&str>, program: &str) -> Command {
        let mut command = match processor {
            Some(processor) => pinned(processor, &self.outboard, &[]),
            None => Command::new(&self.outboard),
        };
        command.args(["run", "--personality", "iwarp", "--devices", "127.0.0.1", "--", program]);
        command
    }
}

/// Options for a receiver of fio. On the net engine it counts reads, and TCP returns less than a
/// block at a time: with the sender's size it would stop early.
fn receiver(engine: &str) -> &'static [&'static str] {
    match engine {
        "rdma" => &["--size=2g"],
        _ => &["--listen", "--size=1t"],
    }
}

/// Messages that take about half a second.
fn count(size: usize) -> usize {
    if size < 4096 { 30_000 } else { (1 << 30) / size }
}

/// The line of figures: bytes, iterations, then either peak and average MiB/s and the rate, or
/// minimum, maximum, typical (the median), mean, deviation and two percentiles in microseconds.
fn parse_perftest(text: &str) -> Result<Value> {
    let figures = |line: &str| -> Option<Vec<f64>> {
        let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
        numbers.ok().filter(|numbers| numbers.len() >= 5)
    };
    let found = text.lines().find_map(figures).with_context(|| format!("no figures: {text}"))?;
    Ok(match found[..] {
        [_, _, _, average, _] => json!({ "mib_per_s": average }),
        [_, _, _, _, typical, mean, ..] => json!({ "p50_us": typical, "mean_us": mean }),
        _ => bail!("not understood: {text}"),
    })
}

/// fio may print warnings before the report.
fn parse_fio(text: &str) -> Result<Value> {
    let start = text.find('{').with_context(|| format!("no report: {text}"))?;
    let report: Value = serde_json::from_str(&text[start..])?;
    let bytes = number(&report, "/jobs/0/write/bw_bytes")?;
    Ok(json!({ "mib_per_s": bytes / f64::from(1 << 20) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perftest_is_read_by_its_columns() {
        let text = " #bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n \
                    65536 5000 7883.53 806.48 0.012904\n";
        assert_eq!(parse_perftest(text).unwrap()["mib_per_s"], 806.48);
        let text =
            " #bytes #iterations t_min[usec]\n 2 1000 3.88 23.78 4.15 4.29 0.77 7.55 23.78\n";
        assert_eq!(parse_perftest(text).unwrap()["p50_us"], 4.15);
        assert!(parse_perftest("Couldn't connect").is_err());
    }

    #[test]
    fn fio_is_read_past_its_warnings() {
        let text = "note: both iodepth\n{\"jobs\": [{\"write\": {\"bw_bytes\": 2097152}}]}";
        assert_eq!(parse_fio(text).unwrap()["mib_per_s"], 2.0);
    }
}
