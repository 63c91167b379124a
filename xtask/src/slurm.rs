//! Slurm's daemons on this machine: their files, and the commands that run them in the foreground.
//!
//! Starts none of them: their place and their end are the caller's.

use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

/// Bytes of munge's key.
const KEY_LEN: usize = 1024;

/// Where a daemon listens.
#[derive(Clone, Debug)]
pub(crate) struct SlurmAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The files of one cluster, whose nodes are called n1 and so on.
#[derive(Debug)]
pub(crate) struct SlurmFiles {
    directory: PathBuf,
}

impl SlurmFiles {
    /// Writes them into a directory that all users can read.
    pub(crate) fn write(
        directory: &Path,
        control: &SlurmAddress,
        nodes: &[SlurmAddress],
    ) -> Result<Self> {
        let files = Self { directory: directory.to_owned() };
        for name in ["munge", "state", "spool", "log"] {
            fs::create_dir_all(directory.join(name))?;
        }
        let mut key = vec![0; KEY_LEN];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        fs::write(files.key(), key)?;
        fs::set_permissions(files.key(), Permissions::from_mode(0o400))?;
        let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
        fs::write(files.configuration(), files.text(host.trim(), control, nodes))?;
        Ok(files)
    }

    /// The file that `SLURM_CONF` names.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.directory.join("slurm.conf")
    }

    /// Where munged listens once it is ready.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("munge/socket")
    }

    /// The log of a node, which is counted from 1.
    pub(crate) fn log(&self, node: usize) -> PathBuf {
        self.directory.join(format!("log/n{node}.log"))
    }

    fn key(&self) -> PathBuf {
        self.directory.join("munge/key")
    }

    /// Gives `munged` its arguments.
    pub(crate) fn munged<'a>(&self, munged: &'a mut Command) -> &'a mut Command {
        munged.args(["--foreground", "--force", "--key-file"]).arg(self.key());
        munged.arg("--socket").arg(self.socket());
        munged.arg("--pid-file").arg(self.directory.join("munge/pid"));
        munged.arg("--seed-file").arg(self.directory.join("munge/seed"))
    }

    /// Gives `slurmctld` its arguments.
    pub(crate) fn slurmctld<'a>(&self, control: &'a mut Command) -> &'a mut Command {
        control.args(["-c", "-D", "-f"]).arg(self.configuration())
    }

    /// Gives the `slurmd` of a node, which is counted from 1, its arguments.
    pub(crate) fn slurmd<'a>(&self, slurmd: &'a mut Command, node: usize) -> &'a mut Command {
        slurmd.args(["-D", "-N", &format!("n{node}"), "-f"]).arg(self.configuration())
    }

    fn text(&self, host: &str, control: &SlurmAddress, nodes: &[SlurmAddress]) -> String {
        let own = self.directory.display();
        let mut text = format!(
            "ClusterName=test\n\
             SlurmctldHost={host}({})\n\
             SlurmctldPort={}\n\
             SlurmUser=root\n\
             SlurmdUser=root\n\
             AuthType=auth/munge\n\
             AuthInfo=socket={}\n\
             CredType=cred/munge\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             MpiDefault=none\n\
             SelectType=select/linear\n\
             JobAcctGatherType=jobacct_gather/none\n\
             SwitchType=switch/none\n\
             ReturnToService=2\n\
             SlurmdParameters=config_overrides\n\
             StateSaveLocation={own}/state\n\
             SlurmdSpoolDir={own}/spool/%n\n\
             SlurmdPidFile={own}/spool/%n.pid\n\
             SlurmctldPidFile={own}/state/pid\n\
             SlurmdLogFile={own}/log/%n.log\n\
             SlurmctldLogFile={own}/log/slurmctld.log\n\
             TmpFS=/tmp\n",
            control.host,
            control.port,
            self.socket().display(),
        );
        for (node, SlurmAddress { host: address, port }) in (1..).zip(nodes) {
            let _ = writeln!(
                text,
                "NodeName=n{node} NodeHostName={host} NodeAddr={address} Port={port} CPUs=2 \
                 RealMemory=100"
            );
        }
        text + "PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_configuration_names_every_node_and_only_root_reads_the_key() {
        let scratch = Scratch::new(&std::env::temp_dir(), "outboard-test-of-slurm-").unwrap();
        let at = |host: &str, port| SlurmAddress { host: host.into(), port };
        let nodes = [at("10.0.0.2", 6820), at("10.0.0.3", 6821)];
        let own = scratch.directory("own").unwrap();
        let files = SlurmFiles::write(&own, &at("10.0.0.1", 6817), &nodes).unwrap();
        let text = fs::read_to_string(files.configuration()).unwrap();
        assert!(text.contains("(10.0.0.1)\nSlurmctldPort=6817\n"), "{text}");
        assert!(text.contains("NodeName=n2 ") && text.contains("NodeAddr=10.0.0.3 Port=6821 "));
        assert_eq!(text.matches("NodeName=").count(), 2);
        let key = fs::metadata(files.key()).unwrap();
        assert_eq!((key.len(), key.permissions().mode() & 0o7777), (1024, 0o400));
    }
}
