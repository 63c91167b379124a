//! `outboard fs`: the active file system.

mod mount;

use crate::Outcome;
use clap::Subcommand;

/// A file system between machines, at whose server code runs.
#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
}

pub(crate) fn run(command: FsCommand) -> Outcome {
    match command {
        FsCommand::Mount(args) => mount::mount(args),
        FsCommand::Umount(args) => mount::umount(&args),
    }
}
