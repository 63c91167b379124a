//! `outboard cast`: files from this machine to many nodes.
//!
//! Modules: `args` (what is asked), `request` (from that to what is cast where), `report` (what is
//! printed of its end).

mod args;
mod report;
mod request;

pub(crate) use args::CastArgs;

use crate::send_libs::StagedLibraries;
use outboard_cast::launch::ExecProgram;
use outboard_cast::source::cast;
use outboard_cast::tree::CastSource;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;

/// The exit code says whether all nodes have the files; with `--exec` it is the program's.
pub(crate) fn run(args: CastArgs) -> Result<ExitCode, Box<dyn Error>> {
    let (destination, paths) = args.paths.split_last().ok_or("name a destination")?;
    let sources = paths.iter().map(|path| CastSource::new(path));
    let mut sources = sources.collect::<Result<Vec<_>, _>>()?;
    let first = sources.first().cloned().ok_or("name what to cast, and a destination")?;
    let name = OsString::from_vec(first.name.clone());
    let staged = match args.send_libs {
        true => Some(libraries(&first.path, &name, &args.libs_exclude)?),
        false => None,
    };
    sources.extend(staged.as_ref().map(StagedLibraries::source));
    let mut reach = request::reach(&args, destination)?;
    let request = request::request(&args, sources, (&reach, destination))?;
    let limits = request.limits;
    let outcome = reach.finish(cast(request)?, limits);
    let failed = outcome.nodes.iter().filter(|node| node.result.is_err()).count();
    if args.json {
        report::print_json(&outcome)?
    } else if !args.exec || failed > 0 {
        report::print(&outcome, failed)
    }
    match (outcome.has_succeeded(), args.exec) {
        (false, _) => Ok(ExitCode::FAILURE),
        (true, false) => Ok(ExitCode::SUCCESS),
        (true, true) => {
            let program = program(&args, destination, &name);
            reach.exec(&program, &outcome)
        }
    }
}

fn libraries(
    program: &Path,
    name: &OsString,
    excluded: &str,
) -> Result<StagedLibraries, Box<dyn Error>> {
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
