//! Nodes that do to a source what no node of this program does: they harm themselves alone, and
//! the cast ends.

use super::*;
use crate::member::CastHub;
use crate::protocol::{CastMessage, ChunkWait, NodeReport, PROTOCOL};
use crate::schedule::ChunkSet;
use crate::sessions::session;
use outboard_cluster::hub::{HubEvent, PeerId};
use outboard_verbs::Role;
use std::sync::Mutex;
use std::thread;

/// Casts a small file to one node, which `act` plays: it is given each message.
fn cast_to(act: impl Fn(&mut CastHub, PeerId, CastMessage)) -> NodeOutcome {
    let tree = tempfile::tempdir().expect("a directory");
    std::fs::write(tree.path().join("file"), vec![7; 20_000]).expect("written");
    let (own, its) = session("cast");
    let once = Mutex::new(Some(own));
    let dial: DialNode = Arc::new(move |_, _| {
        once.lock().expect("no panic").take().ok_or_else(|| "gone".to_owned())
    });
    let request = CastRequest { dial, ..request(tree.path()) };
    let casting = thread::spawn(move || cast(request).expect("a cast"));
    let mut hub = CastHub::new().expect("a hub");
    let admission = hub.prepare().expect("prepared");
    let admitted =
        admission.connect(|qp, params, channel| qp.adopt(its, Role::Responder, params, channel));
    let peer = hub.enroll(admitted.expect("connected")).expect("enrolled");
    while !casting.is_finished() {
        let mut events = Vec::new();
        hub.turn(&mut events).expect("a turn");
        for event in events {
            if let HubEvent::Message { bytes, .. } = event {
                act(&mut hub, peer, PROTOCOL.decode(&bytes).expect("a message"));
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    casting.join().expect("no panic").nodes.remove(0)
}

fn request(tree: &std::path::Path) -> CastRequest {
    let sources = vec![CastSource::new(&tree.join("file")).expect("named")];
    let dial: DialNode = Arc::new(|_, _| Err("connection refused".to_owned()));
    let nodes = "n1".parse().expect("a host");
    CastRequest {
        chunk_len: Some(ChunkLen::new(4096).expect("legal")),
        kind: Some(ScheduleKind::Star),
        ..CastRequest::new(sources, "/var/cast".into(), nodes, dial)
    }
}

fn say(hub: &mut CastHub, peer: PeerId, message: &CastMessage) {
    // The source may have ended the session.
    let _sent = hub.send(peer, &PROTOCOL.encode(message));
}

fn report(held: ChunkSet, waits: Vec<ChunkWait>) -> CastMessage {
    CastMessage::Held(Box::new(NodeReport { held, waits, ..NodeReport::default() }))
}

#[test]
fn names_that_do_not_fit_into_a_message_are_refused_before_a_node_is_dialled() {
    let tree = tempfile::tempdir().expect("a directory");
    std::fs::write(tree.path().join("file"), [7; 10_000]).expect("written");
    let names = |len: usize| (0..1_100).map(move |number| format!("n{number:0len$}"));
    let to = |len| {
        let nodes = names(len).collect::<Vec<_>>().join(",").parse().expect("hosts");
        prepare(&CastRequest { nodes, ..request(tree.path()) }).map(drop)
    };
    to(50).expect("they fit");
    let refused = to(62).expect_err("too long");
    assert!(matches!(refused, CastError::Names { found } if found > MESSAGE_MAX), "{refused}");
}

#[test]
fn a_node_that_breaks_the_rules_is_given_up_with_the_reason() {
    let cases = [
        (CastMessage::Want { chunk: 0, into: None }, "before a plan"),
        (CastMessage::Dropped { slot: 0 }, "before a plan"),
        (CastMessage::Joined, "no place here"),
        (CastMessage::Run(Vec::new()), "no place here"),
        (CastMessage::Failed { why: "its disk is full".into() }, "its disk is full"),
    ];
    for (message, expected) in cases {
        let outcome = cast_to(|hub, peer, heard| {
            if let CastMessage::Begin(_) = heard {
                say(hub, peer, &message);
            }
        });
        let why = outcome.result.expect_err("refused");
        assert!(why.contains(expected), "{why}, not {expected}");
    }
    let outcome = cast_to(|hub, peer, _| {
        let _sent = hub.send(peer, b"hello");
    });
    assert!(outcome.result.expect_err("refused").contains("version 104"));
}

#[test]
fn a_node_that_claims_what_there_is_not_is_given_up() {
    let outcome = cast_to(|hub, peer, heard| match heard {
        CastMessage::Begin(_) => say(hub, peer, &CastMessage::Ready),
        CastMessage::Report { .. } => {
            say(hub, peer, &report(ChunkSet::below(1_000), Vec::new()));
        }
        _ => {}
    });
    assert!(outcome.result.expect_err("refused").contains("chunks that there are not"));
}

#[test]
fn a_node_that_takes_nothing_is_given_up_by_name_and_the_cast_ends() {
    let waits: Vec<ChunkWait> =
        (0..3_000).map(|of| ChunkWait { of, chunk: of, is_taken_back: of % 2 > 0 }).collect();
    let outcome = cast_to(|hub, peer, heard| match heard {
        CastMessage::Begin(_) => say(hub, peer, &CastMessage::Ready),
        CastMessage::Report { .. } => {
            say(hub, peer, &report(ChunkSet::below(1), waits.clone()));
            (0..100).for_each(|node| say(hub, peer, &CastMessage::Lost { node }));
        }
        _ => {}
    });
    let why = outcome.result.expect_err("given up");
    assert!(why.contains("receives nothing"), "{why}");
}

#[test]
fn a_node_that_says_nothing_is_given_up() {
    let outcome = cast_to(|_, _, _| ());
    assert!(outcome.result.expect_err("given up").contains("hangs"));
}

#[test]
fn a_node_that_says_it_has_published_deceives_itself_alone() {
    let outcome = cast_to(|hub, peer, heard| {
        if let CastMessage::Begin(_) = heard {
            say(hub, peer, &CastMessage::Ready);
            say(hub, peer, &CastMessage::Done { names: u32::MAX, read_chunks: 0 });
        }
    });
    assert_eq!(outcome.result, Ok(u32::MAX));
}

#[test]
fn a_cast_does_not_begin_with_fewer_nodes_than_asked_for() {
    let tree = tempfile::tempdir().expect("a directory");
    std::fs::write(tree.path().join("file"), b"some").expect("written");
    let limits = CastLimits { min_nodes: Some(1), rate: None };
    let outcome = cast(CastRequest { limits, ..request(tree.path()) }).expect("an outcome");
    assert!(!outcome.has_succeeded());
    assert_eq!(outcome.nodes[0].result, Err("connection refused".into()));
}
