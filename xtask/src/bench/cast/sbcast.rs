//! Slurm's sbcast: munged and slurmctld beside the source, a slurmd on each receiver.

use std::fmt::Display;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::stage::{CastStage, SourceFile};
use crate::slurm::{SlurmAddress, SlurmFiles};

const CONTROL_PORT: u16 = 6817;
/// The first node's; each has its own.
const NODE_PORT: u16 = 6820;
const IDLE_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// Prints the seconds that the rest takes.
const TIMED: &str = r#"began=$(date +%s.%N); "$@" && echo $began $(date +%s.%N)"#;

/// Casts in an allocation of all receivers; its own start is not counted.
pub(super) fn cast(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    let slurm = configure(stage)?;
    start(stage, &slurm)?;
    let cast = wait_idle(stage, &slurm).and_then(|()| {
        let mut allocate = stage.here("salloc");
        allocate.env("SLURM_CONF", slurm.configuration());
        allocate.args(["--quiet", "--nodes", &stage.receivers().to_string()]);
        allocate.args(["sh", "-c", TIMED, "sh", "sbcast"]).arg(&file.path);
        allocate.arg(stage.destination().join(file.path.file_name().unwrap_or_default()));
        stage.run(&mut allocate)
    });
    stage.end_all()?;
    let (_, said) = cast?;
    stage.check(file)?;
    let times: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match times[..] {
        [began, ended] => Ok(ended - began),
        _ => bail!("the allocation printed {said:?}"),
    }
}

fn configure(stage: &mut CastStage) -> Result<SlurmFiles> {
    let own = stage.directory("slurm")?;
    fs::remove_dir_all(&own)?;
    let own = stage.directory("slurm")?;
    let address = |host: &dyn Display, port| SlurmAddress { host: host.to_string(), port };
    let control = address(&stage.source_host().address, CONTROL_PORT);
    let nodes = stage.addresses().into_iter().zip(NODE_PORT..);
    let nodes: Vec<_> = nodes.map(|(host, port)| address(&host, port)).collect();
    SlurmFiles::write(&own, &control, &nodes)
}

fn start(stage: &mut CastStage, slurm: &SlurmFiles) -> Result<()> {
    let mut munged = stage.here("munged");
    stage.start(slurm.munged(&mut munged))?;
    let deadline = Instant::now() + IDLE_MAX;
    while !slurm.socket().exists() {
        if Instant::now() > deadline {
            bail!("munged does not listen");
        }
        sleep(PAUSE);
    }
    let mut control = stage.here("slurmctld");
    stage.start(slurm.slurmctld(&mut control))?;
    for index in 0..stage.receivers() {
        let mut node = stage.at(index, "slurmd");
        stage.start(slurm.slurmd(&mut node, index + 1))?;
    }
    Ok(())
}

fn wait_idle(stage: &CastStage, slurm: &SlurmFiles) -> Result<()> {
    let expected = format!("idle {}", stage.receivers());
    let deadline = Instant::now() + IDLE_MAX;
    let mut said = String::new();
    while said.trim() != expected {
        if Instant::now() > deadline {
            bail!("Slurm's nodes are not idle: {said}");
        }
        sleep(PAUSE);
        let mut show = stage.here("sinfo");
        show.env("SLURM_CONF", slurm.configuration()).args(["--noheader", "--format=%T %D"]);
        // It fails until slurmctld answers.
        said = stage.run(&mut show).map(|(_, said)| said).unwrap_or_default();
    }
    Ok(())
}
