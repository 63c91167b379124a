//! Nodes in threads, a source, and the tree that is cast.

use super::sessions::{self, SessionPort, credentials};
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::server::{CastPolicy, CastRoot, CastService, CastServiceOptions, DialNode};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{CastOutcome, CastRequest, cast};
use outboard_cast::tree::CastSource;
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::Permit;
use outboard_cluster::service::ServiceLoop;
use outboard_secure::ClusterKey;
use outboard_testkit::eventually;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::fs;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What sources call the root of each node.
pub(super) const ROOT: &str = "/var/cast";

/// What a node's dialling does in a test: addresses that it does not reach, those that do not
/// answer for now, and the connections that it has made.
#[derive(Default)]
pub(super) struct Wires {
    pub(super) closed: Mutex<HashSet<SocketAddr>>,
    pub(super) silent: Mutex<HashSet<SocketAddr>>,
    pub(super) open: Mutex<Vec<TcpStream>>,
}

/// Dials with a key of its own.
pub(super) fn dial(key: &ClusterKey, wires: &Arc<Wires>) -> DialNode {
    let (own, wires) = (credentials(key, "cast"), Arc::clone(wires));
    Arc::new(move |host: &Host, limit: Duration| {
        let address: SocketAddr = host.to_string().parse().map_err(|error| format!("{error}"))?;
        if wires.closed.lock().expect("no panic").contains(&address) {
            return Err("no way there".to_owned());
        }
        while wires.silent.lock().expect("no panic").contains(&address) {
            thread::sleep(Duration::from_millis(10));
        }
        let session = sessions::dial(&own, "cast", address, limit)?;
        let copy = session.socket().try_clone().map_err(|error| error.to_string())?;
        wires.open.lock().expect("no panic").push(copy);
        Ok(session)
    })
}

/// A node in a thread.
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) root: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    pub(super) hang: Arc<AtomicBool>,
    pub(super) wires: Arc<Wires>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub(super) fn start(key: &ClusterKey) -> Self {
        Self::start_in(key, tempfile::tempdir().expect("a directory"))
    }

    pub(super) fn start_in(key: &ClusterKey, root: tempfile::TempDir) -> Self {
        let wires = Arc::new(Wires::default());
        let dial = dial(key, &wires);
        Self::start_dialling(key, root, (wires, dial))
    }

    pub(super) fn start_dialling(
        key: &ClusterKey,
        root: tempfile::TempDir,
        (wires, dial): (Arc<Wires>, DialNode),
    ) -> Self {
        let port = SessionPort::open(key, "cast");
        let address = port.address;
        let stop = Arc::new(AtomicBool::new(false));
        let here = CastRoot::at(ROOT, root.path());
        let options = CastServiceOptions {
            roots: vec![here],
            memory: CastServiceOptions::MEMORY_DEFAULT,
            policy: CastPolicy::default(),
            dial,
        };
        let hang = Arc::new(AtomicBool::new(false));
        let (stopped, hangs) = (Arc::clone(&stop), Arc::clone(&hang));
        let thread = thread::spawn(move || serve(options, &port, (&stopped, &hangs)));
        Self { address, root, stop, hang, wires, thread: Some(thread) }
    }

    /// Ends as a machine does that loses its power: its connections are gone.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the node does not panic");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

pub(super) fn serve(
    options: CastServiceOptions,
    port: &SessionPort,
    (stop, hang): (&AtomicBool, &AtomicBool),
) {
    let service = CastService::new(options).expect("a service");
    let mut looping = ServiceLoop::new(HubOptions::default(), service).expect("a loop");
    while !stop.load(Ordering::SeqCst) {
        if hang.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(10));
            continue;
        }
        while let Ok(stream) = port.arrivals.try_recv() {
            let permit = Permit::outside_a_node(stream.peer(), 0);
            looping.admit(stream, permit).expect("admitted");
        }
        looping.turn(Instant::now()).expect("a turn");
        let tick = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        poll(&mut [PollFd::new(&looping, PollFlags::IN)], Some(&tick)).expect("poll");
    }
}

