//! Arbitrary bytes from a peer, to a start-up and to a connection in full operation: nothing
//! panics, nothing is written where the peer may not write, every request comes back once, and the
//! connection's output remains a valid iWARP stream. Property tests and the fuzzer share it.
//!
//! Random numbers seldom hit an STag or a CRC, so the bytes may be framed here, and STags written
//! `0xaa0000NN` stand for the NN-th of the victim's own.

use crate::chunk::Chunks;
use crate::lone::{Lone, agreed};
use crate::side::{OTHER_PD, PD, Side};
use outboard_iwarp::startup::{
    Initiator, LocalParams, Negotiated, ReplyOutcome, Responder, Role, Rtr, StartupError,
    StartupState,
};
use outboard_iwarp::work::{Remote, SendOp};
use outboard_iwarp::{Event, Phase, RnrPolicy};
use outboard_mem::{Access, SharedRegion};
use outboard_wire::ddp::Stag;
use outboard_wire::rdmap::Opcode;
use outboard_wire::startup::{FrameKind, RtrModes, StartupFrame};
use std::ops::Range;
use std::time::Duration;

/// Length of each registered share; as much canary follows it.
const SHARE: usize = 256;
const SHARES: usize = 6;
const CANARY: u8 = 0xc5;
/// Length of every receive and of the first Read.
const BUFFER: usize = 100;
const RECEIVES: u64 = 3;
const REQUESTS: usize = 5;

/// Splits off `count` bytes; zeros stand for what is missing.
fn split<const N: usize>(bytes: &[u8]) -> ([u8; N], &[u8]) {
    let mut head = [0; N];
    let (given, rest) = bytes.split_at(bytes.len().min(N));
    head[..given.len()].copy_from_slice(given);
    (head, rest)
}

fn chunks(byte: u8) -> Chunks {
    match byte {
        0 => Chunks::Whole,
        1..=199 => Chunks::Every(usize::from(byte)),
        _ => Chunks::Random(u64::from(byte)),
    }
}

/// Both roles of a start-up handle the bytes piece by piece.
///
/// # Panics
/// When they get out of step with themselves.
pub fn start_up(bytes: &[u8]) {
    let ([flags, cut], heard) = split::<2>(bytes);
    let local = LocalParams {
        revision: 1 + (flags & 1),
        markers: flags & 2 != 0,
        crc: flags & 4 != 0,
        ird: u16::from(flags >> 3) * 700,
        ord: u16::from(flags >> 4) * 9,
        peer_to_peer: flags & 8 != 0,
        private_data: heard[..heard.len().min(usize::from(flags))].to_vec(),
    };
    respond(&local, heard, chunks(cut));
    initiate(local, heard, chunks(cut));
}

fn respond(local: &LocalParams, heard: &[u8], mut chunks: Chunks) {
    let mut responder = Responder::default();
    let mut len = 0;
    loop {
        len += chunks.next_len().min(heard.len() - len);
        match responder.handle_bytes(&heard[..len]) {
            Ok(None) if len == heard.len() => return,
            Ok(None) => assert_eq!(responder.state(), StartupState::AwaitRequest),
            Err(_) => return assert_eq!(responder.state(), StartupState::Failed),
            Ok(Some(request)) => {
                assert!(matches!(request.revision, 1 | 2));
                break;
            }
        }
    }
    let reply = if local.markers && local.crc {
        responder.reject(&local.private_data).map(|reply| reply.map(|bytes| (bytes, true)))
    } else {
        responder.accept(local).map(|reply| reply.map(|(bytes, _)| (bytes, false)))
    };
    let (reply, reject) = reply.expect("the private data fits").expect("after a Request");
    let (frame, used) = StartupFrame::parse(&reply).expect("our own").expect("whole");
    assert_eq!((used, frame.kind, frame.reject), (reply.len(), FrameKind::Reply, reject));
    assert_eq!(responder.state(), if reject { StartupState::Rejected } else { StartupState::Full });
}

