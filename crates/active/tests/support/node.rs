//! A node's process with the service in its real place, started, killed and ended as an operator or
//! a fault may. The test's program is the node and the service, too: it starts itself.

use outboard_active::service::{check_table, serve};
use outboard_active::{ActiveClient, ActiveClientOptions, DialActive, WaitMode};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{NodeConfig, ServiceSpec, Supervisor};
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, Revoked, ServiceName};
use outboard_testkit::PATIENCE;
use outboard_verbs::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

/// What makes this program a service, and a node.
const SERVICE: &str = "be-a-service";
const NODE: &str = "be-a-node";

const SERVICES: &[ServiceSpec] =
    &[ServiceSpec { name: "active", by_default: true, check: check_table, run: serve }];

/// What this program does if it was started as a node or a service.
pub(crate) fn started() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [hidden, name] if hidden == SERVICE => Some(outboard_cluster::node::serve(name, SERVICES)),
        [hidden, directory] if hidden == NODE => Some(match node(Path::new(directory)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }),
        _ => None,
    }
}

fn node(directory: &Path) -> Result<(), Box<dyn Error>> {
    let config = NodeConfig::read(&directory.join("node.toml"), SERVICES)?;
    let places = KeyPaths::beneath(directory);
    let supervisor = Supervisor::new(config, places, SERVICES, vec![SERVICE.into()])?;
    println!("{}", supervisor.addresses()[0]);
    Ok(supervisor.run()?)
}

/// A node that runs, with its directory.
pub(crate) struct Node {
    child: Child,
    host: Host,
    pub(crate) directory: tempfile::TempDir,
}

impl Node {
    pub(crate) fn start(directory: tempfile::TempDir, table: &str) -> Self {
        let cache = directory.path().join("cache");
        Self::start_with(directory, table, &cache)
    }

    /// As [`Self::start`], with a directory for what is compiled.
    pub(crate) fn start_with(directory: tempfile::TempDir, table: &str, cache: &Path) -> Self {
        let settings = format!("listen = [\"127.0.0.1:0\"]\n{table}");
        fs::write(directory.path().join("node.toml"), settings).expect("written");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(NODE).arg(directory.path()).stdout(Stdio::piped());
        command.env("XDG_CACHE_HOME", cache);
        let mut child = command.spawn().expect("a node");
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        told.read_line(&mut line).expect("a line");
        let hosts: HostList = line.trim().parse().expect("a host");
        Self { child, host: hosts.hosts()[0].clone(), directory }
    }

    pub(crate) fn identity(&self) -> Arc<Credentials> {
        let key = ClusterKey::load_or_create(&self.directory.path().join("key")).expect("a key");
        let name: ServiceName = "active".parse().expect("a name");
        Arc::new(Credentials {
            identity: Identity::generate().expect("random numbers"),
            keys: [key.service(&name)].into_iter().collect(),
            fabric: Fabric::Untrusted,
            revoked: Revoked::default(),
        })
    }

    pub(crate) fn client(&self, own: &Arc<Credentials>) -> ActiveClient {
        let options = ActiveClientOptions {
            wait: WaitMode::Adaptive,
            limit: PATIENCE,
            in_flight: 1024,
            attempts: 1,
        };
        let context = Context::open().expect("a context");
        ActiveClient::connect(&context, self.dial(own), options).expect("connected")
    }

    /// What reaches the service.
    pub(crate) fn dial(&self, own: &Arc<Credentials>) -> DialActive {
        let (dialer, host) = (Dialer::new(Arc::clone(own)), self.host.clone());
        let name: ServiceName = "active".parse().expect("a name");
        Box::new(move |limit| {
            let dialled = dialer.dial(&host, &name, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        })
    }

    /// The process of the service.
    pub(crate) fn service(&self) -> Option<Pid> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    pub(crate) fn kill_service(&self) {
        if let Some(service) = self.service() {
            kill_process(service, Signal::KILL).expect("it is there");
        }
    }

    /// Ends the node in order; its directory.
    pub(crate) fn end(mut self) -> tempfile::TempDir {
        let node = Pid::from_child(&self.child);
        kill_process(node, Signal::TERM).expect("it is there");
        assert!(self.child.wait().expect("it ends").success());
        std::mem::replace(&mut self.directory, tempfile::tempdir().expect("a directory"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
