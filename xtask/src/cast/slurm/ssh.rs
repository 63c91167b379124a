//! Receivers that a real sshd starts, each in a mount namespace of its own, and hosts out of node
//! files.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::cluster::{SlurmCluster, USER};
use super::program::CommandRun;
use crate::command::{self, PATH};
use crate::process::Process;

/// Hosts, which are addresses of this machine's loopback.
const HOSTS: usize = 3;

/// Daemons that let one key in.
struct SshHosts {
    _daemons: Vec<Process>,
    directory: PathBuf,
    port: u16,
}

fn address(host: usize) -> String {
    format!("127.0.0.{}", host + 1)
}

impl SshHosts {
    fn new(cluster: &SlurmCluster) -> Result<Self> {
        let port = TcpListener::bind((address(1), 0))?.local_addr()?.port();
        // Debian's sshd wants it.
        fs::create_dir_all("/run/sshd")?;
        let directory = cluster.file("work/ssh");
        fs::create_dir(&directory)?;
        let at = |name: &str| directory.join(name);
        for key in ["host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key));
            command::run(&mut keygen)?;
        }
        fs::copy(at("user.pub"), at("authorized"))?;
        let host_key = fs::read_to_string(at("host.pub"))?;
        fs::write(at("known"), format!("* {host_key}"))?;
        for (key, config) in [("user", "config"), ("stranger", "config.stranger")] {
            let (key, known) = (at(key), at("known"));
            fs::write(
                at(config),
                format!(
                    "Host *\n  User root\n  Port {port}\n  IdentityFile {}\n  \
                     IdentitiesOnly yes\n  \
                     UserKnownHostsFile {}\n  StrictHostKeyChecking yes\n",
                    key.display(),
                    known.display()
                ),
            )?;
        }
        // First in the search path, in place of the user's configuration.
        fs::create_dir(at("bin"))?;
        let wrapper = "#!/bin/sh\nexec /usr/bin/ssh -F \"$SSH_CONFIG\" \"$@\"\n";
        fs::write(at("bin/ssh"), wrapper)?;
        fs::set_permissions(at("bin/ssh"), Permissions::from_mode(0o755))?;
        for name in ["user", "stranger", "config", "config.stranger", "known"] {
            chown(at(name), Some(USER), None)?;
        }
        let mut hosts = Self { _daemons: Vec::new(), directory, port };
        (1..=HOSTS).try_for_each(|host| hosts.start(cluster, host))?;
        Ok(hosts)
    }

    fn start(&mut self, cluster: &SlurmCluster, host: usize) -> Result<()> {
        let mut sshd = Command::new("unshare");
        command::showing(&mut sshd, &cluster.disk(host), &cluster.destination());
        sshd.args(["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"]);
        for option in [
            format!("ListenAddress={}:{}", address(host), self.port),
            format!("HostKey={}", self.directory.join("host").display()),
            format!("AuthorizedKeysFile={}", self.directory.join("authorized").display()),
            "StrictModes=no".into(),
            "UsePAM=no".into(),
            "PermitRootLogin=yes".into(),
            "PasswordAuthentication=no".into(),
            "PidFile=none".into(),
        ] {
            sshd.args(["-o", &option]);
        }
        sshd.env_clear().env("PATH", PATH);
        let mut daemon = Process::start(&mut sshd, &cluster.file(&format!("log/sshd{host}")))?;
        daemon.wait_listening(self.port, Instant::now() + Duration::from_secs(20))?;
        self._daemons.push(daemon);
        Ok(())
    }

    /// A cast by an ordinary user; root receives, so that nothing of it is shared.
    fn cast(&self, cluster: &SlurmCluster, config: &str, arguments: &[&str]) -> Result<CommandRun> {
        let mut cast = self.command(cluster, config);
        CommandRun::of(cast.args(arguments).arg(cluster.destination().join("new")))
    }

    fn command(&self, cluster: &SlurmCluster, config: &str) -> Command {
        let mut cast = cluster.user_command(cluster.program());
        let path = format!("{}:{PATH}", self.directory.join("bin").display());
        cast.env("PATH", path).env("SSH_CONFIG", self.directory.join(config)).arg("cast");
        cast
    }
}

/// By `--nodes`, by PBS_NODEFILE, by a node file of mpiexec; and a program that starts there.
pub(super) fn hosts_and_node_files(cluster: &SlurmCluster) -> Result<()> {
    let hosts = SshHosts::new(cluster)?;
    let work = cluster.file("work");
    for name in ["one", "two", "three"] {
        fs::write(work.join(name), name)?;
    }
    let list = format!("{},{}:{}", address(1), address(2), hosts.port);
    hosts.cast(cluster, "config", &["--launch", "ssh", "--nodes", &list, "one"])?.expect_code(0)?;
    let pbs = format!("{0}\n{0}\n{1}\n{1}\n", address(2), address(3));
    fs::write(work.join("pbs"), pbs)?;
    let mut cast = hosts.command(cluster, "config");
    cast.env("PBS_NODEFILE", work.join("pbs")).args(["two"]);
    let run = CommandRun::of(cast.arg(cluster.destination().join("new")))?;
    run.expect_code(0)?.expect_said("to 2 of 2 nodes")?;
    fs::write(work.join("mpi"), format!("{} slots=4\n{}:2\n", address(1), address(3)))?;
    let ssh = hosts.directory.join("bin/ssh").display().to_string();
    let arguments = ["--nodefile", "mpi", "--launch-command", &ssh, "three"];
    hosts.cast(cluster, "config", &arguments)?.expect_code(0)?;
    for (name, on) in [("one", [1, 2]), ("two", [2, 3]), ("three", [1, 3])] {
        for host in 1..=HOSTS {
            let path = cluster.disk(host).join("new").join(name);
            ensure!(path.exists() == on.contains(&host), "{name} on host {host}");
            ensure!(!path.exists() || fs::read_to_string(path)? == name);
        }
    }
    let arguments = ["--launch", "ssh", "--nodes", &list, "--replace", "--exec", "/bin/sh"];
    let mut cast = hosts.command(cluster, "config");
    cast.args(arguments).arg(cluster.destination().join("new"));
    let run = CommandRun::of(cast.args(["--", "-c", "echo here; exit 5"]))?;
    run.expect_code(5)?;
    ensure!(run.lines() == ["here", "here"], "{:?}", run.lines());
    Ok(())
}

/// A host that refuses logins costs the others nothing, and the report says why.
pub(super) fn refused(cluster: &SlurmCluster) -> Result<()> {
    let hosts = SshHosts::new(cluster)?;
    fs::write(cluster.file("work/one"), "one")?;
    let arguments = ["--launch", "ssh", "--nodes", "127.0.0.2", "one"];
    let run = hosts.cast(cluster, "config.stranger", &arguments)?;
    run.expect_code(1)?.expect_said("Permission denied")?;
    // Nothing listens at the second.
    let arguments = ["--launch", "ssh", "--nodes", "127.0.0.2,127.0.0.9", "one"];
    let run = hosts.cast(cluster, "config", &arguments)?;
    run.expect_code(1)?
        .expect_said("127.0.0.9  failed: no receiver")?
        .expect_said("127.0.0.2  1")?;
    ensure!(fs::read_to_string(cluster.disk(1).join("new/one"))? == "one");
    Ok(())
}
