//! Running libfabric's and UCX's own benchmark programs, each with its best settings over TCP.
//!
//! A rival that is not installed is left out; the page then has no column for it.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::bytes;
use crate::bench::measure::{Contender, against, free_port, pinned};
use crate::command;

/// libfabric's ping-pong over its TCP provider.
pub(super) fn libfabric() -> Option<Contender<'static, Value>> {
    let measure = |point: &str| {
        let size = bytes(point)?;
        let (size, rounds) = (size.to_string(), rounds(size).to_string());
        let port = free_port()?;
        let work = ["-p", "tcp", "-e", "msg", "-I", &rounds, "-S", &size];
        let mut server = pinned("1", "fi_pingpong", &work);
        server.args(["-B", &port.to_string()]);
        let mut client = pinned("0", "fi_pingpong", &work);
        client.args(["-P", &port.to_string(), "127.0.0.1"]);
        parse_libfabric(&against(&mut server, port, &mut client)?)
    };
    installed("fi_pingpong").then(|| Contender { name: "libfabric", measure: Box::new(measure) })
}

/// One of UCX's tests over its TCP transport.
pub(super) fn ucx<'a>(
    name: &'a str,
    test: &'a str,
    options: &'a [&'a str],
) -> Option<Contender<'a, Value>> {
    let measure = move |point: &str| {
        let size = bytes(point)?;
        let count = if test.ends_with("_bw") { messages(size) } else { rounds(size) };
        let (size, count, port) = (size.to_string(), count.to_string(), free_port()?);
        let port_text = port.to_string();
        let work = ["-t", test, "-s", &size, "-n", &count, "-w", "1000", "-p", &port_text];
        let ready = |program: &mut Command| {
            program.envs([("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")]);
            program.args(work).args(options).args(["-f", "-v"]);
        };
        let mut server = pinned("1", "ucx_perftest", &[]);
        ready(&mut server);
        let mut client = pinned("0", "ucx_perftest", &["127.0.0.1"]);
        ready(&mut client);
        parse_ucx(&against(&mut server, port, &mut client)?)
    };
    installed("ucx_perftest").then(|| Contender { name, measure: Box::new(measure) })
}

/// Round trips that take about half a second.
fn rounds(size: usize) -> usize {
    if size > 4096 { 10_000 } else { 50_000 }
}

/// Messages of a stream that take about half a second.
fn messages(size: usize) -> usize {
    (1 << 30) / size.clamp(4096, 1 << 20)
}

fn installed(program: &str) -> bool {
    command::succeeds("which", &[program])
}

/// The last line's `usec/xfer`, a mean.
pub(super) fn parse_libfabric(text: &str) -> Result<Value> {
    let fields: Vec<&str> = text.lines().last().unwrap_or_default().split_whitespace().collect();
    let mean = fields.get(6).and_then(|field| field.parse::<f64>().ok());
    Ok(json!({ "mean_us": mean.with_context(|| format!("not understood: {text}"))? }))
}

/// The last two lines: the names of columns, and their values.
pub(super) fn parse_ucx(text: &str) -> Result<Value> {
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(',')).collect();
    let [.., heads, values] = lines[..] else { bail!("not understood: {text}") };
    let column = |name: &str| {
        let index = heads.split(',').position(|head| head == name);
        let value = index.and_then(|index| values.split(',').nth(index));
        let number = value.and_then(|value| value.parse::<f64>().ok());
        number.with_context(|| format!("no {name} in {text}"))
    };
    Ok(json!({
        "p50_us": column("50.0_percentile_lat")?,
        "mean_us": column("overall_lat")?,
        "mib_per_s": column("overall_bw")?,
        "messages_per_s": column("overall_mr")?,
    }))
}
