//! The services that a node of this program can offer: a name and what its process does, a line
//! each.

use outboard_cluster::node::{Entry, ServiceLink};
use std::process::ExitCode;

/// The hidden command that makes this program a sandbox's anchor.
pub(crate) const ANCHOR: &str = "anchor";

/// Every service, by name. `status` is not among them: the supervisor itself answers that.
pub(crate) const SERVICES: &[(&str, Entry)] = &[("compile", compile)];

fn compile(link: ServiceLink) -> ExitCode {
    outboard_compile::server::serve(&link, &[ANCHOR])
}
