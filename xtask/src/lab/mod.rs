//! Several hosts on one machine: network namespaces with links of limited speed to one bridge, or
//! two of them with a link that delays every packet.
//!
//! Every host has a control group, which measures exactly how much processor time its programs use,
//! and a processor to which they are pinned. A lab needs root. It has no connection and no route to
//! the outside, and it is removed when the value is dropped, or when this program ends in any way:
//! a janitor, a process of its own, does that.
//!
//! Reading order: `group` (control groups), `network` (namespaces, links), `janitor`; then `delay`
//! (two hosts and their link), `check` (what that link does, in figures), `units` and `run` (`cargo
//! xtask lab delay`).

mod check;
mod delay;
mod group;
mod janitor;
mod network;
pub mod run;
pub mod units;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

pub use check::{LinkCheck, PathFigures};
pub use delay::{Delay, DelayedPair, WireReport};
pub use group::Group;
pub use network::{Cable, Link};

use janitor::Janitor;

/// The Debian packages with which hosts are made.
pub const PACKAGES: &[&str] = &["iproute2", "util-linux"];

/// Enters the group, then executes the program.
const ENTER: &str = "echo 0 > \"$0\" && exec \"$@\"";

/// Hosts and their network.
#[derive(Debug)]
pub struct Lab {
    hosts: Vec<Host>,
    group: Group,
    bridge: String,
    // The last field, because dropping it removes the hosts of the others.
    _janitor: Janitor,
}

/// A host: its namespace, its address, its group of processes.
#[derive(Debug)]
pub struct Host {
    /// The host's address for the other hosts.
    pub address: Ipv4Addr,
    /// Everything that was started with [`Host::command`], and its children.
    pub group: Group,
    namespace: String,
    /// In the form of `taskset`.
    processors: String,
}

/// Number of labs made by this process, so that no two share names.
static LABS: AtomicU32 = AtomicU32::new(0);

/// What to look at when there are no hosts.
const NEEDS_ROOT: &str = "cannot make hosts (network namespaces need root)";

/// What hosts stand on: names that no other lab has, a group, and who removes everything.
#[derive(Debug)]
struct Ground {
    group: Group,
    namespaces: Vec<String>,
    bridge: String,
    janitor: Janitor,
}

impl Ground {
    /// The group is made, the namespaces are only named.
    fn new(hosts: usize) -> Result<Self> {
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("outboard-{}-{number}", std::process::id());
        let group = Group::at_root(&name)?;
        let namespaces: Vec<String> = (0..hosts).map(|host| format!("{name}-h{host}")).collect();
        let bridge = format!("{name}-sw");
        let janitor = Janitor::start(group.path(), namespaces.iter().chain([&bridge]))?;
        group.create()?;
        Ok(Self { group, namespaces, bridge, janitor })
    }

    /// The hosts in the namespaces, each on its processors.
    fn hosts(&self, processors: &[&str]) -> Result<Vec<Host>> {
        let places = self.namespaces.iter().zip(processors).enumerate();
        let host = |(index, (namespace, processors)): (usize, (&String, &&str))| {
            let group = self.group.child(&format!("h{index}"))?;
            let (namespace, processors) = (namespace.clone(), (*processors).to_owned());
            Ok(Host { address: network::address(index), group, namespace, processors })
        };
        places.map(host).collect()
    }
}

impl Lab {
    /// A host for each of `processors`, a list as for `taskset` (`0`, `1`, `0-3`).
    ///
    /// # Errors
    /// When namespaces or control groups cannot be made: not root, or a kernel without them.
    pub fn new(processors: &[&str], link: Link) -> Result<Self> {
        let ground = Ground::new(processors.len())?;
        network::make(&ground.bridge, &ground.namespaces, link).context(NEEDS_ROOT)?;
        let hosts = ground.hosts(processors)?;
        let Ground { group, bridge, janitor, .. } = ground;
        Ok(Self { hosts, group, bridge, _janitor: janitor })
    }

    /// All hosts, in the order in which they were asked for.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Cuts or connects the link of a host, given by its index in [`Lab::hosts`].
    ///
    /// # Errors
    /// When there is no such host.
    pub fn cable(&self, host: usize, cable: Cable) -> Result<()> {
        network::cable(&self.bridge, host, cable)
    }

    /// Changes the rate of the link of a host, given by its index in [`Lab::hosts`]; a lab with
    /// unlimited links stays as it is.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn relink(&self, host: usize, link: Link) -> Result<()> {
        let namespace = &self.hosts.get(host).context("no such host")?.namespace;
        network::relink(&self.bridge, namespace, host, link)
    }

    /// Moves some hosts, given by their indices in [`Lab::hosts`], behind a second switch, with a
    /// link between the two.
    ///
    /// # Errors
    /// When there is no such host, or a second switch already.
    pub fn part(&self, hosts: Vec<usize>, link: Link) -> Result<Crossing> {
        network::part(&self.bridge, &hosts, link)?;
        Ok(Crossing { bridge: self.bridge.clone(), hosts })
    }

    /// The group of all hosts.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }
}

/// The link between two switches of a lab.
#[derive(Clone, Debug)]
pub struct Crossing {
    bridge: String,
    hosts: Vec<usize>,
}

impl Crossing {
    /// Bytes that it has brought to the second switch, with the headers of their packets.
    ///
    /// # Errors
    /// When the kernel's counter cannot be read.
    pub fn crossed(&self) -> Result<u64> {
        network::crossed(&self.bridge)
    }

    /// Moves all hosts to one switch again.
    ///
    /// # Errors
    /// When the lab is gone.
    pub fn join(&self) -> Result<()> {
        network::join(&self.bridge, &self.hosts)
    }
}

impl Host {
    /// `program` on this host. It ends with the lab at the latest.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [enter, words @ ..] = self.prefix();
        let mut command = self.group.command(enter);
        command.args(words).arg(program);
        command
    }

    /// The words that, in front of a program's, make it run in the host's network and on its
    /// processors.
    fn prefix(&self) -> [String; 6] {
        let network = format!("--net=/run/netns/{}", self.namespace);
        let pinned = ["taskset", "--cpu-list", &self.processors].map(str::to_owned);
        let [taskset, list, processors] = pinned;
        ["nsenter".to_owned(), network, "--".to_owned(), taskset, list, processors]
    }

    /// Processor time of this host's programs so far, including those that have ended.
    ///
    /// # Errors
    /// When the kernel's counter cannot be read.
    pub fn cpu(&self) -> Result<Duration> {
        self.group.cpu()
    }

    /// Bytes that this host has sent so far, with the headers of their packets.
    ///
    /// # Errors
    /// When the kernel's counter cannot be read.
    pub fn sent(&self) -> Result<u64> {
        network::sent(&self.namespace)
    }
}

impl Group {
    /// `program` in this group, outside any host.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", ENTER]).arg(self.path().join("cgroup.procs")).arg(program);
        // cargo's library path is for programs that cargo starts: loaders of other programs would
        // search it first.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }
}

#[cfg(test)]
mod tests;
