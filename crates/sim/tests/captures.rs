//! Captured traffic between two ends of Linux's siw, replayed: a connection of the stack takes the
//! place of either side of every captured TCP stream, receives what siw received, gets the requests
//! that siw got, and must send the same bytes and give the same results. See
//! `tests/captures/README.md` for where the files come from.
//!
//! STags are each table's own, so those in the heard bytes are replaced, in place, by those of
//! our registrations and of our Reads' sinks; nothing else is touched, no byte moves.

use outboard_iwarp::startup::{Initiator, LocalParams, Negotiated, ReplyOutcome, Responder};
use outboard_iwarp::work::{Operation, Remote, SendOp, SendRequest, Status};
use outboard_iwarp::{Event, Params, Phase, RnrPolicy};
use outboard_mem::{Access, SgList};
use outboard_sim::pcap::{self, Stream};
use outboard_sim::side::{Mr, PD, Side, bytes_of};
use outboard_sim::trace::Decoder;
use outboard_wire::ddp::{Header, Stag};
use outboard_wire::fpdu;
use outboard_wire::rdmap::{Opcode, ReadRequest};
use outboard_wire::startup::StartupFrame;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const RPING: &[u8] = include_bytes!("../../../tests/captures/siw-rping.pcap");
const PERF: &[u8] = include_bytes!("../../../tests/captures/siw-perf.pcap");

/// One RDMAP message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    opcode: Opcode,
    stag: Stag,
    offset: u64,
    payload: Vec<u8>,
}

/// One segment and where it stands behind the start-up frame.
struct Place {
    header: Header,
    /// Of the header.
    start: usize,
    /// Of the byte behind the FPDU.
    end: usize,
    payload: Vec<u8>,
}

/// One direction of a stream.
struct Said {
    frame: StartupFrame,
    frame_bytes: Vec<u8>,
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Said {
    fn new(bytes: &[u8]) -> Self {
        let (frame, used) = StartupFrame::parse(bytes).expect("MPA").expect("a whole frame");
        let (frame_bytes, bytes) = (bytes[..used].to_vec(), bytes[used..].to_vec());
        let mut places = Vec::new();
        let mut at = 0;
        while let Some((ulpdu, taken)) = fpdu::parse(&bytes[at..], false).expect("FPDUs") {
            let (header, len) = Header::parse(ulpdu).expect("a DDP header");
            let payload = ulpdu[len..].to_vec();
            places.push(Place { header, start: at + 2, end: at + taken, payload });
            at += taken;
        }
        assert_eq!(at, bytes.len(), "an FPDU is cut short");
        Self { frame, frame_bytes, bytes, places }
    }

    /// The messages with the stream position behind each.
    fn messages(&self) -> Vec<(usize, Message)> {
        let mut messages = Vec::new();
        let mut open: Option<Message> = None;
        for place in &self.places {
            let message = open.get_or_insert_with(|| first(&place.header));
            message.payload.extend_from_slice(&place.payload);
            if place.header.last() {
                messages.extend(open.take().map(|message| (place.end, message)));
            }
        }
        assert_eq!(open, None, "a message is cut short");
        messages
    }
}

fn first(header: &Header) -> Message {
    let (stag, offset) = match header {
        Header::Tagged(tagged) => (tagged.stag, tagged.offset),
        Header::Untagged(_) => (Stag(0), 0),
    };
    Message { opcode: header.opcode(), stag, offset, payload: Vec::new() }
}

fn request(message: &Message) -> ReadRequest {
    ReadRequest::parse(&message.payload).expect("a Read Request")
}

/// A replay in which we are one of the two.
struct Replay {
    side: Side,
    now: Instant,
    decoder: Decoder,
    ours: Vec<Message>,
    open: Option<Message>,
    mrs: BTreeMap<u32, (Mr, u64)>,
}

/// What a replay showed.
struct Outcomes {
    ours: Vec<Message>,
    received: Vec<Vec<u8>>,
    read: Vec<Vec<u8>>,
}

impl Replay {
    fn new(negotiated: Negotiated) -> Self {
        let now = Instant::now();
        let params = Params {
            qp: 1,
            pd: PD,
            negotiated,
            max_ulpdu: 1442,
            send_depth: 1000,
            rnr_policy: RnrPolicy::Stall(Duration::from_secs(1)),
        };
        Self {
            side: Side::new(params, now),
            now,
            decoder: Decoder::new(false, false),
            ours: Vec::new(),
            open: None,
            mrs: BTreeMap::new(),
        }
    }

