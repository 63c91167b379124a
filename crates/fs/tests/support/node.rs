//! A node's process that serves active code, with a tree in its region `fs`: started, killed and
//! started again as an operator or a fault may. The test's program is the node and the service, too.

use outboard_active::service::{check_table, serve};
use outboard_active::{ActiveCall, ActiveClient, ActiveClientOptions, DialActive, ModuleHash};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{NodeConfig, ServiceSpec, Supervisor};
use outboard_fs::client::{FsClient, FsClientOptions};
use outboard_fs::protocol::{FsInitArgs, FsLayout};
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, Revoked, ServiceName};
use outboard_verbs::Context;
use rustix::process::{Pid, Signal, kill_process};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What makes this program a service, and a node.
const SERVICE: &str = "be-a-service";
const NODE: &str = "be-a-node";

const SERVICES: &[ServiceSpec] =
    &[ServiceSpec { name: "active", by_default: true, check: check_table, run: serve }];

/// Longer than any step takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

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
    own: Arc<Credentials>,
    directory: tempfile::TempDir,
}

impl Node {
    /// Starts a node with an empty tree.
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/built");
        let settings = format!(
            "listen = [\"127.0.0.1:0\"]\n[active]\ntime_ms = 20000\nmodules = {modules:?}\n\
             [active.regions.fs]\nsize = \"64MiB\"\n"
        );
        fs::write(directory.path().join("node.toml"), settings).expect("written");
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.arg(NODE).arg(directory.path()).stdout(Stdio::piped());
        // What is compiled once is there for all nodes.
        command.env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache"));
        let mut child = command.spawn().expect("a node");
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        told.read_line(&mut line).expect("a line");
        let hosts: HostList = line.trim().parse().expect("a host");
        let own = identity(directory.path());
        let node = Self { child, host: hosts.hosts()[0].clone(), own, directory };
        node.make_tree();
        node
    }

    fn dial(&self) -> DialActive {
        let (dialer, host) = (Dialer::new(Arc::clone(&self.own)), self.host.clone());
        let name: ServiceName = "active".parse().expect("a name");
        Box::new(move |limit| {
            let dialled = dialer.dial(&host, &name, Instant::now() + limit);
            dialled.map_err(|error| error.to_string())
        })
    }

    fn make_tree(&self) {
        let options = ActiveClientOptions { limit: SOON, ..ActiveClientOptions::default() };
        let context = Context::open().expect("a context");
        let begun = Instant::now();
        // The service compiles its modules first.
        let mut client = loop {
            match ActiveClient::connect(&context, self.dial(), options) {
                Ok(client) => break client,
                Err(error) => assert!(begun.elapsed() < SOON, "{error}"),
            }
        };
        eprintln!("started in {:?}", begun.elapsed());
        let region = client.attach("fs").expect("attached");
        let module = include_bytes!("../../../../modules/built/fs.wasm");
        let args = FsInitArgs { blocks: 1 << 16, first: 8, mode: 0o755, ..FsInitArgs::default() };
        let args = args.bytes();
        let call = ActiveCall::new(&region, ModuleHash::of(module), "init", &args);
        let outcome = client.execute(&call).expect("an outcome");
        assert!(matches!(outcome, outboard_active::Outcome::Done { .. }), "{outcome:?}");
    }

    /// A client of the tree.
    pub(crate) fn client(&self, options: &FsClientOptions) -> Arc<FsClient> {
        let options = FsClientOptions { connect: SOON, ..*options };
        let context = Context::open().expect("a context");
        FsClient::connect(&context, self.dial(), &options).expect("connected")
    }

    /// The process of the service.
    fn service(&self) -> Pid {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.expect("the node's");
        let child = children.split_whitespace().next().expect("a service");
        Pid::from_raw(child.parse().expect("a number")).expect("not 0")
    }

    /// Has the service answer nothing until it [goes on](Self::go_on).
    pub(crate) fn stop_service(&self) {
        kill_process(self.service(), Signal::STOP).expect("it is there");
    }

    pub(crate) fn go_on(&self) {
        kill_process(self.service(), Signal::CONT).expect("it is there");
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

fn identity(directory: &Path) -> Arc<Credentials> {
    let key = ClusterKey::load_or_create(&directory.join("key")).expect("a key");
    let name: ServiceName = "active".parse().expect("a name");
    Arc::new(Credentials {
        identity: Identity::generate().expect("random numbers"),
        keys: [key.service(&name)].into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    })
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
