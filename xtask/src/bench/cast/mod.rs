//! `cargo xtask bench cast`: one source, many receivers, beside the bound and other programs.
//!
//! Hosts are network namespaces with links of a set rate, destinations are in memory, nobody
//! flushes. All hosts share this machine's processors. `OUTBOARD_ONLY=gigabit,cost` measures these
//! parts alone and draws the page with what earlier runs found in the others; `OUTBOARD_ONLY=page`
//! measures nothing. Nothing here tests faults: `cargo xtask test cast` does.
//!
//! Reading order: `parts` (their names and bounds), `kept` (what stays of each), `stage` (hosts,
//! files, what a program took), `ours`, `plain` (C programs: what a link carries, and a chain),
//! `rivals` and `sbcast`, `turns`; then the parts: `rows` (100 MB), `small`, `cost` with `crypto`,
//! `model` (the step model), `paper` (its figures redrawn).

mod cost;
mod crypto;
mod kept;
mod model;
mod ours;
mod paper;
mod parts;
mod plain;
mod rivals;
mod rows;
mod sbcast;
mod small;
mod stage;
mod turns;

use std::env;

use anyhow::{Result, bail};

use super::measure::rounds;
use super::report::Report;
use super::stack::section::table;
use crate::lab;
use crate::test::needs::Need;
use kept::KeptPart;
use parts::PARTS;

/// What the rivals need.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(lab::PACKAGES),
    Need::Packages(&["gcc", "libc6-dev", "mount", "udpcast", "uftp", "rsync", "rpcbind"]),
    Need::Packages(&["nfs-ganesha", "nfs-ganesha-vfs", "libnfs-utils"]),
    Need::Packages(&["munge", "slurmctld", "slurmd", "slurm-client"]),
];

/// Measures what is asked for, and draws everything that was found; all of it takes about half an
/// hour. What a part found is kept as soon as it ends.
///
/// # Errors
/// When Outboard or the C program does not build, a part has another name, or a file cannot be
/// written. A part that fails is a row of the page.
pub(super) fn run() -> Result<Report> {
    let only = env::var("OUTBOARD_ONLY").unwrap_or_default();
    let asked: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let known = |name: &&&str| **name == PAGE || PARTS.iter().any(|part| part.name == **name);
    if let Some(unknown) = asked.iter().find(|name| !known(name)) {
        let names = PARTS.map(|part| part.name).join(", ");
        bail!(
            "OUTBOARD_ONLY names {unknown}, but the parts are: {names}, and {PAGE} measures none"
        );
    }
    let mut parts = PARTS.iter().filter(|part| asked.is_empty() || asked.contains(&part.name));
    let mut is_built = false;
    parts.try_for_each(|part| -> Result<()> {
        if !is_built {
            ours::build()?;
            plain::build()?;
            is_built = true;
        }
        part.run().save(part)
    })?;
    page()
}

/// Everything that the last run of each part found.
fn page() -> Result<Report> {
    let mut page = Report {
        title: "Casting files".into(),
        conditions: CONDITIONS.iter().map(|text| (*text).to_owned()).collect(),
        tables: Vec::new(),
        panels: Vec::new(),
    };
    let (mut rows, mut runs) = (Vec::new(), Vec::new());
    for part in &PARTS {
        let kept = KeptPart::load(part)?;
        rows.extend(kept.rows);
        page.conditions.extend(kept.notes);
        page.tables.extend(kept.tables);
        page.panels.extend(kept.panels);
        if let Some(run) = kept.finished {
            runs.push(vec![part.name.into(), format!("{:.0} s", run.seconds), run.commit]);
        }
    }
    page.tables.insert(0, table("Bounds", &kept::HEAD, rows));
    page.tables.push(table("Parts of this page", &["part", "took", "commit"], runs));
    Ok(page)
}

/// Of `OUTBOARD_ONLY`: nothing is measured.
const PAGE: &str = "page";

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
     passes it on.",
    "sbcast runs in an allocation of all nodes, with its defaults; its allocation is not counted. \
     udpcast and uftp multicast; uftp is told 0.9 of the rate. NFS is nfs-ganesha with version 3 \
     and libnfs's nfs-cp on each receiver. At 100 Mbit/s, what sends to one receiver after the \
     other is given 10 MB rather than 100, because its time grows with every receiver.",
];
