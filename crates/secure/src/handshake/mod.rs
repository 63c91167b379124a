//! Four messages after which both ends know who the other is and that it holds the service key.
//!
//! ```text
//! initiator                                    responder
//!           -- hello    e                 -->             service, fabric (the prologue)
//!           <- answer   e, ee, s, es      ---             mode
//!           -- proof    s, se, psk        -->
//!           <- confirm                    ---             the first message of the session's keys
//!
//! state          hears     and then
//! AwaitHello     hello     sends answer, AwaitProof
//! AwaitAnswer    answer    sends proof, AwaitConfirm
//! AwaitProof     proof     sends confirm, Done
//! AwaitConfirm   confirm   Done
//! any            a fault   sends nothing more, Failed
//! ```
//!
//! XXpsk3 alone leaves the initiator without proof until the responder's first record; confirm is
//! that proof, so that nobody advertises memory to someone who has shown no key. A responder that
//! does not offer the service goes on with a random key instead, so that its peer cannot tell this
//! from a wrong key or from being revoked: all three end at the same place, without a word.
//!
//! A plain value: no socket, no clock. How long a handshake may take is the caller's to decide.

mod error;
mod message;

pub use error::HandshakeError;
pub use message::Message;

use crate::credentials::{Credentials, Mode};
use crate::identity::NodeId;
use crate::name::ServiceName;
use crate::noise::{Ciphers, Exchange, NoiseError, Side};
use crate::secret::Secret;
use crate::session::{Peer, Session};
use message::Offer;
use std::mem;
use std::sync::Arc;

/// One end of a handshake.
///
/// Take octets from [`Self::poll_transmit`] to the peer, give the peer's to [`Self::handle`], and
/// when [`Self::is_done`], go on with [`Self::into_session`].
#[derive(Debug)]
pub struct Handshake {
    credentials: Arc<Credentials>,
    state: State,
    heard: Vec<u8>,
    outgoing: Option<Vec<u8>>,
}

#[derive(Debug)]
enum State {
    AwaitHello,
    AwaitAnswer { noise: Box<Exchange>, service: ServiceName },
    AwaitProof { noise: Box<Exchange>, asked: (ServiceName, Held), mode: Mode },
    AwaitConfirm { ciphers: Box<Ciphers>, peer: Peer },
    Done(Box<Session>),
    Failed,
}

/// Whether the responder holds the key of the service it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
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
        let side = Side::Initiator;
        let mut noise = Exchange::new(side, &credentials.identity, key.octets(), &hello)?;
        noise.write(&[], &mut hello)?;
        let state = State::AwaitAnswer { noise: Box::new(noise), service: offer.service };
        Ok(Self { credentials, state, heard: Vec::new(), outgoing: Some(hello) })
    }

    /// The end that was connected to and offers the services whose keys it holds.
    #[must_use]
    pub fn responder(credentials: Arc<Credentials>) -> Self {
        Self { credentials, state: State::AwaitHello, heard: Vec::new(), outgoing: None }
    }

    /// Takes octets from the peer and says how many; the rest belong to the session.
    ///
    /// # Errors
    /// [`HandshakeError`], after which the connection is of no use. The peer gets no answer.
    pub fn handle(&mut self, octets: &[u8]) -> Result<usize, HandshakeError> {
        let result = self.advance(octets);
        if result.is_err() {
            self.fail();
        }
        result
    }

    /// Takes the end of the peer's octets: what it means for a handshake that is not done.
    pub fn handle_end(&mut self) -> HandshakeError {
        let error = match (&self.state, self.awaited()) {
            (State::AwaitConfirm { peer, .. }, _) => {
                HandshakeError::Refused { service: peer.service.clone() }
            }
            (_, Some(expected)) => HandshakeError::Ended { expected },
            (_, None) => HandshakeError::Over,
        };
        self.fail();
        error
    }

    /// Octets for the peer, whole messages, once.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.take()
    }

    /// Whether both ends have proven themselves and nothing is left to transmit.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_)) && self.outgoing.is_none()
    }

    /// The session, if the handshake is done.
    #[must_use]
    pub fn into_session(self) -> Option<Session> {
        match self.state {
            State::Done(session) if self.outgoing.is_none() => Some(*session),
            _ => None,
        }
    }

    fn awaited(&self) -> Option<Message> {
        match self.state {
            State::AwaitHello => Some(Message::Hello),
            State::AwaitAnswer { .. } => Some(Message::Answer),
            State::AwaitProof { .. } => Some(Message::Proof),
            State::AwaitConfirm { .. } => Some(Message::Confirm),
            State::Done(_) | State::Failed => None,
        }
    }

    fn fail(&mut self) {
        self.state = State::Failed;
        self.outgoing = None;
        self.heard = Vec::new();
    }

    fn advance(&mut self, octets: &[u8]) -> Result<usize, HandshakeError> {
        let mut consumed = 0;
        while let Some(expected) = self.awaited() {
            let missing = message::missing(&self.heard, expected)?;
            let rest = &octets[consumed..];
            if missing > 0 && rest.is_empty() {
                return Ok(consumed);
            }
            let taken = missing.min(rest.len());
            self.heard.extend_from_slice(&rest[..taken]);
            consumed += taken;
            if message::missing(&self.heard, expected)? == 0 {
                self.hear()?;
            }
        }
        match self.state {
            State::Failed => Err(HandshakeError::Over),
            _ => Ok(consumed),
        }
    }

    /// Takes the whole message that was heard.
    fn hear(&mut self) -> Result<(), HandshakeError> {
        let heard = mem::take(&mut self.heard);
        self.state = match mem::replace(&mut self.state, State::Failed) {
            State::AwaitHello => self.hear_hello(&heard)?,
            State::AwaitAnswer { noise, service } => self.hear_answer(*noise, service, &heard)?,
            State::AwaitProof { noise, asked, mode } => {
                self.hear_proof(*noise, asked, mode, &heard)?
            }
            State::AwaitConfirm { ciphers, peer } => hear_confirm(*ciphers, peer, &heard)?,
            State::Done(_) | State::Failed => return Err(HandshakeError::Over),
        };
        Ok(())
    }
}

