//! A node in this thread, and peers of it that a test plays.

use crate::lazy::ShowMode;
use crate::member::{CastHub, PlanParts};
use crate::protocol::{CastBegin, CastMessage, JoinToken, PROTOCOL};
use crate::receive::{FlushMode, OwnerWish, PublishMode};
use crate::schedule::{ScheduleKind, Situation};
use crate::server::{CastPolicy, CastRoot, CastService, CastServiceOptions};
use crate::sessions::session;
use crate::sign::{CastHeader, CastKey, ChunkHash, ChunkLen, RunSigner};
use outboard_cluster::hub::{HubEvent, HubOptions, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::service::ServiceLoop;
use outboard_testkit::eventually;
use outboard_verbs::Role;
use std::sync::Arc;
use std::time::Instant;

/// A node, and a peer of it that the test plays.
pub(super) struct Stage {
    pub(super) node: ServiceLoop<CastService>,
    pub(super) hub: CastHub,
    /// The source.
    pub(super) peer: PeerId,
    pub(super) root: tempfile::TempDir,
    pub(super) heard: Vec<CastMessage>,
    is_over: bool,
    /// What other peers have heard.
    pub(super) others: Vec<(PeerId, CastMessage)>,
    /// Other peers that are no more.
    pub(super) gone: Vec<PeerId>,
    /// What was read of the node's memory.
    pub(super) read: Vec<Vec<u8>>,
}

impl Stage {
    pub(super) fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let here = CastRoot::at("/var/cast", root.path());
        let dial = Arc::new(|_: &_, _| Err("connection refused".to_owned()));
        let options = CastServiceOptions {
            roots: vec![here],
            memory: CastServiceOptions::MEMORY_DEFAULT,
            policy: CastPolicy::default(),
            dial,
        };
        Self::of(CastService::new(options).expect("a service"), root)
    }

    pub(super) fn of(service: CastService, root: tempfile::TempDir) -> Self {
        let mut node = ServiceLoop::new(HubOptions::default(), service).expect("a loop");
        let mut hub = CastHub::new().expect("a hub");
        let peer = connect(&mut node, &mut hub);
        let (heard, others, gone, read) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { node, hub, peer, root, heard, is_over: false, others, gone, read }
    }

    /// Another peer of the node's.
    pub(super) fn connect(&mut self) -> PeerId {
        connect(&mut self.node, &mut self.hub)
    }

    /// A peer says something; the node's reason to end its session.
    pub(super) fn refused(&mut self, peer: PeerId, message: &CastMessage) -> String {
        self.hub.send(peer, &PROTOCOL.encode(message)).expect("sent");
        self.why_gone(peer)
    }

    pub(super) fn why_gone(&mut self, peer: PeerId) -> String {
        self.until(|stage| stage.gone.contains(&peer));
        let report = self.node.report();
        assert_eq!(report["casts_now"], 1, "the cast goes on: {report}");
        report["latest_end"].as_str().expect("a reason").to_owned()
    }

    pub(super) fn say(&mut self, message: &CastMessage) {
        self.hub.send(self.peer, &PROTOCOL.encode(message)).expect("sent");
    }

    pub(super) fn until(&mut self, done: impl Fn(&Self) -> bool) {
        eventually("what the test waits for", || {
            if done(self) {
                return true;
            }
            self.node.turn(Instant::now()).expect("a turn");
            let mut events = Vec::new();
            self.hub.turn(&mut events).expect("a turn");
            for event in events {
                match event {
                    HubEvent::Message { peer, bytes } => {
                        let message = PROTOCOL.decode(&bytes).expect("a message");
                        match peer == self.peer {
                            true => self.heard.push(message),
                            false => self.others.push((peer, message)),
                        }
                    }
                    HubEvent::Read { bytes, .. } => self.read.push(bytes),
                    HubEvent::Gone { peer, .. } if peer == self.peer => self.is_over = true,
                    HubEvent::Gone { peer, .. } => self.gone.push(peer),
                    _ => {}
                }
            }
            false
        });
    }

    /// The node's reason to end the session.
    pub(super) fn end(&mut self) -> String {
        self.until(|stage| stage.is_over);
        let report = self.node.report();
        assert_eq!(report["casts_now"], 0, "{report}");
        report["latest_end"].as_str().expect("a reason").to_owned()
    }

    /// Begins a cast and waits until the node is ready.
    pub(super) fn begin(&mut self) {
        self.say(&CastMessage::Begin(Box::new(begin())));
        self.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    }
}

pub(super) fn connect(node: &mut ServiceLoop<CastService>, hub: &mut CastHub) -> PeerId {
    let (own, its) = session("cast");
    let permit = Permit::outside_a_node(its.peer(), 0);
    node.admit(its, permit).expect("admitted");
    let admission = hub.prepare().expect("prepared");
    let admitted =
        admission.connect(|qp, params, channel| qp.adopt(own, Role::Initiator, params, channel));
    hub.enroll(admitted.expect("connected")).expect("enrolled")
}

/// The beginning of a plan, and all of it.
pub(super) fn plan(nodes: u32, chunks: u32) -> CastMessage {
    let mut parts = PlanParts::split(1, Situation::fresh(nodes, chunks));
    assert_eq!(parts.len(), 1);
    parts.remove(0)
}

/// A cast of five chunks to one node.
pub(super) fn begin() -> CastBegin {
    signed_begin().0
}

/// The same, and the runs that its five chunks of zeros have.
pub(super) fn signed_begin() -> (CastBegin, Vec<Vec<u8>>) {
    let key = CastKey::generate().expect("a key");
    let chunk_len = ChunkLen::new(4096).expect("legal");
    let header = CastHeader::new(&[0; 100], 5 * 4096, chunk_len).expect("legal");
    let mut signer = RunSigner::new(&key, &header);
    let hash = ChunkHash::of(&[0; 4096]);
    let runs = (0..5).filter_map(|_| signer.push(hash).expect("five")).collect();
    let begin = CastBegin {
        key: key.public(),
        header: header.sign(&key),
        nodes: vec![String::new(), "n1".into()],
        you: 1,
        kind: ScheduleKind::Star,
        token: JoinToken([7; 16]),
        destination: b"/var/cast".to_vec(),
        publish: PublishMode::New,
        flush: FlushMode::Later,
        show: ShowMode::Complete,
        owners: OwnerWish::Receiver,
        rate: None,
        only: None,
    };
    (begin, runs)
}
