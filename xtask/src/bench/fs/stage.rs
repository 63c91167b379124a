//! Two hosts, a client and a server, and what is served there: Outboard's file system, a directory
//! by sshd, the same by nfs-ganesha. Knows how programs are run and timed; `contender` mounts.
//!
//! Everything lies in memory. The hosts share all processors where the link has no delay.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use std::{env, net::Ipv4Addr};

use anyhow::{Context, Result, bail};

use super::tree;
use crate::builds;
use crate::command;
use crate::lab::{Delay, DelayedPair, Host, Lab, Link};
use crate::process::{reap, wait_listening};
use crate::scratch::Scratch;

const LISTEN_MAX: Duration = Duration::from_secs(60);
/// How long any step may take.
const STEP_MAX: Duration = Duration::from_secs(120);
/// Looking for a program's end must neither lengthen short steps nor take a processor in long ones.
const PAUSES: [Duration; 2] = [Duration::from_micros(200), Duration::from_millis(3)];
const SHORT: Duration = Duration::from_millis(150);
const LINK: Link = Link::BitsPerSecond(1_000_000_000);

/// The link between the two.
#[derive(Clone, Copy, Debug)]
pub(super) enum FsLink {
    Gigabit,
    /// 100 µs one way, 1 Gbit/s.
    Delayed,
}

#[derive(Debug)]
enum FsNet {
    Switched(Lab),
    Delayed(DelayedPair),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct FsStage {
    running: Vec<Child>,
    net: FsNet,
    pub(super) relay: PathBuf,
    pub(super) has_ganesha: bool,
    /// Where stores lie that are not in memory.
    disk: Option<Scratch>,
    // The last: what is below it is unmounted when no process uses it any more.
    scratch: Scratch,
}

impl FsStage {
    /// Builds what is measured, makes hosts and tree, starts all servers.
    pub(super) fn new(link: FsLink) -> Result<Self> {
        Self::over(link, None)
    }

    /// The same with stores on the disk that has the build.
    pub(super) fn on_disk(link: FsLink) -> Result<Self> {
        Self::over(link, Some(Scratch::new(&command::target_dir(), "bench-fs-")?))
    }

    fn over(link: FsLink, disk: Option<Scratch>) -> Result<Self> {
        builds::outboard(true)?;
        let options = "mode=755,size=80%";
        let scratch = Scratch::in_memory(&env::temp_dir(), "outboard-bench-fs-", options)?;
        let net = match link {
            FsLink::Gigabit => {
                let all = format!("0-{}", thread::available_parallelism()?.get() - 1);
                FsNet::Switched(Lab::new(&[&*all; 2], LINK)?)
            }
            FsLink::Delayed => {
                let one_way = Duration::from_micros(100);
                FsNet::Delayed(DelayedPair::checked(Delay { one_way, link: LINK })?.0)
            }
        };
        let relay = command::compile_c("xtask/src/bench/cast/relay.c", &[])?;
        let mut stage = Self { running: Vec::new(), net, relay, has_ganesha: false, disk, scratch };
        tree::make(&stage.directory("source")?.join("tree"))?;
        let mut pack = Command::new("tar");
        pack.arg("cf").arg(stage.path("tree.tar")).arg("-C").arg(stage.path("source")).arg("tree");
        command::run(&mut pack)?;
        super::servers::start(&mut stage)?;
        Ok(stage)
    }

    fn hosts(&self) -> [&Host; 2] {
        match &self.net {
            FsNet::Switched(lab) => [&lab.hosts()[0], &lab.hosts()[1]],
            FsNet::Delayed(pair) => pair.hosts(),
        }
    }

    pub(super) fn client(&self) -> &Host {
        self.hosts()[0]
    }

    pub(super) fn server(&self) -> &Host {
        self.hosts()[1]
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.server().address
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.scratch.path(name)
    }

    /// A path for what a server stores.
    pub(super) fn on_disk_path(&self, name: &str) -> PathBuf {
        self.disk.as_ref().unwrap_or(&self.scratch).path(name)
    }

    pub(super) fn directory(&self, name: &str) -> Result<PathBuf> {
        self.scratch.directory(name)
    }

    /// `outboard` on a host.
    pub(super) fn outboard(&self, host: &Host) -> Command {
        let mut command = host.command(self.path("home/outboard"));
        command.env("HOME", self.path("home")).env("OUTBOARD_KEY", self.path("home/key"));
        command
    }

    /// Starts a program that runs until the end, and waits until it listens.
    pub(super) fn start(&mut self, command: &mut Command, port: u16) -> Result<()> {
        let log = File::create(self.path(format!("server-{port}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.spawn()?;
        let listens = wait_listening(&mut child, port, Instant::now() + LISTEN_MAX);
        self.running.push(child);
        listens.with_context(|| command::line(command))
    }

    /// Runs a program to its successful end: how many seconds it took.
    pub(super) fn timed(&self, command: &mut Command) -> Result<f64> {
        self.timed_into(command, "/dev/null".as_ref())
    }

    /// The same, with what it prints in a file.
    pub(super) fn timed_into(&self, command: &mut Command, output: &Path) -> Result<f64> {
        let log = self.path("step.log");
        command.stdin(Stdio::null()).stdout(File::create(output)?).stderr(File::create(&log)?);
        let began = Instant::now();
        let mut child = command.spawn().with_context(|| command::line(command))?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > STEP_MAX {
                reap(&mut child)?;
                bail!("{} does not end", command::line(command));
            }
            sleep(PAUSES[usize::from(began.elapsed() > SHORT)]);
        };
        let seconds = began.elapsed().as_secs_f64();
        if !status.success() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let said: String = said.chars().take(300).collect();
            bail!("{} failed: {status}: {said}", command::line(command));
        }
        Ok(seconds)
    }
}

impl Drop for FsStage {
    fn drop(&mut self) {
        // What fails here is ended by the lab.
        for host in self.hosts() {
            let _ = host.group.kill();
        }
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
    }
}
