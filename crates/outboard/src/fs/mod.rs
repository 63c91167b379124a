//! `outboard fs`: the active file system.

mod serve;

use crate::Outcome;
use clap::Subcommand;

/// The active file system: files on another machine, one round trip an operation.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard fs serve --store /var/lib/outboard/fs --size 8GiB &
  outboard fs mount localhost:/ ~/files")]
pub(crate) enum FsCommand {
    Serve(serve::ServeArgs),
}

pub(crate) fn run(command: FsCommand) -> Outcome {
    match command {
        FsCommand::Serve(args) => serve::serve(args),
    }
}
