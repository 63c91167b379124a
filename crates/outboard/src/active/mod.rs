//! `outboard active`: code next to a node's memory, and modules without a node.

mod local;
mod new;
mod remote;
mod value;

pub(crate) use new::shipped;
pub(crate) use remote::{FsExecArgs, fs_exec};

use crate::Outcome;
use clap::Subcommand;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use value::{ShowAs, shown};

/// Active code: execute modules next to a node's memory.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard node --serve active --region kv=64MiB &
  outboard active exec counter.wasm add u64:0 u64:5 u64:10 --region kv")]
pub(crate) enum ActiveCommand {
    Load(remote::LoadArgs),
    Exec(remote::ExecArgs),
    List(remote::ListArgs),
    Drop(remote::DropArgs),
    Kill(remote::KillArgs),
    Slowlog(remote::SlowlogArgs),
    Stats(remote::StatsArgs),
    Flush(remote::FlushArgs),
    New(new::NewArgs),
    Modules(new::ModulesArgs),
    Run(local::RunLocallyArgs),
    Test(local::TestLocallyArgs),
}

pub(crate) fn run(command: ActiveCommand) -> Outcome {
    match command {
        ActiveCommand::Load(args) => remote::load(&args),
        ActiveCommand::Exec(args) => remote::exec(&args),
        ActiveCommand::List(args) => remote::list(&args),
        ActiveCommand::Drop(args) => remote::drop_module(&args),
        ActiveCommand::Kill(args) => remote::kill(&args),
        ActiveCommand::Slowlog(args) => remote::slowlog(&args),
        ActiveCommand::Stats(args) => remote::stats(&args),
        ActiveCommand::Flush(args) => remote::flush(&args),
        ActiveCommand::New(args) => new::new(&args),
        ActiveCommand::Modules(args) => new::modules(&args),
        ActiveCommand::Run(args) => local::run(&args),
        ActiveCommand::Test(args) => local::test(&args),
    }
}

/// Prints a line. A reader that has gone wants nothing more.
fn print_line(line: impl Display) -> Outcome {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Prints an execution's result.
fn print_result(result: &[u8], show: ShowAs, as_json: bool, more: &Value) -> Outcome {
    if as_json {
        let mut value = json!({
            "result_hex": shown(result, ShowAs::Hex),
            "result": shown(result, ShowAs::Auto),
        });
        if let (Some(value), Some(more)) = (value.as_object_mut(), more.as_object()) {
            value.extend(more.clone());
        }
        return print_line(value);
    }
    match show {
        ShowAs::Raw => {
            let mut out = std::io::stdout();
            out.write_all(result)?;
            Ok(out.flush()?)
        }
        show => print_line(shown(result, show)),
    }
}
