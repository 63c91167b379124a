//! Casts over connections on loopback: nodes in threads, a source, trees compared.

#[path = "network/late.rs"]
mod late;
#[path = "network/lazy.rs"]
mod lazy;
#[expect(dead_code, reason = "another test uses the rest")]
#[path = "../../cluster/tests/support/sessions.rs"]
mod sessions;
#[path = "network/switches.rs"]
mod switches;

use outboard_cast::ShowMode;
use outboard_cast::receive::{FlushMode, PublishMode};
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::server::{CastPolicy, CastRoot, CastService, CastServiceOptions, DialNode};
use outboard_cast::sign::ChunkLen;
use outboard_cast::source::{
    CastLimits, CastOutcome, CastProgress, CastRequest, SourceBuffers, cast,
};
use outboard_cast::tree::{CastSource, ScanOptions};
use outboard_cluster::hosts::Host;
use outboard_cluster::hub::HubOptions;
use outboard_cluster::node::Permit;
use outboard_cluster::service::ServiceLoop;
use outboard_secure::ClusterKey;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sessions::{SessionPort, credentials};
use std::collections::HashSet;
use std::fs;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What sources call the root of each node.
const ROOT: &str = "/var/cast";

/// What a node's dialling does in a test: addresses that it does not reach, and the connections
/// that it has made.
#[derive(Default)]
struct Wires {
    closed: Mutex<HashSet<SocketAddr>>,
    open: Mutex<Vec<TcpStream>>,
}

/// Dials with a key of its own.
fn dial(key: &ClusterKey, wires: &Arc<Wires>) -> DialNode {
    let (own, wires) = (credentials(key, "cast"), Arc::clone(wires));
    Arc::new(move |host: &Host, limit: Duration| {
        let address: SocketAddr = host.to_string().parse().map_err(|error| format!("{error}"))?;
        if wires.closed.lock().expect("no panic").contains(&address) {
            return Err("no way there".to_owned());
        }
        let session = sessions::dial(&own, "cast", address, limit)?;
        let copy = session.socket().try_clone().map_err(|error| error.to_string())?;
        wires.open.lock().expect("no panic").push(copy);
        Ok(session)
    })
}

/// A node in a thread.
struct Node {
    address: SocketAddr,
    root: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    hang: Arc<AtomicBool>,
    wires: Arc<Wires>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    fn start(key: &ClusterKey) -> Self {
        Self::start_in(key, tempfile::tempdir().expect("a directory"))
    }

    fn start_in(key: &ClusterKey, root: tempfile::TempDir) -> Self {
        let wires = Arc::new(Wires::default());
        let dial = dial(key, &wires);
        Self::start_dialling(key, root, (wires, dial))
    }

