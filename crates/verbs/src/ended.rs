//! Why a connection did not end in order, for programs that must distinguish the reasons.

use outboard_wire::rdmap::Opcode;
use outboard_wire::terminate::{Terminate, TerminateCode};

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
