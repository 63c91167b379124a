//! `cargo xtask bench offload`: offcodes, their channels, layouts and moves, beside wasmtime's own
//! calls, iceoryx2, plain verbs and bare processes.
//!
//! `OUTBOARD_ONLY=call,channel` measures these parts alone and draws the page with what earlier
//! runs found in the others; `OUTBOARD_ONLY=page` measures nothing. Nothing here tests correctness:
//! `cargo xtask test` does.
//!
//! Reading order: `aims` (the parts by name, and what each must reach; `bench::aimed` runs and
//! keeps them), `programs` (what is built and run), then the parts: `call`, `channel` (with
//! iceoryx2, a package of its own that is no part of the workspace), `node`, `life` (loads,
//! deployments, moves), `layouts`, `source`.

mod aims;
mod call;
mod channel;
mod layouts;
mod life;
mod node;
mod programs;
mod source;

use anyhow::Result;

use super::aimed::{self, AimedPage};
use super::report::Report;
use crate::test::needs::Need;
use aims::PARTS;

/// What every part needs.
pub(super) const NEEDS: &[Need] = &[Need::Packages(&["util-linux"])];

/// Measures what is asked for, and draws everything that was found.
///
/// # Errors
/// When a part has another name, or a file cannot be written.
pub(super) fn run() -> Result<Report> {
    aimed::run(&AimedPage {
        bench: "offload",
        title: "Offcodes",
        conditions: CONDITIONS,
        parts: PARTS,
    })
}

const CONDITIONS: &[&str] = &[
    "All on one machine. Rings and iceoryx2: two threads on processors 0 and 1, both spinning, \
     nobody sleeps; each is opened as between processes. The node: its service on loopback, \
     encrypted (AES-256-GCM), both sides sleep between messages, as plain Sends do beside it.",
    "Calls, channels, deployments and moves go through the whole library as applications have it: \
     the runtime's thread, the devices' loops, their processes.",
    "Half of the offcodes of a deployment are builtins, half are WebAssembly from the cache of \
     compiled code; the time is from the first process's start to the last one's end. Bare \
     processes are the same program, which ends at once.",
    "A move's pause is the longest call of a caller that calls the offcode all the time, or the \
     whole move if that is what is said.",
];
