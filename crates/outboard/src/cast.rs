//! `outboard cast`: files from this machine to many nodes.
//!
//! Modules: `args` (what is asked), `request` (from that to what is cast where), `report` (what is
//! printed of its end).

mod args;
mod report;
mod request;

pub(crate) use args::CastArgs;

use outboard_cast::source::cast;
use std::process::ExitCode;

/// The exit code says whether all nodes have the files.
pub(crate) fn run(args: CastArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let is_json = args.json;
    let outcome = cast(request::request(args)?)?;
    let failed = outcome.nodes.iter().filter(|node| node.result.is_err()).count();
    if is_json {
        report::print_json(&outcome)?
    } else {
        report::print(&outcome, failed)
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