    fn start_dialling(
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
    fn stop(&mut self) {
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

fn serve(
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
struct Lab {
    key: ClusterKey,
    nodes: Vec<Node>,
    /// The source's.
    wires: Arc<Wires>,
    /// With one identity for all casts.
    dial: DialNode,
    source: tempfile::TempDir,
}

impl Lab {
    fn new(nodes: usize) -> Self {
        let key = ClusterKey::generate().expect("a key");
        let nodes = (0..nodes).map(|_| Node::start(&key)).collect();
        let wires = Arc::default();
        let dial = dial(&key, &wires);
        Self { key, nodes, wires, dial, source: tempfile::tempdir().expect("a directory") }
    }

    /// A tree with files that are empty, short, and of some chunks.
    fn fill(&self, bytes: usize) {
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

    fn cast(&self, kind: ScheduleKind) -> CastOutcome {
        cast(self.request(kind, Path::new(ROOT))).expect("a cast")
    }

    /// Casts until each node has written some chunks; then the source is gone.
    fn break_cast(&self, kind: ScheduleKind, wires: &Wires) {
        let request = self.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.nodes.iter().any(|node| chunks_left(node.root.path()) < 30) {
            assert!(Instant::now() < deadline, "it never began");
            thread::sleep(Duration::from_millis(1));
        }
        for socket in wires.open.lock().expect("no panic").drain(..) {
            socket.shutdown(Shutdown::Both).expect("connected");
        }
        let outcome = casting.join().expect("no panic").expect("a cast");
        assert!(outcome.nodes.iter().all(|node| node.result.is_err()), "{outcome:?}");
        for node in &self.nodes {
            assert!(!node.root.path().join("tree").exists(), "nothing partial is published");
        }
    }

    fn check(&self, node: usize) {
        let known = contents(&self.source.path().join("tree"));
        assert!(known.len() >= 6);
        let root = self.nodes[node].root.path();
        assert!(contents(&root.join("tree")) == known, "node {node}");
        let names = fs::read_dir(root).expect("a directory");
        let names: Vec<_> = names.map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names, ["tree"], "nothing but the tree");
    }

    fn request(&self, kind: ScheduleKind, destination: &Path) -> CastRequest {
        let hosts: Vec<String> = self.nodes.iter().map(|node| node.address.to_string()).collect();
        CastRequest {
            sources: vec![CastSource::new(&self.source.path().join("tree")).expect("a name")],
            destination: destination.into(),
            nodes: hosts.join(",").parse().expect("hosts"),
            scan: ScanOptions::default(),
            chunk_len: Some(ChunkLen::new(64 << 10).expect("a power of two")),
            kind: Some(kind),
            topology: None,
            buffers: SourceBuffers::default(),
            publish: PublishMode::New,
            flush: FlushMode::Later,
            show: ShowMode::Complete,
            limits: CastLimits::default(),
            dial: Arc::clone(&self.dial),
            progress: None,
        }
    }
}

/// All that is below a directory: paths, and contents of files or targets of links.
fn contents(top: &Path) -> Vec<(PathBuf, Vec<u8>)> {
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

#[test]
fn three_nodes_get_a_tree_from_the_source_alone() {
    let lab = Lab::new(3);
    lab.fill(3_000_000);
    let outcome = lab.cast(ScheduleKind::Star);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}

#[test]
fn relays_pass_on_what_the_source_sends_little_more_than_once() {
    let lab = Lab::new(5);
    lab.fill(6_000_000);
    let outcome = lab.cast(ScheduleKind::BinomialPipeline);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..5).for_each(|node| lab.check(node));
    let chunks = outcome.stream_len.div_ceil(64 << 10);
    assert!(outcome.sent_chunks < 2 * chunks, "{outcome:?}: {chunks} chunks");
}

#[test]
fn a_destination_outside_of_the_roots_is_refused() {
    let lab = Lab::new(1);
    lab.fill(10);
    for outside in ["/var/castle", "/var/cast/../etc", "/"] {
        let request = lab.request(ScheduleKind::Star, Path::new(outside));
        let outcome = cast(request).expect("a cast");
        let why = outcome.nodes[0].result.clone().expect_err("refused");
        assert!(why.contains("roots"), "{why}");
    }
    let outcome = cast(lab.request(ScheduleKind::Star, Path::new("/var/cast/none")));
    let why = outcome.expect("a cast").nodes[0].result.clone().expect_err("refused");
    assert!(why.contains("make the directory first"), "{why}");
}

/// Waits until a node has begun to receive.
fn has_begun(root: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(root).expect("a directory").next().is_none() {
        assert!(Instant::now() < deadline, "it never began");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_relay_that_hangs_is_given_up() {
    let lab = Lab::new(5);
    lab.fill(40_000_000);
    let request = lab.request(ScheduleKind::BinomialPipeline, Path::new(ROOT));
    let casting = thread::spawn(move || cast(request));
    has_begun(lab.nodes[1].root.path());
    thread::sleep(Duration::from_millis(20));
    lab.nodes[1].hang.store(true, Ordering::SeqCst);
    let outcome = casting.join().expect("no panic").expect("a cast");
    let why = outcome.nodes[1].result.clone().expect_err("it hangs");
    assert!(why.contains("hangs"), "{why}");
    [0, 2, 3, 4].into_iter().for_each(|node| lab.check(node));
}

#[test]
fn names_that_are_there_are_not_replaced_and_the_reason_is_told() {
    let lab = Lab::new(2);
    lab.fill(1_000_000);
    fs::create_dir(lab.nodes[0].root.path().join("tree")).expect("made");
    let outcome = lab.cast(ScheduleKind::BinomialPipeline);
    let why = outcome.nodes[0].result.clone().expect_err("it is there");
    assert!(why.contains("tree"), "{why}");
    lab.check(1);
}

#[test]
fn a_relay_that_dies_costs_the_others_nothing_but_time() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, ScheduleKind::Star] {
        let mut lab = Lab::new(5);
        lab.fill(40_000_000);
        let request = lab.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        has_begun(lab.nodes[1].root.path());
        thread::sleep(Duration::from_millis(20));
        lab.nodes[1].stop();
        let outcome = casting.join().expect("no panic").expect("a cast");
        let results: Vec<bool> = outcome.nodes.iter().map(|node| node.result.is_ok()).collect();
        assert_eq!(results, [true, false, true, true, true], "{kind}: {outcome:?}");
        [0, 2, 3, 4].into_iter().for_each(|node| lab.check(node));
    }
}

#[test]
fn nodes_that_do_not_reach_each_other_are_served_by_others() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, ScheduleKind::TwoTree] {
        let lab = Lab::new(5);
        lab.fill(6_000_000);
        // Node 1 reaches nobody, node 2 all but node 4.
        let addresses: Vec<SocketAddr> = lab.nodes.iter().map(|node| node.address).collect();
        lab.nodes[1].wires.closed.lock().expect("no panic").extend(&addresses);
        lab.nodes[2].wires.closed.lock().expect("no panic").insert(addresses[4]);
        let outcome = lab.cast(kind);
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{kind}: {outcome:?}");
        (0..5).for_each(|node| lab.check(node));
    }
}

#[test]
fn connections_that_break_between_living_nodes_cost_none_of_them() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain] {
        let lab = Lab::new(6);
        lab.fill(40_000_000);
        let request = lab.request(kind, Path::new(ROOT));
        let casting = thread::spawn(move || cast(request));
        has_begun(lab.nodes[2].root.path());
        let mut broken = 0;
        for node in lab.nodes.iter().cycle() {
            if casting.is_finished() || broken > 4 {
                break;
            }
            thread::sleep(Duration::from_millis(10));
            let mut open = node.wires.open.lock().expect("no panic");
            for socket in open.drain(..) {
                broken += usize::from(socket.shutdown(Shutdown::Both).is_ok());
            }
        }
        let outcome = casting.join().expect("no panic").expect("a cast");
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{kind}: {outcome:?}");
        (0..6).for_each(|node| lab.check(node));
        assert!(broken > 0, "{kind}: nothing was broken");
    }
}

