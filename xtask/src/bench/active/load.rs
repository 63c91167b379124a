//! Outboard as users start it: a node that serves `active`, and `active_load`, the client that
//! measures itself, each where it is told to run.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use super::redis::Protection;
use crate::bench::measure::{Server, free_port, json, pinned};
use crate::builds;
use crate::command;
use crate::lab::Host;
use crate::process::Process;
use crate::scratch::Scratch;

const LISTEN_MAX: Duration = Duration::from_secs(20);
/// Regions that every node has. A table of 16,384 buckets is made by one execution.
const REGIONS: &str = "[active.regions]\n\
                       list = { size = \"64MiB\" }\n\
                       table = { size = \"64MiB\", writes = \"4MiB\" }\n\
                       scan = { size = \"128MiB\" }\n";

/// The programs and a key, where every user may read them.
#[derive(Debug)]
pub(super) struct ActivePrograms {
    scratch: Scratch,
}

/// Where client and node run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Where<'a> {
    /// On processors 0 and 1 of this machine, over loopback.
    Loopback,
    /// On two hosts.
    Hosts([&'a Host; 2]),
}

/// A node that runs until this value is gone.
#[derive(Debug)]
pub(super) struct ActiveNode<'a> {
    programs: &'a ActivePrograms,
    place: Where<'a>,
    protection: Protection,
    /// Host and port.
    name: String,
    _process: Process,
}

/// How a node is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeSetup {
    pub(super) protection: Protection,
    /// Whether its loop looks for requests before it sleeps: `never`, `adaptive` or `always`.
    pub(super) spin: &'static str,
}

impl ActivePrograms {
    /// Builds them.
    pub(super) fn build() -> Result<Self> {
        let built = [builds::outboard(true)?, builds::example("active_load")?];
        let scratch = Scratch::new(&env::temp_dir(), "outboard-bench-active-")?;
        for from in built {
            let name = from.file_name().context("a program has a name")?;
            fs::copy(&from, scratch.path(name))
                .with_context(|| format!("cannot copy {}", from.display()))?;
        }
        let programs = Self { scratch };
        let modules = programs.scratch.directory("modules")?;
        for module in fs::read_dir(command::root().join("modules/built"))? {
            let from = module?.path();
            fs::copy(&from, modules.join(from.file_name().context("a file has a name")?))?;
        }
        let mut key = Command::new(programs.path("outboard"));
        command::output(programs.own(key.args(["key", "new"]), Protection::Encrypted))?;
        Ok(programs)
    }

    /// The directory of built modules.
    pub(super) fn modules(&self) -> String {
        self.path("modules").to_string_lossy().into_owned()
    }

    fn path(&self, program: &str) -> PathBuf {
        self.scratch.path(program)
    }

    /// Gives a command the key and a home.
    fn own<'a>(&self, command: &'a mut Command, protection: Protection) -> &'a mut Command {
        let fabric = match protection {
            Protection::Trusted => "trusted",
            Protection::Encrypted => "untrusted",
        };
        command.env("HOME", self.scratch.path("home")).env("OUTBOARD_FABRIC", fabric);
        command.env("OUTBOARD_KEY", self.scratch.path("key"))
    }

    /// A node, on processor 1 or on host B.
    pub(super) fn node<'a>(&'a self, place: Where<'a>, setup: NodeSetup) -> Result<ActiveNode<'a>> {
        let NodeSetup { protection, spin } = setup;
        let port = free_port()?;
        let name = format!("{}:{port}", place.address());
        let settings = self.path(&format!("node-{port}.toml"));
        let trusted = protection == Protection::Trusted;
        let own = format!("trusted_fabric = {trusted}\n[active]\nspin = {spin:?}\n");
        fs::write(&settings, own + REGIONS)?;
        let mut node = place.server(self.path("outboard"));
        node.args(["node", "--serve", "active", "--listen", &name, "--config"]).arg(settings);
        self.own(&mut node, protection);
        let log = self.path(&format!("node-{port}.log"));
        let mut process = Process::start(&mut node, &log)?;
        process.wait_listening(port, Instant::now() + LISTEN_MAX)?;
        Ok(ActiveNode { programs: self, place, protection, name, _process: process })
    }

    /// Round trips of 8 bytes by Sends, without a node.
    pub(super) fn ping(&self, protection: Protection, wait: &str, ms: &str) -> Result<Value> {
        let mut pong = Where::Loopback.server(self.path("active_load"));
        let (_pong, address) = Server::start_with_line(self.own(pong.arg("pong"), protection))?;
        let mut ping = Where::Loopback.client(self.path("active_load"));
        json(self.own(ping.args(["ping", address.trim(), wait, ms]), protection))
    }
}

impl Where<'_> {
    fn address(self) -> String {
        match self {
            Self::Loopback => "127.0.0.1".to_owned(),
            Self::Hosts([_, b]) => b.address.to_string(),
        }
    }

    fn client(self, program: impl AsRef<OsStr>) -> Command {
        self.on(0, program)
    }

    fn server(self, program: impl AsRef<OsStr>) -> Command {
        self.on(1, program)
    }

    fn on(self, side: usize, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Loopback => {
                let program = program.as_ref().to_string_lossy();
                pinned(["0", "1"][side], &program, &[])
            }
            Self::Hosts(hosts) => hosts[side].command(program),
        }
    }
}

impl ActiveNode<'_> {
    /// One measurement as a command: its kind, this node, the rest.
    pub(super) fn load(&self, kind: &str, rest: &[&str]) -> Command {
        let mut load = self.place.client(self.programs.path("active_load"));
        load.arg(kind).arg(&self.name).args(rest);
        self.programs.own(&mut load, self.protection);
        load
    }

    /// Runs one measurement of a module that is shipped.
    pub(super) fn shipped(&self, kind: &str, rest: &[&str]) -> Result<Value> {
        let modules = self.programs.modules();
        json(&mut self.load(kind, &[&[&*modules], rest].concat()))
    }

    /// Runs one measurement.
    pub(super) fn measure(&self, kind: &str, rest: &[&str]) -> Result<Value> {
        json(&mut self.load(kind, rest))
    }
}