fn initiate(local: LocalParams, heard: &[u8], mut chunks: Chunks) {
    let (mut initiator, request) = Initiator::new(local).expect("the private data fits");
    let (frame, used) = StartupFrame::parse(&request).expect("our own").expect("whole");
    assert_eq!((used, frame.kind), (request.len(), FrameKind::Request));
    let mut len = 0;
    loop {
        len += chunks.next_len().min(heard.len() - len);
        match initiator.handle_bytes(&heard[..len]) {
            Ok(None) if len == heard.len() => return,
            Ok(None) => assert_eq!(initiator.state(), StartupState::AwaitReply),
            Err(error) => {
                assert_eq!(initiator.state(), StartupState::Failed);
                let ours = matches!(error, StartupError::CallerPrivateData { .. });
                return assert!(!ours, "the peer's fault is blamed on the caller");
            }
            Ok(Some((outcome, used))) => {
                assert!(used <= len);
                let accepted = matches!(outcome, ReplyOutcome::Accepted(_));
                let expected = if accepted { StartupState::Full } else { StartupState::Rejected };
                return assert_eq!(initiator.state(), expected);
            }
        }
    }
}

/// A connection is given the bytes.
///
/// # Panics
/// When it breaks a promise to its driver or its user.
pub fn full_operation(bytes: &[u8]) {
    let ([flags, more, cut], heard) = split::<3>(bytes);
    let mut victim = Victim::new(flags, more);
    if flags & 8 == 0 {
        victim.handle(heard, chunks(cut));
    } else {
        victim.handle_framed(heard, chunks(cut));
    }
    victim.end(more, heard.len());
}

struct Victim {
    lone: Lone,
    region: SharedRegion,
    before: Vec<u8>,
    /// What the peer may write.
    open: Vec<Range<usize>>,
    stags: Vec<Stag>,
    said: Vec<Opcode>,
    bytes: usize,
}

fn negotiated(flags: u8, more: u8) -> Negotiated {
    let responder = flags & 0x10 == 0;
    let rtr = match more & 3 {
        0 => None,
        1 => Some(Rtr::Send),
        2 => Some(Rtr::Write),
        _ => Some(Rtr::Read),
    };
    Negotiated {
        role: if responder { Role::Responder } else { Role::Initiator },
        crc: flags & 1 != 0,
        tx_markers: flags & 2 != 0,
        rx_markers: flags & 4 != 0,
        rtr,
        rtr_offered: RtrModes { send: more & 3 == 1, write: true, read: true },
        ..agreed()
    }
}

impl Victim {
    fn new(flags: u8, more: u8) -> Self {
        let missing = if flags & 0x20 == 0 {
            RnrPolicy::Stall(Duration::from_millis(100))
        } else {
            RnrPolicy::Terminate
        };
        let mut lone = Lone::with(negotiated(flags, more), missing);
        lone.side.direct = flags & 0x40 == 0;
        let region = lone.side.region(2 * SHARE * SHARES);
        region.copy_in(0, &[CANARY; 2 * SHARE * SHARES]).expect("inside");
        let before = vec![CANARY; 2 * SHARE * SHARES];
        let everything = Access::REMOTE | Access::LOCAL_WRITE;
        let mut open = Vec::new();
        let mut stags = Vec::new();
        for (i, (pd, base, access)) in [
            (PD, 0, everything),
            (PD, u64::MAX - SHARE as u64, everything),
            (PD, 0, Access::REMOTE_READ),
            (PD, 0, Access::LOCAL_WRITE),
            (OTHER_PD, 0, everything),
        ]
        .into_iter()
        .enumerate()
        {
            let range = (2 * i + 1) * SHARE..(2 * i + 2) * SHARE;
            let share = region.slice(range.clone()).expect("inside");
            stags.push(Stag(lone.side.stags.register(pd, share, base, access).expect("room")));
            if i < 2 {
                open.push(range);
            }
        }
        ask(&mut lone.side, &region);
        open.push(SHARE * 11..SHARE * 11 + BUFFER);
        Self { lone, region, before, open, stags, said: Vec::new(), bytes: 0 }
    }

    fn handle(&mut self, bytes: &[u8], mut chunks: Chunks) {
        let mut at = 0;
        while at < bytes.len() {
            let len = chunks.next_len().min(bytes.len() - at);
            self.lone.raw(&bytes[at..at + len]);
            self.note();
            at += len;
        }
    }

