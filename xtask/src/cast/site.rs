//! A source and nodes, set up as by users: programs, a key, node.toml, and for each node a
//! destination of its own at a path that all nodes share.
//!
//! A node's destination is a file system in memory, which stays when the node is killed and can be
//! read from outside.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::builds;
use crate::command::{self, PATH, signal_all};
use crate::lab::{Cable, Crossing, Host, Lab, Link};
use crate::process::{reap, wait_listening};
use crate::scratch::{Scratch, mount_memory};

/// Number of nodes; with the source they are sixteen hosts.
pub(super) const NODES: usize = 15;
/// The rate of every link.
pub(super) const LINK: Link = Link::BitsPerSecond(200_000_000);
/// The user as which services run: nobody.
const SERVICE_USER: u32 = 65534;
/// The size of a node's disk, as mount(8) takes it.
pub(super) const DISK: &str = "75%";
const PORT: u16 = 7410;
/// How long a node may take to listen, and a small command to end.
const READY_MAX: Duration = Duration::from_secs(60);

/// How one node differs from the others.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeSetup {
    /// The identity to which its root belongs, instead of everybody.
    pub(super) owner: Option<String>,
    /// A key other than the cluster's.
    pub(super) key: Option<PathBuf>,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CastSite {
    lab: Lab,
    nodes: Vec<Option<Child>>,
    scratch: Scratch,
}

impl CastSite {
    /// Hosts on which every node runs.
    pub(super) fn new() -> Result<Self> {
        build()?;
        let scratch = scratch()?;
        // Services run as an ordinary user, which may have no access to the workspace.
        fs::copy(
            command::target_dir().join("debug/outboard"),
            scratch.directory("bin")?.join("outboard"),
        )?;
        scratch.directory("at")?;
        let processors = thread::available_parallelism()?.get();
        let all = format!("0-{}", processors - 1);
        let lab = Lab::new(&[&*all; 1 + NODES], LINK)?;
        let mut site = Self { lab, nodes: (0..NODES).map(|_| None).collect(), scratch };
        site.ask(site.here(site.program()).args(["key", "new"]))?;
        mount_memory(&site.scratch.directory("source")?, "size=75%,mode=755")?;
        for index in 0..NODES {
            site.mount_disk(index, DISK)?;
            site.launch(index, &NodeSetup::default())?;
        }
        (0..NODES).try_for_each(|index| site.wait_listening(index))?;
        Ok(site)
    }

    /// The program under test.
    pub(super) fn program(&self) -> PathBuf {
        self.scratch.path("bin/outboard")
    }

    /// The cluster's key.
    pub(super) fn key(&self) -> PathBuf {
        self.scratch.path("key")
    }

    /// A directory for the files of a check.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        self.scratch.directory(name)
    }

    /// What is cast: a directory in memory.
    pub(super) fn source(&self) -> PathBuf {
        self.scratch.path("source")
    }

    /// The destination as all nodes name it.
    pub(super) fn destination(&self) -> PathBuf {
        self.scratch.path("at")
    }

    /// A program on the source's host.
    pub(super) fn here(&self, program: impl AsRef<OsStr>) -> Command {
        self.on(&self.lab.hosts()[0], program, "source-home")
    }

    /// A program on a node's host, beside the node.
    pub(super) fn on_node(&self, index: usize, program: impl AsRef<OsStr>) -> Command {
        self.on(self.host(index), program, "source-home")
    }

    fn on(&self, host: &Host, program: impl AsRef<OsStr>, home: &str) -> Command {
        let mut command = host.command(program);
        command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
        command.env("HOME", self.scratch.path(home)).env("OUTBOARD_KEY", self.key());
        // To find the cause of a failure.
        command.envs(env::var_os("OUTBOARD_LOG").map(|level| ("OUTBOARD_LOG", level)));
        command.stdin(Stdio::null());
        command
    }

    /// Runs a small program to its end; it must succeed.
    pub(super) fn ask(&self, command: &mut Command) -> Result<String> {
        command::output(command)
    }

    /// The source's host.
    pub(super) fn source_host(&self) -> &Host {
        &self.lab.hosts()[0]
    }
}

