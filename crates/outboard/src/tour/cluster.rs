//! Three compile servers on loopback and a manager: processes of this program, with a key, state
//! and sockets of their own. They end with the tour, or with the thread that started them.

use super::{Guide, Trouble};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_cluster::status;
use outboard_compile::manager;
use outboard_compile::stats::SavedJournal;
use outboard_secure::ClusterKey;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

pub(super) const SERVERS: usize = 3;
const SERVICE: &str = "compile";
/// How long a server may take until it serves.
const START_MAX: Duration = Duration::from_secs(30);
/// A node ends in order within 5 s; then it is ended by force.
const END_MAX: Duration = Duration::from_secs(6);
/// How long a node may take to say how it is.
const ASK_MAX: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Cluster {
    /// Jobs that all servers take at a time.
    pub(super) slots: usize,
    nodes: Vec<Node>,
    manager: Option<Child>,
    settings: Vec<(&'static str, PathBuf)>,
    hosts: String,
}

/// A node of the tour's.
#[derive(Debug)]
struct Node {
    child: Child,
    log: PathBuf,
    /// Held open, so that its writes succeed.
    _out: BufReader<ChildStdout>,
    address: String,
}

impl Cluster {
    pub(super) fn start(guide: &Guide) -> Result<Self, Trouble> {
        let place = &guide.place;
        let key = place.path().join("key");
        ClusterKey::create(&key).map_err(|error| Trouble::failed("the key", error))?;
        let mut settings = vec![("OUTBOARD_KEY", key)];
        for (name, directory) in [
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_RUNTIME_DIR", "run"),
        ] {
            settings.push((name, place.directory(directory)?));
        }
        let processors = available_parallelism().map_or(1, usize::from);
        let slots = processors.div_ceil(SERVERS).max(2);
        let mut cluster = Self {
            slots: slots * SERVERS,
            nodes: Vec::new(),
            manager: None,
            settings,
            hosts: String::new(),
        };
        for at in 1..=SERVERS {
            cluster.nodes.push(cluster.node(guide, at, slots)?);
        }
        cluster.hosts = cluster.addresses().collect::<Vec<_>>().join(",");
        cluster.wait_for_servers(guide)?;
        cluster.manager = Some(cluster.manager(guide)?);
        cluster.wait_for_manager(guide)?;
        Ok(cluster)
    }

    /// This program, with settings of the tour's and none of the user's.
    pub(super) fn command(&self) -> io::Result<Command> {
        let mut command = clean_command()?;
        command.envs(self.settings.iter().cloned()).env("OUTBOARD_HOSTS", &self.hosts);
        Ok(command)
    }

    fn node(&self, guide: &Guide, at: usize, slots: usize) -> Result<Node, Trouble> {
        let log = guide.place.path().join(format!("node-{at}.log"));
        let mut command = self.command()?;
        command
            .args(["node", "--with-parent", "--listen=127.0.0.1:0", "--serve=compile"])
            .arg(format!("--slots={slots}"))
            // Each has an identity of its own.
            .env("XDG_CONFIG_HOME", guide.place.directory(&format!("node-{at}"))?)
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?);
        let mut child = command.process_group(0).spawn()?;
        let mut line = String::new();
        let Some(out) = child.stdout.take() else {
            return Err(Trouble::Failed("a node has standard output".into()));
        };
        let mut out = BufReader::new(out);
        out.read_line(&mut line)?;
        let address = line.split_whitespace().skip_while(|word| *word != "on").nth(1);
        match address.map(str::to_owned) {
            Some(address) => Ok(Node { child, log, _out: out, address }),
            None => {
                end(&mut child);
                Err(Trouble::Failed(format!(
                    "a node does not start: {}",
                    last_line(&log, SERVICE).unwrap_or_default()
                )))
            }
        }
    }

    /// A service that finds no user namespaces dies and is started again: its log says why.
    fn wait_for_servers(&self, guide: &Guide) -> Result<(), Trouble> {
        let limit = Instant::now() + START_MAX;
        loop {
            guide.goes_on()?;
            let services = self.ask()?;
            let serves = |service: &Value| service["report"]["slots"].is_u64();
            let Some(absent) = services.iter().position(|service| !serves(service)) else {
                return Ok(());
            };
            let why = last_line(&self.nodes[absent].log, SERVICE);
            if why.is_some() || Instant::now() > limit {
                let why = why.unwrap_or_else(|| "it takes too long".into());
                return Err(Trouble::left_out("no compile server starts here", why));
            }
            thread::sleep(LOOK);
        }
    }

    /// The report of each node about its service.
    fn ask(&self) -> Result<Vec<Value>, Trouble> {
        let of_tour = |error: String| Trouble::Failed(error);
        let hosts: HostList = self.hosts.parse().map_err(|error| {
            Trouble::failed("the nodes' addresses", error as outboard_cluster::hosts::HostsError)
        })?;
        let variable = |name: &str| -> Option<OsString> {
            let found = self.settings.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone().into_os_string())
        };
        let dialer = Dialer::from_environment(variable, &[status::service()]);
        let dialer = dialer.map_err(|error| of_tour(error.to_string()))?;
        let ask = |host| {
            let said = status::ask(&dialer, host, Instant::now() + ASK_MAX);
            said.map(|said| said["services"][0].clone())
        };
        let said: Result<Vec<Value>, _> = hosts.iter().map(ask).collect();
        said.map_err(|error| of_tour(error.to_string()))
    }

    /// Where the servers are, as the manager's statistics name them.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.address.as_str())
    }

    fn manager(&self, guide: &Guide) -> Result<Child, Trouble> {
        let log = File::create(guide.place.path().join("manager.log"))?;
        let mut command = self.command()?;
        command.args(["cc", "--manager", "--with-parent"]).stdout(Stdio::null()).stderr(log);
        Ok(command.process_group(0).spawn()?)
    }

    /// Waits until the manager has reached all servers: a build that starts earlier runs its first
    /// jobs locally.
    fn wait_for_manager(&self, guide: &Guide) -> Result<(), Trouble> {
        let limit = Instant::now() + START_MAX;
        let is_met = |service: &Value| service["report"]["clients"].get(0).is_some();
        while !self.ask()?.iter().all(is_met) {
            guide.goes_on()?;
            if Instant::now() > limit {
                let why = last_line(&guide.place.path().join("manager.log"), SERVICE);
                let why = why.unwrap_or_else(|| "it takes too long".into());
                return Err(Trouble::failed("the manager does not reach the servers", why));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The manager's statistics, up to now.
    pub(super) fn statistics(&self, guide: &Guide) -> Result<SavedJournal, Trouble> {
        let path = |name: &str| guide.place.path().join(name).join("outboard");
        let managers = outboard_cc::place::ManagerPlace::at(&path("run"))?;
        managers.sockets().iter().for_each(|socket| manager::settle(socket));
        Ok(SavedJournal::load(&path("state"))?)
    }
}

/// This program without settings of the user's.
pub(super) fn clean_command() -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("OUTBOARD_")) {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    Ok(command)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(manager) = &mut self.manager {
            end(manager);
        }
        for node in &self.nodes {
            // Fails only when it has ended already.
            let _asked = kill_process(Pid::from_child(&node.child), Signal::TERM);
        }
        let limit = Instant::now() + END_MAX;
        for node in &mut self.nodes {
            while matches!(node.child.try_wait(), Ok(None)) && Instant::now() < limit {
                thread::sleep(LOOK);
            }
            end(&mut node.child);
        }
    }
}

pub(super) fn end(child: &mut Child) {
    // Both fail only when it has ended already.
    let _killed = child.kill();
    let _waited = child.wait();
}

/// The last log line in which the service says why it does not serve, or else the last line.
pub(super) fn last_line(log: &Path, service: &str) -> Option<String> {
    let said = fs::read_to_string(log).unwrap_or_default();
    let said_by = format!("service {service}: ");
    let line = said.lines().rev().find(|line| line.contains(&said_by));
    let line = line.or_else(|| said.lines().last())?;
    Some(line.trim_start_matches("outboard: ").to_owned())
}
