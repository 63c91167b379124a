//! A network namespace of the project's own, for programs that leave loopback out: a pair of
//! virtual interfaces, one of which has an address. Nothing of it is connected to anything.
//!
//! Needs no root where users may make namespaces; its holder ends with this program.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::command;

/// Of the range for tests between networks (RFC 2544 §C.2.2).
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);

/// Sets the interfaces up, prints a line, and stays until its input ends.
const HOLD: &str = "ip link set lo up && ip link add outboard0 type veth peer name outboard1 && \
                    ip addr add 198.18.0.1/24 dev outboard0 && ip link set outboard1 up && \
                    ip link set outboard0 up && echo ready && exec cat";

/// A namespace; it goes with this value, or with this program.
#[derive(Debug)]
pub(super) struct Namespace(Child);

impl Namespace {
    /// Makes one.
    ///
    /// # Errors
    /// When the kernel or the container allows no namespaces or has no virtual interfaces: the
    /// message has the tools' output.
    pub(super) fn new() -> Result<Self> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net", "--", "sh", "-c", HOLD]);
        Self::held_by(&mut unshare)
    }

    fn held_by(holder: &mut Command) -> Result<Self> {
        holder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = holder.spawn();
        let child = child.with_context(|| format!("cannot start {}", command::line(holder)))?;
        let mut namespace = Self(child);
        let said = namespace.first_line()?;
        if said.trim_end() != "ready" {
            bail!(
                "no network namespace with an interface can be made here ({}); libfabric leaves \
                 loopback out",
                namespace.complaint()
            );
        }
        Ok(namespace)
    }

    fn first_line(&mut self) -> Result<String> {
        let mut said = String::new();
        if let Some(stdout) = self.0.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        Ok(said)
    }

    /// What a holder that has ended wrote.
    fn complaint(&mut self) -> String {
        let stderr = self.0.stderr.take().map(BufReader::new);
        let lines = stderr.into_iter().flat_map(BufRead::lines).map_while(Result::ok);
        lines.collect::<Vec<_>>().join("; ")
    }

    /// The same command, run inside the namespace.
    pub(super) fn inside(&self, program: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--user", "--net", "--preserve-credentials", "--target"]);
        command.arg(self.0.id().to_string()).arg("--").arg(program.get_program());
        command.args(program.get_args());
        like(&mut command, program);
        command
    }
}

/// Gives a command that starts `program` its environment and directory.
pub(super) fn like(command: &mut Command, program: &Command) {
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if let Some(directory) = program.get_current_dir() {
        command.current_dir(directory);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Its input ends, and so does it; it is also killed, in case it does not read.
        drop(self.0.stdin.take());
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_its_own_interface_only() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            // On a machine that allows none, the rows are counted as skipped.
            Err(error) => return assert!(error.to_string().contains("no network namespace")),
        };
        let mut list = Command::new("ip");
        let said = command::output(&mut namespace.inside(list.args(["-4", "-o", "addr"]))).unwrap();
        let addresses: Vec<&str> =
            said.lines().filter_map(|l| l.split_whitespace().nth(3)).collect();
        assert_eq!(addresses, ["127.0.0.1/8", &format!("{ADDRESS}/24")]);
    }

    #[test]
    fn commands_keep_their_environment_and_directory() {
        let Ok(namespace) = Namespace::new() else { return };
        let mut program = Command::new("sh");
        program.args(["-c", "echo $OUTBOARD_WORD; pwd"]).env("OUTBOARD_WORD", "two words");
        let said = command::output(&mut namespace.inside(program.current_dir("/"))).unwrap();
        assert_eq!(said, "two words\n/\n");
    }

    #[test]
    fn a_machine_without_namespaces_is_reported() {
        let mut refused = Command::new("sh");
        let error = Namespace::held_by(refused.args(["-c", "echo not permitted >&2; exit 1"]));
        let text = error.unwrap_err().to_string();
        assert!(text.contains("(not permitted)"), "{text}");
    }
}