/// Nodes, numbered from 0.
impl CastSite {
    /// A node's host.
    pub(super) fn host(&self, index: usize) -> &Host {
        &self.lab.hosts()[1 + index]
    }

    /// A node as `--nodes` names it.
    pub(super) fn name(&self, index: usize) -> String {
        format!("{}:{PORT}", self.host(index).address)
    }

    /// Several nodes as `--nodes` names them.
    pub(super) fn names(&self, nodes: impl IntoIterator<Item = usize>) -> String {
        nodes.into_iter().map(|index| self.name(index)).collect::<Vec<_>>().join(",")
    }

    /// A node's destination, as it is seen from outside.
    pub(super) fn disk(&self, index: usize) -> PathBuf {
        self.scratch.path(format!("disk{index}"))
    }

    /// The node's first process.
    pub(super) fn node(&self, index: usize) -> Result<u32> {
        let node = self.nodes[index].as_ref().map(Child::id);
        node.with_context(|| format!("node {index} does not run"))
    }

    /// The process of a node's service.
    pub(super) fn service(&self, index: usize) -> Result<u32> {
        let node = self.node(index)?;
        let others = self.host(index).group.processes()?;
        let service = others.into_iter().find(|process| *process != node);
        service.with_context(|| format!("node {index} has no service"))
    }

    /// A node's log so far.
    pub(super) fn said(&self, index: usize) -> String {
        fs::read_to_string(self.log(index)).unwrap_or_default()
    }

    fn log(&self, index: usize) -> PathBuf {
        self.scratch.path(format!("log{index}"))
    }

    /// Bytes that a node's host has received.
    pub(super) fn received(&self, index: usize) -> Result<u64> {
        let path = format!("/proc/{}/net/dev", self.node(index)?);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let field = line.and_then(|line| line.split_whitespace().next()).map(str::parse);
        Ok(field.context("the host has no eth0")??)
    }

    /// Sends all processes of a node a signal, such as `STOP`.
    pub(super) fn signal(&self, index: usize, signal: &str) -> Result<()> {
        signal_all(&self.host(index).group.processes()?, signal)
    }

    /// Kills a node with all its processes.
    pub(super) fn kill(&mut self, index: usize) -> Result<()> {
        self.host(index).group.kill()?;
        self.nodes[index].take().map_or(Ok(()), |mut node| reap(&mut node))
    }

    /// Cuts or connects a node's link.
    pub(super) fn cable(&self, index: usize, cable: Cable) -> Result<()> {
        self.lab.cable(1 + index, cable)
    }

    /// Moves nodes behind a second switch.
    pub(super) fn part(&self, nodes: &[usize], between: Link) -> Result<Crossing> {
        self.lab.part(nodes.iter().map(|index| 1 + index).collect(), between)
    }

    /// Changes the rate of a node's link.
    pub(super) fn relink(&self, index: usize, link: Link) -> Result<()> {
        self.lab.relink(1 + index, link)
    }

    /// Ends a node and starts another in its place, with the same disk.
    pub(super) fn replace(&mut self, index: usize, setup: &NodeSetup) -> Result<()> {
        self.kill(index)?;
        self.launch(index, setup)?;
        self.wait_listening(index)
    }

    /// Gives a node that does not run another, empty disk.
    pub(super) fn replace_disk(&mut self, index: usize, size: &str) -> Result<()> {
        self.kill(index)?;
        command::run(Command::new("umount").arg(self.disk(index)))?;
        self.mount_disk(index, size)
    }

    fn mount_disk(&self, index: usize, size: &str) -> Result<()> {
        let disk = self.scratch.directory(&format!("disk{index}"))?;
        let owner = format!("uid={SERVICE_USER},gid={SERVICE_USER}");
        mount_memory(&disk, &format!("size={size},mode=755,{owner}"))
    }

