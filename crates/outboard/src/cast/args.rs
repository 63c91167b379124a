//! The arguments of `outboard cast`. Means nothing by itself: `request` reads them.

use crate::launch::LaunchArgs;
use crate::send_libs::EXCLUDED;
use clap::Args;
use outboard_cast::schedule::ScheduleKind;
use outboard_cluster::hosts::HostList;
use std::ffi::OsString;
use std::path::PathBuf;

/// Put files on many nodes, which pass them on to each other.
///
/// The nodes serve cast: `outboard node --serve cast`, with roots in the table [cast] of node.toml,
/// and [reach.cast] so that they reach each other. Each SRC appears at DEST complete and verified,
/// or not at all. Exits with 1 unless all nodes have it.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard cast model.bin data/ /var/cast/job7 --nodes n[01-16]")]
pub(crate) struct CastArgs {
    /// Files and directories, and last the directory at the nodes in which they appear.
    #[arg(required = true, num_args = 2.., value_name = "SRC... DEST")]
    pub(super) paths: Vec<PathBuf>,
    /// The nodes [default: those of the Slurm job, or OUTBOARD_HOSTS].
    #[arg(long, value_name = "LIST")]
    pub(super) nodes: Option<HostList>,
    /// Leave out what matches; can be given again.
    #[arg(long, value_name = "PATTERN")]
    pub(super) exclude: Vec<String>,
    /// How chunks travel: binomial, two-tree, chain, tree:ARITY, paper:ARITY or star.
    #[arg(long, value_name = "NAME", default_value = "binomial")]
    pub(super) schedule: ScheduleKind,
    /// Bytes in a chunk, a power of two.
    #[arg(long, value_name = "BYTES", default_value = "1048576")]
    pub(super) chunk: u32,
    /// Replace what is there, at once.
    #[arg(long, conflicts_with = "merge")]
    pub(super) replace: bool,
    /// Put files among those that are there, each at once.
    #[arg(long)]
    pub(super) merge: bool,
    /// Flush to disks before names appear.
    #[arg(long)]
    pub(super) sync: bool,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) launch: LaunchArgs,
    /// Start the first SRC on the nodes once its files are there, with ARGS; by srun or ssh.
    #[arg(long)]
    pub(super) exec: bool,
    /// Send the shared libraries of the first SRC too, into a directory SRC_libs.
    #[arg(long)]
    pub(super) send_libs: bool,
    /// Directories whose libraries --send-libs leaves out, with commas between, or NONE.
    #[arg(long, value_name = "PATHS", default_value = EXCLUDED, requires = "send_libs")]
    pub(super) libs_exclude: String,
    /// What the program of --exec is given.
    #[arg(last = true, value_name = "ARGS", requires = "exec")]
    pub(super) arguments: Vec<OsString>,
}
