//! How commands come to the nodes: one `srun` for all, or one `ssh` for each.

use super::LaunchError;
use super::slurm::SlurmJob;
use outboard_cluster::hosts::{Host, HostList};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Command;

/// OpenSSH that asks nothing, forwards nothing, and notices within 30 s that a host is gone.
const SSH: [&str; 13] = [
    "ssh",
    "-T",
    "-a",
    "-x",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=10",
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ClearAllForwardings=yes",
    "--",
];

/// How receivers are started.
#[derive(Clone, Debug)]
pub enum LaunchWay {
    /// One step of a Slurm job.
    Slurm(SlurmJob),
    /// OpenSSH. A host's port is sshd's.
    Ssh(HostList),
    /// A command that takes a host and a line for its shell, as ssh does.
    Command {
        /// Its words.
        words: Vec<String>,
        /// The hosts.
        hosts: HostList,
    },
}

/// A command that starts receivers, and the nodes that it starts them on.
#[derive(Debug)]
pub(super) struct LaunchCommand {
    pub(super) command: Command,
    pub(super) nodes: Vec<String>,
}

impl LaunchWay {
    /// The nodes, as users name them.
    #[must_use]
    pub fn nodes(&self) -> Vec<String> {
        let list = match self {
            Self::Slurm(job) => job.nodes(),
            Self::Ssh(hosts) | Self::Command { hosts, .. } => hosts,
        };
        list.iter().map(shown).collect()
    }

    /// A caller's mistake in it.
    pub(super) fn check(&self) -> Result<(), LaunchError> {
        let Self::Command { hosts, .. } = self else { return Ok(()) };
        match hosts.iter().find(|host| host.port().is_some()) {
            Some(host) => Err(LaunchError::Port { host: host.to_string() }),
            None => Ok(()),
        }
    }

    /// The commands that start receivers on some of the nodes.
    pub(super) fn receivers(&self, words: &[OsString], nodes: &[String]) -> Vec<LaunchCommand> {
        match self {
            Self::Slurm(job) => {
                let command = job.receivers(nodes, words);
                vec![LaunchCommand { command, nodes: nodes.to_vec() }]
            }
            Self::Ssh(_) | Self::Command { .. } => self.remote(nodes, words),
        }
    }

    /// The commands that start a program on some of the nodes.
    pub(super) fn programs(&self, nodes: &[String], words: &[OsString]) -> Vec<LaunchCommand> {
        match self {
            Self::Slurm(job) => {
                let command = job.program(nodes, words);
                vec![LaunchCommand { command, nodes: nodes.to_vec() }]
            }
            Self::Ssh(_) | Self::Command { .. } => self.remote(nodes, words),
        }
    }

    /// One command for each host.
    fn remote(&self, nodes: &[String], words: &[OsString]) -> Vec<LaunchCommand> {
        let line = shell_line(words);
        let command = |(host, shown): (&Host, String)| {
            let mut command = self.to_host(host);
            command.arg(&line);
            LaunchCommand { command, nodes: vec![shown] }
        };
        let (Self::Ssh(hosts) | Self::Command { hosts, .. }) = self else { return Vec::new() };
        let named = hosts.iter().map(|host| (host, shown(host)));
        named.filter(|(_, shown)| nodes.contains(shown)).map(command).collect()
    }

    fn to_host(&self, host: &Host) -> Command {
        let words: Vec<&str> = match self {
            Self::Command { words, .. } => words.iter().map(String::as_str).collect(),
            Self::Ssh(_) | Self::Slurm(_) => SSH.to_vec(),
        };
        let (program, rest) = words.split_first().unwrap_or((&"ssh", &[]));
        let mut command = Command::new(program);
        if let Some(port) = host.port() {
            command.args(["-p", &port.to_string()]);
        }
        command.args(rest).arg(host.name());
        command
    }
}

/// A host without its slots, which are of no interest here.
fn shown(host: &Host) -> String {
    let name = host.name();
    match host.port() {
        Some(port) if name.contains(':') => format!("[{name}]:{port}"),
        Some(port) => format!("{name}:{port}"),
        None => name.to_owned(),
    }
}

/// Words as a shell reads them back; the shell becomes the program.
fn shell_line(words: &[OsString]) -> OsString {
    let mut line = b"exec".to_vec();
    for word in words {
        line.push(b' ');
        line.extend(quoted(word));
    }
    OsString::from_vec(line)
}

fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(program: &str) -> [OsString; 2] {
        [program.into(), "cast-receiver".into()]
    }

    fn words(command: &Command) -> Vec<&str> {
        command.get_args().map(|word| word.to_str().expect("text")).collect()
    }

    #[test]
    fn a_shell_reads_the_same_words() {
        let given = ["a b", "it's", "$HOME", "", "\\", "*"].map(OsString::from);
        let mut line = OsString::from("set -- ");
        line.push(&shell_line(&given).to_str().expect("text")["exec ".len()..]);
        line.push("; for word; do printf '<%s>' \"$word\"; done");
        let output = Command::new("sh").arg("-c").arg(line).output().expect("sh");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "<a b><it's><$HOME><><\\><*>");
    }

    #[test]
    fn ssh_gets_a_port_and_a_host_that_is_no_option() {
        let way = LaunchWay::Ssh("n1:2222/4,n2".parse().expect("hosts"));
        assert_eq!(way.nodes(), ["n1:2222", "n2"]);
        let commands = way.receivers(&receiver("/opt/outboard"), &way.nodes());
        let first = words(&commands[0].command);
        assert_eq!(first[..2], ["-p", "2222"]);
        assert_eq!(first[first.len() - 3..], ["--", "n1", "exec '/opt/outboard' 'cast-receiver'"]);
        assert!(!words(&commands[1].command).contains(&"-p"));
    }

    #[test]
    fn srun_starts_one_on_each_node_whatever_the_jobs_variables_say() {
        let variable = |name: &str| match name {
            "SLURM_JOB_ID" => Some("7".into()),
            "SLURM_JOB_NODELIST" => Some("n[1-3]".into()),
            _ => None,
        };
        let job = SlurmJob::from_environment(variable).expect("a list").expect("a job");
        let commands =
            LaunchWay::Slurm(job).receivers(&receiver("/o"), &["n1".into(), "n3".into()]);
        let words = words(&commands[0].command);
        for word in ["--jobid=7", "--nodes=2", "--ntasks=2", "--nodelist=n1,n3", "--overlap"] {
            assert!(words.contains(&word), "{words:?}");
        }
        assert_eq!(words[words.len() - 2..], ["/o", "cast-receiver"]);
    }

    #[test]
    fn a_command_of_the_users_takes_no_port() {
        let way = |hosts: &str| LaunchWay::Command {
            words: vec!["rsh".into(), "-n".into()],
            hosts: hosts.parse().expect("hosts"),
        };
        assert!(way("n1:22").check().is_err());
        assert!(way("n1").check().is_ok());
        let command = &way("n1").receivers(&receiver("/o"), &["n1".into()])[0].command;
        assert_eq!(words(command), ["-n", "n1", "exec '/o' 'cast-receiver'"]);
    }
}
