//! Slurm with four nodes on this machine: munged, slurmctld, and four slurmd with a directory of
//! their own at the same path.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::program::CommandRun;
use crate::builds;
use crate::cast::site::scratch;
use crate::command::{self, PATH};
use crate::process::Process;
use crate::scratch::Scratch;
use crate::slurm::{SlurmAddress, SlurmFiles};

/// Nodes, n1 and so on.
pub(super) const NODES: usize = 4;
/// The user of all jobs, an ordinary one: nobody.
pub(super) const USER: u32 = 65534;
/// How long daemons may take to be ready.
const READY_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// See the [module](self).
pub(super) struct SlurmCluster {
    scratch: Scratch,
    slurm: SlurmFiles,
    /// By node; then slurmctld.
    nodes: RefCell<Vec<Option<Process>>>,
    _daemons: Vec<Process>,
}

impl SlurmCluster {
    /// A cluster whose nodes are idle.
    pub(super) fn new() -> Result<Self> {
        let program = builds::outboard(false)?;
        let scratch = scratch()?;
        fs::copy(program, scratch.directory("bin")?.join("outboard"))?;
        for name in ["at", "log"] {
            scratch.directory(name)?;
        }
        for name in ["work", "seen"] {
            open_to_all(&scratch.directory(name)?)?;
        }
        for node in 1..=NODES {
            open_to_all(&scratch.directory(&format!("disk{node}"))?)?;
        }
        let port = free_ports()?;
        let local = |port| SlurmAddress { host: "127.0.0.1".into(), port };
        let nodes: Vec<_> = (port + 1..).take(NODES).map(local).collect();
        let mut cluster = Self {
            slurm: SlurmFiles::write(&scratch.directory("slurm")?, &local(port), &nodes)?,
            scratch,
            nodes: RefCell::new((0..NODES).map(|_| None).collect()),
            _daemons: Vec::new(),
        };
        cluster.start_daemons()?;
        (1..=NODES).try_for_each(|node| cluster.start_node(node))?;
        cluster.wait_idle()?;
        Ok(cluster)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// The program under test.
    pub(super) fn program(&self) -> PathBuf {
        self.file("bin/outboard")
    }

    /// The destination as all nodes name it.
    pub(super) fn destination(&self) -> PathBuf {
        self.file("at")
    }

    /// A node's destination, seen from outside.
    pub(super) fn disk(&self, node: usize) -> PathBuf {
        self.file(&format!("disk{node}"))
    }

    fn start_daemons(&mut self) -> Result<()> {
        let logs = self.file("log");
        let log = |name: &str| logs.join(name);
        let mut munged = self.root_command("munged");
        let munged = Process::start(self.slurm.munged(&mut munged), &log("munged.out"))?;
        self._daemons.push(munged);
        let socket = self.slurm.socket();
        wait_until("munged's socket", || Ok(socket.exists()))?;
        let mut control = self.root_command("slurmctld");
        let control = Process::start(self.slurm.slurmctld(&mut control), &log("slurmctld.out"))?;
        self._daemons.push(control);
        Ok(())
    }

    /// Starts a node's slurmd.
    pub(super) fn start_node(&self, node: usize) -> Result<()> {
        let mut slurmd = self.root_command("unshare");
        command::showing(&mut slurmd, &self.disk(node), &self.destination());
        self.slurm.slurmd(slurmd.arg("slurmd"), node);
        let started = Process::start(&mut slurmd, &self.file(&format!("log/n{node}.out")))?;
        self.nodes.borrow_mut()[node - 1] = Some(started);
        Ok(())
    }

    /// Ends a node's slurmd, as if the machine were gone.
    pub(super) fn kill_node(&self, node: usize) {
        self.nodes.borrow_mut()[node - 1] = None;
    }

    pub(super) fn wait_idle(&self) -> Result<()> {
        let expected = format!("idle {NODES}");
        wait_until("all nodes idle", || {
            let mut sinfo = self.user_command("sinfo");
            let states = sinfo.args(["--noheader", "--format=%T %D"]).output()?;
            Ok(String::from_utf8_lossy(&states.stdout).trim() == expected)
        })
    }

    fn root_command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH).env("LC_ALL", "C");
        command.env("SLURM_CONF", self.slurm.configuration());
        command.current_dir(self.file("work"));
        command
    }

    /// A command of an ordinary user, whose home is empty.
    pub(super) fn user_command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.root_command("setpriv");
        command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
        command.args(["--clear-groups", "--"]).arg(program);
        command.env("HOME", self.file("work")).stdin(Stdio::null());
        command
    }

    /// A script in the shell of `salloc` on all nodes; `$OB` is the program and `$AT` the
    /// destination.
    pub(super) fn allocated(&self, script: &str) -> Result<CommandRun> {
        let nodes = format!("--nodes={NODES}");
        let mut salloc = self.user_command("salloc");
        salloc.args(["--quiet", "--no-kill", &nodes, "sh", "-c", script]);
        CommandRun::of(self.named(&mut salloc))
    }

    /// Gives scripts their names.
    pub(super) fn named<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("OB", self.program()).env("AT", self.destination())
    }

    /// Ends what a check may have left: jobs, and files in all directories.
    pub(super) fn clear(&self) -> Result<()> {
        let mut scancel = self.user_command("scancel");
        command::run(scancel.args(["--user=nobody", "--quiet"]))?;
        self.wait_idle()?;
        let disks = (1..=NODES).map(|node| self.disk(node));
        for directory in disks.chain([self.file("work"), self.file("seen")]) {
            empty(&directory)?;
        }
        Ok(())
    }

    /// Requires that every receiver has ended, which may take a moment.
    pub(super) fn expect_no_receivers(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = receivers()?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("receivers have stayed behind: processes {left:?}");
            }
            sleep(PAUSE);
        }
    }

    pub(super) fn print_logs(&self) {
        for node in 1..=NODES {
            let log = fs::read_to_string(self.slurm.log(node)).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("n{node}: {}", lines[lines.len().saturating_sub(5)..].join("\n    "));
        }
    }
}

/// Process numbers of receivers on this machine.
pub(super) fn receivers() -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile.
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        if words.next().is_some_and(|program| program.ends_with(b"/outboard"))
            && words.next() == Some(b"cast-receiver")
        {
            found.push(process);
        }
    }
    Ok(found)
}

fn empty(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let removed = match path.is_dir() && !path.is_symlink() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}

fn open_to_all(directory: &Path) -> Result<()> {
    Ok(fs::set_permissions(directory, Permissions::from_mode(0o1777))?)
}

/// The first of as many ports in a row as the daemons need.
fn free_ports() -> Result<u16> {
    let count = u16::try_from(NODES)? + 1;
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = (26_900..32_000).step_by(usize::from(count));
    let mut first = first.filter(|first| (*first..first + count).all(is_free));
    first.next().context("no ports are free")
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + READY_MAX;
    while !is_so()? {
        if Instant::now() > deadline {
            bail!("{what}: not within {} s", READY_MAX.as_secs());
        }
        sleep(PAUSE);
    }
    Ok(())
}
