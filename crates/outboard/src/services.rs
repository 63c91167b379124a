//! The services that a node of this program can offer: names, checks of their tables, and what
//! their processes do.

use outboard_cluster::node::{ServiceLink, ServiceSpec};
use std::ffi::CString;
use std::process::ExitCode;

/// The hidden command that makes this program the supervisor of a client's sandbox: clap's name of
/// [`Command::SandboxSupervisor`](crate::cli::Command).
pub(crate) const SANDBOX_SUPERVISOR: &str = "sandbox-supervisor";

/// Every service, by name. `status` is not among them: the supervisor itself answers that.
pub(crate) const SERVICES: &[ServiceSpec] = &[
    ServiceSpec {
        name: "compile",
        by_default: true,
        check: outboard_compile::server::check_table,
        run: compile,
    },
    ServiceSpec {
        name: "cast",
        by_default: false,
        check: outboard_cast::server::check_table,
        run: outboard_cast::server::serve,
    },
    ServiceSpec {
        name: "active",
        by_default: false,
        check: outboard_active::service::check_table,
        run: outboard_active::service::serve,
    },
    ServiceSpec {
        name: "fs",
        by_default: false,
        check: outboard_fs::server::check_table,
        run: outboard_fs::server::serve,
    },
    ServiceSpec {
        name: "offload",
        by_default: false,
        check: outboard_offload::service::check_table,
        run: outboard_offload::service::serve,
    },
];

/// Names this process after its service, as `ps` and `top` show it: a node starts it by a path that
/// ends in `exe`. The kernel keeps 15 bytes.
pub(crate) fn name_process(service: &str) {
    if let Ok(name) = CString::new(format!("outboard-{service}")) {
        // Without it only the list of processes is harder to read.
        let _ = rustix::thread::set_name(&name);
    }
}

fn compile(link: ServiceLink) -> ExitCode {
    outboard_compile::server::serve(link, &[SANDBOX_SUPERVISOR])
}
