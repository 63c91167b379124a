//! Where a cast may be started, and programs that it starts.

use std::fs;

use anyhow::{Result, ensure};

use super::cluster::{NODES, SlurmCluster, wait_until};
use super::program::CommandRun;

/// A batch script runs on a node of the job, which receives as the others do.
pub(super) fn batch(cluster: &SlurmCluster) -> Result<()> {
    let work = cluster.file("work");
    let script = "#!/bin/sh\nmkdir -p tree/below; echo contents >tree/below/file\n\
                  $OB cast tree $AT/new >said 2>&1; echo $? >status.new; mv status.new status\n";
    fs::write(work.join("job"), script)?;
    let mut sbatch = cluster.user_command("sbatch");
    sbatch.args(["--quiet", &format!("--nodes={NODES}"), "job"]);
    CommandRun::of(cluster.named(&mut sbatch))?.expect_code(0)?;
    wait_until("the batch job's end", || Ok(work.join("status").exists()))?;
    let said = fs::read_to_string(work.join("said"))?;
    ensure!(fs::read_to_string(work.join("status"))?.trim() == "0", "{said}");
    for node in 1..=NODES {
        ensure!(said.contains(&format!("n{node}  1 published")), "{said}");
        let file = cluster.disk(node).join("new/tree/below/file");
        ensure!(fs::read_to_string(file)? == "contents\n");
    }
    cluster.wait_idle()
}

/// A task of a step casts to the whole job.
pub(super) fn inside_a_step(cluster: &SlurmCluster) -> Result<()> {
    fs::write(cluster.file("work/file"), "contents")?;
    let run = cluster.allocated(
        "export SLURM_NTASKS=4 SLURM_CPUS_PER_TASK=1; \
         srun --overlap --nodes=1 --ntasks=1 sh -c '$OB sbcast file $AT/file'",
    )?;
    run.expect_code(0)?;
    expect_file(cluster, "file", 1..=NODES)
}

/// `-j` names a job, or a step of a job.
pub(super) fn from_outside(cluster: &SlurmCluster) -> Result<()> {
    fs::write(cluster.file("work/file"), "contents")?;
    let run = cluster.allocated(
        "job=$SLURM_JOB_ID; srun --overlap --nodes=2 --nodelist=n2,n3 --ntasks=2 sleep 60 & \
         until squeue --noheader --steps=$job.0 --format=%N | grep -q .; do sleep 0.1; done; \
         alone() { env -i PATH=\"$PATH\" SLURM_CONF=\"$SLURM_CONF\" \"$@\"; }; \
         alone $OB sbcast -j $job file $AT/all && \
         alone $OB sbcast --jobid=$job.0 file $AT/some && \
         alone $OB sbcast --jobid=999999 file $AT/none; code=$?; scancel $job.0; exit $code",
    )?;
    run.expect_code(1)?.expect_said("999999")?;
    expect_file(cluster, "all", 1..=NODES)?;
    expect_file(cluster, "some", 2..=3)?;
    let stray = [1, 4].iter().find(|node| cluster.disk(**node).join("some").exists());
    ensure!(stray.is_none(), "the step has no node n{stray:?}");
    Ok(())
}

/// `--nodes` narrows a job for `--launch srun`, `-w` for sbcast.
pub(super) fn some_nodes(cluster: &SlurmCluster) -> Result<()> {
    fs::write(cluster.file("work/file"), "contents")?;
    let run = cluster.allocated(
        "set -e; $OB sbcast -w 'n[1,4]' file $AT/file; \
         $OB cast --launch srun --nodes n2 file $AT/new; \
         $OB cast --launch srun --nodes n2,n9 file $AT/new",
    )?;
    run.expect_code(1)?.expect_said("n9 is not among its nodes")?;
    expect_file(cluster, "file", [1, 4])?;
    expect_file(cluster, "new/file", [2])?;
    ensure!(!cluster.disk(2).join("file").exists());
    Ok(())
}

/// `--exec` runs on every node, finds its libraries first, and its exit status counts.
pub(super) fn exec(cluster: &SlurmCluster) -> Result<()> {
    let run = cluster.allocated(
        "$OB cast --exec --send-libs --libs-exclude NONE /usr/bin/printenv $AT/new -- \
         SLURMD_NODENAME LD_LIBRARY_PATH",
    )?;
    run.expect_code(0)?;
    let libraries = cluster.destination().join("new/printenv_libs").display().to_string();
    let mut expected: Vec<String> = (1..=NODES).map(|node| format!("n{node}")).collect();
    expected.extend((0..NODES).map(|_| libraries.clone()));
    expected.sort();
    ensure!(run.lines() == expected, "{:?}", run.lines());
    fs::write(cluster.file("work/ends"), "#!/bin/sh\nexit $1\n")?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(cluster.file("work/ends"), mode)?;
    let run = cluster.allocated("$OB cast --exec ends $AT/new -- 7")?;
    run.expect_code(7)?;
    // A cast that fails starts nothing.
    let run = cluster.allocated("$OB cast --exec ends $AT/new -- 7")?;
    run.expect_code(1)?.expect_said("at the destination already")?;
    Ok(())
}

fn expect_file(
    cluster: &SlurmCluster,
    name: &str,
    nodes: impl IntoIterator<Item = usize>,
) -> Result<()> {
    for node in nodes {
        let found = fs::read_to_string(cluster.disk(node).join(name));
        ensure!(found.as_deref().is_ok_and(|text| text == "contents"), "n{node}: {found:?}");
    }
    Ok(())
}
