//! How a cast reaches its nodes: nodes that run already, or receivers that it starts, by Slurm or
//! ssh; and the program that starts there afterwards.

use crate::log;
use clap::{Args, ValueEnum};
use outboard_cast::launch::{
    ExecProgram, LaunchError, LaunchRequest, LaunchWay, LaunchedReceivers, MissingDestination,
    NodeFile, SlurmJob, receive as receiver,
};
use outboard_cast::protocol::SERVICE;
use outboard_cast::source::{CastLimits, CastOutcome, DialNode, NodeOutcome};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_secure::ServiceName;
use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whether receivers are started, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LaunchKind {
    /// None: the nodes run `outboard node --serve cast`.
    None,
    /// One step of this Slurm job.
    Srun,
    /// OpenSSH, which must not need to ask anything.
    Ssh,
}

#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Starting receivers")]
pub(crate) struct LaunchArgs {
    /// What starts a receiver on each node [default: srun in a Slurm job without --nodes, ssh with
    /// a node file, or else none].
    #[arg(long, value_name = "WAY")]
    launch: Option<LaunchKind>,
    /// The hosts of a node file of PBS or mpiexec [default: PBS_NODEFILE].
    #[arg(long, value_name = "FILE", conflicts_with = "nodes")]
    nodefile: Option<PathBuf>,
    /// In place of ssh, a command that takes a host and a line for its shell.
    #[arg(long, value_name = "COMMAND")]
    launch_command: Option<String>,
    /// This program's path at the nodes [default: as here].
    #[arg(long, value_name = "PATH")]
    launch_program: Option<PathBuf>,
    /// How long receivers may take to start.
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    launch_limit: u64,
}

/// How receivers are started, once that is settled.
#[derive(Debug)]
pub(crate) struct LaunchChoice {
    pub(crate) way: LaunchWay,
    /// This program's path at the nodes; `None`: as here.
    pub(crate) program: Option<PathBuf>,
    pub(crate) limit: Duration,
    pub(crate) missing: MissingDestination,
}

/// The nodes of a cast, and how they are dialled.
#[derive(Debug)]
pub(crate) struct CastReach {
    way: Option<LaunchWay>,
    launched: Option<LaunchedReceivers>,
    /// Without launched receivers.
    nodes: Option<HostList>,
}

/// The hidden command: receives one cast, as standard input says.
pub(crate) fn receive(log: Option<&str>) -> crate::Outcome {
    crate::services::name_process("receiver");
    log::start_cast(log)?;
    let mut output = std::io::stdout();
    receiver(rustix::stdio::stdin(), &mut output, |name| env::var_os(name))?;
    Ok(())
}

impl LaunchArgs {
    /// How receivers are started, if they are.
    pub(crate) fn settle(
        &self,
        nodes: Option<&HostList>,
    ) -> Result<Option<LaunchChoice>, LaunchError> {
        let Some(way) = self.way(nodes)? else { return Ok(None) };
        Ok(Some(LaunchChoice {
            way,
            program: self.launch_program.clone(),
            limit: Duration::from_secs(self.launch_limit),
            missing: MissingDestination::Make,
        }))
    }

    fn way(&self, nodes: Option<&HostList>) -> Result<Option<LaunchWay>, LaunchError> {
        let variable = |name: &str| env::var_os(name);
        let (job, is_remote) = (
            SlurmJob::from_environment(variable)?,
            self.nodefile.is_some() || self.launch_command.is_some(),
        );
        match (self.launch, nodes, job) {
            (Some(LaunchKind::None), ..) => Ok(None),
            (Some(LaunchKind::Srun), _, None) => Err(LaunchError::NoJob),
            (Some(LaunchKind::Srun), Some(nodes), Some(job)) => {
                Ok(Some(LaunchWay::Slurm(job.narrowed(nodes.clone())?)))
            }
            (Some(LaunchKind::Srun), None, Some(job)) => Ok(Some(LaunchWay::Slurm(job))),
            (None, None, Some(job)) if !is_remote => Ok(Some(LaunchWay::Slurm(job))),
            (Some(LaunchKind::Ssh), nodes, _) => self.remote(nodes).map(Some),
            (None, nodes, _) if is_remote => self.remote(nodes).map(Some),
            (None, None, None) if variable("PBS_NODEFILE").is_some() => self.remote(None).map(Some),
            (None, ..) => Ok(None),
        }
    }

