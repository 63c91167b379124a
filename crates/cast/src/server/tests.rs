//! Peers that do what no peer of this program does: their sessions end, and nothing else.

mod at_once;
mod back;
mod late;
mod pause;
mod stage;

use super::{CastPolicy, CastRoot, CastService, CastServiceOptions};
use crate::lazy::ShowMode;
use crate::member::{CastTag, SessionId};
use crate::protocol::{CastBegin, CastMessage, JoinToken, PROTOCOL, WantedSlot, immediate};
use crate::receive::PublishMode;
use crate::schedule::ScheduleKind;
use crate::sign::{CastHeader, CastId};
use outboard_cluster::hub::PeerId;
use outboard_verbs::SharedRegion;
use stage::{Stage, begin, plan, signed_begin};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_first_message_that_is_none_ends_the_session() {
    let mut stage = Stage::new();
    stage.hub.send(stage.peer, b"hello").expect("sent");
    assert!(stage.end().contains("version 104"));
    let early = [CastMessage::Want { chunk: 0, into: None }, CastMessage::Joined, plan(2, 5)];
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
        (|stage| stage.say(&plan(2, 6)), "not this cast's"),
        (|stage| stage.say(&plan(3, 5)), "not this cast's"),
        (|stage| stage.say(&CastMessage::Run(vec![0; 300])), "no run"),
        (
            |stage| {
                stage.say(&plan(2, 5));
                stage.say(&CastMessage::Want { chunk: 5, into: None });
            },
            "wants chunk 5",
        ),
        (
            |stage| {
                stage.say(&plan(2, 5));
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
    stage.say(&CastMessage::Begin(Box::new(begin)));
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    stage.say(&plan(2, 5));
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
    let tag = CastTag { session: SessionId::default(), to: 1, slot: 0 };
    stage.hub.write_immediate(stage.peer, memory, from, tag).expect("posted");
    // It came before its run, and is checked when that comes.
    runs.into_iter().for_each(|run| stage.say(&CastMessage::Run(run)));
    let end = stage.end();
    assert!(end.contains("not signed"), "{end}");
}

/// A cast in which the node is number 2 behind number 1, which has joined it; and its runs.
fn joined() -> (Stage, PeerId, CastHeader, Vec<Vec<u8>>) {
    let (begin, runs) = signed_begin();
    let header = CastHeader::verify(&begin.header, &begin.key).expect("signed");
    let nodes = vec![String::new(), "n1".into(), "n2".into()];
    let begin = CastBegin { nodes, you: 2, kind: ScheduleKind::Chain, ..begin };
    let mut stage = Stage::new();
    stage.say(&CastMessage::Begin(Box::new(begin)));
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    stage.say(&plan(3, 5));
    let relay = stage.connect();
    stage.hub.send(relay, &PROTOCOL.encode(&join(&header, 1))).expect("sent");
    stage.until(|stage| stage.others.iter().any(|(_, said)| matches!(said, CastMessage::Joined)));
    (stage, relay, header, runs)
}

fn join(header: &CastHeader, node: u32) -> CastMessage {
    CastMessage::Join { cast: header.cast, node, token: JoinToken([7; 16]) }
}

#[test]
fn a_relay_that_must_not_join_does_not() {
    let (mut stage, _, header, _) = joined();
    let wrong = CastMessage::Join { cast: header.cast, node: 1, token: JoinToken([8; 16]) };
    // A second one of that number; one of a higher number, which is dialled; the source; no node.
    for message in [wrong, join(&header, 1), join(&header, 2), join(&header, 0), join(&header, 9)] {
        let other = stage.connect();
        let why = stage.refused(other, &message);
        assert!(why.contains("no part here"), "{why}");
    }
}

#[test]
fn a_relay_that_breaks_the_rules_loses_its_session_and_the_cast_goes_on() {
    let memory = |len: u64| {
        let parts = postcard::to_stdvec(&(1_u32, 0_u64, len)).expect("plain data");
        postcard::from_bytes(&parts).expect("memory")
    };
    let want = |chunk, slot, len| CastMessage::Want {
        chunk,
        into: Some(WantedSlot { slot, memory: memory(len) }),
    };
    let cases = [
        (want(5, 0, 4096), "wants chunk 5 of a cast that has 5"),
        (want(u32::MAX, 0, 4096), "of a cast that has 5"),
        (want(0, 1024, 4096), "slot 1024"),
        (want(0, 0, 4095), "memory of 4095"),
        (want(1, 7, 4096), "wants chunk 1 in slot 7, in which"),
        (CastMessage::Dropped { slot: 3 }, "not cancelled"),
        (CastMessage::Dropped { slot: u32::MAX }, "not cancelled"),
        (plan(3, 5), "no place here"),
        (CastMessage::Run(vec![0; 9]), "no place here"),
        (CastMessage::Done { names: 1, read_chunks: 0 }, "no place here"),
    ];
    for (message, expected) in cases {
        let (mut stage, relay, ..) = joined();
        stage.hub.send(relay, &PROTOCOL.encode(&want(0, 7, 4096))).expect("sent");
        let why = stage.refused(relay, &message);
        assert!(why.contains(expected), "{why}, not {expected}");
        let is_told = |said: &CastMessage| matches!(said, CastMessage::Lost { node: 1 });
        stage.until(|stage| stage.heard.iter().any(is_told));
    }
    let (mut stage, relay, ..) = joined();
    stage.hub.send_immediate(relay, immediate(3, 30)).expect("sent");
    let why = stage.why_gone(relay);
    assert!(why.contains("not asked"), "{why}");
}

#[test]
fn a_relay_that_forges_a_chunk_loses_its_session_and_the_cast_goes_on() {
    let (mut stage, relay, _, runs) = joined();
    runs.into_iter().for_each(|run| stage.say(&CastMessage::Run(run)));
    let wanted = |(of, message): &(PeerId, CastMessage)| match message {
        CastMessage::Want { chunk: 3, into: Some(into) } if *of == relay => Some(*into),
        _ => None,
    };
    stage.until(|stage| stage.others.iter().any(|said| wanted(said).is_some()));
    let into = stage.others.iter().find_map(wanted).expect("heard");
    let forged = SharedRegion::zeroed(4096).expect("memory");
    forged.copy_in(17, &[1]).expect("inside");
    let memory = into.memory.range(0, 4096).expect("as long as the chunk");
    let from = (forged.slice(0..4096).expect("all"), immediate(3, into.slot));
    let tag = CastTag { session: SessionId::default(), to: 2, slot: 0 };
    stage.hub.write_immediate(relay, memory, from, tag).expect("posted");
    let why = stage.why_gone(relay);
    assert!(why.contains("not signed"), "{why}");
    let is_told = |said: &CastMessage| matches!(said, CastMessage::Lost { node: 1 });
    stage.until(|stage| stage.heard.iter().any(is_told));
}

#[test]
fn a_cast_without_memory_for_its_window_is_refused() {
    let root = tempfile::tempdir().expect("a directory");
    let here = CastRoot::at("/var/cast", root.path());
    let dial = Arc::new(|_: &_, _| Err("connection refused".to_owned()));
    let policy = CastPolicy::default();
    let options = CastServiceOptions { roots: vec![here], memory: 4 * 4096 - 1, policy, dial };
    let mut stage = Stage::of(CastService::new(options).expect("a service"), root);
    stage.say(&CastMessage::Begin(Box::new(begin())));
    let refused = |said: &CastMessage| match said {
        CastMessage::Failed { why } => why.contains("raise memory in [cast]"),
        _ => false,
    };
    stage.until(|stage| stage.heard.iter().any(refused));
}

#[test]
fn a_view_that_is_refused_leaves_nothing() {
    let (begin, _) = signed_begin();
    let (show, publish) = (ShowMode::AtOnce, PublishMode::Merge);
    let mut stage = Stage::new();
    stage.say(&CastMessage::Begin(Box::new(CastBegin { show, publish, ..begin })));
    let refused = |said: &CastMessage| match said {
        CastMessage::Failed { why } => why.contains("--merge has none"),
        _ => false,
    };
    stage.until(|stage| stage.heard.iter().any(refused));
    assert_eq!(std::fs::read_dir(stage.root.path()).expect("there").count(), 0);
}

#[test]
fn a_peer_that_says_nothing_does_not_stay() {
    let (mut stage, ..) = joined();
    let silent = stage.connect();
    stage.until(|stage| stage.node.report()["sessions_now"] == 3);
    assert!(
        stage.node.deadline().expect("it looks after peers") < Instant::now() + pause::STEP * 6
    );
    let is_gone = |stage: &Stage| stage.node.report()["sessions_now"] == 2;
    let (took, _) = pause::run_until(&mut stage, Instant::now(), is_gone);
    assert!(took <= Duration::from_secs(11), "{took:?}");
    stage.until(|stage| stage.gone.contains(&silent));
}

#[test]
fn only_its_source_begins_or_disturbs_a_cast_that_is_under_way() {
    let (begin, _) = signed_begin();
    let mut stage = Stage::new();
    stage.say(&CastMessage::Begin(Box::new(begin.clone())));
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    let elsewhere = CastBegin { destination: b"/var/cast/none".to_vec(), ..begin.clone() };
    for other in [begin, elsewhere] {
        let peer = stage.connect();
        let why = stage.refused(peer, &CastMessage::Begin(Box::new(other)));
        assert!(why.contains("under way here"), "{why}");
    }
    stage.heard.clear();
    stage.say(&plan(2, 5));
    stage.until(|stage| stage.heard.iter().any(|said| matches!(said, CastMessage::Want { .. })));
    let is_refused = |said: &CastMessage| matches!(said, CastMessage::Failed { .. });
    assert!(!stage.heard.iter().any(is_refused), "{:?}", stage.heard);
}
