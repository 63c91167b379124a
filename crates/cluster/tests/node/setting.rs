//! A directory with keys, a node over it as a process of its own, and clients.

use outboard_cluster::dial::{DialError, Dialer};
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::keys::KeyPaths;
use outboard_cluster::status;
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, NodeId, Revoked, ServiceName};
use outboard_testkit::PATIENCE;
use outboard_verbs::Secured;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

pub(crate) fn name(text: &str) -> ServiceName {
    text.parse().expect("a name")
}

/// A directory of its own, gone with its owner.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("outboard-node-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub(crate) fn cluster(&self) -> ClusterKey {
        ClusterKey::load_or_create(&self.0.join("key")).expect("a key")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// A node under test.
pub(crate) struct Node {
    pub(crate) child: Child,
    pub(crate) host: Host,
    pub(crate) id: NodeId,
    pub(crate) directory: Directory,
}

impl Node {
    pub(crate) fn start(settings: &str) -> Self {
        Self::start_in(Directory::new(), settings)
    }

    pub(crate) fn start_in(directory: Directory, settings: &str) -> Self {
        Self::of_in("echo_node", directory, settings)
    }

    /// A node of one of the examples.
    pub(crate) fn of(program: &str, settings: &str) -> Self {
        Self::of_in(program, Directory::new(), settings)
    }

    /// The same, none of whose processes may have more than so many open files.
    pub(crate) fn with_files(program: &str, files: u32) -> Self {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")])
            .arg(outboard_testkit::example(program));
        Self::by(shell, Directory::new(), "")
    }

    fn of_in(program: &str, directory: Directory, settings: &str) -> Self {
        Self::by(Command::new(outboard_testkit::example(program)), directory, settings)
    }

    fn by(mut command: Command, directory: Directory, settings: &str) -> Self {
        let file = directory.0.join("node.toml");
        fs::write(&file, settings).expect("written");
        command.arg(&directory.0).arg(&file).stdout(Stdio::piped());
        command.env("OUTBOARD_KEY", directory.0.join("key"));
        let mut child = command.spawn().expect("a node");
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().expect("piped"));
        told.read_line(&mut line).expect("a line");
        let (address, id) = line.trim().split_once(' ').expect("address and node");
        let hosts: HostList = address.parse().expect("a host");
        let (host, id) = (hosts.hosts()[0].clone(), id.parse().expect("a node"));
        Self { child, host, id, directory }
    }

    /// A client with an identity of its own and the cluster's key.
    pub(crate) fn client(&self) -> Client {
        Client::with(&self.directory.cluster())
    }

    /// A client with the cluster's key, of one service.
    pub(crate) fn client_of(&self, service: &str) -> Client {
        Client::of_services(&self.directory.cluster(), &[service])
    }

    /// What the node says of itself.
    pub(crate) fn status(&self) -> Value {
        status::ask(&self.client().0, &self.host, soon()).expect("an answer")
    }

    /// What it says of its first service.
    pub(crate) fn service(&self) -> Value {
        self.status()["services"][0].clone()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it is there");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.signal(rustix::process::Signal::TERM);
            let _ended = self.child.wait();
        }
    }
}

/// A client that dials.
pub(crate) struct Client(pub(crate) Dialer);

impl Client {
    pub(crate) fn with(cluster: &ClusterKey) -> Self {
        Self::of_services(cluster, &["echo", "other", "status"])
    }

    pub(crate) fn of_services(cluster: &ClusterKey, services: &[&str]) -> Self {
        Self::of(Credentials {
            identity: Identity::generate().expect("random numbers"),
            keys: services.iter().map(|one| cluster.service(&name(one))).collect(),
            fabric: Fabric::Untrusted,
            revoked: Revoked::default(),
        })
    }

    pub(crate) fn of(credentials: Credentials) -> Self {
        Self(Dialer::new(Arc::new(credentials)))
    }

    pub(crate) fn dial(&self, host: &Host, service: &str) -> Result<Secured, DialError> {
        self.0.dial(host, &name(service), soon())
    }

    /// A service that answers.
    pub(crate) fn talk(&self, host: &Host, service: &str) -> Secured {
        let mut stream = self.dial(host, service).expect("reached");
        assert_eq!(said(&mut stream, b"hello"), b"hello");
        stream
    }
}

/// What a service answers.
pub(crate) fn said(stream: &mut Secured, what: &[u8]) -> Vec<u8> {
    stream.send(what, soon()).expect("sent");
    received(stream, 1)
}

/// Receives at least `count` bytes.
pub(crate) fn received(stream: &mut Secured, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        stream.receive(&mut bytes, soon()).expect("received");
    }
    bytes
}

/// What a service says of its process.
pub(crate) fn identify(stream: &mut Secured) -> Value {
    serde_json::from_slice(&said(stream, b"identify")).expect("JSON")
}

/// Where the places of a directory's files are.
pub(crate) fn places(directory: &Directory) -> KeyPaths {
    KeyPaths::beneath(&directory.0)
}
