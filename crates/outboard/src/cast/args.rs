//! The arguments of `outboard cast`. Means nothing by itself: `request` and `plan` read them.

use crate::launch::LaunchArgs;
use crate::quantity::{ByteCount, ByteRate};
use crate::send_libs::EXCLUDED;
use clap::Args;
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::source::SourceBuffers;
use outboard_cast::tree::XattrScope;
use outboard_cluster::hosts::HostList;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;

/// How chunks travel: as the command chooses, or as its caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScheduleWish {
    /// What suits the number of nodes and bytes.
    Auto,
    /// This one.
    Kind(ScheduleKind),
}

/// Put files on many nodes, which pass them on to each other.
///
/// The nodes serve cast: `outboard node --serve cast`, with roots in the table cast of node.toml,
/// and reach.cast so that they reach each other. Each SRC appears in DEST complete and verified,
/// or not at all. Exits with 0 if all nodes have it (with --min-nodes: so many), with 1 if not or
/// if nothing could be cast, with 2 if the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard cast model.bin data/ /var/cast/job7 --nodes n[01-16]
  outboard cast --replace --min-nodes 60 app/ /opt/apps --nodes n[01-64] --topology topology.conf
  outboard cast --dry-run --exclude .git --exclude '*.o' src/ /var/cast
  outboard cast --plan --plan-nodes 1000 --plan-size 10G --rate 100Gbit

Patterns of --exclude: one without / is compared with names at any depth, one with / with paths
that begin with the name of SRC. * stands for any bytes but /, ** for any, ? for one byte, [a-z] for
one of these; a / at the end is for directories only, and all beneath an excluded directory is left
out with it. A SRC itself is never left out.

Sizes are bytes, or have a suffix: 64K, 1M, 2G (powers of 1,024), 100MB (of 1,000). Rates are bytes
a second, with the same suffixes, or bits: 100Mbit, 10Gbit.")]
pub(crate) struct CastArgs {
    /// Files and directories, and last the directory at the nodes in which they appear.
    ///
    /// Words after -- are no options. With --exec they are its ARGS, unless nothing stands before
    /// them: then ARGS follow a second --.
    #[arg(value_name = "SRC... DEST")]
    pub(super) paths: Vec<PathBuf>,
    /// The nodes [default: those of the Slurm job, or OUTBOARD_HOSTS].
    #[arg(long, value_name = "LIST")]
    pub(super) nodes: Option<HostList>,
    /// Leave out what matches; can be given again.
    #[arg(long, value_name = "PATTERN")]
    pub(super) exclude: Vec<String>,
    /// Give everything this owner, where nodes set owners: USER, USER:GROUP or :GROUP, as names or
    /// numbers.
    #[arg(long, value_name = "OWNER")]
    pub(super) chown: Option<String>,
    /// Which extended attributes go: none, user, or security, which is those of users and of the
    /// kernel (such as file capabilities). Nodes keep the latter if their administrator says so.
    #[arg(long, value_name = "WHICH", default_value = "user")]
    pub(super) xattrs: XattrScope,
    /// Replace what is there, at once.
    #[arg(long, conflicts_with = "merge")]
    pub(super) replace: bool,
    /// Put files among those that are there, each at once.
    #[arg(long)]
    pub(super) merge: bool,
    /// Show the names at once: a read of what has not come yet fetches it out of turn. Nodes need
    /// FUSE.
    #[arg(long, conflicts_with = "merge")]
    pub(super) lazy: bool,
    /// Flush to disks before names appear.
    #[arg(long)]
    pub(super) sync: bool,
    /// Succeed when so many nodes have it; do not begin if fewer can be reached.
    #[arg(long, value_name = "N")]
    pub(super) min_nodes: Option<NonZeroU32>,
    /// What each node, this one too, sends in a second at most; for --plan, what links carry.
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<ByteRate>,
    /// How chunks travel: auto, binomial, two-tree, chain, tree:ARITY, paper:ARITY, star or, with
    /// --topology, switches.
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = schedule)]
    pub(super) schedule: ScheduleWish,
    /// The switches above the nodes, in the format of Slurm's topology.conf: a chunk crosses the
    /// links between switches once.
    #[arg(long, value_name = "FILE")]
    pub(super) topology: Option<PathBuf>,
    /// Bytes in a chunk: a power of two from 4K to 8M [default: 128K to 1M, by the number of
    /// bytes].
    #[arg(long, value_name = "SIZE")]
    pub(super) chunk: Option<ByteCount>,
    /// Where this side takes chunks from: window (they are read into memory), or out of mappings in
    /// the ways of the paper Fast Startup: mmap-all, multi-send-one-map, multi-send-multi-map.
    #[arg(long, value_name = "NAME", default_value = "window")]
    pub(super) buffers: SourceBuffers,
    /// Send nothing: print what would be sent, and what is left out.
    #[arg(long, conflicts_with = "plan")]
    pub(super) dry_run: bool,
    /// Send nothing: print how chunks would travel, and how long the model says that it takes.
    /// Needs no node to run, and no key.
    #[arg(long)]
    pub(super) plan: bool,
    /// Plan for so many nodes instead of --nodes.
    #[arg(long, value_name = "N", requires = "plan", conflicts_with = "nodes")]
    pub(super) plan_nodes: Option<NonZeroU32>,
    /// Plan for so many bytes instead of those of SRC.
    #[arg(long, value_name = "SIZE", requires = "plan")]
    #[arg(conflicts_with_all = ["paths", "arguments"])]
    pub(super) plan_size: Option<ByteCount>,
    /// Print the outcome as one JSON object.
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
    #[arg(last = true, value_name = "ARGS")]
    pub(super) arguments: Vec<OsString>,
}

impl CastArgs {
    /// Words after `--` are sources and the destination, or the arguments of `--exec`: both, if
    /// there is a second `--`.
    pub(super) fn settled(mut self) -> Self {
        let is_all = !self.exec;
        if is_all || self.paths.is_empty() {
            let words = std::mem::take(&mut self.arguments);
            let second = words.iter().position(|word| word == "--").filter(|_| !is_all);
            let end = second.unwrap_or(words.len());
            self.paths.extend(words[..end].iter().map(PathBuf::from));
            self.arguments = words.into_iter().skip(end + 1).collect();
        }
        self
    }
}

fn schedule(word: &str) -> Result<ScheduleWish, String> {
    match word {
        "auto" => Ok(ScheduleWish::Auto),
        word => word.parse().map(ScheduleWish::Kind).map_err(|error| format!("{error}, or auto")),
    }
}
