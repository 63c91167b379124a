//! Redis's scripts: its server, in clear and with TLS, and `redis.c`, which asks it as fast as one
//! thread can. A server that is not installed is no contender.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use anyhow::{Context, Result};
use serde_json::Value;

use super::load::{ActiveNode, ActivePrograms, NodeSetup, Where};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate, json, pinned};
use crate::bench::stack::section::{Runs, ratio};
use crate::command;
use crate::process::Process;
use crate::scratch::Scratch;

/// Entries of the table, and bytes of each value.
pub(super) const KEYS: u32 = 10_000;
pub(super) const VALUE: u32 = 64;
const MILLISECONDS: &str = "1000";
const LISTEN_MAX: Duration = Duration::from_secs(10);

/// Whether sessions are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protection {
    Trusted,
    Encrypted,
}

/// How calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    /// `block`, or `spin`: looks for a short time before it sleeps.
    pub(super) wait: &'static str,
    pub(super) connections: u32,
    /// Calls under way on each.
    pub(super) depth: u32,
}

/// In the order of the rows.
pub(super) const SETTINGS: [Setting; 4] = [
    Setting { name: "1, blocking", wait: "block", connections: 1, depth: 1 },
    Setting { name: "1, short spin", wait: "spin", connections: 1, depth: 1 },
    Setting { name: "50", wait: "block", connections: 50, depth: 1 },
    Setting { name: "50, 16 in flight", wait: "block", connections: 50, depth: 16 },
];

/// A Redis server on processor 1, with one port in clear and one for TLS.
#[derive(Debug)]
pub(super) struct Redis {
    client: PathBuf,
    ports: [u16; 2],
    _server: Process,
    _scratch: Scratch,
}

impl Redis {
    /// `None` if Redis is not installed, or its client does not compile for lack of OpenSSL.
    pub(super) fn start() -> Result<Option<Self>> {
        let tools = ["redis-server", "openssl"];
        if !tools.iter().all(|tool| command::succeeds("which", &[tool])) {
            return Ok(None);
        }
        let Ok(client) = build() else { return Ok(None) };
        let scratch = Scratch::new(&env::temp_dir(), "outboard-bench-redis-")?;
        let home = scratch.directory("redis")?;
        certify(&home)?;
        let ports = free_ports()?;
        let settings = settings(&home, ports);
        fs::write(home.join("redis.conf"), settings)?;
        let mut server = Command::new("taskset");
        server.args(["--cpu-list", "1", "redis-server"]).arg(home.join("redis.conf"));
        let mut server = Process::start(&mut server, &home.join("log"))?;
        for port in ports {
            server.wait_listening(port, Instant::now() + LISTEN_MAX)?;
        }
        Ok(Some(Self { client, ports, _server: server, _scratch: scratch }))
    }

    /// Runs one client on processor 0; `what` is `get` or `put`.
    pub(super) fn measure(
        &self,
        protection: Protection,
        what: &str,
        setting: Setting,
    ) -> Result<Value> {
        let (port, how) = match protection {
            Protection::Trusted => (self.ports[0], "plain"),
            Protection::Encrypted => (self.ports[1], "tls"),
        };
        let mut client = pinned("0", &self.client.to_string_lossy(), &["127.0.0.1"]);
        client.args([&port.to_string(), how, what, setting.wait]);
        let sizes = [setting.connections, setting.depth, KEYS, VALUE];
        client.args(sizes.map(|size| size.to_string())).arg(MILLISECONDS);
        json(&mut client)
    }
}

/// Without persistence; TLS with the cipher of Outboard's sessions.
fn settings(home: &Path, ports: [u16; 2]) -> String {
    let [plain, tls] = ports;
    let (home, save) = (home.display(), "\"\"");
    format!(
        "port {plain}\ntls-port {tls}\nbind 127.0.0.1\ndir {home}\nsave {save}\nappendonly no\n\
         tls-cert-file {home}/certificate\ntls-key-file {home}/key\n\
         tls-ca-cert-file {home}/certificate\ntls-auth-clients no\n\
         tls-ciphersuites TLS_AES_256_GCM_SHA384\n"
    )
}

/// A key and a certificate that vouches for itself.
fn certify(home: &Path) -> Result<()> {
    let mut certify = Command::new("openssl");
    certify.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    certify.args(["-nodes", "-subj", "/CN=redis", "-days", "2"]).current_dir(home);
    certify.args(["-keyout", "key", "-out", "certificate"]);
    command::run(certify.stderr(Stdio::null()))
}

