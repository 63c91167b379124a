//! Several hosts on one machine: network namespaces with links of limited speed to one bridge.
//!
//! Every host has a control group, which measures exactly how much processor time its programs use,
//! and a processor to which they are pinned. A lab needs root. It has no connection and no route to
//! the outside, and it is removed when the value is dropped, or when this program ends in any way:
//! a janitor, a process of its own, does that.
//!
//! Reading order: `group` (control groups), `network` (namespaces, links), `janitor`.

mod group;
mod janitor;
mod network;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

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

impl Lab {
    /// A host for each of `processors`, a list as for `taskset` (`0`, `1`, `0-3`).
    ///
    /// # Errors
    /// When namespaces or control groups cannot be made: not root, or a kernel without them.
    pub fn new(processors: &[&str], link: Link) -> Result<Self> {
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("outboard-{}-{number}", std::process::id());
        let group = Group::at_root(&name)?;
        let namespaces: Vec<String> =
            (0..processors.len()).map(|host| format!("{name}-h{host}")).collect();
        let bridge = format!("{name}-sw");
        let everything = namespaces.iter().chain([&bridge]);
        let janitor = Janitor::start(group.path(), everything)?;
        group.create()?;
        network::make(&bridge, &namespaces, link)
            .context("cannot make hosts (network namespaces need root)")?;
        let hosts = namespaces.into_iter().zip(processors).enumerate();
        let hosts = hosts.map(|(index, (namespace, processors))| {
            let group = group.child(&format!("h{index}"))?;
            let address = network::address(index);
            Ok(Host { address, group, namespace, processors: (*processors).to_owned() })
        });
        let hosts = hosts.collect::<Result<_>>()?;
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
        let mut command = self.group.command("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.namespace)).arg("--");
        command.args(["taskset", "--cpu-list", &self.processors]).arg(program);
        command
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