    /// Registers whatever the messages access, under other STags at the same offsets.
    fn register(&mut self, heard: &[(usize, Message)]) {
        let mut extents: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (_, message) in heard {
            let (stag, start, len) = match message.opcode {
                Opcode::Write => (message.stag, message.offset, message.payload.len() as u64),
                Opcode::ReadRequest => {
                    let r = request(message);
                    (r.source_stag, r.source_offset, u64::from(r.size))
                }
                _ => continue,
            };
            let extent = extents.entry(stag.0).or_insert((start, start + len));
            *extent = (extent.0.min(start), extent.1.max(start + len));
        }
        for (stag, (start, end)) in extents {
            let len = usize::try_from(end - start).expect("of this machine");
            let region = self.side.region(len);
            let mr = self.side.register_at(PD, "mr", region, start, Access::REMOTE);
            self.mrs.insert(stag, (mr, start));
        }
    }

    /// The bytes that this side receives: the captured bytes with its own STags.
    fn translate(&self, heard: &Said, said: &[(usize, Message)]) -> Vec<u8> {
        let reads = said.iter().filter(|(_, m)| m.opcode == Opcode::ReadRequest);
        let mut sinks: Vec<ReadRequest> = reads.map(|(_, m)| request(m)).rev().collect();
        let mut bytes = heard.bytes.clone();
        let mut number = 1u32;
        for place in &heard.places {
            match place.header {
                Header::Tagged(tagged) if tagged.opcode == Opcode::Write => {
                    let (mr, _) = &self.mrs[&tagged.stag.0];
                    put(&mut bytes, place.start + 2, &mr.stag.0.to_be_bytes());
                }
                Header::Tagged(tagged) => {
                    let sink = sinks.last().expect("a Read was asked for");
                    assert_eq!(tagged.stag, sink.sink_stag, "a response to another request");
                    let offset = tagged.offset - sink.sink_offset;
                    put(&mut bytes, place.start + 2, &number.to_be_bytes());
                    put(&mut bytes, place.start + 6, &offset.to_be_bytes());
                    if tagged.last {
                        sinks.pop();
                        number += 1;
                    }
                }
                Header::Untagged(untagged) if untagged.opcode == Opcode::ReadRequest => {
                    let r = ReadRequest::parse(&place.payload).expect("a Read Request");
                    let (mr, _) = &self.mrs[&r.source_stag.0];
                    put(&mut bytes, place.start + 18 + 16, &mr.stag.0.to_be_bytes());
                }
                Header::Untagged(_) => {}
            }
        }
        bytes
    }

    /// Posts the requests that siw got.
    fn ask(&mut self, message: &Message) {
        let there = Remote { stag: message.stag, offset: message.offset };
        let (op, local) = match message.opcode {
            Opcode::Send => (SendOp::Send { invalidate: None }, SgList::copied(&message.payload)),
            Opcode::Write => (SendOp::Write { to: there }, SgList::copied(&message.payload)),
            Opcode::ReadRequest => {
                let r = request(message);
                let from = Remote { stag: r.source_stag, offset: r.source_offset };
                (SendOp::Read { from }, SgList::copied(&vec![0; r.size as usize]))
            }
            Opcode::ReadResponse => return,
            other => panic!("siw does not send {other:?}"),
        };
        self.side.post(SendRequest::new(0, op, local)).expect("posted");
        self.talk();
    }

    fn talk(&mut self) {
        loop {
            let bytes = self.side.transmit(self.now, 1 << 20);
            if bytes.is_empty() {
                return;
            }
            for segment in self.decoder.push(&bytes) {
                let message = self.open.get_or_insert_with(|| first(&segment.header));
                message.payload.extend_from_slice(&segment.payload);
                if segment.header.last() {
                    self.ours.extend(self.open.take());
                }
            }
        }
    }

    /// Puts into our memory what siw answered a Read with.
    fn prepare(&mut self, heard: &Message, answers: &mut impl Iterator<Item = Message>) {
        if heard.opcode == Opcode::ReadRequest {
            let r = request(heard);
            let (mr, base) = &self.mrs[&r.source_stag.0];
            let at = usize::try_from(r.source_offset - base).expect("inside");
            let answer = answers.next().expect("siw answered");
            mr.region.copy_in(at, &answer.payload).expect("inside");
        }
    }

