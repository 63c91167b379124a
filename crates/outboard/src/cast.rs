//! `outboard cast`: files from this machine to many nodes.
//!
//! Modules: `args` (what is asked), `request` (from that to what is
//! cast where), `progress` (on a terminal), `report` (what is printed of its end), `preview`
//! (`--dry-run`), `plan` (`--plan`), `failure` (what is said when nothing is cast).

mod args;
mod failure;
mod plan;
mod preview;
mod progress;

mod report;
mod request;

pub(crate) use args::CastArgs;
pub(crate) use failure::tell_wrong_words;

pub(crate) use report::text_on_one_line;

use crate::launch::CastReach;
use crate::send_libs::StagedLibraries;
use failure::WrongUsage;
use outboard_cast::launch::ExecProgram;
use outboard_cast::source::{CastOutcome, CastRequest, cast};
use progress::ProgressDisplay;
use request::CheckedWish;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;

/// Why nothing was cast, for people.
type Failure = Box<dyn std::error::Error>;

/// The exit code says whether all nodes have the files, or as many as must; with `--exec` it is
/// the program's.
pub(crate) fn run(args: CastArgs) -> ExitCode {
    let args = args.settled();
    perform(&args).unwrap_or_else(|failure| failure::tell(&args, &*failure))
}

fn perform(args: &CastArgs) -> Result<ExitCode, Failure> {
    crate::log::start_cast(None)?;
    if args.plan {
        return plan::run(args).map(|()| ExitCode::SUCCESS);
    }
    if args.dry_run {
        return preview::run(args).map(|()| ExitCode::SUCCESS);
    }
    let (sources, destination) = request::paths(args)?;
    let wish = CheckedWish::new(args)?;
    outboard_cluster::node::raise_open_files();
    let mut sources = request::named(sources)?;
    let Some(first) = sources.first().cloned() else { return Err("name what to cast".into()) };
    let name = OsString::from_vec(first.name);
    // Removed when the cast is over.
    let staged = match args.send_libs {
        true => Some(libraries(&first.path, &name, &args.libs_exclude)?),
        false => None,
    };
    sources.extend(staged.as_ref().map(StagedLibraries::source));
    let mut reach = request::reach(args, destination)?;
    let request = wish.request(args, sources, (&reach, destination))?;
    let outcome = cast_shown(&mut reach, request)?;
    let is_told = !args.exec || !outcome.has_succeeded() || args.json;
    if is_told && let Err(failure) = print_outcome(args, &outcome) {
        return Ok(failure::tell_late(&*failure));
    }
    match (outcome.has_succeeded(), args.exec) {
        (false, _) => Ok(ExitCode::FAILURE),
        (true, false) => Ok(ExitCode::SUCCESS),
        (true, true) => {
            let ended = reach.exec(&program(args, destination, &name), &outcome);
            Ok(ended.unwrap_or_else(|failure| failure::tell_late(&*failure)))
        }
    }
}

/// Casts, and shows how far it has come.
fn cast_shown(reach: &mut CastReach, mut request: CastRequest) -> Result<CastOutcome, Failure> {
    let display = ProgressDisplay::start(reach.names()).map(|(sender, found, display)| {
        (request.progress, request.scan.found) = (Some(sender), Some(found));
        display
    });
    let limits = request.limits;
    let outcome = cast(request);
    if let Some(display) = display {
        display.end();
    }
    Ok(reach.finish(outcome?, limits))
}

fn print_outcome(args: &CastArgs, outcome: &CastOutcome) -> Result<(), Failure> {
    if args.json {
        print(&format!("{:#}", report::to_json(outcome)))
    } else {
        print(&report::lines(outcome).join("\n"))
    }
}

fn libraries(program: &Path, name: &OsString, excluded: &str) -> Result<StagedLibraries, Failure> {
    let staged = StagedLibraries::of(program, name, excluded);
    staged.map_err(|error| format!("{}: --send-libs: {error}", program.display()).into())
}

/// The first source, at the nodes.
fn program(args: &CastArgs, destination: &Path, name: &OsString) -> ExecProgram {
    let program = destination.join(name);
    let libraries = args.send_libs.then(|| {
        let mut libraries = program.clone().into_os_string();
        libraries.push("_libs");
        libraries.into()
    });
    ExecProgram { program, arguments: args.arguments.clone(), libraries }
}

/// Prints lines. A reader that has gone is not an error.
fn print(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => {
            Err(format!("standard output cannot be written to: {error}; what was cast stays cast")
                .into())
        }
        Ok(()) => Ok(()),
    }
}
