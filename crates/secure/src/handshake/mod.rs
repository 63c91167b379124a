//! Four messages that prove to each end the other's identity and that it holds the service key.
//!
//! ```text
//! initiator                                    responder
//!           -- hello    e                 -->             service, fabric (the prologue)
//!           <- answer   e, ee, s, es      ---             mode
//!           -- proof    s, se, psk        -->
//!           <- confirm                    ---             the first message of the session's keys
//!
//! state          receives  and then
//! AwaitHello     hello     sends answer, AwaitProof
//! AwaitAnswer    answer    sends proof, AwaitConfirm
//! AwaitProof     proof     sends confirm, Done
//! AwaitConfirm   confirm   Done
//! any            a fault   sends nothing more, Failed
//! ```
//!
//! XXpsk3 alone leaves the initiator without proof until the responder's first record; confirm is
//! that proof, so that no end advertises memory to a peer that has proven no key. A responder that
//! does not offer the service goes on with a random key instead, so that its peer cannot
//! distinguish this from a wrong key or a revoked identity: all three end at the same message,
//! without a reason.
//!
//! A plain value: no socket, no clock. How long a handshake may take is the caller's to decide.

mod error;
mod message;

pub use error::HandshakeError;
pub use message::Message;

use crate::credentials::{Credentials, Mode};
use crate::identity::NodeId;
use crate::name::ServiceName;
use crate::noise::{Ciphers, Exchange, HandshakeSide, NoiseError};
use crate::secret::Secret;
use crate::session::{AgreedPeer, SecureSession};
use message::Offer;
use std::mem;
use std::sync::Arc;

/// One end of a handshake.
///
/// Take bytes from [`Self::poll_transmit`] to the peer, give the peer's to [`Self::handle`], and
/// when [`Self::is_done`], go on with [`Self::into_session`].
#[derive(Debug)]
pub struct Handshake {
    credentials: Arc<Credentials>,
    state: HandshakePhase,
    received: Vec<u8>,
    outgoing: Option<Vec<u8>>,
}

#[derive(Debug)]
enum HandshakePhase {
    AwaitHello,
    AwaitAnswer { noise: Box<Exchange>, service: ServiceName },
    AwaitProof { noise: Box<Exchange>, asked: (ServiceName, KeyHeld), mode: Mode },
    AwaitConfirm { ciphers: Box<Ciphers>, peer: AgreedPeer },
    Done(Box<SecureSession>),
    Failed,
}

/// Whether the responder holds the key of the service it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyHeld {
    Key,
    Decoy,
}

impl Handshake {
    /// The end that connects and asks for a service.
    ///
    /// # Errors
    /// [`HandshakeError::NoKey`] when its credentials have no key of the service,
    /// [`HandshakeError::NoEntropy`] when this machine gives no random numbers.
    pub fn initiator(
        credentials: Arc<Credentials>,
        service: &ServiceName,
    ) -> Result<Self, HandshakeError> {
        let no_key = || HandshakeError::NoKey { service: service.clone() };
        let key = credentials.keys.key(service).ok_or_else(no_key)?;
        let offer = Offer { fabric: credentials.fabric, service: service.clone() };
        let mut hello = offer.emit();
        let side = HandshakeSide::Initiator;
        let mut noise = Exchange::new(side, &credentials.identity, key.bytes(), &hello)?;
        noise.write(&[], &mut hello)?;
        let state = HandshakePhase::AwaitAnswer { noise: Box::new(noise), service: offer.service };
        Ok(Self { credentials, state, received: Vec::new(), outgoing: Some(hello) })
    }

    /// The end that was connected to and offers the services whose keys it holds.
    #[must_use]
    pub fn responder(credentials: Arc<Credentials>) -> Self {
        Self {
            credentials,
            state: HandshakePhase::AwaitHello,
            received: Vec::new(),
            outgoing: None,
        }
    }

    /// Takes bytes from the peer and says how many; the rest belong to the session.
    ///
    /// # Errors
    /// [`HandshakeError`], after which the connection cannot be used. The peer gets no answer.
    pub fn handle(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let result = self.advance(bytes);
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// Takes the end of the peer's bytes: what it means for a handshake that is not done.
    pub fn handle_end(&mut self) -> HandshakeError {
        let error = match (&self.state, self.awaited()) {
            (HandshakePhase::AwaitConfirm { peer, .. }, _) => {
                HandshakeError::Refused { service: peer.service.clone() }
            }
            (_, Some(expected)) => HandshakeError::Ended { expected },
            (_, None) => HandshakeError::Over,
        };
        self.fail();
        error
    }

    /// Bytes for the peer, whole messages, once.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.take()
    }

