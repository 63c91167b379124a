//! One peer of a hub: its queue pair, its protection domain, and what waits until the send queue
//! has room.

use super::{HubError, MESSAGE_MAX};
use outboard_verbs::{
    Access, CmChannel, ConnectError, ConnectParams, Connected, Context, Cq, Mr, OwnedBuf, Pd, Qp,
    QpConfig, RecvRequest, Remote, SendRequest, SharedSlice, Stag, Status,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Messages that a peer may send before we have looked at them; more wait in its socket.
const RECEIVES: usize = 16;
/// Requests under way towards a peer; more wait here.
const SENDS: usize = 256;
/// Requests that may wait here: a caller that does not wait for answers is at fault.
const WAITING_MAX: usize = 65_536;
/// Reads under way each way.
const READS: u16 = 64;

/// A peer of a hub, from its admission to the event that it is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub(super) u32);

/// Memory that a peer may reach, as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exposed {
    stag: u32,
    base: u64,
    len: u64,
}

impl Exposed {
    /// Octets.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for no octets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where `len` octets at `at` are, if they are inside.
    #[must_use]
    pub fn range(&self, at: u64, len: u64) -> Option<Remote> {
        let end = at.checked_add(len)?;
        let offset = self.base.checked_add(at)?;
        (end <= self.len).then_some(Remote { stag: Stag(self.stag), offset })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Peer {
    qp: Qp,
    exposed: Vec<Mr>,
    pd: Pd,
    under_way: usize,
    waiting: VecDeque<SendRequest>,
}

/// What this side brings to every connection.
fn params() -> ConnectParams {
    ConnectParams { ird: READS, ord: READS, ..ConnectParams::default() }
}

/// A connection to be, for [`super::Hub::enroll`]. Any thread may set it up.
#[derive(Debug)]
pub struct Admission {
    peer: Peer,
    connections: CmChannel,
}

/// A connection that is up.
#[derive(Debug)]
pub struct Admitted(Peer);

impl Admission {
    pub(super) fn new(
        context: &Context,
        cq: &Cq,
        connections: &CmChannel,
    ) -> Result<Self, HubError> {
        Ok(Self { peer: Peer::new(context, cq)?, connections: connections.clone() })
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
        connect(&self.peer.qp, &params(), &self.connections)?;
        Ok(Admitted(self.peer))
    }
}

impl Admitted {
    /// Only now receives are posted: earlier messages wait in the socket.
    pub(super) fn into_peer(self) -> Result<Peer, HubError> {
        for _ in 0..RECEIVES {
            self.0.receive(OwnedBuf::zeroed(MESSAGE_MAX))?;
        }
        Ok(self.0)
    }
}

impl Peer {
    fn new(context: &Context, cq: &Cq) -> Result<Self, HubError> {
        let pd = context.alloc_pd();
        let depths = QpConfig { send_depth: SENDS, recv_depth: RECEIVES, ..QpConfig::new(cq) };
        let qp = pd.create_qp(depths)?;
        Ok(Self { qp, exposed: Vec::new(), pd, under_way: 0, waiting: VecDeque::new() })
    }

    pub(super) fn number(&self) -> u32 {
        self.qp.number()
    }

    pub(super) fn expose(
        &mut self,
        memory: SharedSlice,
        access: Access,
    ) -> Result<Exposed, HubError> {
        let mr = self.pd.register_slice(memory, 0, access)?;
        let exposed = Exposed { stag: mr.stag().0, base: mr.base(), len: mr.len() as u64 };
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
    pub(super) fn post(&mut self, request: SendRequest) -> Result<(), HubError> {
        if self.under_way < SENDS && self.waiting.is_empty() {
            self.qp.post_send(request)?;
            self.under_way += 1;
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(request);
        } else {
            return Err(HubError::TooMany { limit: WAITING_MAX });
        }
        Ok(())
    }

    /// A request is done: the next may go.
    pub(super) fn completed(&mut self) -> Result<(), HubError> {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(request) = self.waiting.pop_front() {
            self.qp.post_send(request)?;
            self.under_way += 1;
        }
        Ok(())
    }

    /// Why a request has failed, for people.
    pub(super) fn why(&self, status: Status) -> String {
        match self.qp.ended() {
            Some(ended) if ended.by_peer => {
                format!("the peer ended the connection: {}", ended.code)
            }
            Some(ended) => format!("the peer broke the rules: {}", ended.code),
            None => format!("the connection was lost ({status})"),
        }
    }
}