    /// Each record is a length (two bytes) and as much of a ULPDU.
    fn handle_framed(&mut self, mut bytes: &[u8], chunks: Chunks) {
        while !bytes.is_empty() {
            let (len, rest) = split::<2>(bytes);
            let len = usize::from(u16::from_be_bytes(len)) % 700;
            let (ulpdu, rest) = rest.split_at(len.min(rest.len()));
            bytes = rest;
            let mut ulpdu = ulpdu.to_vec();
            self.name_stags(&mut ulpdu);
            let frame = self.lone.frame(&ulpdu);
            self.handle(&frame, chunks);
        }
    }

    /// Puts STags where their stand-ins are: in the tagged header or as the STag to invalidate,
    /// as a Read's source, as an atomic's target.
    fn name_stags(&self, ulpdu: &mut [u8]) {
        for at in [2, 18 + 16, 18 + 8] {
            let Some(field) = ulpdu.get_mut(at..at + 4) else { continue };
            if let [0xaa, 0, 0, number] = *field {
                let stag = self.stags[usize::from(number) % self.stags.len()];
                field.copy_from_slice(&stag.0.to_be_bytes());
            }
        }
    }

    /// TCP takes the connection's output, which must stay valid.
    fn note(&mut self) {
        for segment in self.lone.segments() {
            let ended = self.said.last() == Some(&Opcode::Terminate);
            assert!(!ended, "something follows a Terminate");
            self.said.push(segment.header.opcode());
            self.bytes += segment.payload.len();
        }
    }

    fn end(mut self, more: u8, heard: usize) {
        self.note();
        assert!(self.bytes <= 3000 + heard * 20, "{} bytes said", self.bytes);
        match more >> 6 {
            0 => self.lone.eof(),
            1 => self.lone.pass(Duration::from_millis(100)),
            2 => self.lone.side.connection.disconnect(),
            _ => {}
        }
        self.note();
        self.lone.pass(Duration::from_secs(3));
        self.note();
        self.lone.lose();
        self.note();
        assert_eq!(self.lone.side.connection.phase(), Phase::Closed);
        self.all_came_back();
        self.no_canary_died();
    }

    fn all_came_back(&mut self) {
        let completions = std::mem::take(&mut self.lone.side.completions);
        let mut ids: Vec<u64> = completions
            .iter()
            .filter(|completion| !completion.operation.is_receive())
            .map(|completion| completion.wr_id)
            .collect();
        assert!(ids.is_sorted(), "completions out of order: {ids:?}");
        ids.dedup();
        assert_eq!(ids.len(), REQUESTS, "a request came back twice or never");
        let received: Vec<u64> = completions
            .iter()
            .filter(|completion| completion.operation.is_receive())
            .map(|completion| completion.wr_id)
            .collect();
        let left = self.lone.side.receives.0.iter().map(|receive| receive.wr_id);
        let all: Vec<u64> = received.into_iter().chain(left).collect();
        assert_eq!(all, (0..RECEIVES).collect::<Vec<_>>(), "a receive is lost");
        let over = self.lone.side.events.iter().filter(|event| **event == Event::Over);
        assert_eq!(over.count(), 1, "{:?}", self.lone.side.events);
    }

    fn no_canary_died(&self) {
        let after = self.region.snapshot(0..self.before.len()).expect("inside");
        for (at, (before, after)) in self.before.iter().zip(&after).enumerate() {
            let open = self.open.iter().any(|range| range.contains(&at));
            assert!(open || before == after, "byte {at} was written");
        }
    }
}

/// Something of every kind is under way.
fn ask(side: &mut Side, region: &SharedRegion) {
    let there = Remote { stag: Stag(0x7777_7000), offset: 0 };
    side.send(1, SendOp::Read { from: there }, &[0; BUFFER]);
    side.send(2, SendOp::Send { invalidate: None }, b"hello");
    side.send(3, SendOp::FetchAdd { at: there, add: 1, mask: 0 }, &[0; 8]);
    side.send(4, SendOp::Read { from: there }, &[]);
    side.send(5, SendOp::Write { to: there }, &[1; 2000]);
    let at = SHARE * 11;
    for wr_id in 0..RECEIVES {
        if wr_id == 1 {
            let slice = region.slice(at..at + BUFFER).expect("inside");
            side.receive_into(wr_id, outboard_mem::Segment::Shared(slice).into());
        } else {
            side.receive(wr_id, BUFFER);
        }
    }
}
