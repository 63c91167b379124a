//! Why a connection did not end in order, for programs that must distinguish the reasons.

use outboard_secure::SessionError;
use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::{Terminate, TerminateCode};
use std::fmt;

/// How a Terminate ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// True when the peer sent the Terminate; otherwise we did.
    pub by_peer: bool,
    /// Its code.
    pub code: TerminateCode,
    /// The Terminate is about a Read or an atomic, so all requests before that one were in order.
    pub quotes_request: bool,
}

impl Ended {
    pub(crate) fn by_us(code: TerminateCode) -> Self {
        Self { by_peer: false, code, quotes_request: false }
    }

    pub(crate) fn by_peer(terminate: &Terminate) -> Self {
        let quoted = terminate.ddp.and_then(|quoted| quoted.header());
        let opcode = quoted.map(|header| header.opcode());
        let quotes_request = matches!(opcode, Some(Opcode::ReadRequest | Opcode::AtomicRequest));
        Self { by_peer: true, code: terminate.code, quotes_request }
    }
}

/// Why a connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// One side left in order.
    Left,
    /// A Terminate ended it.
    Terminated(Ended),
    /// The session under it failed: what came does not decrypt, or the stream was cut off.
    SessionFailed(SessionError),
    /// TCP lost it.
    Lost,
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => write!(f, "one side left in order"),
            Self::Terminated(Ended { by_peer: true, code, .. }) => {
                write!(f, "the peer ended the connection: {code}")
            }
            Self::Terminated(Ended { code, .. }) => write!(f, "the peer broke the rules: {code}"),
            Self::SessionFailed(error @ SessionError::Truncated { .. }) => write!(f, "{error}"),
            Self::SessionFailed(error) => write!(f, "decryption failed: {error}"),
            Self::Lost => write!(f, "the connection was lost"),
        }
    }
}
