//! The messages of the two sides of a start-up in MPA's private data (Outboard's own, no RFC): the
//! dialer, the queue pair that it wants, and the reason of a refusal. Integers in network order.
//!
//! ```text
//!  Request: "OBRC" version(1 byte: 2) zero(3) wanted(4) number(4) address(4)
//!  Reply:   "OBRC" version(1) reason(1)                 (refusals only)
//! ```
//!
//! On connections by rdma_cm, whose private data is the programs', a prefix shows that both ends
//! are Outboard:
//!
//! ```text
//!  Request, Reply: "OBRC" version(1) one(1) zero(2) the program's private data
//! ```

use crate::config::Personality;
use std::net::Ipv4Addr;

const MAGIC: &[u8; 4] = b"OBRC";
/// Since 2, Immediate Data may belong to the Send behind it
/// ([`outboard_verbs::Qp::allow_send_with_imm`]): an end of version 2 sends and accepts that.
const VERSION: u8 = 2;
const HELLO_LEN: usize = 20;
/// The prefix of a program's private data.
const BY_CM: &[u8; 8] = &[MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION, 1, 0, 0];

/// A program's private data as it goes to the peer's connection manager.
pub(crate) fn wrap(personality: Personality, program: Vec<u8>) -> Vec<u8> {
    match personality {
        Personality::Iwarp => program,
        Personality::Roce => [&BY_CM[..], &program].concat(),
    }
}

/// A program's private data as it came; `None` when the peer is not `roce` of this version.
pub(crate) fn unwrap(personality: Personality, bytes: &[u8]) -> Option<&[u8]> {
    match personality {
        Personality::Iwarp => Some(bytes),
        Personality::Roce => bytes.strip_prefix(BY_CM),
    }
}

/// The other side's version, if it is Outboard of another version.
pub(super) fn other_version(bytes: &[u8]) -> Option<u8> {
    bytes.strip_prefix(MAGIC)?.first().copied().filter(|version| *version != VERSION)
}

/// A queue pair's name in the network. Of two, the lower dials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QpName {
    /// Of its device.
    pub(super) address: Ipv4Addr,
    /// Port and index under it, 24 bits.
    pub(super) number: u32,
}

/// A dialer's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The number it wants.
    pub(super) wanted: u32,
    /// Its own name.
    pub(super) from: QpName,
}

/// Why a dialer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Refusal {
    /// No queue pair has the number: a retry is useless.
    Unknown = 1,
    /// The program has not named its peer yet, or another dialer is waiting already.
    NotYet = 2,
    /// The program expects another peer at present.
    Other = 3,
}

impl Hello {
    pub(super) fn emit(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HELLO_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        bytes.extend_from_slice(&self.wanted.to_be_bytes());
        bytes.extend_from_slice(&self.from.number.to_be_bytes());
        bytes.extend_from_slice(&self.from.address.octets());
        bytes
    }

    /// `None`: not Outboard, or not of this version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO_LEN] = bytes.try_into().ok()?;
        if !bytes.starts_with(MAGIC) || bytes[4..8] != [VERSION, 0, 0, 0] {
            return None;
        }
        let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        let address = Ipv4Addr::from(word(16));
        let from = QpName { address, number: u32::from_be_bytes(word(12)) };
        Some(Self { wanted: u32::from_be_bytes(word(8)), from })
    }
}

impl Refusal {
    pub(super) fn emit(self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[VERSION, self as u8]);
        bytes
    }

    /// Any other refusal is final.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        match bytes.strip_prefix(MAGIC) {
            Some([VERSION, 2]) => Self::NotYet,
            Some([VERSION, 3]) => Self::Other,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_survives_the_wire() {
        let from = QpName { address: Ipv4Addr::new(10, 0, 0, 7), number: 0x00AB_CDEF };
        let hello = Hello { wanted: 0x0012_3456, from };
        let bytes = hello.emit();
        assert_eq!(bytes, b"OBRC\x02\0\0\0\0\x12\x34\x56\0\xAB\xCD\xEF\x0A\0\0\x07");
        assert_eq!(Hello::parse(&bytes), Some(hello));
        assert_eq!(Hello::parse(&bytes[..19]), None);
        assert_eq!(Hello::parse(b"OBRC\x01\0\0\0\0\x12\x34\x56\0\xAB\xCD\xEF\x0A\0\0\x07"), None);
        assert_eq!(Hello::parse(b"POST / HTTP/1.1\r\nHost"), None);
    }

    #[test]
    fn what_programs_say_is_wrapped_and_no_hello() {
        let text = b"Hello, world";
        let wrapped = wrap(Personality::Roce, text.to_vec());
        assert_eq!(wrapped, b"OBRC\x02\x01\0\0Hello, world");
        assert_eq!(unwrap(Personality::Roce, &wrapped), Some(&text[..]));
        assert_eq!(unwrap(Personality::Roce, &wrapped[..8]), Some(&b""[..]));
        assert_eq!(Hello::parse(&wrapped), None);
        let hello = Hello { wanted: 1, from: QpName { address: Ipv4Addr::LOCALHOST, number: 2 } };
        for stranger in [&hello.emit()[..], &wrapped[..7], b"", text] {
            assert_eq!(unwrap(Personality::Roce, stranger), None);
        }
        assert_eq!(wrap(Personality::Iwarp, text.to_vec()), text);
        assert_eq!(unwrap(Personality::Iwarp, text), Some(&text[..]));
    }

    #[test]
    fn another_version_is_told_from_strangers() {
        let mut refusal = Refusal::Unknown.emit();
        assert_eq!(other_version(&refusal), None);
        refusal[4] = 1;
        assert_eq!(other_version(&refusal), Some(1));
        assert_eq!(Refusal::parse(&refusal), Refusal::Unknown);
        assert_eq!(other_version(b"OBRC"), None);
        assert_eq!(other_version(b"hello"), None);
    }

    #[test]
    fn a_refusal_survives_the_wire() {
        for refusal in [Refusal::Unknown, Refusal::NotYet, Refusal::Other] {
            assert_eq!(Refusal::parse(&refusal.emit()), refusal);
        }
        assert_eq!(Refusal::parse(b"go away"), Refusal::Unknown);
        assert_eq!(Refusal::parse(b""), Refusal::Unknown);
    }
}
