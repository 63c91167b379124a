//! Records of captured packets, as the shipped bodies send them (`struct oc_packet` in
//! `offcode_bpf.h`).
//!
//! Never looks into the packet's bytes. A body of one's own may send records of any other form.

/// Bytes of a record's head.
const HEAD: usize = 16;

/// A captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRecord<'a> {
    /// Its number among the packets that matched, from 0.
    pub number: u64,
    /// Bytes of the whole packet.
    pub length: u32,
    /// Its first bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
}

impl<'a> PacketRecord<'a> {
    /// Reads a record: nothing when it is none, or says a length other than it has.
    #[must_use]
    pub fn parse(record: &'a [u8]) -> Option<Self> {
        let (head, bytes) = record.split_at_checked(HEAD)?;
        let number = u64::from_le_bytes(*head.first_chunk()?);
        let length = u32::from_le_bytes(*head[8..].first_chunk()?);
        let captured = u32::from_le_bytes(*head[12..].first_chunk()?);
        let legal = captured as usize == bytes.len() && captured <= length;
        legal.then_some(Self { number, length, bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(number: u64, length: u32, captured: u32, bytes: &[u8]) -> Vec<u8> {
        let head = [length.to_le_bytes(), captured.to_le_bytes()].concat();
        [&number.to_le_bytes()[..], &head, bytes].concat()
    }

    #[test]
    fn a_record_is_read() {
        let bytes = record(7, 1500, 3, b"abc");
        let expected = PacketRecord { number: 7, length: 1500, bytes: b"abc" };
        assert_eq!(PacketRecord::parse(&bytes), Some(expected));
        let bytes = record(0, 60, 0, b"");
        assert_eq!(PacketRecord::parse(&bytes).unwrap().bytes, b"");
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        assert_eq!(PacketRecord::parse(&record(0, 60, 4, b"abc")), None);
        assert_eq!(PacketRecord::parse(&record(0, 60, 2, b"abc")), None);
        assert_eq!(PacketRecord::parse(&record(0, 2, 3, b"abc")), None);
        assert_eq!(PacketRecord::parse(&record(0, 0, 0, b"")[..15]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Some(record) = PacketRecord::parse(&bytes) {
                prop_assert_eq!(record.bytes.len() + HEAD, bytes.len());
            }
        }
    }
}
