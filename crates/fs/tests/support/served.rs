//! A node that serves a file system, and mounts of it in processes of their own, which a test may
//! stop and kill. The test's program is all of them: it starts itself.

use outboard_active::{ActiveClient, ActiveClientOptions, DialActive};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::node::{NodeConfig, ServiceSpec, Supervisor};
use outboard_cluster::status;
use outboard_fs::client::{FsClient, FsClientOptions, FsError, FsVariant};
use outboard_fs::mount::{FsMount, FsMountOptions, unmount_at};
use outboard_fs::server::{check_table, serve};
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, Revoked, ServiceName};
use outboard_testkit::{PATIENCE, eventually};
use outboard_verbs::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Instant;

const SERVICE: &str = "be-a-service";
const NODE: &str = "be-a-node";
const MOUNT: &str = "be-a-mount";
/// What options of a mount begin with that reads one-sided.
pub(crate) const ONE_SIDED: &str = "one-sided,";
/// Or that does everything one-sided.
pub(crate) const RDMA: &str = "rdma,";

const SERVICES: &[ServiceSpec] =
    &[ServiceSpec { name: "fs", by_default: true, check: check_table, run: serve }];

type Done = Result<(), Box<dyn Error>>;

/// What this program does if it was started as one of the others.
pub(crate) fn started() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match &words[..] {
        [hidden, name] if hidden == SERVICE => {
            return Some(outboard_cluster::node::serve(name, SERVICES));
        }
        [hidden, directory] if hidden == NODE => supervise(Path::new(directory)),
        [hidden, directory, host, at, options] if hidden == MOUNT => {
            mount(Path::new(directory), host, Path::new(at), options)
        }
        _ => return None,
    };
    if let Err(error) = &done {
        eprintln!("{error}");
    }
    Some(if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn supervise(directory: &Path) -> Done {
    let places = KeyPaths::beneath(directory);
    let config = NodeConfig::read(&directory.join("node.toml"), SERVICES)?;
    let node = Supervisor::new(config, places, SERVICES, vec![SERVICE.into()])?;
    println!("{}", node.addresses()[0]);
    Ok(node.run()?)
}

fn mount(directory: &Path, host: &str, at: &Path, options: &str) -> Done {
    let variants = [(ONE_SIDED, FsVariant::OneSided), (RDMA, FsVariant::Rdma)];
    let said = variants
        .into_iter()
        .find_map(|(word, variant)| Some((variant, options.strip_prefix(word)?)));
    let (variant, options) = said.unwrap_or((FsVariant::Active, options));
    let options = FsMountOptions::parse(options)?;
    let hosts: HostList = host.parse()?;
    let how = FsClientOptions { variant, ..FsClientOptions::default() };
    let client = client_of(directory, hosts.hosts()[0].clone(), how)?;
    let mount = FsMount::mount(client, at, "node:/", &options)?;
    println!("mounted");
    Ok(mount.serve()?)
}

/// What dials a service of a node.
fn dialer_of(directory: &Path, name: &ServiceName) -> Dialer {
    let key = ClusterKey::load_or_create(&directory.join("key")).expect("a key");
    Dialer::new(Arc::new(Credentials {
        identity: Identity::generate().expect("random numbers"),
        keys: [key.service(name)].into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    }))
}

fn dial_of(directory: &Path, host: Host) -> DialActive {
    let name: ServiceName = "fs".parse().expect("a name");
    let dialer = dialer_of(directory, &name);
    Box::new(move |limit| {
        let dialled = dialer.dial(&host, &name, Instant::now() + limit);
        dialled.map_err(|error| error.to_string())
    })
}

fn client_of(
    directory: &Path,
    host: Host,
    options: FsClientOptions,
) -> Result<Arc<FsClient>, FsError> {
    let dial = dial_of(directory, host);
    let options = FsClientOptions { connect: PATIENCE, ..options };
    FsClient::connect(&Context::open().expect("a context"), dial, &options)
}

/// A number of a service's report.
pub(crate) fn number(report: &Value, place: &str) -> u64 {
    let found = report.pointer(place).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {place}: {report}"))
}

/// Starts this program with words, and its first line.
fn start(words: &[&std::ffi::OsStr], cache: &Path) -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(words).stdout(Stdio::piped()).env("XDG_CACHE_HOME", cache);
    let mut child = command.spawn().expect("it starts");
    let mut line = String::new();
    let mut told = BufReader::new(child.stdout.take().expect("piped"));
    told.read_line(&mut line).expect("a line");
    (child, line.trim().to_owned())
}

/// A node that serves a file system.
pub(crate) struct ServedNode {
    child: Child,
    host: String,
    directory: tempfile::TempDir,
}

impl ServedNode {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    /// One where user 0 owns what it makes.
    pub(crate) fn of_root() -> Self {
        Self::start_with("root_squash = false\n")
    }

