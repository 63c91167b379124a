//! Nodes that are dead, and sources that vanish.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::cluster::{NODES, SlurmCluster, receivers, wait_until};

/// A node that does not answer fails alone, and is named.
pub(super) fn dead_node(cluster: &SlurmCluster) -> Result<()> {
    fs::write(cluster.file("work/file"), "contents")?;
    cluster.kill_node(NODES);
    let run = cluster.allocated("$OB sbcast file $AT/file");
    cluster.start_node(NODES)?;
    let run = run?;
    run.expect_code(1)?.expect_said(&format!("outboard: n{NODES}: no receiver"))?;
    for node in 1..NODES {
        ensure!(fs::read_to_string(cluster.disk(node).join("file"))? == "contents");
        ensure!(!run.complaints().contains(&format!("outboard: n{node}: ")), "n{node} failed too");
    }
    cluster.wait_idle()
}

/// A source that is killed leaves no receiver, wherever in its cast it was.
pub(super) fn killed_source(cluster: &SlurmCluster) -> Result<()> {
    // Long enough to be killed while it is on its way.
    fs::write(cluster.file("work/large"), vec![7; 256 << 20])?;
    for after_ms in [0, 300] {
        let mut salloc = cluster.user_command("timeout");
        let nodes = format!("--nodes={NODES}");
        // The source's own number is in a file; salloc outlives it.
        let script = "sh -c 'echo $$ >pid.new; mv pid.new pid; exec $OB sbcast -f large $AT/large'";
        salloc.args(["60", "salloc", "--quiet", &nodes, "sh", "-c", script]);
        cluster.named(&mut salloc).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut salloc = salloc.spawn()?;
        let pid = cluster.file("work/pid");
        wait_until("all receivers", || Ok(pid.exists() && receivers()?.len() == NODES))?;
        sleep(Duration::from_millis(after_ms));
        let source = fs::read_to_string(&pid)?;
        let mut kill = std::process::Command::new("kill");
        ensure!(kill.args(["-KILL", source.trim()]).status()?.success(), "it had ended");
        let began = Instant::now();
        cluster.expect_no_receivers()?;
        println!("  receivers ended {:.2} s after their source", began.elapsed().as_secs_f64());
        ensure!(!salloc.wait()?.success(), "the source was killed");
        fs::remove_file(&pid)?;
        let left = (1..=NODES).find(|node| cluster.disk(*node).join("large").exists());
        ensure!(left.is_none(), "n{left:?} has published half a file");
    }
    // The next cast finds what the last has left, uses it and removes the rest.
    cluster.allocated("$OB sbcast large $AT/large")?.expect_code(0)?;
    for node in 1..=NODES {
        let names = fs::read_dir(cluster.disk(node))?.count();
        ensure!(names == 1, "n{node} has {names} names where one file was published");
    }
    Ok(())
}