/// Nodes whose roots are directories with one name below the same one.
pub(super) struct Lab {
    pub(super) key: ClusterKey,
    pub(super) nodes: Vec<Node>,
    /// The source's.
    pub(super) wires: Arc<Wires>,
    /// With one identity for all casts.
    pub(super) dial: DialNode,
    pub(super) source: tempfile::TempDir,
}

impl Lab {
    pub(super) fn new(nodes: usize) -> Self {
        let key = ClusterKey::generate().expect("a key");
        let nodes = (0..nodes).map(|_| Node::start(&key)).collect();
        let wires = Arc::default();
        let dial = dial(&key, &wires);
        Self { key, nodes, wires, dial, source: tempfile::tempdir().expect("a directory") }
    }

    /// A tree with files that are empty, short, and of some chunks.
    pub(super) fn fill(&self, bytes: usize) {
        let tree = self.source.path().join("tree");
        fs::create_dir_all(tree.join("below/deep")).expect("made");
        fs::write(tree.join("empty"), b"").expect("written");
        fs::write(tree.join("below/short"), b"short").expect("written");
        let mut state = 1_u32;
        let mut random = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        let large: Vec<u8> = (0..bytes).map(|_| random()).collect();
        fs::write(tree.join("below/deep/large"), large).expect("written");
        std::os::unix::fs::symlink("below/short", tree.join("link")).expect("linked");
    }

    pub(super) fn cast(&self, kind: ScheduleKind) -> CastOutcome {
        cast(self.request(kind, Path::new(ROOT))).expect("a cast")
    }

    /// Casts until each node has written some chunks; then the source is gone.
    pub(super) fn break_cast(&self, kind: ScheduleKind, wires: &Wires) {
        let request = self.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        eventually("each node has written some chunks", || {
            self.nodes.iter().all(|node| chunks_left(node.root.path()) >= 30)
        });
        let addresses = self.nodes.iter().map(|node| node.address);
        wires.closed.lock().expect("no panic").extend(addresses);
        for socket in wires.open.lock().expect("no panic").drain(..) {
            let _shut = socket.shutdown(Shutdown::Both);
        }
        let outcome = casting.join().expect("no panic").expect("a cast");
        wires.closed.lock().expect("no panic").clear();
        assert!(outcome.nodes.iter().all(|node| node.result.is_err()), "{outcome:?}");
        for node in &self.nodes {
            assert!(!node.root.path().join("tree").exists(), "nothing partial is published");
        }
    }

    pub(super) fn check(&self, node: usize) {
        let known = contents(&self.source.path().join("tree"));
        assert!(known.len() >= 6);
        let root = self.nodes[node].root.path();
        assert!(contents(&root.join("tree")) == known, "node {node}");
        let names = fs::read_dir(root).expect("a directory");
        let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, ["tree"], "nothing but the tree");
    }

    pub(super) fn request(&self, kind: ScheduleKind, destination: &Path) -> CastRequest {
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.address.to_string()).collect();
        let sources = vec![CastSource::new(&self.source.path().join("tree")).expect("a name")];
        let (nodes, dial) = (hosts.join(",").parse().expect("hosts"), Arc::clone(&self.dial));
        CastRequest {
            chunk_len: Some(ChunkLen::new(64 << 10).expect("a power of two")),
            kind: Some(kind),
            ..CastRequest::new(sources, destination.into(), nodes, dial)
        }
    }
}

/// All that is below a directory: paths, and contents of files or targets of links.
pub(super) fn contents(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![top.to_owned()];
    while let Some(path) = left.pop() {
        let kind = fs::symlink_metadata(&path).expect("it is there").file_type();
        let bytes = if kind.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
            Vec::new()
        } else if kind.is_symlink() {
            fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path).expect("a file")
        };
        found.push((path.strip_prefix(top).expect("below").to_owned(), bytes));
    }
    found.sort();
    found
}

/// The chunks that a node has written of what it has not published.
pub(super) fn chunks_left(root: &Path) -> u64 {
    let names = fs::read_dir(root).expect("a directory").map(|entry| entry.expect("a name").path());
    let held = names.filter_map(|path| fs::read(path.join("held")).ok());
    held.flatten().map(|byte| u64::from(byte.count_ones())).sum()
}