    pub(crate) fn start_with(more: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let store = directory.path().join("store");
        Self::start_in(directory, &format!("store = {store:?}\nsize = \"64MiB\"\n{more}"))
    }

    /// One without a store.
    pub(crate) fn volatile() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self::start_in(directory, "volatile = true\nsize = \"64MiB\"\n")
    }

    fn start_in(directory: tempfile::TempDir, table: &str) -> Self {
        let settings = format!("listen = [\"127.0.0.1:0\"]\n[fs]\n{table}");
        fs::write(directory.path().join("node.toml"), settings).expect("written");
        // What is compiled once is there for all nodes.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        let (child, host) = start(&[NODE.as_ref(), directory.path().as_ref()], &cache);
        Self { child, host, directory }
    }

    pub(crate) fn client(&self) -> Arc<FsClient> {
        self.client_with(FsClientOptions::default()).expect("connected")
    }

    /// A client that knows no file system.
    pub(crate) fn plain_client(&self) -> ActiveClient {
        let hosts: HostList = self.host.parse().expect("a host");
        let dial = dial_of(self.directory.path(), hosts.hosts()[0].clone());
        let context = Context::open().expect("a context");
        ActiveClient::connect(&context, dial, ActiveClientOptions::default()).expect("connected")
    }

    pub(crate) fn client_with(&self, options: FsClientOptions) -> Result<Arc<FsClient>, FsError> {
        let hosts: HostList = self.host.parse().expect("a host");
        client_of(self.directory.path(), hosts.hosts()[0].clone(), options)
    }

    /// What the service says of itself now.
    pub(crate) fn report(&self) -> Value {
        let dialer = dialer_of(self.directory(), &status::service());
        let hosts: HostList = self.host.parse().expect("a host");
        let begun = Instant::now();
        loop {
            let mut told = status::ask(&dialer, &hosts.hosts()[0], begun + PATIENCE);
            // Where the service has not answered in time, its last report is shown.
            if let Ok(told) = &mut told
                && told["services"][0]["state"] == "running"
                && told["services"][0]["report"].is_object()
            {
                return told["services"][0]["report"].take();
            }
            assert!(begun.elapsed() < PATIENCE, "the service does not report: {told:?}");
        }
    }

    /// Waits until the service reports this number.
    #[track_caller]
    pub(crate) fn wait_for(&self, place: &str, wanted: u64) {
        let what = format!("{place} is {wanted}");
        eventually(&what, || number(&self.report(), place) == wanted);
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The process of the service.
    pub(crate) fn service(&self) -> Pid {
        let pid = self.child.id();
        let begun = Instant::now();
        loop {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let first = children.ok().and_then(|all| all.split_whitespace().next()?.parse().ok());
            if let Some(service) = first.and_then(Pid::from_raw) {
                return service;
            }
            assert!(begun.elapsed() < PATIENCE, "the node has no service");
        }
    }

    pub(crate) fn kill_service(&self) {
        kill_process(self.service(), Signal::KILL).expect("it is there");
    }

    /// Kills all of its processes, so that nothing is left but its disk, and starts it again.
    pub(crate) fn lose_memory(&mut self) {
        let service = self.service();
        self.child.kill().and_then(|()| self.child.wait()).expect("it ends");
        // It may have seen the end of its node.
        let _killed = kill_process(service, Signal::KILL);
        let settings = self.directory().join("node.toml");
        let text = fs::read_to_string(&settings).expect("settings");
        fs::write(&settings, text.replace("127.0.0.1:0", &self.host)).expect("written");
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
        (self.child, self.host) = start(&[NODE.as_ref(), self.directory().as_ref()], &cache);
    }
}

impl Drop for ServedNode {
    fn drop(&mut self) {
        // It may have ended.
        let _told = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ended = self.child.wait();
    }
}

/// A mount in a process of its own.
pub(crate) struct MountProcess {
    child: Child,
    directory: PathBuf,
}

impl MountProcess {
    pub(crate) fn of(node: &ServedNode, name: &str, options: &str) -> Self {
        let directory = node.directory().join(name);
        fs::create_dir(&directory).expect("a directory");
        let (of, host) = (node.directory().as_ref(), node.host.as_ref());
        let words = [MOUNT.as_ref(), of, host, directory.as_ref(), options.as_ref()];
        let (child, line) = start(&words, node.directory());
        assert_eq!(line, "mounted");
        Self { child, directory }
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    /// Bytes of memory that the process has, by a name of proc_pid_status(5).
    pub(crate) fn memory(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.expect("a number of KiB") << 10
    }
}

impl Drop for MountProcess {
    fn drop(&mut self) {
        // It may be dead, and not mounted any more.
        let _unmounted = unmount_at(&self.directory);
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}