    fn remote(&self, nodes: Option<&HostList>) -> Result<LaunchWay, LaunchError> {
        let hosts = match (nodes, &self.nodefile) {
            (Some(nodes), _) => nodes.clone(),
            (None, Some(path)) => NodeFile::read(path)?.into_hosts(),
            (None, None) => match NodeFile::of_pbs(|name| env::var_os(name))? {
                Some(file) => file.into_hosts(),
                None => HostList::from_environment(|name| env::var_os(name))?
                    .ok_or(LaunchError::NoNodes)?,
            },
        };
        Ok(match &self.launch_command {
            None => LaunchWay::Ssh(hosts),
            Some(command) => {
                let words = command.split_whitespace().map(str::to_owned).collect();
                LaunchWay::Command { words, hosts }
            }
        })
    }
}

impl CastReach {
    /// Starts receivers of a directory.
    pub(crate) fn launch(launch: LaunchChoice, destination: &Path) -> Result<Self, LaunchError> {
        let program = match launch.program {
            Some(program) => program,
            None => env::current_exe().map_err(LaunchError::OwnPath)?,
        };
        let request = LaunchRequest {
            way: launch.way.clone(),
            program,
            destination: destination.into(),
            missing: launch.missing,
            limit: launch.limit,
            log: log::levels(),
        };
        let launched = LaunchedReceivers::start(&request)?;
        Ok(Self { way: Some(launch.way), launched: Some(launched), nodes: None })
    }

    /// Nodes that serve cast already.
    pub(crate) fn to(nodes: HostList) -> Self {
        Self { way: None, launched: None, nodes: Some(nodes) }
    }

    /// The hosts to dial, and what dials them.
    pub(crate) fn hosts(&self) -> Result<(HostList, DialNode), Box<dyn Error>> {
        if let Some(launched) = &self.launched {
            return Ok((launched.hosts().clone(), launched.dial()));
        }
        let service: ServiceName = SERVICE.parse()?;
        let dialer =
            Dialer::from_environment(|name| env::var_os(name), std::slice::from_ref(&service))?;
        let dial = move |host: &Host, limit: Duration| {
            let dialled = dialer.dial(host, &service, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        };
        let nodes = self.nodes.clone().ok_or("name nodes by --nodes or OUTBOARD_HOSTS")?;
        Ok((nodes, Arc::new(dial)))
    }

    /// The hosts' names as the user has them, in the same order.
    pub(crate) fn names(&self) -> Vec<String> {
        match (&self.launched, &self.nodes) {
            (Some(launched), _) => launched.names().map(str::to_owned).collect(),
            (None, Some(nodes)) => nodes.iter().map(ToString::to_string).collect(),
            (None, None) => Vec::new(),
        }
    }

    /// How many nodes the user has named, receivers that have not started among them.
    pub(crate) fn named(&self) -> usize {
        let failed = self.launched.as_ref().map_or(0, |launched| launched.failed().len());
        self.names().len() + failed
    }

    /// Checks that a cast can reach as many nodes as must have it.
    pub(crate) fn check_min_nodes(&self, min: usize) -> Result<(), String> {
        let failed = self.launched.as_ref().map_or(&[][..], LaunchedReceivers::failed);
        let (started, named) = (self.names().len(), self.named());
        if min > named {
            return Err(format!("--min-nodes {min}: only {named} nodes are named"));
        }
        if min <= started {
            return Ok(());
        }
        let reason = |node: &NodeOutcome| {
            let why = node.result.as_ref().err().map_or("", String::as_str);
            format!("\n  {}: {why}", node.host)
        };
        let reasons: String = failed.iter().map(reason).collect();
        Err(format!(
            "--min-nodes {min}: receivers have started on {started} of {named} nodes only{reasons}"
        ))
    }

    /// Ends receivers that were started, and names nodes as the user does.
    pub(crate) fn finish(&mut self, outcome: CastOutcome, limits: CastLimits) -> CastOutcome {
        match self.launched.take() {
            Some(launched) => launched.finish(outcome, limits),
            None => outcome,
        }
    }

    /// Starts a program on the nodes that have its files; its exit status.
    pub(crate) fn exec(
        &self,
        program: &ExecProgram,
        outcome: &CastOutcome,
    ) -> Result<ExitCode, Box<dyn Error>> {
        let way = self.way.as_ref().ok_or(
            "--exec needs srun or ssh, which start the program: be in a Slurm job, or add \
             --launch ssh",
        )?;
        let published = outcome.nodes.iter().filter(|node| node.result.is_ok());
        let nodes: Vec<String> = published.map(|node| node.host.clone()).collect();
        Ok(ExitCode::from(program.run(way, &nodes)?.code))
    }
}