/// Chunks of 64 KiB in a stream.
fn chunks_of(outcome: &CastOutcome) -> u64 {
    outcome.stream_len.div_ceil(64 << 10)
}

#[test]
fn a_second_cast_sends_what_has_changed_alone() {
    let lab = Lab::new(3);
    lab.fill(6_000_000);
    let tree = lab.source.path().join("tree");
    fs::write(tree.join("other"), vec![7; 1_000_000]).expect("written");
    let first = lab.cast(ScheduleKind::Star);
    assert!(first.nodes.iter().all(|node| node.result == Ok(1)), "{first:?}");
    assert_eq!(first.sent_chunks, 3 * chunks_of(&first));
    fs::write(tree.join("below/short"), b"other").expect("written");
    let mut large = fs::read(tree.join("below/deep/large")).expect("read");
    large[3_000_000] ^= 1;
    fs::write(tree.join("below/deep/large"), large).expect("written");
    let again = |dial: &DialNode| {
        let mut request = lab.request(ScheduleKind::BinomialPipeline, Path::new(ROOT));
        (request.publish, request.dial) = (PublishMode::Replace, Arc::clone(dial));
        cast(request).expect("a cast")
    };
    let second = again(&lab.dial);
    assert!(second.nodes.iter().all(|node| node.result == Ok(1)), "{second:?}");
    (0..3).for_each(|node| lab.check(node));
    // The manifest with the beginning of the data, and the two chunks with changes.
    assert!(second.sent_chunks <= 3 * 3, "{second:?}");
    let third = again(&lab.dial);
    assert!(third.sent_chunks <= 3, "{third:?}");
    (0..3).for_each(|node| lab.check(node));
    let stranger = again(&dial(&lab.key, &Arc::default()));
    assert!(stranger.sent_chunks >= chunks_of(&stranger), "nothing of another's: {stranger:?}");
    (0..3).for_each(|node| lab.check(node));
}

