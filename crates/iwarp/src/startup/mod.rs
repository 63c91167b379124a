//! MPA start-up: the exchange of one Request and one Reply frame (RFC 5044 §7.1, RFC 6581).
//! Plain values: frames in, frames out; sockets, clocks and time-outs belong to the engine.
//!
//! ```text
//!  initiator                              responder
//!  AwaitReply ──Reply──▶ Full             AwaitRequest ──Request──▶ AwaitUlp ──Accept──▶ Full
//!      │ └──────Refusal─▶ Rejected              │                      └──Reject─▶ Rejected
//!      └──Malformed, TimedOut─▶ Failed          └──Malformed, TimedOut─▶ Failed
//! ```
//!
//! What the two sides agreed on is a [`Negotiated`]; a [`crate::Connection`] starts from it.

mod initiator;
mod responder;
#[cfg(test)]
mod tests;

pub use initiator::{Initiator, ReplyOutcome};
pub use responder::{MpaRequest, Responder};

use outboard_wire::startup::RtrModes;
use outboard_wire::terminate::TerminateCode;

/// IRD or ORD value that says "not negotiated here" (RFC 6581 §9.1).
pub const DEPTH_UNSPECIFIED: u16 = 0x3FFF;
/// Most Reads and atomics that may be under way in one direction of a connection.
pub const MAX_DEPTH: u16 = 1024;

/// Where a start-up is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupState {
    /// Initiator: the Request is out.
    AwaitReply,
    /// Responder: nothing complete has arrived.
    AwaitRequest,
    /// Responder: the ULP looks at the private data.
    AwaitUlp,
    /// Agreed: FPDUs follow.
    Full,
    /// One ULP refused.
    Rejected,
    /// The exchange broke a rule or took too long.
    Failed,
}

/// What moves a start-up on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupEvent {
    /// A well-formed Request frame arrived.
    Request,
    /// A well-formed accepting Reply frame arrived.
    Reply,
    /// A well-formed Reply frame with the R bit arrived.
    Refusal,
    /// The local ULP accepts.
    Accept,
    /// The local ULP rejects.
    Reject,
    /// Bytes arrived that no legal frame starts with.
    Malformed,
    /// The peer was too slow.
    TimedOut,
}

use StartupEvent as E;
use StartupState as S;

/// Every legal transition; anything else is a fault of the caller.
pub const TRANSITIONS: &[(StartupState, StartupEvent, StartupState)] = &[
    (S::AwaitReply, E::Reply, S::Full),
    (S::AwaitReply, E::Refusal, S::Rejected),
    (S::AwaitReply, E::Malformed, S::Failed),
    (S::AwaitReply, E::TimedOut, S::Failed),
    (S::AwaitRequest, E::Request, S::AwaitUlp),
    (S::AwaitRequest, E::Malformed, S::Failed),
    (S::AwaitRequest, E::TimedOut, S::Failed),
    (S::AwaitUlp, E::Accept, S::Full),
    (S::AwaitUlp, E::Reject, S::Rejected),
    (S::AwaitUlp, E::TimedOut, S::Failed),
];

impl StartupState {
    /// The state after `event`; `None` where the table has no such row.
    pub fn after(self, event: StartupEvent) -> Option<Self> {
        TRANSITIONS.iter().find(|(from, on, _)| *from == self && *on == event).map(|row| row.2)
    }
}

/// What one side brings to the start-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalParams {
    /// MPA revision that an initiator speaks: 2 (RFC 6581) or 1 (RFC 5044).
    pub revision: u8,
    /// Ask the peer to put markers into what it sends us.
    pub markers: bool,
    /// Ask for CRCs; they are on when either side asks.
    pub crc: bool,
    /// Reads and atomics that the peer may have under way towards us. An initiator raises it to
    /// what the responder says it will use, up to [`MAX_DEPTH`] (RFC 6581 §9.1).
    pub ird: u16,
    /// Reads and atomics that we want under way towards the peer.
    pub ord: u16,
    /// Initiator of revision 2: promise a first message, so that the responder may speak first.
    pub peer_to_peer: bool,
    /// For the peer's ULP: at most 512 bytes, 508 with revision 2.
    pub private_data: Vec<u8>,
}

