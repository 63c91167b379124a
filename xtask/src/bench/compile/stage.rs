//! Where a build takes place: a client and its servers, with everything that they need.

use std::fs;
use std::iter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::place::{self, Programs};
use crate::command;
use crate::lab::{Host, Lab, Link};
use crate::process::wait_listening;
use crate::scratch::Scratch;

/// The rate of every link.
const LINK: Link = Link::BitsPerSecond(1_000_000_000);
/// The client's processor and the servers' processor.
const CLIENT: &str = "0";
pub(super) const SERVERS: &str = "1";
const BOTH: &str = "0-1";
/// With more than four slots, a client with one processor leaves all jobs to its servers.
const SMALL_FARM_SLOTS: usize = 5;
/// How long a server may take to listen.
const LISTEN_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
/// The beginning of all scratch directories' names.
const SCRATCH: &str = "scratch-";

/// The files in `target/bench/compile`, which are made once.
#[derive(Clone, Debug)]
pub(super) struct Kit {
    pub(super) base: PathBuf,
    pub(super) programs: Programs,
}

impl Kit {
    /// The sources, never compiled in place.
    pub(super) fn project(&self) -> PathBuf {
        self.base.join("project")
    }

    /// The records of the real compiler.
    pub(super) fn records(&self) -> PathBuf {
        self.base.join("record")
    }
}

/// Where files are stored: the project, objects, temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    /// In memory, as in the paper.
    Tmpfs,
    /// Where the workspace lies.
    Disk,
}

/// The servers of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Servers {
    /// Emulated servers of one core each.
    StandIns {
        /// How many.
        count: usize,
        /// The factor of recorded times; with 0 stand-ins do not wait.
        factor: f64,
    },
    /// The real compiler on one server, which runs on the client's host with every processor.
    Real,
}

/// A client and servers.
#[derive(Debug)]
pub(super) struct Stage {
    lab: Lab,
    /// The directories of the stand-ins, one for each server.
    places: Vec<PathBuf>,
    scratch: Scratch,
}

impl Stage {
    /// A client and its servers, without running programs.
    pub(super) fn new(kit: &Kit, servers: Servers, medium: Medium) -> Result<Self> {
        // A file system of its own if it is to be in memory: sandboxes show nothing below /dev.
        let scratch = match medium {
            Medium::Tmpfs => Scratch::in_memory(&kit.base, SCRATCH, "mode=755")?,
            Medium::Disk => Scratch::new(&kit.base, SCRATCH)?,
        };
        copy(&kit.project(), &scratch.path("project"))?;
        let (processors, places) = match servers {
            Servers::StandIns { count, factor } => {
                let processors = [CLIENT].into_iter().chain(iter::repeat_n(SERVERS, count));
                let places = (0..count).map(|server| {
                    let place = kit.base.join(format!("servers/{server}"));
                    place::make(&place, &kit.programs.stand_in, &kit.records(), factor)?;
                    Ok(place)
                });
                (processors.collect(), places.collect::<Result<Vec<_>>>()?)
            }
            Servers::Real => (vec![BOTH], Vec::new()),
        };
        for host in 0..processors.len() {
            let temporary = scratch.directory(&format!("host{host}"))?;
            fs::set_permissions(temporary, fs::Permissions::from_mode(0o1777))?;
        }
        Ok(Self { lab: Lab::new(&processors, LINK)?, places, scratch })
    }

    /// The host on which builds are started.
    pub(super) fn client(&self) -> &Host {
        &self.lab.hosts()[0]
    }

    /// The servers, each with the directory of its stand-in if it has one.
    pub(super) fn servers(&self) -> impl Iterator<Item = (&Host, Option<&Path>)> {
        let hosts = self.lab.hosts();
        let first = hosts.len().min(2) - 1;
        let places = self.places.iter().map(|place| Some(place.as_path()));
        hosts[first..].iter().zip(places.chain(iter::repeat(None)))
    }

    /// Number of jobs that a server accepts at a time, of which it computes one. Two, so that it
    /// need not wait for the next; more if all servers together would have so few that Outboard's
    /// client ran jobs locally, which would spoil the comparison.
    pub(super) fn slots(&self) -> usize {
        match self.places.len() {
            0 => self.lab.hosts().len() * 2,
            servers => SMALL_FARM_SLOTS.div_ceil(servers).max(2),
        }
    }

    /// A directory for one host's temporary files, writable by all users.
    pub(super) fn temporary(&self, host: &Host) -> PathBuf {
        let index = self.lab.hosts().iter().position(|other| other.address == host.address);
        self.scratch.path(format!("host{}", index.unwrap_or(0)))
    }

    /// A directory that all users can read.
    pub(super) fn shared(&self, name: &str) -> Result<PathBuf> {
        self.scratch.directory(name)
    }

    /// The client's copy of the project.
    pub(super) fn project(&self) -> PathBuf {
        self.scratch.path("project")
    }

    /// A command on the client, with its directory for temporary files.
    pub(super) fn client_command(&self, program: &str) -> Command {
        let mut command = self.client().command(program);
        command.env("TMPDIR", self.temporary(self.client())).env("LC_ALL", "C");
        command
    }

    /// Starts a server program on a host, and waits until it listens on `port`. It runs until the
    /// stage is dropped.
    pub(super) fn serve(&self, host: &Host, command: &mut Command, port: u16) -> Result<()> {
        let log = self.temporary(host).join(format!("{port}.log"));
        let file = fs::File::create(&log)?;
        command.env("TMPDIR", self.temporary(host)).stdin(std::process::Stdio::null());
        let child = command.stdout(file.try_clone()?).stderr(file).spawn();
        let mut child =
            child.with_context(|| format!("cannot start {}", command::line(command)))?;
        wait_listening(&mut child, port, Instant::now() + LISTEN_MAX).map_err(|error| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            anyhow!("{}: {error}:\n{said}", command::line(command))
        })
    }

    /// Waits until the server on `port` of a host has written `words` to its log.
    pub(super) fn wait_said(&self, host: &Host, port: u16, words: &str) -> Result<()> {
        let log = self.temporary(host).join(format!("{port}.log"));
        let deadline = Instant::now() + LISTEN_MAX;
        loop {
            let said = fs::read(&log)?;
            let said = String::from_utf8_lossy(&said);
            if said.contains(words) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("what serves {port} on {} never said \"{words}\":\n{said}", host.address);
            }
            sleep(PAUSE);
        }
    }

    /// Ends everything on all hosts.
    pub(super) fn silence(&self) -> Result<()> {
        self.lab.hosts().iter().try_for_each(|host| host.group.kill())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // The processes that use the scratch directory end first; the lab ends the rest.
        let _ = self.silence();
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    command::run(copy.args(["--archive", "--no-target-directory"]).arg(from).arg(to))
}
