//! One connection with everything that a driver owns: registered memory, posted receives,
//! completions, events, and the bytes that arrived but were not taken yet.
//!
//! It does what the engine does with a socket, and checks on the way what a connection promises
//! its driver.

use crate::trace::Names;
use outboard_iwarp::work::{Completion, Receives, RecvRequest, SendOp, SendRequest, Status};
use outboard_iwarp::{Connection, Env, Event, Params, Phase, PostError, TransmitLimits};
use outboard_mem::{Access, OwnedBuf, PdId, SgList, SharedRegion, Span, StagTable};
use outboard_wire::ddp::Stag;
use std::collections::VecDeque;
use std::time::Instant;

/// Spans per transmission: few, so that the limit is met.
const MAX_SPANS: usize = 5;
/// Domain of the connection.
pub const PD: PdId = PdId(7);
/// A protection domain of another peer.
pub const OTHER_PD: PdId = PdId(8);

/// A first-in first-out receive queue.
#[derive(Debug, Default)]
pub struct ReceiveQueue(pub VecDeque<RecvRequest>);

impl Receives for ReceiveQueue {
    fn pop(&mut self) -> Option<RecvRequest> {
        self.0.pop_front()
    }
}

/// Registered memory.
#[derive(Clone, Debug)]
pub struct Mr {
    /// Its steering tag.
    pub stag: Stag,
    /// Its bytes.
    pub region: SharedRegion,
}

impl Mr {
    /// All bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.region.snapshot(0..self.region.len()).expect("the whole region")
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Side {
    /// The connection.
    pub connection: Connection,
    /// Memory that the peer may reach.
    pub stags: StagTable,
    /// Posted receives.
    pub receives: ReceiveQueue,
    /// Completions not yet looked at.
    pub completions: Vec<Completion>,
    /// Events not yet looked at.
    pub events: Vec<Event>,
    /// Names of our STags.
    pub names: Names,
    /// Receive payloads where they belong, as the engine does without CRCs, when that memory is
    /// known here.
    pub direct: bool,
    regions: Vec<SharedRegion>,
    inbox: Vec<u8>,
    eof: bool,
}

impl Side {
    /// A side right after start-up; `params.pd` should be [`PD`].
    pub fn new(params: Params, now: Instant) -> Self {
        Self {
            connection: Connection::new(params, now),
            stags: StagTable::new(64),
            receives: ReceiveQueue::default(),
            completions: Vec::new(),
            events: Vec::new(),
            names: Names::new(),
            direct: true,
            regions: Vec::new(),
            inbox: Vec::new(),
            eof: false,
        }
    }

    /// Memory known to [`Side::direct`], for local lists.
    pub fn region(&mut self, len: usize) -> SharedRegion {
        let region = SharedRegion::zeroed(len).expect("memory");
        self.regions.push(region.clone());
        region
    }

    /// Registers `len` zero bytes at remote offset 0 in the connection's domain.
    pub fn register(&mut self, name: &str, len: usize, access: Access) -> Mr {
        self.register_in(PD, name, len, access)
    }

    /// Registers `len` zero bytes at remote offset 0.
    pub fn register_in(&mut self, pd: PdId, name: &str, len: usize, access: Access) -> Mr {
        let region = self.region(len);
        self.register_at(pd, name, region, 0, access)
    }

    /// Registers all of `region` at remote offset `base`.
    pub fn register_at(
        &mut self,
        pd: PdId,
        name: &str,
        region: SharedRegion,
        base: u64,
        access: Access,
    ) -> Mr {
        let stag = self.stags.register(pd, region.clone().into(), base, access).expect("room");
        self.names.insert(Stag(stag), name.to_owned());
        Mr { stag: Stag(stag), region }
    }

    /// Posts a receive of `len` exclusive bytes.
    pub fn receive(&mut self, wr_id: u64, len: usize) {
        self.receive_into(wr_id, OwnedBuf::zeroed(len).into());
    }

