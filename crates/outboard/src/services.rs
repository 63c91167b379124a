//! The services that a node of this program can offer: names, checks of their tables, and what
//! their processes do.

use outboard_cluster::node::{ServiceLink, ServiceSpec};
use std::process::ExitCode;

/// The hidden command that makes this program the supervisor of a client's sandbox: clap's name of
/// [`Command::SandboxSupervisor`](crate::cli::Command).
pub(crate) const SANDBOX_SUPERVISOR: &str = "sandbox-supervisor";

/// Every service, by name. `status` is not among them: the supervisor itself answers that.
pub(crate) const SERVICES: &[ServiceSpec] = &[ServiceSpec {
    name: "compile",
    by_default: true,
    check: outboard_compile::server::check_table,
    run: compile,
}];

fn compile(link: ServiceLink) -> ExitCode {
    outboard_compile::server::serve(link, &[SANDBOX_SUPERVISOR])
}
