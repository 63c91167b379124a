//! Why a handshake ends without a session. The peer is told nothing of it.

use super::Message;
use crate::identity::NodeId;
use crate::name::{ServiceName, ServiceNameError};
use crate::noise::NoiseError;
use crate::secret::NoEntropy;

/// Why a handshake ends without a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The peer speaks something else.
    #[error("the peer does not speak Outboard: it starts with {found:02x?}; see host and port")]
    NotOutboard {
        /// Its first bytes, zeros for what is not there yet.
        found: [u8; 4],
    },
    /// The peer speaks another version.
    #[error(
        "the peer speaks version {found} of the handshake, this end version {expected}: install \
         the same Outboard on both"
    )]
    Version {
        /// Ours.
        expected: u8,
        /// The peer's.
        found: u8,
    },
    /// The peer sends a message whose turn it is not.
    #[error(
        "the peer must send {expected} and sends a message of kind {found}: are both ends clients, \
         or both servers?"
    )]
    OutOfOrder {
        /// Whose turn it is.
        expected: Message,
        /// What is there, as numbered on the wire.
        found: u8,
    },
    /// The peer's message cannot have that length.
    #[error(
        "the peer's {message} cannot have a body of {found} bytes: it is not Outboard's, or was \
         altered on the way"
    )]
    Length {
        /// The message.
        message: Message,
        /// The length of its body.
        found: usize,
    },
    /// The peer asks for a service by an invalid name.
    #[error("the peer asks for a service by an invalid name: {0}")]
    Name(#[from] ServiceNameError),
    /// The peer's message has a value for the network or the mode that this version does not know.
    #[error(
        "the peer's byte for fabric or mode is {found}, known are 0 and 1: install the same \
         Outboard on both"
    )]
    Mode {
        /// The byte.
        found: u8,
    },
    /// The responder chooses to pass bytes in clear, and this end's operator did not agree to it.
    #[error("the peer wants bytes to pass in clear, which this end did not offer: do not trust it")]
    InClear,
    /// A message was altered on the way.
    #[error(
        "the peer's {message} cannot be read: it was altered on the way, perhaps by someone in \
         between"
    )]
    Altered {
        /// The message.
        message: Message,
    },
    /// The peer does not hold the service's key.
    #[error(
        "the peer does not hold this cluster's key of service {service}: give it the key file, if \
         it may have it"
    )]
    WrongKey {
        /// The service that it asked for, or was asked for.
        service: ServiceName,
    },
    /// The peer asks for a service whose key this end does not hold.
    #[error(
        "the peer asks for service {service}, which this end does not offer: start it here, or ask \
         another node"
    )]
    UnknownService {
        /// The service.
        service: ServiceName,
    },
    /// The peer is on the list of revoked nodes.
    #[error("the peer is node {peer}, which is revoked: it stays out while it is on the list")]
    Revoked {
        /// The peer.
        peer: NodeId,
    },
    /// The responder ended the connection upon the proof.
    #[error(
        "the peer refuses: it has another key of service {service} or does not offer it, or it has \
         revoked this node; its log says which"
    )]
    Refused {
        /// The service that this end asked for.
        service: ServiceName,
    },
    /// The peer ended the connection where it should have sent a message.
    #[error("the peer ended the connection instead of sending {expected}: see its log")]
    Ended {
        /// Whose turn it was.
        expected: Message,
    },
    /// The caller asks for a service without having its key.
    #[error(
        "this end has no key of service {service}: ask an operator for the file that `outboard key \
         export {service}` writes"
    )]
    NoKey {
        /// The service.
        service: ServiceName,
    },
    /// The caller goes on with a handshake that has failed.
    #[error("this handshake has failed before: connect again")]
    Over,
    /// This machine has no random numbers.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// The Noise library refuses a call that it should take.
    #[error("the Noise library refuses a correct call: this is a fault of Outboard, report it")]
    Internal,
}

impl HandshakeError {
    /// The library's error, where an unreadable message means `forged`.
    pub(super) fn of(error: NoiseError, forged: impl FnOnce() -> Self) -> Self {
        match error {
            NoiseError::Forged => forged(),
            NoiseError::NoEntropy => Self::NoEntropy(NoEntropy),
            NoiseError::Refused => Self::Internal,
        }
    }
}

/// Nothing of the peer's is read here, so nothing can be forged.
impl From<NoiseError> for HandshakeError {
    fn from(error: NoiseError) -> Self {
        Self::of(error, || Self::Internal)
    }
}
