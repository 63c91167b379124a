//! `outboard cast`: files from this machine to many nodes.
//!
//! Modules: `args` (what is asked), `quantity` (sizes and rates), `request` (from that to what is
//! cast where), `progress` (on a terminal), `report` (what is printed of its end), `preview`
//! (`--dry-run`), `plan` (`--plan`).

mod args;
mod plan;
mod preview;
mod progress;
mod quantity;
mod report;
mod request;

pub(crate) use args::CastArgs;

use clap::error::ErrorKind;
use outboard_cast::source::{CastOutcome, cast};
use progress::ProgressDisplay;
use std::io::{self, Write};
use std::process::ExitCode;

/// Why nothing was cast, for people.
type Failure = Box<dyn std::error::Error>;

/// The exit code says whether all nodes have the files, or as many as must.
pub(crate) fn run(args: CastArgs) -> Result<ExitCode, Failure> {
    if args.plan {
        return plan::run(&args).map(|()| ExitCode::SUCCESS);
    }
    if args.dry_run {
        return preview::run(&args).map(|()| ExitCode::SUCCESS);
    }
    let outcome = cast_shown(&args)?;
    if args.json {
        let chunk_len = request::chunk_len(args.chunk)?;
        print(&format!("{:#}", report::to_json(&outcome, chunk_len)))?;
    } else {
        print(&report::lines(&outcome).join("\n"))?;
    }
    Ok(if outcome.has_succeeded() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cast_shown(args: &CastArgs) -> Result<CastOutcome, Failure> {
    let mut request = request::request(args)?;
    let (sender, display) = ProgressDisplay::start(&request.nodes);
    request.progress = sender;
    let outcome = cast(request);
    if let Some(display) = display {
        display.end();
    }
    Ok(outcome?)
}

/// Prints lines. A reader that has gone is not an error.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Says what is wrong with the command line, as for wrong options, and ends.
fn wrong_usage(why: &str) -> ! {
    clap::Error::raw(
        ErrorKind::MissingRequiredArgument,
        format!("{why}\n\nSee outboard cast --help.\n"),
    )
    .exit()
}