    /// A Write that was heard is in our memory.
    fn check_write(&self, heard: &Message) {
        if heard.opcode == Opcode::Write {
            let (mr, base) = &self.mrs[&heard.stag.0];
            let at = usize::try_from(heard.offset - base).expect("inside");
            let here = mr.region.snapshot(at..at + heard.payload.len()).expect("inside");
            assert!(here == heard.payload, "the Write at {:#x} is not here", heard.offset);
        }
    }
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

/// We go through the start-up in the place of the client or the server.
fn agree(said: &Said, heard: &Said, as_client: bool) -> Negotiated {
    let enhanced = said.frame.enhanced.expect("siw speaks revision 2");
    let local = LocalParams {
        revision: said.frame.revision,
        markers: said.frame.markers,
        crc: said.frame.crc,
        ird: enhanced.ird,
        ord: enhanced.ord,
        peer_to_peer: enhanced.peer_to_peer,
        private_data: said.frame.private_data.clone(),
    };
    let (frame, negotiated) = if as_client {
        let (mut initiator, bytes) = Initiator::new(local).expect("a Request");
        match initiator.handle_bytes(&heard.frame_bytes) {
            Ok(Some((ReplyOutcome::Accepted(agreed), _))) => (bytes, agreed),
            other => panic!("siw's Reply was not understood: {other:?}"),
        }
    } else {
        let mut responder = Responder::default();
        let request = responder.handle_bytes(&heard.frame_bytes).expect("siw's Request");
        assert!(request.is_some());
        responder.accept(&local).expect("a Reply").expect("after the Request")
    };
    let (ours, _) = StartupFrame::parse(&frame).expect("our own").expect("whole");
    assert_eq!(ours, said.frame, "siw sent something else at start-up");
    negotiated
}

fn replay(stream: &Stream, as_client: bool) -> Outcomes {
    let said = Said::new(&stream.said(as_client));
    let heard = Said::new(&stream.said(!as_client));
    let (asked, told) = (said.messages(), heard.messages());
    let mut replay = Replay::new(agree(&said, &heard, as_client));
    replay.register(&told);
    for _ in told.iter().filter(|(_, message)| message.opcode == Opcode::Send) {
        replay.side.receive(0, 4096);
    }
    let bytes = replay.translate(&heard, &asked);
    let answers = asked.iter().map(|(_, message)| message.clone());
    let mut answers = answers.filter(|message| message.opcode == Opcode::ReadResponse);
    let (mut asked_left, mut told_left) = (&asked[..], &told[..]);
    let (mut spoken, mut listened) = (0, 0);
    for piece in &stream.pieces {
        if piece.by_client == as_client {
            spoken += piece.bytes.len();
            let at = spoken.saturating_sub(said.frame_bytes.len());
            for (_, message) in until(&mut asked_left, at) {
                replay.ask(message);
            }
            continue;
        }
        let from = listened;
        listened = (from + piece.bytes.len()).max(heard.frame_bytes.len());
        let base = heard.frame_bytes.len();
        let now = until(&mut told_left, listened - base);
        now.iter().for_each(|(_, message)| replay.prepare(message, &mut answers));
        replay.side.deliver(replay.now, &bytes[from.max(base) - base..listened - base]);
        now.iter().for_each(|(_, message)| replay.check_write(message));
        replay.talk();
    }
    assert!(asked_left.is_empty() && told_left.is_empty());
    finish(replay, &asked, &told)
}

/// Splits off the messages that end at or before `at`.
fn until<'a>(left: &mut &'a [(usize, Message)], at: usize) -> &'a [(usize, Message)] {
    let count = left.iter().take_while(|(end, _)| *end <= at).count();
    let (now, rest) = left.split_at(count);
    *left = rest;
    now
}

fn finish(mut replay: Replay, asked: &[(usize, Message)], told: &[(usize, Message)]) -> Outcomes {
    replay.side.deliver_eof(replay.now);
    replay.talk();
    assert_eq!(replay.side.connection.phase(), Phase::Closed);
    assert!(!replay.side.events.iter().any(|event| matches!(event, Event::Faulted(_))));
    let mut outcomes = Outcomes { ours: Vec::new(), received: Vec::new(), read: Vec::new() };
    for completion in &replay.side.completions {
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        match completion.operation {
            Operation::Receive => outcomes.received.push(bytes_of(completion)),
            Operation::Read => outcomes.read.push(bytes_of(completion)),
            _ => {}
        }
    }
    let of = |messages: &[(usize, Message)], opcode| -> Vec<Vec<u8>> {
        let wanted = messages.iter().filter(|(_, message)| message.opcode == opcode);
        wanted.map(|(_, message)| message.payload.clone()).collect()
    };
    assert!(outcomes.received == of(told, Opcode::Send), "Sends differ");
    assert!(outcomes.read == of(told, Opcode::ReadResponse), "Reads differ");
    let signaled = asked.iter().filter(|(_, m)| m.opcode != Opcode::ReadResponse).count();
    assert_eq!(replay.side.completions.len(), signaled + outcomes.received.len());
    same_words(&replay.ours, asked);
    outcomes.ours = replay.ours;
    outcomes
}

