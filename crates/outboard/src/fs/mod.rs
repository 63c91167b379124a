//! `outboard fs`: the active file system.

mod mount;
mod serve;

use crate::Outcome;
use clap::Subcommand;

/// The active file system: files on another machine, at whose server code runs.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard fs serve --store /var/lib/outboard/fs --size 8GiB &
  outboard fs mount localhost:/ ~/files")]
pub(crate) enum FsCommand {
    Serve(serve::ServeArgs),
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
}

pub(crate) fn run(command: FsCommand) -> Outcome {
    match command {
        FsCommand::Serve(args) => serve::serve(args),
        FsCommand::Mount(args) => mount::mount(args),
        FsCommand::Umount(args) => mount::umount(&args),
    }
}
