//! A Slurm job: its nodes, and the `srun` that starts one process on each of them.
//!
//! Inside a job its environment says all, and slurmctld is asked for nothing but the one step. The
//! options say what the step must be whatever the job's own variables (`SLURM_NTASKS`, …) are.

use super::LaunchError;
use outboard_cluster::hosts::HostList;
use std::ffi::OsString;
use std::process::Command;

/// A job of Slurm, as its environment describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    id: String,
    nodes: HostList,
}

/// The step of receivers, but for its nodes.
const STEP: [&str; 12] = [
    "--quiet",
    "--overlap",
    "--ntasks-per-node=1",
    "--mpi=none",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--no-kill",
    "--input=all",
    "--output=all",
    "--error=all",
    "--chdir=/",
    "--job-name=outboard-cast",
];

impl SlurmJob {
    /// The job that this process is in. Pass `|name| std::env::var_os(name)`.
    ///
    /// # Errors
    /// [`LaunchError::Hosts`] when its node list cannot be understood.
    pub fn from_environment(
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Option<Self>, LaunchError> {
        let text = |name: &str| variable(name)?.into_string().ok().filter(|text| !text.is_empty());
        let id = text("SLURM_JOB_ID").or_else(|| text("SLURM_JOBID"));
        let nodes = text("SLURM_JOB_NODELIST").or_else(|| text("SLURM_NODELIST"));
        let (Some(id), Some(nodes)) = (id, nodes) else { return Ok(None) };
        Ok(Some(Self { id, nodes: HostList::parse(&nodes, "SLURM_JOB_NODELIST")? }))
    }

    /// A job, or a step of a job (`1234.5`), by its number: one question to slurmctld.
    ///
    /// # Errors
    /// [`LaunchError::UnknownJob`], [`LaunchError::Command`].
    pub fn look_up(id: &str) -> Result<Self, LaunchError> {
        let (what, format) = match id.split_once('.') {
            Some(_) => ("--steps", "--format=%N"),
            None => ("--jobs", "--format=%N"),
        };
        let mut squeue = Command::new("squeue");
        let output = squeue.args(["--noheader", format, what, id]).output();
        let output =
            output.map_err(|source| LaunchError::Command { program: "squeue".into(), source })?;
        let (found, complaint) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let nodes = found.lines().next().unwrap_or_default().trim();
        if !output.status.success() || nodes.is_empty() {
            let found = complaint.lines().next().unwrap_or("it has none now").to_owned();
            return Err(LaunchError::UnknownJob { job: id.into(), found });
        }
        let job = id.split('.').next().unwrap_or(id).to_owned();
        Ok(Self { id: job, nodes: HostList::parse(nodes, "squeue")? })
    }

    /// Its nodes.
    #[must_use]
    pub fn nodes(&self) -> &HostList {
        &self.nodes
    }

    /// The same job with some of its nodes only.
    ///
    /// # Errors
    /// [`LaunchError::UnknownJob`] when one is not the job's.
    pub fn narrowed(self, nodes: HostList) -> Result<Self, LaunchError> {
        match nodes.iter().find(|node| !self.nodes.hosts().contains(node)) {
            Some(stray) => {
                let found = format!("{stray} is not among its nodes, {}", self.nodes);
                Err(LaunchError::UnknownJob { job: self.id, found })
            }
            None => Ok(Self { nodes, ..self }),
        }
    }

    /// The command that starts a receiver on each of these nodes of the job.
    pub(super) fn receivers(&self, nodes: &[String], receiver: &[OsString]) -> Command {
        let mut srun = Command::new("srun");
        srun.args(STEP).args(self.placed(nodes)).args(receiver);
        srun
    }

    /// The command that starts a program as the job's variables say, on these nodes.
    pub(super) fn program(&self, nodes: &[String], words: &[OsString]) -> Command {
        let mut srun = Command::new("srun");
        srun.arg(format!("--jobid={}", self.id)).arg("--overlap");
        if nodes.len() != self.nodes.hosts().len() {
            srun.arg(format!("--nodes={}", nodes.len()));
            srun.arg(format!("--nodelist={}", nodes.join(",")));
        }
        srun.args(words);
        srun
    }

    fn placed(&self, nodes: &[String]) -> Vec<String> {
        let count = nodes.len();
        let job = format!("--jobid={}", self.id);
        let list = format!("--nodelist={}", nodes.join(","));
        vec![job, format!("--nodes={count}"), format!("--ntasks={count}"), list]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(list: &'static str) -> Option<SlurmJob> {
        let variable = move |name: &str| match name {
            "SLURM_JOB_ID" => Some(OsString::from("7")),
            "SLURM_JOB_NODELIST" => Some(OsString::from(list)),
            _ => None,
        };
        SlurmJob::from_environment(variable).expect("a list")
    }

    #[test]
    fn lists_are_what_scontrol_show_hostnames_says_of_them() {
        // `scontrol show hostnames` of Slurm 22.05.
        for (list, hosts) in [
            (
                "n[1-4,07-09],gpu[1-2]-x[0-1]",
                "n1,n2,n3,n4,n07,n08,n09,gpu1-x0,gpu1-x1,gpu2-x0,gpu2-x1",
            ),
            ("n[08-11]", "n08,n09,n10,n11"),
            ("n[099-100]", "n099,n100"),
            ("n[001,3,05-07]", "n001,n3,n05,n06,n07"),
            ("rack[0-1]node[00-01]", "rack0node00,rack0node01,rack1node00,rack1node01"),
            ("x1,x[2-3],y", "x1,x2,x3,y"),
            ("n1[2-3]", "n12,n13"),
        ] {
            assert_eq!(job(list).expect("a job").nodes().to_string(), hosts, "{list}");
        }
    }

    #[test]
    fn a_process_outside_of_a_job_is_in_none() {
        assert!(job("").is_none());
        assert!(SlurmJob::from_environment(|_| None).expect("nothing").is_none());
    }

    #[test]
    fn a_job_is_narrowed_to_its_own_nodes_only() {
        let whole = || job("n[1-3]").expect("a job");
        let narrow = whole().narrowed("n2".parse().expect("a host")).expect("its own");
        assert_eq!(narrow.nodes().to_string(), "n2");
        let stray = whole().narrowed("n2,n9".parse().expect("hosts")).expect_err("n9 is not");
        assert!(stray.to_string().contains("n9"), "{stray}");
    }
}