/// Two free ports.
fn free_ports() -> Result<[u16; 2]> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (one, other) = (bind()?, bind()?);
    Ok([one.local_addr()?.port(), other.local_addr()?.port()])
}

fn build() -> Result<PathBuf> {
    command::compile_c("xtask/src/bench/active/redis.c", &["-lssl", "-lcrypto"])
}

/// What a client is to do: its name on the page, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallPoint {
    pub(super) what: &'static str,
    pub(super) setting: Setting,
}

/// Every setting with every operation, in the order of the rows.
fn points() -> Vec<CallPoint> {
    let of = |what| SETTINGS.map(|setting| CallPoint { what, setting });
    ["get", "put"].into_iter().flat_map(of).collect()
}

impl CallPoint {
    fn name(self) -> String {
        format!("{}, {}", self.what, self.setting.name)
    }

    fn find(name: &str) -> Result<Self> {
        let found = points().into_iter().find(|point| point.name() == name);
        found.with_context(|| format!("no setting is called {name}"))
    }
}

const OURS: &str = "Execute";
const REDIS: &str = "Redis EVALSHA";
const ROUNDS: usize = 5;

/// Gets and puts in every setting, trusted and encrypted.
pub(super) fn beside() -> Result<AimedFindings> {
    let mut found = AimedFindings::default();
    let programs = ActivePrograms::build()?;
    let redis = Redis::start()?;
    if redis.is_none() {
        found.notes.push("Redis, with TLS, is not installed here: its rows are not run.".into());
    }
    for protection in [Protection::Trusted, Protection::Encrypted] {
        one_mode(&programs, redis.as_ref(), protection, &mut found)?;
    }
    Ok(found)
}

fn one_mode(
    programs: &ActivePrograms,
    redis: Option<&Redis>,
    protection: Protection,
    found: &mut AimedFindings,
) -> Result<()> {
    let names: Vec<String> = points().into_iter().map(CallPoint::name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let node = |spin| programs.node(Where::Loopback, NodeSetup { protection, spin });
    // Where nobody is to spin, the node does not either.
    let (blocking, spinning) = (node("never")?, node("adaptive")?);
    let ours = Contender {
        name: OURS,
        measure: Box::new(|name: &str| {
            let CallPoint { what, setting } = CallPoint::find(name)?;
            let quiet = setting.connections == 1 && setting.wait == "block";
            call(if quiet { &blocking } else { &spinning }, what, setting)
        }),
    };
    let theirs = redis.map(|redis| Contender {
        name: REDIS,
        measure: Box::new(move |name: &str| {
            let CallPoint { what, setting } = CallPoint::find(name)?;
            redis.measure(protection, what, setting)
        }),
    });
    let mut contenders: Vec<Contender<'_, Value>> = [ours].into_iter().chain(theirs).collect();
    let series = alternate(&mut contenders, &names, ROUNDS)?;
    let runs = Runs { points: &names, series };
    let mode = match protection {
        Protection::Trusted => "trusted",
        Protection::Encrypted => "encrypted",
    };
    let axis = "connections";
    let rate = "calls/s, more is better";
    let rates = runs.panel(&format!("Hash table, {mode}"), rate, axis, "/calls_per_s")?;
    for point in 0..names.len() {
        found.figures.push(ratio(&rates, OURS, REDIS, point)?);
    }
    let title = format!("Hash table, {mode}: 99th percentile");
    let tails = runs.panel(&title, "µs, less is better", axis, "/p99_us")?;
    found.panels.extend([rates, tails]);
    Ok(())
}

/// Executes the table's gets or puts.
fn call(node: &ActiveNode<'_>, what: &str, setting: Setting) -> Result<Value> {
    let value = VALUE.to_string();
    if setting.connections == 1 {
        let wait = if setting.wait == "spin" { "adaptive" } else { "block" };
        return node.shipped("table", &[wait, "active", what, &value, MILLISECONDS]);
    }
    let [connections, depth] = [setting.connections, setting.depth].map(|size| size.to_string());
    node.shipped("tables", &[what, &value, &connections, &depth, MILLISECONDS])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_found_by_their_names_and_are_those_of_the_aims() {
        let points = points();
        let part = super::super::aims::PARTS.iter().find(|part| part.name == "redis").unwrap();
        assert_eq!(part.aims.len(), 2 * points.len());
        for (point, aim) in points.iter().zip(part.aims) {
            let found = CallPoint::find(&point.name()).unwrap();
            assert_eq!((found.what, found.setting), (point.what, point.setting));
            assert!(aim.what.starts_with(point.what), "{} {}", aim.what, point.name());
        }
        assert!(CallPoint::find("get, 2").is_err());
    }
}