impl Default for LocalParams {
    fn default() -> Self {
        Self {
            revision: 2,
            markers: false,
            crc: true,
            ird: 128,
            ord: 128,
            peer_to_peer: true,
            private_data: Vec::new(),
        }
    }
}

/// The kind of zero-length message that opens a peer-to-peer connection (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length Write.
    Write,
    /// A zero-length Read.
    Read,
}

/// What both sides agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Which side we are.
    pub role: Role,
    /// MPA revision in use.
    pub revision: u8,
    /// FPDUs carry a CRC that must be right, both ways.
    pub crc: bool,
    /// We put markers into what we send.
    pub tx_markers: bool,
    /// The peer puts markers into what it sends.
    pub rx_markers: bool,
    /// Reads and atomics that the peer may have under way towards us.
    pub ird: u16,
    /// Reads and atomics that we may have under way towards the peer.
    pub ord: u16,
    /// The peer's own IRD, as it said it (RFC 6581 §9.1: for the ULP).
    pub peer_ird: Option<u16>,
    /// The peer's own ORD, as it said it.
    pub peer_ord: Option<u16>,
    /// Initiator: the RTR to send first. Responder: a message of the initiator's will come first.
    pub rtr: Option<Rtr>,
    /// The responder offered these kinds to choose the RTR from; it accepts each of them.
    pub rtr_offered: RtrModes,
    /// The initiator cannot live with the Reply: the Terminate to send instead of data.
    pub refuse: Option<TerminateCode>,
    /// The peer's ULP's private data.
    pub private_data: Vec<u8>,
}

impl Negotiated {
    /// What is agreed on where neither side asks for anything: revision 2, and all else off.
    #[must_use]
    pub fn bare(role: Role) -> Self {
        Self {
            role,
            revision: 2,
            crc: false,
            tx_markers: false,
            rx_markers: false,
            ird: 0,
            ord: 0,
            peer_ird: None,
            peer_ord: None,
            rtr: None,
            rtr_offered: RtrModes::default(),
            refuse: None,
            private_data: Vec::new(),
        }
    }
}

/// Which side of the start-up we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sent the Request.
    Initiator,
    /// Sent the Reply.
    Responder,
}

/// Why a start-up failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// Bytes that are no start-up frame.
    #[error("the peer's bytes are no MPA start-up frame: {0}")]
    PeerMalformed(#[from] outboard_wire::startup::StartupFrameError),
    /// Both ends act as the same side (RFC 5044 §7.1.2 rule 8).
    #[error("the peer sent a {found} frame where a {expected} frame was due: both ends {acted}")]
    PeerSameRole {
        /// The frame that was due.
        expected: &'static str,
        /// The frame that came.
        found: &'static str,
        /// What both ends did.
        acted: &'static str,
    },
    /// A revision that we do not speak, or not the one that we asked for.
    #[error("the peer speaks MPA revision {found}; expected {expected}")]
    PeerRevision {
        /// What would have been right.
        expected: &'static str,
        /// What came.
        found: u8,
    },
    /// The peer spoke before its turn.
    #[error("the peer sent {count} bytes before the start-up was over")]
    PeerEarly {
        /// Bytes that should not be there.
        count: usize,
    },
    /// The caller's private data does not fit.
    #[error("private data is {found} bytes; at most {limit} fit a revision {revision} frame")]
    CallerPrivateData {
        /// Length given.
        found: usize,
        /// Length possible.
        limit: usize,
        /// Revision of the frame.
        revision: u8,
    },
}

/// Checks the caller's private data before anything is sent.
fn check_private_data(data: &[u8], revision: u8) -> Result<(), StartupError> {
    let limit = private_data_limit(revision);
    if data.len() > limit {
        return Err(StartupError::CallerPrivateData { found: data.len(), limit, revision });
    }
    Ok(())
}

/// Bytes of private data that the ULP may put into a frame of this revision.
pub fn private_data_limit(revision: u8) -> usize {
    let enhanced = if revision >= 2 { 4 } else { 0 };
    outboard_wire::startup::MAX_PRIVATE_DATA - enhanced
}
