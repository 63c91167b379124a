//! One peer of a hub: its queue pair, its protection domain, and what waits until the send queue
//! has room.

use super::{HubError, MESSAGE_MAX};
use outboard_verbs::{
    Access, CmChannel, ConnectError, ConnectParams, Connected, Context, Cq, EndReason, Mr,
    OwnedBuf, Pd, Qp, QpConfig, RecvRequest, Remote, SendOp, SendRequest, SgList, SharedSlice,
    Stag, Status,
};
use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};

/// How much a hub has under way with each peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HubOptions {
    /// Bytes of a control message, at most. As many are held for each receive.
    pub message_max: usize,
    /// Messages of a peer that are received before this side handles them; more wait in the socket.
    pub receives: usize,
    /// Requests under way towards a peer; more wait here.
    pub sends: usize,
    /// Reads and atomics under way, each way.
    pub reads: u16,
    /// Bytes that may wait here: a caller that exceeds them does not wait for answers.
    pub waiting_max: usize,
}

impl Default for HubOptions {
    fn default() -> Self {
        Self {
            message_max: MESSAGE_MAX,
            receives: 16,
            sends: 256,
            reads: 64,
            waiting_max: 256 << 20,
        }
    }
}

/// What a queued request counts in addition to its bytes.
const REQUEST_LEN: usize = 256;
/// A request with more bytes than this is signaled, so that its memory is released as soon as it is
/// done.
const LARGE: usize = 64 * 1024;

/// Why a peer is gone that has left in order.
pub(super) const CLOSED: &str = "the peer has closed the connection";

/// What the caller wants to know when a request is done.
#[derive(Clone, Debug)]
pub(super) enum Purpose<T> {
    /// Nothing.
    Quiet,
    Write(T),
    Read(T),
    Atomic(T),
}

/// A peer of a hub, from its admission to the event that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(super) u32);

impl PeerId {
    /// A number that no other peer of its hub ever has.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// The peer that has, or had, or will have a number.
    #[must_use]
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// Something for each of many peers. Their numbers are this side's own: no peer can choose ones
/// that are hard to tell apart.
pub type PeerMap<V> = HashMap<PeerId, V, FxBuildHasher>;

/// Memory that a peer may access, as described to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposed {
    stag: u32,
    base: u64,
    len: u64,
}

impl Exposed {
    /// What a registration of this side's exposes to the peers of its protection domain.
    #[must_use]
    pub fn of(mr: &Mr) -> Self {
        Self { stag: mr.stag().0, base: mr.base(), len: mr.len() as u64 }
    }

