//! Slurm's sbcast: munged and slurmctld beside the source, a slurmd on each receiver.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::stage::{CastStage, SourceFile, write};

const CONTROL_PORT: u16 = 6817;
/// The first node's; each has its own.
const NODE_PORT: usize = 6820;
const IDLE_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);
/// Prints the seconds that the rest takes.
const TIMED: &str = r#"began=$(date +%s.%N); "$@" && echo $began $(date +%s.%N)"#;

/// Casts in an allocation of all receivers; its own start is not counted.
pub(super) fn cast(stage: &mut CastStage, file: &SourceFile) -> Result<f64> {
    let own = stage.directory("slurm")?;
    let _ = fs::remove_dir_all(&own);
    let own = stage.directory("slurm")?;
    let configuration = own.join("slurm.conf");
    write(&configuration, &text(stage, &own)?)?;
    start(stage, &own, &configuration)?;
    let cast = wait_idle(stage, &configuration).and_then(|()| {
        let mut allocate = stage.here("salloc");
        allocate.env("SLURM_CONF", &configuration);
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

fn text(stage: &CastStage, own: &Path) -> Result<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?.trim().to_owned();
    let (own, source) = (own.display(), stage.source_host().address);
    let mut text = format!(
        "ClusterName=bench\nSlurmctldHost={host}({source})\nSlurmctldPort={CONTROL_PORT}\n\
         SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={own}/socket\n\
         CredType=cred/munge\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n\
         MpiDefault=none\nSelectType=select/linear\nJobAcctGatherType=jobacct_gather/none\n\
         SwitchType=switch/none\nReturnToService=2\nSlurmdParameters=config_overrides\n\
         StateSaveLocation={own}/state\nSlurmdSpoolDir={own}/%n\nSlurmdPidFile={own}/%n.pid\n\
         SlurmctldPidFile={own}/control.pid\nSlurmdLogFile={own}/%n.log\n\
         SlurmctldLogFile={own}/control.log\nTmpFS=/tmp\n"
    );
    for (index, address) in stage.addresses().iter().enumerate() {
        text += &format!(
            "NodeName=n{index} NodeHostName={host} NodeAddr={address} Port={} CPUs=1 \
             RealMemory=100\n",
            NODE_PORT + index
        );
    }
    Ok(text + "PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
}

fn start(stage: &mut CastStage, own: &Path, configuration: &Path) -> Result<()> {
    let mut secret = vec![0; 1024];
    File::open("/dev/urandom")?.read_exact(&mut secret)?;
    let key = own.join("key");
    fs::write(&key, secret)?;
    fs::set_permissions(&key, Permissions::from_mode(0o400))?;
    fs::create_dir_all(own.join("state"))?;
    let mut munged = stage.here("munged");
    munged.args(["--foreground", "--force", "--key-file"]).arg(&key);
    for (option, name) in
        [("--socket", "socket"), ("--pid-file", "munge.pid"), ("--seed-file", "seed")]
    {
        munged.arg(option).arg(own.join(name));
    }
    stage.start(&mut munged)?;
    let deadline = Instant::now() + IDLE_MAX;
    while !own.join("socket").exists() {
        if Instant::now() > deadline {
            bail!("munged does not listen");
        }
        sleep(PAUSE);
    }
    let mut control = stage.here("slurmctld");
    stage.start(control.args(["-c", "-D", "-f"]).arg(configuration))?;
    for index in 0..stage.receivers() {
        let mut node = stage.at(index, "slurmd");
        node.args(["-D", "-N", &format!("n{index}"), "-f"]).arg(configuration);
        stage.start(&mut node)?;
    }
    Ok(())
}

fn wait_idle(stage: &CastStage, configuration: &Path) -> Result<()> {
    let expected = format!("idle {}", stage.receivers());
    let deadline = Instant::now() + IDLE_MAX;
    let mut said = String::new();
    while said.trim() != expected {
        if Instant::now() > deadline {
            bail!("Slurm's nodes are not idle: {said}");
        }
        sleep(PAUSE);
        let mut show = stage.here("sinfo");
        show.env("SLURM_CONF", configuration).args(["--noheader", "--format=%T %D"]);
        // It fails until slurmctld answers.
        said = stage.run(&mut show).map(|(_, said)| said).unwrap_or_default();
    }
    Ok(())
}