    /// Posts a receive.
    pub fn receive_into(&mut self, wr_id: u64, local: SgList) {
        self.receives.0.push_back(RecvRequest { wr_id, local });
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// The connection's.
    pub fn post(&mut self, request: SendRequest) -> Result<(), PostError> {
        self.connection.post(request).map_err(|(error, _)| error)
    }

    /// Posts a signaled request that sends `bytes` or, for Reads and atomics, gets as many.
    ///
    /// # Panics
    /// When the connection does not take it.
    pub fn send(&mut self, wr_id: u64, op: SendOp, bytes: &[u8]) {
        self.post(SendRequest::new(wr_id, op, SgList::copied(bytes))).expect("posted");
    }

    /// Moves the connection's output to the socket: at most `take` bytes.
    pub fn transmit(&mut self, now: Instant, take: usize) -> Vec<u8> {
        let mut env = Env {
            stags: &self.stags,
            receives: &mut self.receives,
            completions: &mut self.completions,
        };
        let mut out = Vec::new();
        let promised = self.connection.has_output();
        let offered = self.connection.poll_transmit_copy(now, take, &mut env, &mut out);
        assert!(promised || offered == 0, "has_output() denied {offered} bytes");
        let (mut spans, mut pins) = (Vec::new(), Vec::new());
        let listed = self.connection.poll_transmit(
            now,
            TransmitLimits { bytes: take, spans: MAX_SPANS },
            &mut env,
            &mut spans,
            &mut pins,
        );
        assert!(listed <= offered && (listed > 0) == (offered > 0), "{listed} of {offered}");
        assert!(spans.len() <= MAX_SPANS, "{} spans", spans.len());
        assert!(self.connection.phase() != Phase::Closed || offered == 0, "closed, yet talking");
        drop(pins);
        out.truncate(take);
        self.connection.handle_transmitted(out.len(), &mut self.completions);
        self.drain_events();
        out
    }

    /// Bytes arrive. True when the connection took any.
    pub fn deliver(&mut self, now: Instant, bytes: &[u8]) -> bool {
        self.inbox.extend_from_slice(bytes);
        let resumes = self.can_resume();
        if resumes && self.inbox.is_empty() {
            self.take(now);
        }
        let before = self.inbox.len();
        while !self.inbox.is_empty() {
            let used = self.take_direct().unwrap_or_else(|| self.take(now));
            self.inbox.drain(..used);
            if used == 0 {
                break;
            }
        }
        self.settle(now);
        resumes || self.inbox.len() < before
    }

    fn take(&mut self, now: Instant) -> usize {
        let mut env = Env {
            stags: &self.stags,
            receives: &mut self.receives,
            completions: &mut self.completions,
        };
        let used = self.connection.handle_bytes(now, &self.inbox, &mut env);
        assert!(used <= self.inbox.len(), "took more than there was");
        used
    }

    /// As the kernel would: the next payload goes straight where it belongs.
    fn take_direct(&mut self) -> Option<usize> {
        if !self.direct || self.connection.direct_len() == 0 {
            return None;
        }
        let mut spans = Vec::new();
        let direct = self.connection.direct(&self.stags, &mut spans)?;
        assert_eq!(direct.len, spans.iter().map(|span| span.len).sum::<usize>());
        let homes: Option<Vec<_>> = spans.iter().map(|span| home(&self.regions, span)).collect();
        drop(direct);
        let mut used = 0;
        for ((region, offset), span) in homes?.into_iter().zip(&spans) {
            let count = span.len.min(self.inbox.len() - used);
            region.copy_in(offset, &self.inbox[used..used + count]).expect("inside its region");
            used += count;
        }
        let mut env = Env {
            stags: &self.stags,
            receives: &mut self.receives,
            completions: &mut self.completions,
        };
        self.connection.handle_direct(used, &mut env);
        Some(used)
    }

    /// The peer's FIN arrives.
    pub fn deliver_eof(&mut self, now: Instant) {
        self.eof = true;
        self.connection.handle_eof();
        self.settle(now);
    }

    /// TCP breaks.
    pub fn lose(&mut self, now: Instant) {
        self.connection.handle_lost();
        self.settle(now);
    }

    /// The clock shows `now`.
    pub fn tick(&mut self, now: Instant) -> bool {
        let due = self.connection.poll_timeout().is_some_and(|at| at <= now);
        if due {
            self.connection.handle_timeout(now);
            self.settle(now);
        }
        due
    }

    /// True when a message waits for a receive that is there now.
    pub fn can_resume(&self) -> bool {
        self.connection.is_stalled() && !self.receives.0.is_empty()
    }

    /// Bytes that arrived and were not taken.
    pub fn untaken(&self) -> usize {
        self.inbox.len()
    }

    /// True when the peer's FIN was delivered.
    pub fn saw_eof(&self) -> bool {
        self.eof
    }

    /// The completions since the last call, as `wr_id Operation Status bytes`.
    pub fn completion_lines(&mut self) -> Vec<String> {
        self.completions.drain(..).map(|completion| completion_line(&completion)).collect()
    }

    /// What the next completions of status Success brought, oldest first.
    pub fn received(&mut self) -> Vec<Vec<u8>> {
        let done = self.completions.drain(..);
        done.filter(|completion| completion.status == Status::Success)
            .map(|completion| bytes_of(&completion))
            .collect()
    }

    fn settle(&mut self, now: Instant) {
        let mut env = Env {
            stags: &self.stags,
            receives: &mut self.receives,
            completions: &mut self.completions,
        };
        self.connection.settle(now, &mut env);
        self.drain_events();
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.events.push(event);
        }
    }
}

fn home(regions: &[SharedRegion], span: &Span) -> Option<(SharedRegion, usize)> {
    let at = span.ptr.addr();
    let region = regions.iter().find(|r| r.addr() <= at && at + span.len <= r.addr() + r.len())?;
    Some((region.clone(), at - region.addr()))
}

/// The bytes that a completion moved, from the list that it hands back.
pub fn bytes_of(completion: &Completion) -> Vec<u8> {
    let mut bytes = Vec::new();
    let list = &completion.local;
    list.gather(0, list.len(), &mut bytes).expect("the whole list");
    bytes.truncate(completion.bytes as usize);
    bytes
}

fn completion_line(completion: &Completion) -> String {
    let Completion { wr_id, operation, status, bytes, .. } = completion;
    let mut line = format!("{wr_id} {operation:?} {status:?} {bytes}");
    if let Some(immediate) = completion.immediate {
        line += &format!(" imm={immediate:#x}");
    }
    if completion.invalidated.is_some() {
        line += " inv";
    }
    if completion.solicited {
        line += " solicited";
    }
    line
}
