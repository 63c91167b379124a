//! The handshake's messages on the wire.
//!
//! ```text
//!  0       4         5       6        8
//! +-------+---------+-------+--------+------------------------------------------+
//! | OUTB  | version | which | length | body, `length` bytes, big-endian         |
//! +-------+---------+-------+--------+------------------------------------------+
//!
//! hello    fabric (1), length of name (1), name (1 to 32), Noise: e (32), sealed nothing (16)
//! answer   Noise: e (32), s (48), sealed mode (17)
//! proof    Noise: s (48), sealed nothing (16)
//! confirm  sealed nothing (16), the first message under the session's keys
//! ```
//!
//! All of hello before its Noise part is the Noise prologue: an attacker who changes the version,
//! the service or the fabric on the way makes the answer unreadable. Knows layouts, not keys.

use super::HandshakeError;
use crate::credentials::{Fabric, Mode};
use crate::name::ServiceName;
use crate::noise::{PUBLIC_LEN, TAG_LEN};
use std::fmt;
use std::ops::RangeInclusive;

const MAGIC: [u8; 4] = *b"OUTB";
const VERSION: u8 = 1;
const HEADER_LEN: usize = 8;

/// With a pre-shared key in the pattern, even the first payload is sealed (Noise §9.2), if under a
/// key that everyone can compute: a check value, no more.
const HELLO_NOISE_LEN: usize = PUBLIC_LEN + TAG_LEN;

const UNTRUSTED: u8 = 0;
const TRUSTED: u8 = 1;

/// One of the four messages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The initiator names the service and says what its operator says of the network.
    Hello = 1,
    /// The responder shows its static key and chooses the mode.
    Answer = 2,
    /// The initiator shows its static key and proves the service key.
    Proof = 3,
    /// The responder proves the service key.
    Confirm = 4,
}

impl Message {
    fn body_len(self) -> RangeInclusive<usize> {
        let sealed_key = PUBLIC_LEN + TAG_LEN;
        let exactly = |len| len..=len;
        match self {
            Self::Hello => offer_len(1)..=offer_len(ServiceName::LEN_MAX),
            Self::Answer => exactly(PUBLIC_LEN + sealed_key + 1 + TAG_LEN),
            Self::Proof => exactly(sealed_key + TAG_LEN),
            Self::Confirm => exactly(TAG_LEN),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hello => "hello",
            Self::Answer => "answer",
            Self::Proof => "proof",
            Self::Confirm => "confirm",
        })
    }
}

/// Bytes of a hello's body for a name of that length.
const fn offer_len(name_len: usize) -> usize {
    2 + name_len + HELLO_NOISE_LEN
}

/// How many bytes are missing behind `received`, at least, until the message is whole.
///
/// A wrong byte is found as soon as it is there.
pub(super) fn missing(received: &[u8], expected: Message) -> Result<usize, HandshakeError> {
    let known = received.len().min(MAGIC.len());
    if received[..known] != MAGIC[..known] {
        let mut found = [0; 4];
        found[..known].copy_from_slice(&received[..known]);
        return Err(HandshakeError::NotOutboard { found });
    }
    if let Some(&found) = received.get(4).filter(|found| **found != VERSION) {
        return Err(HandshakeError::Version { expected: VERSION, found });
    }
    if let Some(&found) = received.get(5).filter(|found| **found != expected as u8) {
        return Err(HandshakeError::OutOfOrder { expected, found });
    }
    let Some(header) = received.get(..HEADER_LEN) else { return Ok(HEADER_LEN - received.len()) };
    let len = usize::from(u16::from_be_bytes([header[6], header[7]]));
    if !expected.body_len().contains(&len) {
        return Err(HandshakeError::Length { message: expected, found: len });
    }
    Ok((HEADER_LEN + len).saturating_sub(received.len()))
}

/// The body of a whole message.
pub(super) fn body(message: &[u8]) -> &[u8] {
    message.get(HEADER_LEN..).unwrap_or_default()
}

/// A message without its body.
pub(super) fn header(message: Message, body_len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_LEN + body_len);
    bytes.extend_from_slice(&MAGIC);
    bytes.push(VERSION);
    bytes.push(message as u8);
    let len = u16::try_from(body_len).unwrap_or(u16::MAX);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes
}

/// An empty message of a kind that has one length.
pub(super) fn fixed(message: Message) -> Vec<u8> {
    header(message, *message.body_len().end())
}

/// What a hello says in clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) fabric: Fabric,
    pub(super) service: ServiceName,
}

impl Offer {
    /// A hello up to its Noise part.
    pub(super) fn emit(&self) -> Vec<u8> {
        let name = self.service.as_str().as_bytes();
        let mut bytes = header(Message::Hello, offer_len(name.len()));
        bytes.push(match self.fabric {
            Fabric::Untrusted => UNTRUSTED,
            Fabric::Trusted => TRUSTED,
        });
        bytes.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(name);
        bytes
    }

    /// What a whole hello says, and where its Noise part begins.
    pub(super) fn parse(hello: &[u8]) -> Result<(Self, usize), HandshakeError> {
        let len = body(hello).len();
        let wrong = HandshakeError::Length { message: Message::Hello, found: len };
        let [fabric, name_len, rest @ ..] = body(hello) else { return Err(wrong) };
        let (name_len, fabric) = (usize::from(*name_len), parse_fabric(*fabric)?);
        if len != offer_len(name_len) {
            return Err(wrong);
        }
        let service = ServiceName::parse(&rest[..name_len])?;
        Ok((Self { fabric, service }, hello.len() - HELLO_NOISE_LEN))
    }
}

fn parse_fabric(byte: u8) -> Result<Fabric, HandshakeError> {
    match byte {
        UNTRUSTED => Ok(Fabric::Untrusted),
        TRUSTED => Ok(Fabric::Trusted),
        found => Err(HandshakeError::Mode { found }),
    }
}

/// The byte that tells the initiator the mode.
pub(super) fn emit_mode(mode: Mode) -> u8 {
    match mode {
        Mode::Encrypted => UNTRUSTED,
        Mode::Trusted => TRUSTED,
    }
}

/// The mode in an answer to someone whose operator says `fabric`.
pub(super) fn parse_mode(byte: u8, fabric: Fabric) -> Result<Mode, HandshakeError> {
    match parse_fabric(byte)? {
        Fabric::Untrusted => Ok(Mode::Encrypted),
        Fabric::Trusted if fabric == Fabric::Trusted => Ok(Mode::Trusted),
        Fabric::Trusted => Err(HandshakeError::InClear),
    }
}