    /// Starts a node.
    pub(super) fn launch(&mut self, index: usize, setup: &NodeSetup) -> Result<()> {
        let home = self.scratch.directory(&format!("home{index}"))?;
        let configuration = home.join("node.toml");
        let root = match &setup.owner {
            Some(owner) => format!("{{ path = {:?}, owners = [{owner:?}] }}", self.destination()),
            None => format!("{:?}", self.destination()),
        };
        let text = format!(
            "user = \"{SERVICE_USER}:{SERVICE_USER}\"\n\
             [reach.cast]\ncast = \"*\"\n\
             [cast]\nroots = [{root}]\n"
        );
        fs::write(&configuration, text)?;
        chown(&configuration, Some(0), Some(0))?;
        let mut node = self.on(self.host(index), "unshare", &format!("home{index}"));
        command::showing(&mut node, &self.disk(index), &self.destination());
        node.arg(self.program()).arg("node").arg("--config").arg(configuration);
        node.args(["--serve", "cast", "--listen", &self.name(index), "--key"]);
        node.arg(setup.key.clone().unwrap_or_else(|| self.key()));
        let log = File::options().create(true).append(true).open(self.log(index))?;
        node.stdout(log.try_clone()?).stderr(log);
        self.nodes[index] = Some(node.spawn().context("cannot start a node")?);
        Ok(())
    }

    /// Waits until a node can be reached.
    pub(super) fn wait_listening(&mut self, index: usize) -> Result<()> {
        let deadline = Instant::now() + READY_MAX;
        let Some(node) = &mut self.nodes[index] else { bail!("node {index} was not started") };
        wait_listening(node, PORT, deadline)
            .map_err(|error| anyhow!("node {index}: {error}:\n{}", self.said(index)))
    }

    /// Removes everything from all destinations.
    pub(super) fn clear(&self) -> Result<()> {
        for index in 0..NODES {
            for entry in fs::read_dir(self.disk(index))? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false => fs::remove_file(entry.path())?,
                }
            }
        }
        Ok(())
    }

    /// Makes all nodes as they were at first: running, with links, with empty destinations.
    pub(super) fn restore(&mut self) -> Result<()> {
        self.source_host().group.kill()?;
        for index in 0..NODES {
            self.cable(index, Cable::Joined)?;
            self.relink(index, LINK)?;
            self.replace_disk(index, DISK)?;
            self.launch(index, &NodeSetup::default())?;
        }
        (0..NODES).try_for_each(|index| self.wait_listening(index))
    }

    /// The last lines of all logs.
    pub(super) fn print_logs(&self) {
        for index in 0..NODES {
            let said = self.said(index);
            let lines: Vec<&str> = said.lines().collect();
            let last = lines[lines.len().saturating_sub(4)..].join("\n    ");
            println!("  node {index}:\n    {last}");
        }
    }

    /// Requires that no node has had a panic.
    pub(super) fn expect_no_panic(&self) -> Result<()> {
        let panicked = |index: &usize| self.said(*index).contains("panicked");
        match (0..NODES).find(panicked) {
            Some(index) => bail!("node {index}: {}", self.said(index)),
            None => Ok(()),
        }
    }

    /// Forgets what the nodes have said.
    pub(super) fn forget_logs(&self) -> Result<()> {
        let cut = |index| File::options().write(true).open(self.log(index))?.set_len(0);
        Ok((0..NODES).try_for_each(cut)?)
    }
}

impl Drop for CastSite {
    fn drop(&mut self) {
        // Processes that use the disks end first; the lab ends whatever is left.
        for host in self.lab.hosts() {
            let _ = host.group.kill();
        }
        for mut node in self.nodes.iter_mut().filter_map(Option::take) {
            let _ = reap(&mut node);
        }
    }
}

/// Builds the program under test.
pub(super) fn build() -> Result<()> {
    builds::outboard(false).map(drop)
}

/// A directory with a home for the source.
pub(super) fn scratch() -> Result<Scratch> {
    let scratch = Scratch::new(&env::temp_dir(), "outboard-test-of-cast-")?;
    scratch.directory("source-home")?;
    Ok(scratch)
}