/// The chunks that a node has written of what it has not published.
fn chunks_left(root: &Path) -> u64 {
    let names = fs::read_dir(root).expect("a directory").map(|entry| entry.expect("a name").path());
    let held = names.filter_map(|path| fs::read(path.join("held")).ok());
    held.flatten().map(|byte| u64::from(byte.count_ones())).sum()
}

#[test]
fn a_cast_whose_source_is_gone_is_resumed_by_the_next() {
    for kind in [ScheduleKind::Star, ScheduleKind::BinomialPipeline] {
        let wires = Arc::default();
        let mut lab = Lab::new(3);
        lab.dial = dial(&lab.key, &wires);
        lab.fill(40_000_000);
        lab.break_cast(kind, &wires);
        // One node is killed as well, and started anew.
        lab.nodes[1].stop();
        let root = std::mem::replace(&mut lab.nodes[1].root, tempfile::tempdir().expect("made"));
        lab.nodes[1] = Node::start_in(&lab.key, root);
        let left: Vec<u64> = lab.nodes.iter().map(|node| chunks_left(node.root.path())).collect();
        assert!(left.iter().all(|chunks| *chunks > 20), "{left:?}");
        let outcome = lab.cast(kind);
        assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
        (0..3).for_each(|node| lab.check(node));
        if kind == ScheduleKind::Star {
            let missing = 3 * chunks_of(&outcome) - left.iter().sum::<u64>();
            assert!(outcome.sent_chunks <= missing, "{left:?}: {outcome:?}");
        }
    }
}

#[test]
fn what_a_crash_left_damaged_is_sent_again_and_never_published() {
    let wires = Arc::default();
    let mut lab = Lab::new(2);
    lab.dial = dial(&lab.key, &wires);
    lab.fill(40_000_000);
    lab.break_cast(ScheduleKind::Star, &wires);
    // As after a loss of power: the bitmap was written, the data was not.
    let root = lab.nodes[0].root.path();
    let staging = fs::read_dir(root).expect("read").next().expect("one").expect("a name").path();
    let large = staging.join("tree/tree/below/deep/large");
    fs::write(&large, vec![0; 40_000_000]).expect("written");
    let (held, all) =
        (chunks_left(lab.nodes[0].root.path()), chunks_left(lab.nodes[1].root.path()));
    fs::write(staging.join("held"), [0xff; 77]).expect("written");
    let outcome = lab.cast(ScheduleKind::Star);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..2).for_each(|node| lab.check(node));
    assert!(held > 20 && outcome.sent_chunks + all <= 2 * chunks_of(&outcome), "{outcome:?}");
}