/// This side sent what siw sent; only the order of the two sides' answers and the STags of sinks
/// may differ.
fn same_words(ours: &[Message], asked: &[(usize, Message)]) {
    let is_answer = |message: &&Message| message.opcode == Opcode::ReadResponse;
    let theirs: Vec<&Message> = asked.iter().map(|(_, message)| message).collect();
    let (ours_asked, theirs_asked): (Vec<_>, Vec<_>) = (
        ours.iter().filter(|m| !is_answer(m)).collect(),
        theirs.iter().copied().filter(|m| !is_answer(m)).collect(),
    );
    assert_eq!(ours_asked.len(), theirs_asked.len());
    for (ours, theirs) in ours_asked.into_iter().zip(theirs_asked) {
        assert_eq!(ours.opcode, theirs.opcode);
        if ours.opcode == Opcode::ReadRequest {
            let (ours, theirs) = (request(ours), request(theirs));
            let sink = (theirs.sink_stag, theirs.sink_offset);
            let (sink_stag, sink_offset) = sink;
            assert_eq!(ReadRequest { sink_stag, sink_offset, ..ours }, theirs);
        } else {
            assert!(ours == theirs, "{:?} differs", ours.opcode);
        }
    }
    // An answer goes where its request said, so these agree to the byte.
    let ours: Vec<&Message> = ours.iter().filter(is_answer).collect();
    let theirs: Vec<&Message> = theirs.into_iter().filter(is_answer).collect();
    assert!(ours == theirs, "answers differ");
}

fn streams(file: &[u8]) -> Vec<Stream> {
    pcap::streams(file).expect("a capture")
}

fn count(messages: &[Message], opcode: Opcode, len: usize) -> usize {
    messages.iter().filter(|m| m.opcode == opcode && m.payload.len() == len).count()
}

/// What rping writes in its n-th round: a label, then a row of characters that starts one later
/// each time.
fn pattern(round: u8) -> Vec<u8> {
    let label = format!("rdma-ping-{round}: ").into_bytes();
    let row = (b'A'..=b'z').cycle().skip(usize::from(round));
    let mut bytes: Vec<u8> = label.iter().copied().chain(row.take(4096 - label.len())).collect();
    bytes[4095] = 0;
    bytes
}

#[test]
fn rping_with_either_side_replaced() {
    let streams = streams(RPING);
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].server.port(), 7174);
    let expected: Vec<Vec<u8>> = (0..3).map(pattern).collect();

    let server = replay(&streams[0], false);
    assert_eq!(server.read, expected, "the server reads the client's rows");
    assert_eq!(count(&server.ours, Opcode::Write, 4096), 3);
    assert_eq!(count(&server.ours, Opcode::ReadRequest, ReadRequest::LEN), 3);
    for (i, buffer) in server.received.iter().enumerate() {
        // The client advertises its source, then its sink: address, key, size.
        assert_eq!(buffer.len(), 16);
        assert_eq!(buffer[12..], 4096u32.to_be_bytes());
        let opcode = if i % 2 == 0 { Opcode::ReadRequest } else { Opcode::Write };
        let use_of_it = server.ours.iter().filter(|m| m.opcode == opcode).nth(i / 2);
        let message = use_of_it.expect("every advertisement is used");
        let (stag, offset) = match message.opcode {
            Opcode::ReadRequest => {
                let r = request(message);
                (r.source_stag, r.source_offset)
            }
            _ => (message.stag, message.offset),
        };
        assert_eq!(buffer[..8], offset.to_be_bytes());
        assert_eq!(buffer[8..12], stag.0.to_be_bytes());
    }

    let client = replay(&streams[0], true);
    assert_eq!(count(&client.ours, Opcode::ReadResponse, 4096), 3);
    assert_eq!(client.received.len(), 6, "two goes-ahead per round");
}

#[test]
fn perftest_with_either_side_replaced() {
    let streams = streams(PERF);
    let mut totals = BTreeMap::new();
    for stream in &streams {
        let client = replay(stream, true);
        let server = replay(stream, false);
        let total = totals.entry(stream.server.port()).or_insert([0; 3]);
        total[0] += count(&client.ours, Opcode::Write, 8192);
        total[1] += client.read.iter().filter(|bytes| bytes.len() == 8192).count();
        if stream.server.port() == 18517 {
            total[2] += count(&client.ours, Opcode::Send, 64);
            assert_eq!(count(&client.ours, Opcode::Send, 64), server_sends(&server));
        }
        assert_eq!(count(&server.ours, Opcode::ReadResponse, 8192), client.read.len());
    }
    println!("{totals:?}");
    assert_eq!(totals[&18515], [5, 0, 0], "ib_write_bw -n 5");
    assert_eq!(totals[&18516], [0, 5, 0], "ib_read_bw -n 5");
    assert_eq!(totals[&18517], [0, 0, 5], "ib_send_lat -n 5");
}

fn server_sends(server: &Outcomes) -> usize {
    count(&server.ours, Opcode::Send, 64)
}
