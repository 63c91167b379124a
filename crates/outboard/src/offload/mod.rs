//! `outboard offload`: programs made of offcodes, put where a layout says.

mod control;
mod costs;
mod plan;
mod run;
mod show;

pub(crate) use plan::layout;

use crate::Outcome;
use clap::Subcommand;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The hidden command that runs a device `core`.
pub(crate) const CORE: &str = "offload-core";

/// Offcodes: write a program in parts, and apart from it where they run.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard offload new counter && make -C counter
  outboard offload plan app.toml
  outboard offload run app.toml < words")]
pub(crate) enum OffloadCommand {
    New(plan::NewOffcodeArgs),
    Generate(plan::GenerateArgs),
    Test(plan::TestOffcodeArgs),
    Check(plan::CheckOffloadArgs),
    Plan(plan::PlanArgs),
    Explain(plan::ExplainArgs),
    Devices(plan::DevicesArgs),
    Channels(costs::ChannelsArgs),
    Run(run::RunOffloadArgs),
    Ps(control::PsArgs),
    Stop(control::StopArgs),
    Logs(control::LogsArgs),
    Call(control::CallArgs),
    Move(control::MoveArgs),
    Update(control::UpdateArgs),
    Attribute(control::AttributeArgs),
}

pub(crate) fn run(command: OffloadCommand) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let success = |()| ExitCode::SUCCESS;
    match command {
        OffloadCommand::New(args) => plan::new(&args).map(success),
        OffloadCommand::Generate(args) => plan::generate(&args).map(success),
        OffloadCommand::Test(args) => plan::test(&args),
        OffloadCommand::Check(args) => plan::check(&args).map(success),
        OffloadCommand::Plan(args) => plan::plan(&args).map(success),
        OffloadCommand::Explain(args) => plan::explain(&args).map(success),
        OffloadCommand::Devices(args) => plan::devices(&args).map(success),
        OffloadCommand::Channels(args) => costs::channels(&args).map(success),
        OffloadCommand::Run(args) => run::run(&args),
        OffloadCommand::Ps(args) => control::ps(&args).map(success),
        OffloadCommand::Stop(args) => control::stop(&args).map(success),
        OffloadCommand::Logs(args) => control::logs(&args).map(success),
        OffloadCommand::Call(args) => control::call(&args).map(success),
        OffloadCommand::Move(args) => control::move_offcode(&args).map(success),
        OffloadCommand::Update(args) => control::update(&args).map(success),
        OffloadCommand::Attribute(args) => control::attribute(&args).map(success),
    }
}

/// Runs a device `core` on standard input, which is its socket to the runtime.
pub(crate) fn serve_core(processor: usize, cache: Option<PathBuf>) -> Outcome {
    let socket = rustix::io::dup(std::io::stdin())?;
    outboard_offload::devices::serve_core(socket, Some(processor), cache.as_deref())
        .map_err(Into::into)
}

/// How this program starts its devices.
pub(crate) fn launch_options() -> Result<outboard_offload::launch::LaunchOptions, std::io::Error> {
    Ok(outboard_offload::launch::LaunchOptions {
        // As it was started: another file may lie at its path by now.
        program: PathBuf::from("/proc/self/exe"),
        core_args: vec![OsString::from(CORE)],
        cache: outboard_active::service::cache_directory(),
        runtime: outboard_offload::runtime::RuntimeOptions::default(),
    })
}

/// Prints a line. A reader that has gone wants nothing more.
fn print_line(line: impl Display) -> Outcome {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Prints text that ends in a newline.
fn print_text(text: &str) -> Outcome {
    print_line(text.trim_end_matches('\n'))
}