    /// Whether both ends have proven themselves and nothing is left to transmit.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, HandshakePhase::Done(_)) && self.outgoing.is_none()
    }

    /// The session, if the handshake is done.
    #[must_use]
    pub fn into_session(self) -> Option<SecureSession> {
        match self.state {
            HandshakePhase::Done(session) if self.outgoing.is_none() => Some(*session),
            _ => None,
        }
    }

    fn awaited(&self) -> Option<Message> {
        match self.state {
            HandshakePhase::AwaitHello => Some(Message::Hello),
            HandshakePhase::AwaitAnswer { .. } => Some(Message::Answer),
            HandshakePhase::AwaitProof { .. } => Some(Message::Proof),
            HandshakePhase::AwaitConfirm { .. } => Some(Message::Confirm),
            HandshakePhase::Done(_) | HandshakePhase::Failed => None,
        }
    }

    fn fail(&mut self) {
        self.state = HandshakePhase::Failed;
        self.outgoing = None;
        self.received = Vec::new();
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<usize, HandshakeError> {
        let mut consumed = 0;
        while let Some(expected) = self.awaited() {
            let missing = message::missing(&self.received, expected)?;
            let rest = &bytes[consumed..];
            if missing > 0 && rest.is_empty() {
                return Ok(consumed);
            }
            let taken = missing.min(rest.len());
            self.received.extend_from_slice(&rest[..taken]);
            consumed += taken;
            if message::missing(&self.received, expected)? == 0 {
                self.handle_message()?;
            }
        }
        match self.state {
            HandshakePhase::Failed => Err(HandshakeError::Over),
            _ => Ok(consumed),
        }
    }

    /// Handles the whole message that was received.
    fn handle_message(&mut self) -> Result<(), HandshakeError> {
        let received = mem::take(&mut self.received);
        self.state = match mem::replace(&mut self.state, HandshakePhase::Failed) {
            HandshakePhase::AwaitHello => self.handle_hello(&received)?,
            HandshakePhase::AwaitAnswer { noise, service } => {
                self.handle_answer(*noise, service, &received)?
            }
            HandshakePhase::AwaitProof { noise, asked, mode } => {
                self.handle_proof(*noise, asked, mode, &received)?
            }
            HandshakePhase::AwaitConfirm { ciphers, peer } => {
                handle_confirm(*ciphers, peer, &received)?
            }
            HandshakePhase::Done(_) | HandshakePhase::Failed => return Err(HandshakeError::Over),
        };
        Ok(())
    }
}

/// What each message leads to.
impl Handshake {
    fn handle_hello(&mut self, hello: &[u8]) -> Result<HandshakePhase, HandshakeError> {
        let (Offer { fabric, service }, noise_at) = Offer::parse(hello)?;
        let decoy = Secret::random()?;
        let (key, held) = match self.credentials.keys.key(&service) {
            Some(key) => (key.bytes(), KeyHeld::Key),
            None => (decoy.bytes(), KeyHeld::Decoy),
        };
        let (prologue, first) = hello.split_at(noise_at);
        let side = HandshakeSide::Responder;
        let mut noise = Exchange::new(side, &self.credentials.identity, key, prologue)?;
        let altered = || HandshakeError::Altered { message: Message::Hello };
        let [] = noise.read(first).map_err(|error| HandshakeError::of(error, altered))?;
        let mode = Mode::between(fabric, self.credentials.fabric);
        self.send(Message::Answer, |body| noise.write(&[message::emit_mode(mode)], body))?;
        Ok(HandshakePhase::AwaitProof { noise: Box::new(noise), asked: (service, held), mode })
    }

    fn handle_answer(
        &mut self,
        mut noise: Exchange,
        service: ServiceName,
        answer: &[u8],
    ) -> Result<HandshakePhase, HandshakeError> {
        let altered = || HandshakeError::Altered { message: Message::Answer };
        let read = noise.read(message::body(answer));
        let [mode] = read.map_err(|error| HandshakeError::of(error, altered))?;
        let mode = message::parse_mode(mode, self.credentials.fabric)?;
        let node = self.admit(noise.peer()?)?;
        self.send(Message::Proof, |body| noise.write(&[], body))?;
        let ciphers = Box::new(noise.into_ciphers()?);
        Ok(HandshakePhase::AwaitConfirm { ciphers, peer: AgreedPeer { node, service, mode } })
    }

    fn handle_proof(
        &mut self,
        mut noise: Exchange,
        (service, held): (ServiceName, KeyHeld),
        mode: Mode,
        proof: &[u8],
    ) -> Result<HandshakePhase, HandshakeError> {
        let read = noise.read(message::body(proof));
        if held == KeyHeld::Decoy {
            return Err(HandshakeError::UnknownService { service });
        }
        let wrong_key = || HandshakeError::WrongKey { service: service.clone() };
        let [] = read.map_err(|error| HandshakeError::of(error, wrong_key))?;
        let node = self.admit(noise.peer()?)?;
        let mut ciphers = noise.into_ciphers()?;
        self.send(Message::Confirm, |body| ciphers.sealing.seal(&[], body))?;
        Ok(HandshakePhase::Done(Box::new(SecureSession::new(
            ciphers,
            AgreedPeer { node, service, mode },
        ))))
    }

    /// Refuses the revoked.
    fn admit(&self, peer: NodeId) -> Result<NodeId, HandshakeError> {
        if self.credentials.revoked.contains(peer) {
            return Err(HandshakeError::Revoked { peer });
        }
        Ok(peer)
    }

    fn send(
        &mut self,
        message: Message,
        body: impl FnOnce(&mut Vec<u8>) -> Result<(), NoiseError>,
    ) -> Result<(), HandshakeError> {
        let mut bytes = message::fixed(message);
        body(&mut bytes)?;
        self.outgoing = Some(bytes);
        Ok(())
    }
}

fn handle_confirm(
    mut ciphers: Ciphers,
    peer: AgreedPeer,
    confirm: &[u8],
) -> Result<HandshakePhase, HandshakeError> {
    let wrong_key = || HandshakeError::WrongKey { service: peer.service.clone() };
    let opened = ciphers.opening.open(message::body(confirm), &mut Vec::new());
    opened.map_err(|error| HandshakeError::of(error, wrong_key))?;
    Ok(HandshakePhase::Done(Box::new(SecureSession::new(ciphers, peer))))
}

#[cfg(test)]
mod tests;
