//! `cargo xtask bench active`: code next to the memory, beside plain one-sided verbs on the same
//! structures, Redis's scripts and plain C.
//!
//! `OUTBOARD_ONLY=redis,list` measures these parts alone and draws the page with what earlier runs
//! found in the others; `OUTBOARD_ONLY=page` measures nothing. `OUTBOARD_ROUNDS=1` does everything
//! once. Nothing is installed: a rival that is missing is "not run". Nothing here tests
//! correctness: `cargo xtask test active` does.
//!
//! Reading order: `aims` (the parts by name, and what each must reach), `kept` (what stays of
//! each), `load` (nodes, and the client that measures itself), `redis` (the rival's server and a
//! client in plain C); then the parts: `structures` (with the paper's table), `empty`, `topk`,
//! `tail`, `placement`.

mod aims;
mod empty;
mod kept;
mod load;
mod placement;
mod redis;
pub(super) mod sim;
mod structures;
mod tail;
mod topk;

use std::env;

use anyhow::{Result, bail};

use super::report::Report;
use super::stack::section::{Target, table};
use crate::lab;
use crate::test::needs::Need;
use aims::PARTS;
use kept::KeptActive;

/// What every part needs; rivals are not among it.
pub(super) const NEEDS: &[Need] =
    &[Need::Packages(lab::PACKAGES), Need::Packages(&["gcc", "libc6-dev"])];

/// Of `OUTBOARD_ONLY`: nothing is measured.
const PAGE: &str = "page";

/// How often something is measured.
fn rounds(usual: usize) -> usize {
    let asked = env::var("OUTBOARD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    asked.map_or(usual, |asked: usize| asked.clamp(1, usual))
}

/// Measures what is asked for, and draws everything that was found. What a part found is kept as
/// soon as it ends.
///
/// # Errors
/// When a part has another name, or a file cannot be written. A part that fails is rows of the
/// page.
pub(super) fn run() -> Result<Report> {
    let only = env::var("OUTBOARD_ONLY").unwrap_or_default();
    let asked: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).chain([PAGE]).collect();
    if let Some(unknown) = asked.iter().find(|name| !names.contains(*name)) {
        bail!("OUTBOARD_ONLY names {unknown}, but there are: {}", names.join(", "));
    }
    for part in PARTS.iter().filter(|part| asked.is_empty() || asked.contains(&part.name)) {
        part.run().save(part)?;
    }
    page()
}

/// Everything that the last run of each part found.
fn page() -> Result<Report> {
    let mut page = Report {
        title: "Active code".into(),
        conditions: CONDITIONS.iter().map(|text| (*text).to_owned()).collect(),
        tables: Vec::new(),
        panels: Vec::new(),
    };
    let (mut rows, mut runs) = (Vec::new(), Vec::new());
    for part in PARTS {
        let kept = KeptActive::load(part)?;
        rows.extend(kept.rows);
        page.conditions.extend(kept.notes);
        page.tables.extend(kept.tables);
        page.panels.extend(kept.panels);
        runs.push(vec![part.name.into(), kept.took, kept.commit]);
    }
    page.tables.insert(0, table("Targets", &Target::HEAD, rows));
    page.tables.push(table("Parts of this page", &["part", "took", "commit"], runs));
    Ok(page)
}

const CONDITIONS: &[&str] = &[
    "Client on processor 0, server on processor 1, loopback; where a link delays, both on \
     processor 0 and the link (`cargo xtask lab delay`), which treats all alike, on processor 1.",
    "A node's loop looks for requests and for peers' reads and writes before it sleeps, so that on \
     loopback plain Reads, Writes and CompareSwaps find it awake as executions do.",
    "\"Encrypted\" is AES-256-GCM: Outboard's sessions, Redis's TLS 1.3. \"Trusted\" is neither. \
     Each is compared with its like.",
    "Redis is Debian's, without persistence; its client (`redis.c`) is one thread in plain C on \
     epoll, which looks for replies for 50 µs before it sleeps where the row says so.",
];
