//! What can be said of an application without running it: `new`, `check`, `plan`, `explain`,
//! `devices`.

use super::costs::known_costs;
use super::{print_line, print_text};
use crate::Outcome;
use clap::{Args, ValueEnum};
use outboard_offload::describe::{Application, OffcodePackage, Skeleton, SkeletonLanguage};
use outboard_offload::planning::layout::{guest_code, interfaces_of};
use outboard_offload::planning::{AppLayout, Machine};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make the directory of a new offcode: description, interface, source and Makefile.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload new counter && make -C counter")]
pub(crate) struct NewOffcodeArgs {
    /// The directory, which must not exist; its name is the offcode's.
    directory: PathBuf,
    /// The language of its source.
    #[arg(long, default_value = "c")]
    language: Language,
}

/// Print code for an offcode's source: the types, calls and answers of its interfaces.
///
/// It is made from the WIT files of the offcode's directory: a header in C, a module in Rust.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload generate counter > counter/interface.h")]
pub(crate) struct GenerateArgs {
    /// The directory of the offcode.
    directory: PathBuf,
    /// The language.
    #[arg(long, default_value = "c")]
    language: Language,
}

/// Languages of new offcodes.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    C,
    Rust,
}

/// Run the tests of an offcode, which are in its tests.toml, on this machine.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload test counter")]
pub(crate) struct TestOffcodeArgs {
    /// The offcode's directory.
    directory: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Check an application's layout file with all its offcodes, or one offcode's directory.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload check app.toml")]
pub(crate) struct CheckOffloadArgs {
    /// A layout file, or the directory of an offcode.
    path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Show where each offcode of an application would run, and why.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload plan app.toml --svg layout.svg")]
pub(crate) struct PlanArgs {
    /// The layout file.
    app: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Draw the layout into this file as well.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Show why each offcode is where it is, and what keeps it from every other device.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload explain app.toml counter")]
pub(crate) struct ExplainArgs {
    /// The layout file.
    app: PathBuf,
    /// Only this offcode.
    offcode: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// List the devices of this machine, and why those that cannot be used cannot.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload devices")]
pub(crate) struct DevicesArgs {
    /// The devices that a layout file allows, instead of all of this machine.
    app: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl From<Language> for SkeletonLanguage {
    fn from(language: Language) -> Self {
        match language {
            Language::C => Self::C,
            Language::Rust => Self::Rust,
        }
    }
}

pub(super) fn new(args: &NewOffcodeArgs) -> Outcome {
    let name = args.directory.file_name().and_then(|name| name.to_str());
    let name =
        name.ok_or("the directory's name must be the offcode's: small letters and digits")?;
    let skeleton = Skeleton::new(&name.parse()?, args.language.into())?;
    skeleton.write(&args.directory)?;
    print_line(format!("made {}", args.directory.display()))
}

pub(super) fn generate(args: &GenerateArgs) -> Outcome {
    let package = OffcodePackage::without_code(&args.directory)?;
    print_text(&guest_code(&package, args.language.into())?)
}

pub(super) fn test(args: &TestOffcodeArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let results = outboard_offload::testing::run(&args.directory)?;
    for result in &results {
        let (name, failed) = (&result.name, &result.failed);
        match (args.json, failed) {
            (true, _) => print_line(json!({ "test": name, "failed": failed }))?,
            (false, None) => print_line(format!("{name}: passed"))?,
            (false, Some(why)) => print_line(format!("{name}: FAILED: {why}"))?,
        }
    }
    if results.is_empty() {
        return Err("the file has no tests".into());
    }
    let all_pass = results.iter().all(|result| result.failed.is_none());
    Ok(if all_pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn check(args: &CheckOffloadArgs) -> Outcome {
    if args.path.is_dir() {
        return check_package(args);
    }
    let layout = layout(&args.path)?;
    let application = &layout.application;
    let mut assumptions = Vec::new();
    for (at, offcode) in application.offcodes.iter().enumerate() {
        layout.interfaces(at).map_err(|error| format!("offcode {}: {error}", offcode.name))?;
        let own = offcode.package.assumptions.iter();
        assumptions.extend(own.map(|assumed| format!("{}: {assumed}", offcode.name)));
    }
    let opened: Vec<usize> = (0..layout.machine.devices.len()).collect();
    let plan = layout.runtime_plan(&opened)?;
    outboard_offload::launch::check_codes(&plan)?;
    told(
        args.json,
        &format!("{}: {} offcodes", application.name, application.offcodes.len()),
        &assumptions,
    )
}

fn check_package(args: &CheckOffloadArgs) -> Outcome {
    let package = OffcodePackage::read(&args.path)?;
    interfaces_of(&package)?;
    outboard_offload::launch::check_package(&package)?;
    let assumptions: Vec<String> = package.assumptions.iter().map(ToString::to_string).collect();
    let file = &package.file;
    told(args.json, &format!("{} {}, GUID {}", file.name, file.version, file.guid), &assumptions)
}

fn told(as_json: bool, what: &str, assumptions: &[String]) -> Outcome {
    if as_json {
        return print_line(json!({ "checked": what, "assumptions": assumptions }));
    }
    assumptions.iter().try_for_each(|assumed| print_line(format!("assumed: {assumed}")))?;
    print_line(format!("{what}: all is well"))
}

/// The layout of a file on the devices that it allows.
pub(crate) fn layout(path: &Path) -> Result<AppLayout, Box<dyn std::error::Error>> {
    let application = Application::read(path)?;
    let machine = Machine::with(&application.devices);
    Ok(AppLayout::of(application, machine, known_costs(), &[])?)
}

pub(super) fn plan(args: &PlanArgs) -> Outcome {
    let layout = layout(&args.app)?;
    if let Some(path) = &args.svg {
        fs::write(path, layout.svg()).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if args.json {
        return print_line(layout.json());
    }
    print_text(&layout.drawn())?;
    print_line("")?;
    print_text(&layout.summary())
}

pub(super) fn explain(args: &ExplainArgs) -> Outcome {
    let layout = layout(&args.app)?;
    let wanted = match &args.offcode {
        Some(name) => {
            let missing = || format!("the application has no offcode {name}");
            vec![layout.index(name).ok_or_else(missing)?]
        }
        None => (0..layout.application.offcodes.len()).collect(),
    };
    if args.json {
        let mut all = layout.json();
        if let Some(offcodes) = all["offcodes"].as_array_mut() {
            let mut at = 0..offcodes.len();
            offcodes.retain(|_| at.next().is_some_and(|at| wanted.contains(&at)));
        }
        return print_line(all);
    }
    wanted.iter().try_for_each(|at| print_text(&layout.explanation(*at)))
}

pub(super) fn devices(args: &DevicesArgs) -> Outcome {
    let machine = match &args.app {
        Some(path) => Machine::with(&Application::read(path)?.devices),
        None => Machine::here(),
    };
    if args.json {
        let device = |device: &outboard_offload::planning::MachineDevice| {
            json!({
                "name": device.name,
                "kind": device.kind.as_str(),
                "unusable": device.unusable,
            })
        };
        return print_line(json!(machine.devices.iter().map(device).collect::<Vec<_>>()));
    }
    machine.devices.iter().try_for_each(|device| {
        let state = device.unusable.as_deref().unwrap_or("can be used");
        print_line(format!("{:16} {state}", device.name))
    })
}
