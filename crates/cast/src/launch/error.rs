//! Why receivers are not started, or one of them ends.

use outboard_cluster::hosts::HostsError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why receivers were not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The caller's: there is no job here.
    #[error(
        "this is no Slurm job (SLURM_JOB_ID is not set): run it from sbatch, or in the shell of \
         salloc, or name the job by --jobid"
    )]
    NoJob,
    /// The caller's: no host is named.
    #[error("name hosts by --nodes, --nodefile, PBS_NODEFILE or OUTBOARD_HOSTS")]
    NoNodes,
    /// A list of nodes is wrong.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A node file is wrong.
    #[error(
        "{path:?}, line {line}: {found:?} names no host; expected HOST, HOST:N or HOST slots=N"
    )]
    NodeFile {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// A file cannot be read.
    #[error("{path:?}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Slurm says nothing of a job.
    #[error("Slurm knows no nodes of job {job}: {found}; see `squeue --jobs={job}`")]
    UnknownJob {
        /// As it was named.
        job: String,
        /// What squeue says.
        found: String,
    },
    /// A command does not start.
    #[error("{program} does not start: {source}; is it installed here, and in PATH?")]
    Command {
        /// What was to be started.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// The caller's: a port with a command of its own.
    #[error("{host}: leave the port out, as --launch-command says how a host is reached")]
    Port {
        /// As the list has it.
        host: String,
    },
    /// This machine's.
    #[error(transparent)]
    NoEntropy(#[from] outboard_secure::NoEntropy),
    /// This machine's: nothing to start on the nodes.
    #[error("this program's own path is not known: {0}")]
    OwnPath(io::Error),
    /// No receiver is there.
    #[error("no receiver has started; on {node}: {why}")]
    NoneStarted {
        /// The first node.
        node: String,
        /// Its reason.
        why: String,
    },
    /// The receiver's input is not what a source writes.
    #[error("standard input: {found}; `outboard cast` starts this command, people do not")]
    Input {
        /// What is wrong with it.
        found: &'static str,
    },
    /// The source's program is another version.
    #[error(
        "the source's program writes version {found} of its invitation, this one reads {expected}: \
         install the same version on all machines"
    )]
    Version {
        /// What it wrote.
        found: u32,
        /// What is read.
        expected: u32,
    },
    /// The receiver does not know where it can be reached.
    #[error("no address by which the source reaches this machine: {0}")]
    Address(io::Error),
    /// The destination at the receiver.
    #[error("{path:?}: {source}; give a directory that this user may write to")]
    Destination {
        /// Which directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The source has not begun.
    #[error("no cast has begun within {} s", .0.as_secs())]
    NotBegun(Duration),
    /// This machine's.
    #[error("this machine: {0}")]
    System(#[from] io::Error),
    /// The service has failed.
    #[error("{0}")]
    Service(String),
}

impl From<rustix::io::Errno> for LaunchError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::System(errno.into())
    }
}
