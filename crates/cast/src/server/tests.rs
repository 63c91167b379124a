//! Peers that do what no peer of this program does: their sessions end, and nothing else.

use super::{CastRoot, CastService, CastServiceOptions};
use crate::member::{CastHub, CastTag};
use crate::protocol::{CastBegin, CastMessage, JoinToken, PROTOCOL, immediate};
use crate::receive::{FlushMode, PublishMode};
use crate::schedule::{ScheduleKind, Situation};
use crate::sign::{CastHeader, CastId, CastKey, ChunkHash, ChunkLen, RunSigner};
use outboard_cluster::hub::{HubEvent, HubOptions, PeerId};
use outboard_cluster::node::Permit;
use outboard_cluster::service::ServiceLoop;
use outboard_secure::{ClusterKey, Credentials, Fabric, Handshake, Identity, Revoked};
use outboard_verbs::{Role, Secured, SharedRegion};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

fn shake_hands(mut socket: TcpStream, mut handshake: Handshake) -> Secured {
    let mut byte = [0];
    loop {
        while let Some(message) = handshake.poll_transmit() {
            socket.write_all(&message).expect("written");
        }
        if handshake.is_done() {
            return Secured::new(socket, handshake.into_session().expect("done"), Vec::new());
        }
        socket.read_exact(&mut byte).expect("a byte");
        handshake.handle(&byte).expect("the key is the same");
    }
}

