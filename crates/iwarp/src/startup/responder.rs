//! The side that answers an MPA Request frame (RFC 5044 §7.1.2 rules 2 and 4, RFC 6581 §9).

use super::{
    DEPTH_UNSPECIFIED, LocalParams, MAX_DEPTH, Negotiated, Role, Rtr, StartupError, StartupEvent,
    StartupState, check_private_data,
};
use outboard_wire::startup::{Enhanced, FrameKind, RtrModes, StartupFrame};

/// A responder between TCP's accept and its own Reply.
#[derive(Debug)]
pub struct Responder {
    state: StartupState,
    request: Option<StartupFrame>,
}

/// What the ULP may know of a Request before it decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MpaRequest {
    /// The initiator's private data.
    pub private_data: Vec<u8>,
    /// MPA revision of the Request.
    pub revision: u8,
    /// Reads that the initiator allows towards itself, where it says.
    pub ird: Option<u16>,
    /// Reads that the initiator wants towards us, where it says.
    pub ord: Option<u16>,
}

impl Default for Responder {
    fn default() -> Self {
        Self { state: StartupState::AwaitRequest, request: None }
    }
}

impl Responder {
    /// Where the start-up is.
    pub fn state(&self) -> StartupState {
        self.state
    }

    /// Reads the peer's bytes; `Ok(None)` while the Request is incomplete.
    ///
    /// # Errors
    /// The peer's, when its bytes are no Request, or when it sends more before the Reply.
    /// TCP must be closed then.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<Option<MpaRequest>, StartupError> {
        match read(bytes) {
            Ok(None) => Ok(None),
            Ok(Some(frame)) => {
                self.advance(StartupEvent::Request);
                let request = MpaRequest {
                    private_data: frame.private_data.clone(),
                    revision: frame.revision,
                    ird: frame.enhanced.map(|e| e.ird),
                    ord: frame.enhanced.map(|e| e.ord),
                };
                self.request = Some(frame);
                Ok(Some(request))
            }
            Err(error) => {
                self.advance(StartupEvent::Malformed);
                Err(error)
            }
        }
    }

    /// The Request did not come in time.
    pub fn handle_timeout(&mut self) {
        self.advance(StartupEvent::TimedOut);
    }

    /// The ULP accepts: the Reply frame's bytes and what was agreed. `None` before a Request.
    ///
    /// # Errors
    /// [`StartupError::CallerPrivateData`] when the private data is too long.
    pub fn accept(
        &mut self,
        params: &LocalParams,
    ) -> Result<Option<(Vec<u8>, Negotiated)>, StartupError> {
        let Some(request) = self.request.as_ref() else {
            return Ok(None);
        };
        check_private_data(&params.private_data, request.revision)?;
        let agreed = negotiate(request, params);
        let reply = reply_frame(request, params, &agreed);
        let mut bytes = Vec::new();
        reply.emit(&mut bytes)?;
        self.advance(StartupEvent::Accept);
        Ok(Some((bytes, agreed)))
    }

    /// The ULP rejects: the Reply frame's bytes. `None` before a Request.
    ///
    /// # Errors
    /// [`StartupError::CallerPrivateData`] when the private data is too long.
    pub fn reject(&mut self, private_data: &[u8]) -> Result<Option<Vec<u8>>, StartupError> {
        let Some(request) = self.request.as_ref() else {
            return Ok(None);
        };
        check_private_data(private_data, request.revision)?;
        let reply = StartupFrame {
            kind: FrameKind::Reply,
            markers: false,
            crc: request.crc,
            reject: true,
            revision: request.revision,
            enhanced: request.enhanced.map(|_| Enhanced::default()),
            private_data: private_data.to_vec(),
        };
        let mut bytes = Vec::new();
        reply.emit(&mut bytes)?;
        self.advance(StartupEvent::Reject);
        Ok(Some(bytes))
    }

    fn advance(&mut self, event: StartupEvent) {
        self.state = self.state.after(event).unwrap_or(self.state);
    }
}

fn read(bytes: &[u8]) -> Result<Option<StartupFrame>, StartupError> {
    let Some((frame, used)) = StartupFrame::parse(bytes)? else {
        return Ok(None);
    };
    if frame.kind != FrameKind::Request {
        return Err(StartupError::PeerSameRole {
            expected: "Request",
            found: "Reply",
            acted: "listen",
        });
    }
    if !matches!(frame.revision, 1 | 2) {
        return Err(StartupError::PeerRevision { expected: "1 or 2", found: frame.revision });
    }
    // RFC 5044 §7.1.2: the initiator must see our Reply before it may send FPDUs.
    if used < bytes.len() {
        return Err(StartupError::PeerEarly { count: bytes.len() - used });
    }
    Ok(Some(frame))
}

fn negotiate(request: &StartupFrame, params: &LocalParams) -> Negotiated {
    let mut agreed = Negotiated {
        revision: request.revision,
        crc: params.crc || request.crc,
        tx_markers: request.markers,
        rx_markers: params.markers,
        ird: params.ird.min(MAX_DEPTH),
        ord: params.ord.min(MAX_DEPTH),
        private_data: request.private_data.clone(),
        ..Negotiated::bare(Role::Responder)
    };
    if let Some(enhanced) = request.enhanced {
        settle_depths(&mut agreed, &enhanced);
        settle_rtr(&mut agreed, &enhanced);
    }
    agreed
}

/// RFC 6581 §9.1: our ORD at most the initiator's IRD; our IRD as asked, as far as we can.
fn settle_depths(agreed: &mut Negotiated, request: &Enhanced) {
    agreed.peer_ird = Some(request.ird);
    agreed.peer_ord = Some(request.ord);
    if request.ird != DEPTH_UNSPECIFIED {
        agreed.ord = agreed.ord.min(request.ird);
    }
    // An RTR by Read needs room for one, even where the ULP reads nothing.
    if request.peer_to_peer && agreed.ird == 0 {
        agreed.ird = 1;
    }
}

/// RFC 6581 §9.2: we take whatever kind the initiator offers.
fn settle_rtr(agreed: &mut Negotiated, request: &Enhanced) {
    if !request.peer_to_peer {
        return;
    }
    let any = request.rtr.send || request.rtr.write || request.rtr.read;
    agreed.rtr_offered =
        if any { request.rtr } else { RtrModes { send: false, write: true, read: false } };
    agreed.rtr = Some(if agreed.rtr_offered.write {
        Rtr::Write
    } else if agreed.rtr_offered.read {
        Rtr::Read
    } else {
        Rtr::Send
    });
}

fn reply_frame(request: &StartupFrame, params: &LocalParams, agreed: &Negotiated) -> StartupFrame {
    let enhanced = request.enhanced.map(|asked| Enhanced {
        ird: echo_unspecified(asked.ord, agreed.ird),
        ord: echo_unspecified(asked.ird, agreed.ord),
        peer_to_peer: asked.peer_to_peer,
        rtr: agreed.rtr_offered,
    });
    StartupFrame {
        kind: FrameKind::Reply,
        markers: params.markers,
        crc: agreed.crc,
        reject: false,
        revision: request.revision,
        enhanced,
        private_data: params.private_data.clone(),
    }
}

/// RFC 6581 §9.1: a value of all ones is answered by all ones and changes nothing.
fn echo_unspecified(asked: u16, ours: u16) -> u16 {
    if asked == DEPTH_UNSPECIFIED { DEPTH_UNSPECIFIED } else { ours }
}
