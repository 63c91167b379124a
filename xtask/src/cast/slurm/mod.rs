//! Tests that `outboard cast` and `outboard sbcast` work in jobs of a real Slurm, and by a real
//! sshd.
//!
//! Slurm is Debian's, with four nodes on this machine: each slurmd has a mount namespace, in which
//! the directory that files are cast to is its own. Jobs are those of an ordinary user.
//! `OUTBOARD_ONLY=ssh cargo xtask test cast-slurm` runs the checks with that in their names.
//!
//! Reading order: `cluster` (the daemons, jobs), `program` (a run of a command, and what it said),
//! then the checks: `beside` (Slurm's sbcast on the same files), `jobs` (salloc, sbatch, srun,
//! programs that start), `faults` (dead nodes, sources that vanish), `secret`, `ssh` (sshd, node
//! files of PBS and mpiexec).

mod beside;
mod cluster;
mod faults;
mod jobs;
mod program;
mod secret;
mod ssh;

use anyhow::Result;

use crate::test::Count;
use crate::test::check::{passes, wanted};
use crate::test::needs::is_root;
use cluster::SlurmCluster;

/// The Debian packages that the checks need.
pub const PACKAGES: &[&str] = &[
    "munge",
    "openssh-client",
    "openssh-server",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurmctld",
    "slurmd",
    "util-linux",
];

type RunSlurmCheck = fn(&SlurmCluster) -> Result<()>;

const CHECKS: &[(&str, RunSlurmCheck)] = &[
    ("slurm: sbcast and ours put the same files", beside::same_files),
    ("slurm: sbcast and ours refuse the same", beside::same_refusals),
    ("slurm: sbcast and ours send the same libraries", beside::same_libraries),
    ("slurm: both are timed", beside::timed),
    ("slurm: a batch script's node is a receiver too", jobs::batch),
    ("slurm: a cast inside a step", jobs::inside_a_step),
    ("slurm: a job named from outside", jobs::from_outside),
    ("slurm: some of a job's nodes", jobs::some_nodes),
    ("slurm: a program that starts on the nodes", jobs::exec),
    ("slurm: a dead node costs the others nothing but time", faults::dead_node),
    ("slurm: no receiver stays behind its source", faults::killed_source),
    ("slurm: the secret is nowhere to be read", secret::nowhere),
    ("ssh: hosts and node files", ssh::hosts_and_node_files),
    ("ssh: a host that refuses logins", ssh::refused),
];

/// Starts Slurm and runs every check.
///
/// # Errors
/// When Slurm does not start here or the program does not build; a check that fails is counted.
pub fn run() -> Result<Count> {
    if !is_root() {
        println!("skipped: nodes are mount namespaces, which need root");
        return Ok(Count { skipped: 1, ..Count::default() });
    }
    let checks: Vec<_> = CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    let mut total = Count::default();
    if checks.is_empty() {
        return Ok(total);
    }
    let cluster = SlurmCluster::new()?;
    for (name, check) in checks {
        let passed = passes(name, || {
            cluster.clear()?;
            let checked = check(&cluster).and_then(|()| cluster.expect_no_receivers());
            checked.inspect_err(|_| cluster.print_logs())
        });
        total += Count::one(passed);
    }
    Ok(total)
}