    /// The `len` bytes at `at` of it, if they are inside.
    #[must_use]
    pub fn part(&self, at: u64, len: u64) -> Option<Self> {
        let Remote { stag, offset } = self.range(at, len)?;
        Some(Self { stag: stag.0, base: offset, len })
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where `len` bytes at `at` are, if they are inside.
    #[must_use]
    pub fn range(&self, at: u64, len: u64) -> Option<Remote> {
        let end = at.checked_add(len)?;
        let offset = self.base.checked_add(at)?;
        (end <= self.len).then_some(Remote { stag: Stag(self.stag), offset })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct HubPeer<T> {
    qp: Qp,
    exposed: Vec<Mr>,
    pd: Pd,
    options: HubOptions,
    next: u64,
    /// By number, the oldest first. Unsignaled requests are done when a later signaled one is.
    under_way: VecDeque<(u64, Purpose<T>)>,
    /// Unsignaled requests since the last signaled one.
    quiet: usize,
    waiting: VecDeque<(SendRequest, Purpose<T>)>,
    waiting_len: usize,
}

/// A connection that is to be set up, by any thread, and then given to [`super::Hub::enroll`].
#[derive(Debug)]
pub struct Admission {
    ends: Ends,
    connections: CmChannel,
    options: HubOptions,
}

/// A connection that is up.
#[derive(Debug)]
pub struct Admitted(Ends);

/// The verbs objects of a connection.
#[derive(Debug)]
struct Ends {
    qp: Qp,
    pd: Pd,
}

impl Admission {
    pub(super) fn new(
        context: &Context,
        cq: &Cq,
        connections: &CmChannel,
        options: HubOptions,
    ) -> Result<Self, HubError> {
        let pd = context.alloc_pd();
        let depths = QpConfig {
            send_depth: options.sends,
            recv_depth: options.receives,
            ..QpConfig::new(cq)
        };
        let ends = Ends { qp: pd.create_qp(depths)?, pd };
        Ok(Self { ends, connections: connections.clone(), options })
    }

    /// Sets the connection up: `connect` is given an idle queue pair, what to propose, and the
    /// channel for its events.
    ///
    /// # Errors
    /// What `connect` says.
    pub fn connect(
        self,
        connect: impl FnOnce(&Qp, &ConnectParams, &CmChannel) -> Result<Connected, ConnectError>,
    ) -> Result<Admitted, ConnectError> {
        let reads = self.options.reads;
        let params = ConnectParams { ird: reads, ord: reads, ..ConnectParams::default() };
        connect(&self.ends.qp, &params, &self.connections)?;
        Ok(Admitted(self.ends))
    }
}

impl Admitted {
    /// Receives are posted only now: earlier messages wait in the socket.
    pub(super) fn into_peer<T>(self, options: HubOptions) -> Result<HubPeer<T>, HubError> {
        let Ends { qp, pd } = self.0;
        let peer = HubPeer {
            qp,
            exposed: Vec::new(),
            pd,
            options,
            next: 0,
            under_way: VecDeque::new(),
            quiet: 0,
            waiting: VecDeque::new(),
            waiting_len: 0,
        };
        for _ in 0..options.receives {
            peer.receive(OwnedBuf::zeroed(options.message_max))?;
        }
        Ok(peer)
    }
}

impl<T> HubPeer<T> {
    pub(super) fn number(&self) -> u32 {
        self.qp.number()
    }

    /// Requests that wait for room, and what is counted for them.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.waiting.len(), self.waiting_len)
    }

    pub(super) fn expose(
        &mut self,
        memory: SharedSlice,
        access: Access,
    ) -> Result<Exposed, HubError> {
        let mr = self.pd.register_slice(memory, 0, access)?;
        let exposed = Exposed::of(&mr);
        self.exposed.push(mr);
        Ok(exposed)
    }

    pub(super) fn withdraw(&mut self, exposed: Exposed) {
        self.exposed.retain(|mr| mr.stag().0 != exposed.stag);
    }

    pub(super) fn receive(&self, buffer: OwnedBuf) -> Result<(), HubError> {
        Ok(self.qp.post_recv(RecvRequest { wr_id: 0, local: buffer.into() })?)
    }

    /// Posts a request, in order, when there is room.
    pub(super) fn post(
        &mut self,
        op: SendOp,
        local: SgList,
        purpose: Purpose<T>,
    ) -> Result<(), HubError> {
        match self.admit(op, local, purpose)? {
            Some(request) => Ok(self.qp.post_send(request)?),
            None => Ok(()),
        }
    }

    /// Posts messages, in order, as far as there is room: they leave together.
    pub(super) fn post_messages(
        &mut self,
        messages: impl Iterator<Item = SgList>,
    ) -> Result<(), HubError> {
        let mut requests = Vec::new();
        let mut admitted = Ok(());
        for local in messages {
            match self.admit(SendOp::Send { invalidate: None }, local, Purpose::Quiet) {
                Ok(request) => requests.extend(request),
                Err(error) => {
                    admitted = Err(error);
                    break;
                }
            }
        }
        self.qp.post_send_batch(&mut requests)?;
        admitted
    }

    /// The request to be posted now; `None` if it waits until there is room.
    fn admit(
        &mut self,
        op: SendOp,
        local: SgList,
        purpose: Purpose<T>,
    ) -> Result<Option<SendRequest>, HubError> {
        let len = local.len();
        let request = SendRequest::new(self.next, op, local);
        self.next += 1;
        if self.under_way.len() < self.options.sends && self.waiting.is_empty() {
            return Ok(Some(self.begin(request, purpose)));
        }
        let limit = self.options.waiting_max;
        let waiting_len = self.waiting_len.saturating_add(len).saturating_add(REQUEST_LEN);
        if waiting_len > limit {
            return Err(HubError::TooMuch { limit });
        }
        self.waiting_len = waiting_len;
        self.waiting.push_back((request, purpose));
        Ok(None)
    }

    /// Counts a request as under way. A quiet one is not signaled, except every few of them, so
    /// that their places are freed.
    fn begin(&mut self, mut request: SendRequest, purpose: Purpose<T>) -> SendRequest {
        let is_quiet = matches!(purpose, Purpose::Quiet) && request.local.len() <= LARGE;
        request.signaled = !is_quiet || self.quiet + 1 >= self.options.sends.div_ceil(4);
        self.quiet = if request.signaled { 0 } else { self.quiet + 1 };
        self.under_way.push_back((request.wr_id, purpose));
        request
    }

    /// A request is done, and with it the quiet requests before it: the next may be posted.
    pub(super) fn completed(&mut self, number: u64) -> Result<Option<Purpose<T>>, HubError> {
        let at = self.under_way.iter().position(|(known, _)| *known == number);
        let mut purpose = None;
        if let Some(at) = at {
            purpose = self.under_way.remove(at).map(|(_, purpose)| purpose);
            let is_open =
                |index: usize, of: &Purpose<T>| index >= at || !matches!(of, Purpose::Quiet);
            let mut index = 0;
            self.under_way.retain(|(_, of)| {
                index += 1;
                is_open(index - 1, of)
            });
        }
        while self.under_way.len() < self.options.sends {
            let Some((request, purpose)) = self.waiting.pop_front() else { break };
            self.waiting_len -= request.local.len() + REQUEST_LEN;
            let request = self.begin(request, purpose);
            self.qp.post_send(request)?;
        }
        Ok(purpose)
    }

    /// Why a request has failed, for people.
    pub(super) fn why(&self, status: Status) -> String {
        match self.qp.end_reason() {
            Some(EndReason::Left) => CLOSED.to_owned(),
            Some(reason) => reason.to_string(),
            None => format!("a request has failed ({status})"),
        }
    }
}
