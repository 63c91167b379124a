//! `cargo xtask bench active`: code next to the memory, beside plain one-sided verbs on the same
//! structures, Redis's scripts and plain C.
//!
//! `OUTBOARD_ONLY=redis,list` measures these parts alone and draws the page with what earlier runs
//! found in the others; `OUTBOARD_ONLY=page` measures nothing. No rival is installed: one that is
//! missing is "not run". Nothing here tests correctness: `cargo xtask test` does.
//!
//! Reading order: `aims` (the parts by name, and what each must reach; `bench::aimed` runs and
//! keeps them), `load` (nodes, and the client that measures itself), `redis` (the rival's server
//! and a client in plain C); then the parts: `structures` (with the paper's table), `empty`,
//! `topk`, `tail`, `placement`.

mod aims;
mod empty;
mod load;
mod placement;
mod redis;
pub(super) mod sim;
mod structures;
mod tail;
mod topk;

use anyhow::Result;

use super::aimed::{self, AimedPage};
use super::measure::rounds;
use super::report::Report;
use crate::lab;
use crate::test::needs::Need;
use aims::PARTS;

/// What every part needs; rivals are not among it.
pub(super) const NEEDS: &[Need] =
    &[Need::Packages(lab::PACKAGES), Need::Packages(&["gcc", "libc6-dev"])];

/// Measures what is asked for, and draws everything that was found.
///
/// # Errors
/// When a part has another name, or a file cannot be written.
pub(super) fn run() -> Result<Report> {
    aimed::run(&AimedPage {
        bench: "active",
        title: "Active code",
        conditions: CONDITIONS,
        parts: PARTS,
    })
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
