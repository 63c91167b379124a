//! The side that sends the MPA Request frame (RFC 5044 §7.1.2 rules 1 and 3, RFC 6581 §9).

use super::{
    DEPTH_UNSPECIFIED, LocalParams, Negotiated, Role, Rtr, StartupError, StartupEvent,
    StartupState, check_private_data,
};
use outboard_wire::startup::{Enhanced, FrameKind, RtrModes, StartupFrame};
use outboard_wire::terminate::TerminateCode;

/// An initiator between its Request and the peer's Reply.
#[derive(Debug)]
pub struct Initiator {
    params: LocalParams,
    state: StartupState,
}

/// What a Reply frame says.
#[derive(Debug)]
pub enum ReplyOutcome {
    /// Full operation begins.
    Accepted(Negotiated),
    /// The peer's ULP refused; its private data may say why.
    Rejected(Vec<u8>),
}

impl Initiator {
    /// Starts: returns the initiator and the Request frame's bytes.
    ///
    /// # Errors
    /// [`StartupError::CallerPrivateData`] when the private data is too long.
    pub fn new(params: LocalParams) -> Result<(Self, Vec<u8>), StartupError> {
        check_private_data(&params.private_data, params.revision)?;
        let mut bytes = Vec::new();
        request_frame(&params).emit(&mut bytes)?;
        Ok((Self { params, state: StartupState::AwaitReply }, bytes))
    }

    /// Where the start-up is.
    pub fn state(&self) -> StartupState {
        self.state
    }

    /// Reads the peer's bytes; `Ok(None)` while the Reply is incomplete, else the outcome and
    /// how many bytes the Reply took. What follows it belongs to the connection.
    ///
    /// # Errors
    /// The peer's, when its bytes are no Reply that fits our Request. TCP must be closed then.
    pub fn handle_bytes(
        &mut self,
        bytes: &[u8],
    ) -> Result<Option<(ReplyOutcome, usize)>, StartupError> {
        let parsed = StartupFrame::parse(bytes).map_err(StartupError::from);
        match parsed.and_then(|frame| frame.map(|(f, n)| Ok((self.read(f)?, n))).transpose()) {
            Ok(None) => Ok(None),
            Ok(Some((outcome, used))) => {
                self.advance(match outcome {
                    ReplyOutcome::Accepted(_) => StartupEvent::Reply,
                    ReplyOutcome::Rejected(_) => StartupEvent::Refusal,
                });
                Ok(Some((outcome, used)))
            }
            Err(error) => {
                self.advance(StartupEvent::Malformed);
                Err(error)
            }
        }
    }

    /// The Reply did not come in time.
    pub fn handle_timeout(&mut self) {
        self.advance(StartupEvent::TimedOut);
    }

    fn advance(&mut self, event: StartupEvent) {
        self.state = self.state.after(event).unwrap_or(self.state);
    }

    fn read(&self, frame: StartupFrame) -> Result<ReplyOutcome, StartupError> {
        if frame.kind != FrameKind::Reply {
            return Err(StartupError::PeerSameRole {
                expected: "Reply",
                found: "Request",
                acted: "connect",
            });
        }
        self.check_revision(&frame)?;
        if frame.reject {
            return Ok(ReplyOutcome::Rejected(frame.private_data));
        }
        Ok(ReplyOutcome::Accepted(self.negotiate(frame)))
    }

    /// RFC 6581 §10: an enhanced Request gets an enhanced Reply, a plain one a plain one.
    fn check_revision(&self, frame: &StartupFrame) -> Result<(), StartupError> {
        let enhanced = self.params.revision >= 2;
        if frame.revision == self.params.revision && frame.enhanced.is_some() == enhanced {
            return Ok(());
        }
        let expected =
            if enhanced { "2 with enhanced connection data" } else { "1, as in our Request" };
        Err(StartupError::PeerRevision { expected, found: frame.revision })
    }

    fn negotiate(&self, frame: StartupFrame) -> Negotiated {
        let params = &self.params;
        let mut agreed = Negotiated {
            revision: frame.revision,
            crc: params.crc || frame.crc,
            tx_markers: frame.markers,
            rx_markers: params.markers,
            ird: params.ird,
            ord: params.ord,
            private_data: frame.private_data,
            ..Negotiated::bare(Role::Initiator)
        };
        if let Some(enhanced) = frame.enhanced {
            settle_depths(&mut agreed, &enhanced);
            if params.peer_to_peer {
                settle_rtr(&mut agreed, &enhanced);
            }
        }
        agreed
    }
}

/// RFC 6581 §9.1: our ORD at most the responder's IRD, our IRD at least the responder's ORD.
fn settle_depths(agreed: &mut Negotiated, reply: &Enhanced) {
    agreed.peer_ird = Some(reply.ird);
    agreed.peer_ord = Some(reply.ord);
    if reply.ird != DEPTH_UNSPECIFIED {
        agreed.ord = agreed.ord.min(reply.ird);
    }
    if reply.ord != DEPTH_UNSPECIFIED && reply.ord > agreed.ird {
        if reply.ord > super::MAX_DEPTH {
            agreed.refuse = Some(TerminateCode::MPA_INSUFFICIENT_IRD);
        } else {
            agreed.ird = reply.ord;
        }
    }
}

/// RFC 6581 §9.2: one of the responder's RTR kinds, the cheapest first.
fn settle_rtr(agreed: &mut Negotiated, reply: &Enhanced) {
    agreed.rtr_offered = reply.rtr;
    agreed.rtr = if !reply.peer_to_peer {
        None
    } else if reply.rtr.write {
        Some(Rtr::Write)
    } else if reply.rtr.read {
        Some(Rtr::Read)
    } else if reply.rtr.send {
        Some(Rtr::Send)
    } else {
        agreed.refuse = Some(TerminateCode::MPA_NO_MATCHING_RTR);
        None
    };
}

fn request_frame(params: &LocalParams) -> StartupFrame {
    let rtr = RtrModes {
        send: params.peer_to_peer,
        write: params.peer_to_peer,
        read: params.peer_to_peer,
    };
    let enhanced = Enhanced {
        ird: params.ird.min(DEPTH_UNSPECIFIED),
        ord: params.ord.min(DEPTH_UNSPECIFIED),
        peer_to_peer: params.peer_to_peer,
        rtr,
    };
    StartupFrame {
        kind: FrameKind::Request,
        markers: params.markers,
        crc: params.crc,
        reject: false,
        revision: params.revision,
        enhanced: (params.revision >= 2).then_some(enhanced),
        private_data: params.private_data.clone(),
    }
}
