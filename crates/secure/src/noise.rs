//! The Noise library, and nothing else of it than Outboard needs (Noise Protocol Framework,
//! revision 34): `Noise_XXpsk3_25519_AESGCM_SHA256`.
//!
//! Ring does AES-GCM and SHA-256, curve25519-dalek does X25519. No other file names the library,
//! and none of its errors leaves this one.

use crate::identity::{Identity, NodeId};
use crate::secret::{self, Secret};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, TransportState, params::DHChoice};
use std::fmt;

const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// XXpsk3 mixes the pre-shared key in at the end of its third message (§9.3).
const PSK_POSITION: u8 = 3;

/// Octets that a cipher adds.
pub(crate) const TAG_LEN: usize = 16;

/// Octets of a public key.
pub(crate) const PUBLIC_LEN: usize = 32;

/// Who speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Initiator,
    Responder,
}

/// What goes wrong in the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoiseError {
    /// What was read is not what the peer wrote, or was written under other keys.
    Forged,
    /// This machine gives no random numbers.
    NoEntropy,
    /// The library refuses what it should take.
    Refused,
}

impl From<snow::Error> for NoiseError {
    fn from(error: snow::Error) -> Self {
        match error {
            snow::Error::Decrypt | snow::Error::Dh => Self::Forged,
            snow::Error::Rng => Self::NoEntropy,
            _ => Self::Refused,
        }
    }
}

/// The public key that belongs to a private one.
pub(crate) fn public_key(private: &Secret) -> [u8; PUBLIC_LEN] {
    let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("it is compiled in");
    dh.set(private.octets());
    let mut public = [0; PUBLIC_LEN];
    public.copy_from_slice(dh.pubkey());
    public
}

/// The three messages of XXpsk3.
pub(crate) struct Exchange(HandshakeState);

impl Exchange {
    pub(crate) fn new(
        side: Side,
        identity: &Identity,
        key: &[u8; secret::LEN],
        prologue: &[u8],
    ) -> Result<Self, NoiseError> {
        let pattern = PATTERN.parse().map_err(NoiseError::from)?;
        let builder = Builder::new(pattern)
            .local_private_key(identity.private().octets())?
            .psk(PSK_POSITION, key)?
            .prologue(prologue)?;
        let state = match side {
            Side::Initiator => builder.build_initiator()?,
            Side::Responder => builder.build_responder()?,
        };
        Ok(Self(state))
    }

    /// Appends our next message.
    pub(crate) fn write(&mut self, payload: &[u8], to: &mut Vec<u8>) -> Result<(), NoiseError> {
        // The longest carries a key of its own, a sealed key and a sealed payload.
        let mut message = [0; 2 * PUBLIC_LEN + 2 * TAG_LEN + 16];
        let len = self.0.write_message(payload, &mut message)?;
        to.extend_from_slice(&message[..len]);
        Ok(())
    }

    /// Reads the peer's next message, whose payload has exactly `N` octets.
    pub(crate) fn read<const N: usize>(&mut self, message: &[u8]) -> Result<[u8; N], NoiseError> {
        // The library opens in place when there is room for the tag as well.
        let mut payload = [0; 2 * TAG_LEN];
        let len = self.0.read_message(message, &mut payload)?;
        payload[..len].try_into().map_err(|_| NoiseError::Refused)
    }

    /// Whose static key the peer has shown. Before its proof it may hold no service key.
    pub(crate) fn peer(&self) -> Result<NodeId, NoiseError> {
        let public = self.0.get_remote_static().and_then(|key| key.try_into().ok());
        public.map(NodeId::of).ok_or(NoiseError::Refused)
    }

    /// The ciphers that the three messages agreed on.
    pub(crate) fn into_ciphers(self) -> Result<Ciphers, NoiseError> {
        Ok(Ciphers(self.0.into_transport_mode()?))
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

/// A cipher each way, each with its count of messages.
pub(crate) struct Ciphers(TransportState);

impl Ciphers {
    /// Appends `plain`, sealed, which is [`TAG_LEN`] longer.
    pub(crate) fn seal(&mut self, plain: &[u8], to: &mut Vec<u8>) -> Result<(), NoiseError> {
        let start = to.len();
        to.resize(start + plain.len() + TAG_LEN, 0);
        self.0.write_message(plain, &mut to[start..])?;
        Ok(())
    }

    /// Appends what was sealed; on an error, nothing.
    pub(crate) fn open(&mut self, sealed: &[u8], to: &mut Vec<u8>) -> Result<(), NoiseError> {
        let start = to.len();
        // Room for the tag too, so that the library opens in place.
        to.resize(start + sealed.len(), 0);
        let opened = self.0.read_message(sealed, &mut to[start..]);
        to.truncate(start + opened.as_ref().map_or(0, |len| *len));
        opened?;
        Ok(())
    }

    /// Messages sealed so far.
    pub(crate) fn sealed(&self) -> u64 {
        self.0.sending_nonce()
    }

    /// Messages opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.0.receiving_nonce()
    }

    /// A new key for what is sealed from now on (§4.2).
    pub(crate) fn rekey_sealing(&mut self) {
        self.0.rekey_outgoing();
    }

    /// A new key for what is opened from now on.
    pub(crate) fn rekey_opening(&mut self) {
        self.0.rekey_incoming();
    }
}

impl fmt::Debug for Ciphers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ciphers {{ sealed: {}, opened: {} }}", self.sealed(), self.opened())
    }
}
