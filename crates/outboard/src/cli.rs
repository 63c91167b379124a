//! The command line: commands, their options and their help.

use crate::active::ActiveCommand;
use crate::cast::CastArgs;
use crate::cc::CcArgs;
use crate::fs::FsCommand;
use crate::generate::What;
use crate::key::KeyCommand;
use crate::node::NodeArgs;
use crate::offload::OffloadCommand;
use crate::perf::Perf;
use crate::run::RunArgs;
use crate::sbcast::SbcastArgs;
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::tour::TourArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// RDMA without the hardware: a software NIC in user space.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Tour(TourArgs),
    Run(RunArgs),
    Cc(CcArgs),
    Cast(CastArgs),
    Sbcast(SbcastArgs),
    #[command(subcommand)]
    Active(ActiveCommand),
    #[command(subcommand)]
    Fs(FsCommand),
    #[command(subcommand)]
    Offload(OffloadCommand),
    #[command(subcommand)]
    Perf(Perf),
    Node(NodeArgs),
    #[command(subcommand)]
    Key(KeyCommand),
    Status(StatusArgs),
    Top(TopArgs),
    /// Run one of a node's services; a node starts this.
    #[command(hide = true)]
    NodeService {
        /// The service.
        name: String,
    },
    /// Receive one cast; the cast that starts this says which on standard input.
    #[command(hide = true)]
    CastReceiver {
        /// The levels at which it logs [default: OUTBOARD_LOG].
        #[arg(long)]
        log: Option<String>,
    },
    /// Run a device `core`; `outboard offload run` starts this.
    #[command(hide = true)]
    OffloadCore {
        /// The processor.
        processor: usize,
        /// Where compiled code is kept.
        cache: Option<PathBuf>,
    },
    /// Run the supervisor of a client's sandbox; the service compile starts this.
    #[command(hide = true)]
    SandboxSupervisor,
    /// Write manual pages or completions for shells, from the command line's own definition.
    #[command(hide = true)]
    Generate {
        /// What to write.
        what: What,
        /// Directory that the files go to; it is made if it does not exist.
        dir: PathBuf,
    },
}
