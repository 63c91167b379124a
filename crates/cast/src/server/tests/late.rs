//! Nodes that read from this one, and do what no node of this program does.

use super::stage::{Stage, plan, signed_begin};
use crate::member::{CastTag, SessionId};
use crate::protocol::{CastBegin, CastMessage, JoinToken, LentChunk, PROTOCOL, immediate};
use crate::sign::CastHeader;
use outboard_cluster::hub::{Exposed, PeerId};
use outboard_verbs::SharedRegion;

/// A cast of which node 1 is this one, that has its runs, and what was asked of the source.
fn begun() -> (Stage, CastHeader) {
    let (begin, runs) = signed_begin();
    let header = CastHeader::verify(&begin.header, &begin.key).expect("signed");
    let nodes = vec![String::new(), "n1".into(), "n2".into(), "n3".into()];
    let mut stage = Stage::new();
    stage.say(&CastMessage::Begin(Box::new(CastBegin { nodes, ..begin })));
    stage.until(|stage| matches!(stage.heard.last(), Some(CastMessage::Ready)));
    stage.say(&plan(4, 5));
    runs.into_iter().for_each(|run| stage.say(&CastMessage::Run(run)));
    stage.until(|stage| stage.heard.iter().any(|said| matches!(said, CastMessage::Want { .. })));
    (stage, header)
}

/// Sends the node a chunk, which it asked for, and waits until it is there.
fn give(stage: &mut Stage, chunk: u32) {
    let wanted = |message: &CastMessage| match message {
        CastMessage::Want { chunk: found, into: Some(into) } if *found == chunk => Some(*into),
        _ => None,
    };
    let into = stage.heard.iter().find_map(wanted).expect("it asked for it");
    let bytes = SharedRegion::zeroed(4096).expect("memory");
    let from = (bytes.slice(0..4096).expect("all"), immediate(chunk, into.slot));
    let memory = into.memory.range(0, 4096).expect("as long as the chunk");
    let tag = CastTag { session: SessionId::default(), to: 1, slot: 0 };
    stage.hub.write_immediate(stage.peer, memory, from, tag).expect("posted");
    let is_held = |stage: &Stage| stage.node.report()["now"][0]["held"].as_u64() > Some(0);
    stage.until(is_held);
}

fn join(header: &CastHeader, node: u32) -> CastMessage {
    CastMessage::JoinToRead { cast: header.cast, node, token: JoinToken([7; 16]) }
}

/// A node that may read, and the bitmap.
fn reader(stage: &mut Stage, header: &CastHeader, node: u32) -> (PeerId, Exposed) {
    let reader = stage.connect();
    stage.hub.send(reader, &PROTOCOL.encode(&join(header, node))).expect("sent");
    let bitmap = move |(of, said): &(PeerId, CastMessage)| match said {
        CastMessage::Readable { bitmap } if *of == reader => Some(*bitmap),
        _ => None,
    };
    stage.until(|stage| stage.others.iter().any(|said| bitmap(said).is_some()));
    (reader, stage.others.iter().find_map(bitmap).expect("heard"))
}

fn borrow(stage: &mut Stage, reader: PeerId, chunks: Vec<u32>) -> Vec<LentChunk> {
    stage.others.clear();
    stage.hub.send(reader, &PROTOCOL.encode(&CastMessage::Borrow { chunks })).expect("sent");
    let lent = move |(of, said): &(PeerId, CastMessage)| match said {
        CastMessage::Lent { chunks } if *of == reader => Some(chunks.clone()),
        _ => None,
    };
    stage.until(|stage| stage.others.iter().any(|said| lent(said).is_some()));
    stage.others.iter().find_map(lent).expect("heard")
}

/// Reads some bytes of the node's memory; `None` if that ends the connection.
fn read(
    stage: &mut Stage,
    reader: PeerId,
    (memory, at, len): (Exposed, i64, usize),
) -> Option<Vec<u8>> {
    let mut from = memory.range(0, 0).expect("its beginning");
    from.offset = from.offset.wrapping_add_signed(at);
    let tag = CastTag { session: SessionId::default(), to: 1, slot: 0 };
    stage.read.clear();
    stage.hub.read(reader, from, len, tag).expect("posted");
    stage.until(|stage| stage.gone.contains(&reader) || !stage.read.is_empty());
    stage.read.pop()
}

