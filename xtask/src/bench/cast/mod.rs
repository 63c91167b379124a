//! `cargo xtask bench cast`: one source, many receivers, beside the bound and other programs.
//!
//! Hosts are network namespaces with links of a set rate, destinations are in memory, nobody
//! flushes. All hosts share this machine's processors. `OUTBOARD_ONLY=gigabit,cost` runs these
//! parts alone, `OUTBOARD_ROUNDS=1` everything once. Nothing here tests faults: `cargo xtask test
//! cast` does.
//!
//! Reading order: `stage` (hosts, files, what a program took), `ours`, `plain` (C programs: what a
//! link carries, and a chain), `rivals` and `sbcast`; then the parts: `rows` (100 MB), `small`,
//! `cost` with `crypto`, `model` (the step model), `paper` (its figures redrawn).

mod cost;
mod crypto;
mod model;
mod ours;
mod paper;
mod plain;
mod rivals;
mod rows;
mod sbcast;
mod small;
mod stage;

use std::env;

use anyhow::{Result, bail};

use super::report::Report;
use super::stack::section::{Section, report};
use crate::lab;
use crate::test::needs::Need;

/// What the rivals need.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(lab::PACKAGES),
    Need::Packages(&["gcc", "libc6-dev", "mount", "udpcast", "uftp", "rsync", "rpcbind"]),
    Need::Packages(&["nfs-ganesha", "nfs-ganesha-vfs", "libnfs-utils"]),
    Need::Packages(&["munge", "slurmctld", "slurmd", "slurm-client"]),
];

/// How often something is measured.
fn rounds(usual: usize) -> usize {
    let asked = env::var("OUTBOARD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.unwrap_or(usual).clamp(1, usual)
}

type Part = fn() -> Result<Section>;

/// The parts by name.
const PARTS: [(&str, Part); 6] = [
    ("gigabit", rows::gigabit),
    ("cost", cost::row),
    ("small", small::rows),
    ("slow", rows::slow_link),
    ("many", rows::many),
    ("paper", model_and_paper),
];

/// Measures everything; takes about 40 minutes.
///
/// # Errors
/// When hosts cannot be made here, Outboard does not build, or a contender fails.
pub(super) fn run() -> Result<Report> {
    ours::build()?;
    plain::build()?;
    let only = env::var("OUTBOARD_ONLY").unwrap_or_default();
    let is_asked = |name: &str| only.is_empty() || only.split(',').any(|asked| asked == name);
    let mut sections = Vec::new();
    for (_, part) in PARTS.iter().filter(|(name, _)| is_asked(name)) {
        sections.push(part()?);
    }
    if sections.is_empty() {
        let names = PARTS.map(|(name, _)| name).join(", ");
        bail!("OUTBOARD_ONLY={only:?} names none of the parts: {names}");
    }
    Ok(report("Casting files", CONDITIONS, sections))
}

fn model_and_paper() -> Result<Section> {
    let (mut section, model) = model::section()?;
    section.tables.extend(paper::section(&model)?.tables);
    Ok(section)
}

const CONDITIONS: &[&str] = &[
    "Hosts are network namespaces with a link of the given rate each, both ways, to one bridge; \
     all of them share this machine's processors, so that at 1 Gbit/s the processors and not the \
     links are the limit of whatever encrypts and hashes. Destinations are in memory.",
    "Outboard encrypts (AES-256-GCM) and signs, every receiver checks every chunk before it passes \
     it on, and files appear by one rename. The times are of the whole command, with its start and \
     all connections; nodes run already. None of the rivals encrypts, and only rsync checks.",
    "The bound is S/B · (m − 1 + ⌈log₂ n⌉)/m with S/B the time of one plain TCP stream of the same \
     bytes over such a link in the same round, and m the bytes in MiB.",
    "The paper's tree is ours with `--schedule paper:2`: a node has the whole file before it \
     passes it on. sbcast runs in an allocation of all nodes, with its defaults; its allocation is \
     not counted. udpcast and uftp multicast; uftp is told 0.9 of the rate. NFS is nfs-ganesha \
     with version 3 and libnfs's nfs-cp on each receiver.",
];