/// What each message leads to.
impl Handshake {
    fn hear_hello(&mut self, hello: &[u8]) -> Result<State, HandshakeError> {
        let (Offer { fabric, service }, noise_at) = Offer::parse(hello)?;
        let decoy = Secret::random()?;
        let (key, held) = match self.credentials.keys.key(&service) {
            Some(key) => (key.octets(), Held::Key),
            None => (decoy.octets(), Held::Decoy),
        };
        let (prologue, first) = hello.split_at(noise_at);
        let side = Side::Responder;
        let mut noise = Exchange::new(side, &self.credentials.identity, key, prologue)?;
        let altered = || HandshakeError::Altered { message: Message::Hello };
        let [] = noise.read(first).map_err(|error| HandshakeError::of(error, altered))?;
        let mode = Mode::between(fabric, self.credentials.fabric);
        self.send(Message::Answer, |body| noise.write(&[message::emit_mode(mode)], body))?;
        Ok(State::AwaitProof { noise: Box::new(noise), asked: (service, held), mode })
    }

    fn hear_answer(
        &mut self,
        mut noise: Exchange,
        service: ServiceName,
        answer: &[u8],
    ) -> Result<State, HandshakeError> {
        let altered = || HandshakeError::Altered { message: Message::Answer };
        let read = noise.read(message::body(answer));
        let [mode] = read.map_err(|error| HandshakeError::of(error, altered))?;
        let mode = message::parse_mode(mode, self.credentials.fabric)?;
        let node = self.admit(noise.peer()?)?;
        self.send(Message::Proof, |body| noise.write(&[], body))?;
        let ciphers = Box::new(noise.into_ciphers()?);
        Ok(State::AwaitConfirm { ciphers, peer: Peer { node, service, mode } })
    }

    fn hear_proof(
        &mut self,
        mut noise: Exchange,
        (service, held): (ServiceName, Held),
        mode: Mode,
        proof: &[u8],
    ) -> Result<State, HandshakeError> {
        let read = noise.read(message::body(proof));
        if held == Held::Decoy {
            return Err(HandshakeError::UnknownService { service });
        }
        let wrong_key = || HandshakeError::WrongKey { service: service.clone() };
        let [] = read.map_err(|error| HandshakeError::of(error, wrong_key))?;
        let node = self.admit(noise.peer()?)?;
        let mut ciphers = noise.into_ciphers()?;
        self.send(Message::Confirm, |body| ciphers.sealing.seal(&[], body))?;
        Ok(State::Done(Box::new(Session::new(ciphers, Peer { node, service, mode }))))
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
        let mut octets = message::fixed(message);
        body(&mut octets)?;
        self.outgoing = Some(octets);
        Ok(())
    }
}

fn hear_confirm(mut ciphers: Ciphers, peer: Peer, confirm: &[u8]) -> Result<State, HandshakeError> {
    let wrong_key = || HandshakeError::WrongKey { service: peer.service.clone() };
    let opened = ciphers.opening.open(message::body(confirm), &mut Vec::new());
    opened.map_err(|error| HandshakeError::of(error, wrong_key))?;
    Ok(State::Done(Box::new(Session::new(ciphers, peer))))
}

#[cfg(test)]
mod tests;