#[test]
fn a_bit_is_read_when_its_chunk_is_there_and_so_is_the_chunk() {
    let (mut stage, header) = begun();
    let (peer, bitmap) = reader(&mut stage, &header, 2);
    assert_eq!(bitmap.len(), 8);
    let all = |memory: Exposed| (memory, 0, usize::try_from(memory.len()).expect("short"));
    assert_eq!(read(&mut stage, peer, all(bitmap)), Some(vec![0; 8]));
    assert_eq!(borrow(&mut stage, peer, vec![1, 2, 3, 4]), [], "none is there");
    give(&mut stage, 3);
    assert_eq!(read(&mut stage, peer, all(bitmap)), Some(vec![8, 0, 0, 0, 0, 0, 0, 0]));
    let lent = borrow(&mut stage, peer, vec![1, 2, 3, 4]);
    assert_eq!(lent.iter().map(|lent| lent.chunk).collect::<Vec<_>>(), [3]);
    let bytes = read(&mut stage, peer, all(lent[0].memory));
    assert_eq!(bytes, Some(vec![0; 4096]));
    let status = &stage.node.report()["now"][0];
    assert_eq!((&status["lent_chunks"], &status["read_chunks"]), (&1.into(), &0.into()));
}

#[test]
fn nothing_but_what_was_lent_last_can_be_read() {
    // Behind its end, before its beginning, all of the stream, and what was given back.
    for (at, len) in [(1, 4096), (-1, 4096), (0, 5 * 4096), (0, 4096)] {
        let (mut stage, header) = begun();
        give(&mut stage, 3);
        let (peer, _) = reader(&mut stage, &header, 2);
        let lent = borrow(&mut stage, peer, vec![3])[0].memory;
        if (at, len) == (0, 4096) {
            assert_eq!(borrow(&mut stage, peer, vec![1]), []);
        }
        assert_eq!(read(&mut stage, peer, (lent, at, len)), None, "{at}, {len}");
        assert_eq!(stage.node.report()["casts_now"], 1, "the cast goes on");
    }
    // Another's STag, in a connection of its own.
    let (mut stage, header) = begun();
    give(&mut stage, 3);
    let (peer, _) = reader(&mut stage, &header, 2);
    let lent = borrow(&mut stage, peer, vec![3])[0].memory;
    let (other, _) = reader(&mut stage, &header, 3);
    assert_eq!(read(&mut stage, other, (lent, 0, 4096)), None);
    assert_eq!(read(&mut stage, peer, (lent, 0, 4096)), Some(vec![0; 4096]));
    // The cast is over: so is the access.
    stage.say(&CastMessage::Over);
    stage.until(|stage| stage.gone.contains(&peer));
}

#[test]
fn a_node_that_must_not_read_does_not() {
    let (mut stage, header) = begun();
    let wrong = |token| CastMessage::JoinToRead { cast: header.cast, node: 2, token };
    let other_cast = crate::sign::CastId::random().expect("an id");
    let cases = [
        (wrong(JoinToken([8; 16])), "no part"),
        (join(&header, 0), "no part"),
        (join(&header, 1), "no part"),
        (join(&header, 4), "no part"),
        (
            CastMessage::JoinToRead { cast: other_cast, node: 2, token: JoinToken([7; 16]) },
            "not here",
        ),
        (CastMessage::Borrow { chunks: vec![1] }, "no place here"),
    ];
    for (message, expected) in cases {
        let other = stage.connect();
        let why = stage.refused(other, &message);
        assert!(why.contains(expected), "{why}, not {expected}");
    }
    let (peer, _) = reader(&mut stage, &header, 2);
    let second = stage.connect();
    let why = stage.refused(second, &join(&header, 2));
    assert!(why.contains("reads from this one already"), "{why}");
    let cases = [
        (CastMessage::Borrow { chunks: vec![0; 1000] }, "borrows 1000 chunks"),
        (CastMessage::Borrow { chunks: vec![5] }, "borrows chunk 5"),
        (CastMessage::Want { chunk: 1, into: None }, "no place here"),
        (CastMessage::ReadFrom { holders: vec![1] }, "no place here"),
    ];
    let mut next = Some(peer);
    for (message, expected) in cases {
        let peer = next.take().unwrap_or_else(|| reader(&mut stage, &header, 2).0);
        stage.others.clear();
        let why = stage.refused(peer, &message);
        assert!(why.contains(expected), "{why}, not {expected}");
    }
}

#[test]
fn asking_again_and_again_is_answered_one_by_one() {
    let (mut stage, header) = begun();
    give(&mut stage, 3);
    let (peer, _) = reader(&mut stage, &header, 2);
    for _ in 0..100 {
        // A source that says nothing has left.
        stage.say(&CastMessage::Report { version: 1 });
        assert_eq!(borrow(&mut stage, peer, vec![3]).len(), 1);
    }
    let peers = stage.node.report();
    assert_eq!(peers["now"][0]["lent_chunks"], 100, "{peers}");
    // Without an answer, the second one is too much.
    for _ in 0..50 {
        let message = CastMessage::Borrow { chunks: vec![3] };
        stage.hub.send(peer, &PROTOCOL.encode(&message)).expect("sent");
    }
    let why = stage.why_gone(peer);
    assert!(why.contains("before it has heard"), "{why}");
}
