//! A source that is here again, after it has left for a while.

use super::at_once::of_file;
use super::stage::{Stage, plan};
use crate::member::{CastTag, SessionId};
use crate::protocol::{CastBegin, CastMessage, immediate};
use crate::sessions::{SessionPort, credentials, dial};
use outboard_cluster::node::Permit;
use outboard_secure::{ClusterKey, Credentials};
use outboard_verbs::{Role, SharedRegion};
use std::sync::Arc;
use std::time::Duration;

/// The source connects, with the same identity each time.
fn connect(stage: &mut Stage, port: &SessionPort, source: &Arc<Credentials>) {
    let limit = Duration::from_secs(20);
    let own = dial(source, "cast", port.address, limit).expect("a session");
    let its = port.arrivals.recv_timeout(limit).expect("it has shaken hands");
    let permit = Permit::outside_a_node(its.peer(), 0);
    stage.node.admit(its, permit).expect("admitted");
    let admission = stage.hub.prepare().expect("prepared");
    let admitted =
        admission.connect(|qp, params, channel| qp.adopt(own, Role::Initiator, params, channel));
    stage.peer = stage.hub.enroll(admitted.expect("connected")).expect("enrolled");
}

/// Sends the node the only chunk of a cast, when it asks for it.
fn give(stage: &mut Stage, bytes: &[u8]) {
    let wanted = |message: &CastMessage| match message {
        CastMessage::Want { chunk: 0, into: Some(into) } => Some(*into),
        _ => None,
    };
    stage.until(|stage| stage.heard.iter().any(|message| wanted(message).is_some()));
    let into = stage.heard.iter().find_map(wanted).expect("heard");
    let chunk = SharedRegion::zeroed(bytes.len()).expect("memory");
    chunk.copy_in(0, bytes).expect("inside");
    let memory = into.memory.range(0, bytes.len() as u64).expect("as long as the chunk");
    let from = (chunk.slice(0..bytes.len()).expect("all"), immediate(0, into.slot));
    let tag = CastTag { session: SessionId::default(), to: 1, slot: 0 };
    stage.hub.write_immediate(stage.peer, memory, from, tag).expect("posted");
}

#[test]
fn a_source_that_has_lost_a_node_hears_again_that_it_has_published() {
    let mut begin = of_file(&[7; 10_000]);
    let only = begin.only.take().expect("one chunk");
    let begin = CastBegin { nodes: vec![String::new(), "n1".into(), "n2".into()], ..begin };
    let says_begin = || CastMessage::Begin(Box::new(begin.clone()));
    let is_done = |stage: &Stage| matches!(stage.heard.last(), Some(CastMessage::Done { .. }));
    let key = ClusterKey::generate().expect("a key");
    let (port, source) = (SessionPort::open(&key, "cast"), credentials(&key, "cast"));
    let mut stage = Stage::new();
    stage.hub.dismiss(stage.peer);
    connect(&mut stage, &port, &source);
    stage.say(&says_begin());
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    stage.say(&plan(3, 1));
    stage.say(&CastMessage::Run(only.run));
    give(&mut stage, &only.bytes);
    stage.until(is_done);
    stage.hub.dismiss(stage.peer);
    stage.until(|stage| stage.node.report()["sessions_now"] == 0);
    connect(&mut stage, &port, &source);
    stage.heard.clear();
    stage.say(&says_begin());
    stage.until(is_done);
    assert!(matches!(
        stage.heard[..],
        [CastMessage::Ready, CastMessage::Done { names: 1, read_chunks: 0 }]
    ));
}

#[test]
fn a_source_whose_former_connection_seems_to_be_there_goes_on_with_a_new_one() {
    let mut begin = of_file(&[7; 10_000]);
    let only = begin.only.take().expect("one chunk");
    let begin = CastBegin { nodes: vec![String::new(), "n1".into(), "n2".into()], ..begin };
    let says_begin = || CastMessage::Begin(Box::new(begin.clone()));
    let is_ready = |stage: &Stage| matches!(stage.heard.last(), Some(CastMessage::Ready));
    let key = ClusterKey::generate().expect("a key");
    let (port, source) = (SessionPort::open(&key, "cast"), credentials(&key, "cast"));
    // Before and after its first plan.
    for has_plan in [false, true] {
        let mut stage = Stage::new();
        stage.hub.dismiss(stage.peer);
        connect(&mut stage, &port, &source);
        stage.say(&says_begin());
        stage.until(is_ready);
        if has_plan {
            stage.say(&plan(3, 1));
            stage.until(|stage| stage.heard.len() > 1);
        }
        let former = stage.peer;
        connect(&mut stage, &port, &source);
        stage.heard.clear();
        stage.say(&says_begin());
        stage.until(is_ready);
        let why = stage.why_gone(former);
        assert!(why.contains("another connection"), "{why}");
        stage.heard.clear();
        stage.say(&plan(3, 1));
        stage.say(&CastMessage::Run(only.run.clone()));
        give(&mut stage, &only.bytes);
        stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Done { .. })));
    }
}