/// Casts at so many bytes a second from each node, and tells how far each is.
fn start_slowly(
    lab: &Lab,
    kind: ScheduleKind,
    rate: u64,
) -> (JoinHandle<CastOutcome>, mpsc::Receiver<CastProgress>) {
    let (progress, told) = mpsc::sync_channel(1);
    let limits = CastLimits { min_nodes: None, rate: NonZeroU64::new(rate) };
    let request = lab.request(kind, Path::new(ROOT));
    let request = CastRequest { limits, progress: Some(progress), ..request };
    (thread::spawn(move || cast(request).expect("a cast")), told)
}

fn wait_for(told: &mpsc::Receiver<CastProgress>, done: impl Fn(&CastProgress) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = told.recv_timeout(Duration::from_secs(10)).expect("it goes on");
        if done(&now) {
            return;
        }
        assert!(Instant::now() < deadline, "it takes too long");
    }
}

/// The source is gone for all nodes, as if it had been killed.
fn cut_off_source(lab: &Lab) {
    let addresses = lab.nodes.iter().map(|node| node.address);
    lab.wires.closed.lock().expect("no panic").extend(addresses);
    for socket in lab.wires.open.lock().expect("no panic").drain(..) {
        let _shut = socket.shutdown(Shutdown::Both);
    }
}

#[test]
fn the_source_may_leave_when_every_chunk_is_held_somewhere() {
    let lab = Lab::new(4);
    lab.fill(4_000_000);
    let (casting, told) = start_slowly(&lab, ScheduleKind::Chain, 6_000_000);
    wait_for(&told, |now| now.nodes[3].held_chunks > 0);
    lab.nodes[3].hang.store(true, Ordering::SeqCst);
    wait_for(&told, |now| {
        now.nodes[..3].iter().all(|node| node.held_chunks == u64::from(now.chunks))
    });
    cut_off_source(&lab);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes[3].result.is_err(), "{outcome:?}");
    lab.nodes[3].hang.store(false, Ordering::SeqCst);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !lab.nodes[3].root.path().join("tree").exists() {
        assert!(Instant::now() < deadline, "the nodes do not go on");
        thread::sleep(Duration::from_millis(10));
    }
    (0..3).for_each(|node| lab.check(node));
    let end = |lab: &Lab| fs::read_dir(lab.nodes[3].root.path()).expect("there").count() == 1;
    while !end(&lab) {
        assert!(Instant::now() < deadline, "its staging directory stays");
        thread::sleep(Duration::from_millis(10));
    }
    lab.check(3);
}

#[test]
fn a_source_that_is_killed_half_way_and_started_again_reaches_all() {
    let lab = Lab::new(3);
    lab.fill(6_000_000);
    let (casting, told) = start_slowly(&lab, ScheduleKind::Chain, 1_500_000);
    wait_for(&told, |now| now.nodes[2].held_chunks > u64::from(now.chunks) / 3);
    cut_off_source(&lab);
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result.is_err()), "{outcome:?}");
    lab.wires.closed.lock().expect("no panic").clear();
    let outcome = lab.cast(ScheduleKind::Chain);
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}

#[test]
fn a_node_that_the_source_loses_and_finds_again_has_everything() {
    let lab = Lab::new(4);
    lab.fill(6_000_000);
    let (casting, told) = start_slowly(&lab, ScheduleKind::BinomialPipeline, 1_000_000);
    wait_for(&told, |now| now.nodes.iter().all(|node| node.held_chunks > 10));
    let lost = lab.wires.open.lock().expect("no panic").remove(1);
    lost.shutdown(Shutdown::Both).expect("connected");
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
}

#[test]
fn a_node_that_comes_late_has_everything() {
    let lab = Lab::new(4);
    lab.fill(6_000_000);
    lab.wires.closed.lock().expect("no panic").insert(lab.nodes[2].address);
    let (casting, told) = start_slowly(&lab, ScheduleKind::BinomialPipeline, 1_000_000);
    wait_for(&told, |now| now.nodes[0].held_chunks > 10);
    lab.wires.closed.lock().expect("no panic").clear();
    let outcome = casting.join().expect("no panic");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..4).for_each(|node| lab.check(node));
}
