//! `cargo xtask bench stack`: verbs over iWARP beside raw TCP, libfabric and UCX on one machine.
//!
//! Two pinned processes on loopback, in turn with every rival, five rounds of a second each; a
//! virtual machine's speed varies by the minute, so ratios are taken round by round. Nothing here
//! tests correctness: `cargo xtask test` does.
//!
//! Reading order: `ours` and `rivals` (running a contender once), `section` (the parts of the
//! page), `latency`, `stream`, `bulk` (beside the same work in plain C), `service`, `growth` (these
//! have targets), `paper` (the figures of "Design and Implementation of the iWarp Protocol in
//! Software", redrawn), `link` and `load` (its measurement of system load).

mod bulk;
mod growth;
mod latency;
mod link;
mod load;
pub(super) mod ours;
mod paper;
mod rivals;
pub(super) mod section;
pub(super) mod service;
mod stream;

#[cfg(test)]
mod tests;

use anyhow::Result;

use super::report::Report;
use crate::lab;
use crate::test::needs::Need;
use ours::Outboard;

/// What it needs; libfabric and UCX are not among it.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(lab::PACKAGES),
    Need::Packages(&["gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev"]),
];

/// Rounds of everything that has a target.
const ROUNDS: usize = 5;
/// Rounds of the paper's figures.
const FIGURE_ROUNDS: usize = 3;

/// Measures everything; takes about six minutes.
///
/// # Errors
/// When Outboard does not build, or a contender that is installed fails.
pub(super) fn run() -> Result<Report> {
    let program = ours::build()?;
    let ours = Outboard::start(&program, &["--pin", "1"])?;
    let sections = [
        latency::spinning(&ours)?,
        latency::blocking(&ours)?,
        stream::bandwidth(&ours)?,
        bulk::bandwidth(&ours)?,
        stream::cpu(&ours)?,
        bulk::cpu(&ours)?,
        stream::rate(&ours)?,
        service::connect(&ours)?,
        service::busy_target(&program)?,
        service::idle_connections(),
        growth::costs()?,
        paper::latency(&ours)?,
        paper::throughput(&ours)?,
        load::figures(&program)?,
    ];
    Ok(section::report("The stack", CONDITIONS, sections))
}

const CONDITIONS: &[&str] = &[
    "Client on processor 0, server on processor 1, loopback, nothing encrypted, the kernel's own \
     socket buffers. Outboard uses TCP Reno within one machine, which does not pace; raw TCP and \
     plain C do the same here. libfabric and UCX use the system's congestion control.",
    "Outboard and raw TCP run in the same program (`outboard perf`), with the same way of waiting. \
     Raw TCP sends from a buffer other than the one it receives into, as RDMA tests do: one \
     shared buffer would be about 8 % faster at 64 KiB.",
    "Latency is half a round trip, except that of Reads, which is the whole. libfabric is \
     `fi_pingpong -p tcp -e msg`, which prints only means, so it is compared with means; UCX is \
     `ucx_perftest` with UCX_TLS=tcp. Neither of them checks CRCs.",
    "Bandwidth and messages are counted until the server has everything.",
    "Costs with thousands of connections are processor time of a client and a server on the C \
     libraries, everything of each on one completion queue, in programs of a single thread.",
];

/// Bytes of a point such as `64 KiB`.
pub(super) fn bytes(point: &str) -> Result<usize> {
    use anyhow::Context;
    let (number, unit) = point.split_once(' ').with_context(|| format!("{point} has no unit"))?;
    let scale = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => anyhow::bail!("{point} is no size"),
    };
    Ok(number.parse::<usize>()? * scale)
}