/// The two ends of a session.
fn session() -> (Secured, Secured) {
    let (key, name) = (ClusterKey::generate().expect("a key"), "cast".parse().expect("a name"));
    let credentials = || {
        Arc::new(Credentials {
            identity: Identity::generate().expect("an identity"),
            keys: [key.service(&name)].into_iter().collect(),
            fabric: Fabric::Untrusted,
            revoked: Revoked::default(),
        })
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let responder = Handshake::responder(credentials());
    let accepting =
        thread::spawn(move || shake_hands(listener.accept().expect("one").0, responder));
    let initiator = Handshake::initiator(credentials(), &name).expect("it has the key");
    (shake_hands(socket, initiator), accepting.join().expect("no panic"))
}

/// A node, and a peer of it that the test plays.
struct Stage {
    node: ServiceLoop<CastService>,
    hub: CastHub,
    peer: PeerId,
    root: tempfile::TempDir,
    heard: Vec<CastMessage>,
    is_over: bool,
}

impl Stage {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        let here = CastRoot { path: "/var/cast".into(), directory: root.path().into() };
        let dial = Arc::new(|_: &_, _| Err("nobody is there".to_owned()));
        let options = CastServiceOptions {
            roots: vec![here],
            memory: CastServiceOptions::MEMORY_DEFAULT,
            dial,
        };
        let service = CastService::new(options).expect("a service");
        let mut node = ServiceLoop::new(HubOptions::default(), service).expect("a loop");
        let mut hub = CastHub::new().expect("a hub");
        let (own, its) = session();
        let permit = Permit::outside_a_node(its.peer(), 0);
        node.admit(its, permit).expect("admitted");
        let admission = hub.prepare().expect("prepared");
        let admitted = admission
            .connect(|qp, params, channel| qp.adopt(own, Role::Initiator, params, channel));
        let peer = hub.enroll(admitted.expect("connected")).expect("enrolled");
        Self { node, hub, peer, root, heard: Vec::new(), is_over: false }
    }

    fn say(&mut self, message: &CastMessage) {
        self.hub.send(self.peer, &PROTOCOL.encode(message)).expect("sent");
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(self) {
            assert!(Instant::now() < deadline, "waited too long: {}", self.node.report());
            self.node.turn(Instant::now()).expect("a turn");
            let mut events = Vec::new();
            self.hub.turn(&mut events).expect("a turn");
            for event in events {
                match event {
                    HubEvent::Message { bytes, .. } => {
                        self.heard.push(PROTOCOL.decode(&bytes).expect("a message"));
                    }
                    HubEvent::Gone { .. } => self.is_over = true,
                    _ => {}
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The node's reason to end the session.
    fn end(&mut self) -> String {
        self.until(|stage| stage.is_over);
        let report = self.node.report();
        assert_eq!(report["casts_now"], 0, "{report}");
        report["latest_end"].as_str().expect("a reason").to_owned()
    }

    /// Begins a cast and waits until the node is ready.
    fn begin(&mut self) {
        self.say(&CastMessage::Begin(Box::new(begin())));
        self.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    }
}

/// A cast of five chunks to one node.
fn begin() -> CastBegin {
    signed_begin().0
}

/// The same, and the runs that its five chunks of zeros have.
fn signed_begin() -> (CastBegin, Vec<Vec<u8>>) {
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
        rate: None,
    };
    (begin, runs)
}

#[test]
fn a_first_message_that_is_none_ends_the_session() {
    let mut stage = Stage::new();
    stage.hub.send(stage.peer, b"hello").expect("sent");
    assert!(stage.end().contains("version 104"));
    let early = [
        CastMessage::Want { chunk: 0, into: None },
        CastMessage::Joined,
        CastMessage::Plan(Situation::fresh(2, 5)),
    ];
    for message in early {
        let mut stage = Stage::new();
        stage.say(&message);
        assert!(stage.end().contains("no place here"));
    }
    let (cast, token) = (CastId::random().expect("an id"), JoinToken([7; 16]));
    let mut stage = Stage::new();
    stage.say(&CastMessage::Join { cast, node: 1, token });
    assert!(stage.end().contains("no part"));
}

#[test]
fn a_cast_that_cannot_be_is_refused() {
    let header = CastBegin { header: begin().header, ..begin() };
    let you = CastBegin { you: 2, ..begin() };
    let source = CastBegin { you: 0, ..begin() };
    let name = CastBegin { nodes: vec![String::new(), "n[1-9]".into()], ..begin() };
    let cases =
        [(header, "not signed"), (you, "node 2 of 2"), (source, "node 0 of"), (name, "one host")];
    for (begin, why) in cases {
        let mut stage = Stage::new();
        stage.say(&CastMessage::Begin(Box::new(begin)));
        let end = stage.end();
        assert!(end.contains(why), "{end}");
        assert_eq!(std::fs::read_dir(stage.root.path()).expect("there").count(), 0);
    }
}

/// What a source does, and what the node says of it.
type BrokenRule = (fn(&mut Stage), &'static str);

#[test]
fn a_source_that_breaks_the_rules_ends_its_cast() {
    let cases: [BrokenRule; 5] = [
        (|stage| stage.say(&CastMessage::Plan(Situation::fresh(2, 6))), "not this cast's"),
        (|stage| stage.say(&CastMessage::Plan(Situation::fresh(3, 5))), "not this cast's"),
        (|stage| stage.say(&CastMessage::Run(vec![0; 300])), "no run"),
        (
            |stage| {
                stage.say(&CastMessage::Plan(Situation::fresh(2, 5)));
                stage.say(&CastMessage::Want { chunk: 5, into: None });
            },
            "wants chunk 5",
        ),
        (
            |stage| {
                stage.say(&CastMessage::Plan(Situation::fresh(2, 5)));
                stage.hub.send_immediate(stage.peer, immediate(3, 30)).expect("sent");
            },
            "not asked",
        ),
    ];
    for (act, why) in cases {
        let mut stage = Stage::new();
        stage.begin();
        act(&mut stage);
        let end = stage.end();
        assert!(end.contains(why), "{end}, not {why}");
    }
}

#[test]
fn a_chunk_that_was_not_signed_ends_the_session_and_is_not_kept() {
    let mut stage = Stage::new();
    let (begin, runs) = signed_begin();
    let header = CastHeader::verify(&begin.header, &begin.key).expect("signed");
    stage.say(&CastMessage::Begin(Box::new(begin)));
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    stage.say(&CastMessage::Plan(Situation::fresh(2, 5)));
    let wanted = |message: &CastMessage| match message {
        CastMessage::Want { chunk: 3, into: Some(into) } => Some(*into),
        _ => None,
    };
    stage.until(|stage| stage.heard.iter().any(|message| wanted(message).is_some()));
    let into = stage.heard.iter().find_map(wanted).expect("heard");
    let forged = SharedRegion::zeroed(4096).expect("memory");
    forged.copy_in(4095, &[1]).expect("inside");
    let memory = into.memory.range(0, 4096).expect("as long as the chunk");
    let from = (forged.slice(0..4096).expect("all"), immediate(3, into.slot));
    let tag = CastTag { cast: header.cast, to: 1, slot: 0 };
    stage.hub.write_immediate(stage.peer, memory, from, tag).expect("posted");
    // It came before its run, and is checked when that comes.
    runs.into_iter().for_each(|run| stage.say(&CastMessage::Run(run)));
    let end = stage.end();
    assert!(end.contains("not signed"), "{end}");
}
