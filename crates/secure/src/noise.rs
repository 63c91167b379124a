//! The Noise library, and nothing else of it than Outboard needs (Noise Protocol Framework,
//! revision 34): `Noise_XXpsk3_25519_AESGCM_SHA256`.
//!
//! Ring does AES-GCM and SHA-256, curve25519-dalek does X25519. No other file names the library,
//! and none of its errors leaves this one. When its three messages have crossed, it hands over two
//! keys, and is done.

use crate::cipher::Cipher;
use crate::identity::{Identity, NodeId};
use crate::secret::{self, Secret};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, params::DHChoice};
use std::fmt;
use zeroize::Zeroizing;

const PATTERN: &str = "Noise_XXpsk3_25519_AESGCM_SHA256";

/// XXpsk3 mixes the pre-shared key in at the end of its third message (§9.3).
const PSK_POSITION: u8 = 3;

/// Bytes that a cipher adds.
pub(crate) const TAG_LEN: usize = 16;

/// Bytes of a public key.
pub(crate) const PUBLIC_LEN: usize = 32;

/// Which side sends the first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeSide {
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
    dh.set(private.bytes());
    let mut public = [0; PUBLIC_LEN];
    public.copy_from_slice(dh.pubkey());
    public
}

/// The three messages of XXpsk3.
pub(crate) struct Exchange(HandshakeState);

impl Exchange {
    pub(crate) fn new(
        side: HandshakeSide,
        identity: &Identity,
        key: &[u8; secret::LEN],
        prologue: &[u8],
    ) -> Result<Self, NoiseError> {
        let pattern = PATTERN.parse().map_err(NoiseError::from)?;
        let builder = Builder::new(pattern)
            .local_private_key(identity.private().bytes())?
            .psk(PSK_POSITION, key)?
            .prologue(prologue)?;
        let state = match side {
            HandshakeSide::Initiator => builder.build_initiator()?,
            HandshakeSide::Responder => builder.build_responder()?,
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

    /// Reads the peer's next message, whose payload has exactly `N` bytes.
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

    /// The ciphers that the three messages agreed on (§5.2, Split).
    pub(crate) fn into_ciphers(mut self) -> Result<Ciphers, NoiseError> {
        if !self.0.is_handshake_finished() {
            return Err(NoiseError::Refused);
        }
        let initiates = self.0.is_initiator();
        let (one, other) = self.0.dangerously_get_raw_split();
        let (one, other) = (Zeroizing::new(one), Zeroizing::new(other));
        let (sealing, opening) = if initiates { (one, other) } else { (other, one) };
        let cipher = |key: &[u8; secret::LEN]| Cipher::new(Secret::of(key), 0);
        Ok(Ciphers { sealing: cipher(&sealing), opening: cipher(&opening) })
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exchange")
    }
}

/// A cipher each way, each with its count of messages.
#[derive(Debug)]
pub(crate) struct Ciphers {
    pub(crate) sealing: Cipher,
    pub(crate) opening: Cipher,
}

#[cfg(test)]
mod tests {
    use super::*;
    use snow::TransportState;

    /// A handshake whose initiator has our ciphers, and whose responder the library's.
    fn ours_and_theirs() -> (Ciphers, TransportState) {
        let identity = || Identity::generate().expect("random numbers");
        let key = [7; secret::LEN];
        let end = |side| Exchange::new(side, &identity(), &key, b"prologue").expect("correct");
        let (mut ours, mut theirs) = (end(HandshakeSide::Initiator), end(HandshakeSide::Responder));
        for turn in 0..3 {
            let (from, to) =
                if turn == 1 { (&mut theirs, &mut ours) } else { (&mut ours, &mut theirs) };
            let mut message = Vec::new();
            from.write(&[], &mut message).expect("its turn");
            let [] = to.read(&message).expect("it is right");
        }
        let theirs = theirs.0.into_transport_mode().expect("it is done");
        (ours.into_ciphers().expect("it is done"), theirs)
    }

    #[test]
    fn our_ciphers_and_the_librarys_understand_each_other_through_changes_of_keys() {
        let (mut ours, mut theirs) = ours_and_theirs();
        let mut buffer = [0; 256];
        for round in 0..10_u8 {
            let plain = vec![round; usize::from(round) * 20];
            let mut sealed = Vec::new();
            ours.sealing.seal(&plain, &mut sealed).expect("sealed");
            let len = theirs.read_message(&sealed, &mut buffer).expect("it is right");
            assert_eq!(&buffer[..len], plain);
            let len = theirs.write_message(&plain, &mut buffer).expect("sealed");
            let mut opened = vec![1];
            ours.opening.open(&buffer[..len], &mut opened).expect("it is right");
            assert_eq!(opened[1..], plain);
            if round % 3 == 2 {
                ours.sealing.rekey();
                theirs.rekey_incoming();
            }
            if round % 4 == 1 {
                ours.opening.rekey();
                theirs.rekey_outgoing();
            }
        }
        assert_eq!((ours.sealing.count(), ours.opening.count()), (10, 10));
    }

    #[test]
    fn what_does_not_open_leaves_nothing_and_counts_for_nothing() {
        let (mut ours, mut theirs) = ours_and_theirs();
        let mut buffer = [0; 64];
        let len = theirs.write_message(b"plain", &mut buffer).expect("sealed");
        let mut altered = buffer[..len].to_vec();
        altered[2] ^= 1;
        let mut opened = b"before".to_vec();
        for wrong in [&altered[..], &buffer[..len - 1], &buffer[..3], &[]] {
            assert_eq!(ours.opening.open(wrong, &mut opened), Err(NoiseError::Forged));
            assert_eq!((opened.as_slice(), ours.opening.count()), (&b"before"[..], 0));
        }
        ours.opening.open(&buffer[..len], &mut opened).expect("it is right");
        assert_eq!(opened, b"beforeplain");
    }

    #[test]
    fn a_handshake_half_way_gives_no_ciphers() {
        let identity = Identity::generate().expect("random numbers");
        let exchange = Exchange::new(HandshakeSide::Initiator, &identity, &[7; secret::LEN], b"");
        let ciphers = exchange.expect("correct").into_ciphers();
        assert_eq!(ciphers.err(), Some(NoiseError::Refused));
    }
}
