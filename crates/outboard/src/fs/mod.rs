//! `outboard fs`: the active file system.

mod at;
mod check;
mod copy;
mod cp;
mod grep;
mod map;
mod mount;
mod promote;
mod serve;
mod snapshot;
mod stats;
mod tree_hash;
mod trees;

use crate::active::{FsExecArgs, fs_exec};
use clap::Subcommand;
pub(crate) use grep::words_of_program;
use std::error::Error;
use std::process::ExitCode;

/// The active file system: files on another machine, at whose server code runs.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  outboard fs serve --store /var/lib/outboard/fs --size 8GiB &
  outboard fs mount localhost:/ ~/files")]
pub(crate) enum FsCommand {
    Serve(serve::FsServeArgs),
    Replica(serve::FsReplicaArgs),
    Promote(promote::PromoteArgs),
    Mount(mount::MountArgs),
    Umount(mount::UmountArgs),
    Find(trees::FindArgs),
    Grep(grep::GrepArgs),
    Count(trees::CountArgs),
    Du(trees::DuArgs),
    Cp(cp::CpArgs),
    Rm(trees::RmArgs),
    TreeHash(tree_hash::TreeHashArgs),
    Map(map::MapArgs),
    Stats(stats::FsStatsArgs),
    Import(copy::ImportArgs),
    Export(copy::ExportArgs),
    Check(check::CheckArgs),
    Snapshot(snapshot::SnapshotArgs),
    Restore(snapshot::RestoreArgs),
    Exec(FsExecArgs),
}

pub(crate) fn run(command: FsCommand) -> Result<ExitCode, Box<dyn Error>> {
    let success = |()| ExitCode::SUCCESS;
    match command {
        FsCommand::Serve(args) => serve::serve(args).map(success),
        FsCommand::Replica(args) => serve::replica(args).map(success),
        FsCommand::Promote(args) => promote::promote(&args).map(success),
        FsCommand::Mount(args) => mount::mount(args).map(success),
        FsCommand::Umount(args) => mount::umount(&args).map(success),
        FsCommand::Find(args) => trees::find(&args),
        FsCommand::Grep(args) => grep::grep(&args),
        FsCommand::Count(args) => trees::count(&args),
        FsCommand::Du(args) => trees::du(&args),
        FsCommand::Cp(args) => cp::cp(&args),
        FsCommand::Rm(args) => trees::rm(&args),
        FsCommand::TreeHash(args) => tree_hash::tree_hash(&args),
        FsCommand::Map(args) => map::map(&args).map(success),
        FsCommand::Stats(args) => stats::stats(&args).map(success),
        FsCommand::Import(args) => copy::import(&args),
        FsCommand::Export(args) => copy::export(&args),
        FsCommand::Check(args) => check::check(&args),
        FsCommand::Snapshot(args) => snapshot::snapshot(&args).map(success),
        FsCommand::Restore(args) => snapshot::restore(&args).map(success),
        FsCommand::Exec(args) => fs_exec(&args).map(success),
    }
}
