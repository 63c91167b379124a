//! TCP streams out of a capture file: classic pcap, Ethernet, IPv4, TCP, put in order by sequence
//! number. Anything else in the file is skipped. It never looks into the streams.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

/// Why a file cannot be read; the file is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// Not a little-endian pcap file of Ethernet frames.
    #[error("not a little-endian pcap file of Ethernet frames; make one with tcpdump -w")]
    Format,
    /// The file ends within a packet.
    #[error("the file ends within the packet at byte {at}; capture it again")]
    CutShort {
        /// Where the packet starts.
        at: usize,
    },
    /// Bytes of a stream were not captured.
    #[error("{from} sent bytes that are not in the file; capture it again")]
    Missing {
        /// The stream's sender.
        from: SocketAddrV4,
    },
}

/// One TCP connection.
#[derive(Clone, Debug)]
pub struct Stream {
    /// The end that opened it.
    pub client: SocketAddrV4,
    /// The end that accepted it.
    pub server: SocketAddrV4,
    /// The bytes of both directions, in the order in which they could be read.
    pub pieces: Vec<Piece>,
    client_half: Half,
    server_half: Half,
}

/// Bytes that became readable at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whether the client sent them.
    pub by_client: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
struct Half {
    /// Sequence number of the next byte.
    next: u32,
    /// Bytes ahead of it, by their distance from the first byte.
    ahead: BTreeMap<u32, Vec<u8>>,
}

struct TcpSegment<'a> {
    from: SocketAddrV4,
    to: SocketAddrV4,
    seq: u32,
    syn: bool,
    ack: bool,
    payload: &'a [u8],
}

const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// The TCP connections in a capture file, in the order in which they were opened.
///
/// # Errors
/// See [`PcapError`].
pub fn streams(file: &[u8]) -> Result<Vec<Stream>, PcapError> {
    let ethernet = 1u32.to_le_bytes();
    if !file.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]) || file.get(20..24) != Some(&ethernet) {
        return Err(PcapError::Format);
    }
    let mut streams: Vec<Stream> = Vec::new();
    let mut at = FILE_HEADER;
    while at < file.len() {
        let packet = packet(file, at).ok_or(PcapError::CutShort { at })?;
        at += PACKET_HEADER + packet.len();
        if let Some(segment) = segment(packet) {
            take(&mut streams, &segment);
        }
    }
    for stream in &streams {
        stream.check()?;
    }
    Ok(streams)
}

fn packet(file: &[u8], at: usize) -> Option<&[u8]> {
    let header = file.get(at..at + PACKET_HEADER)?;
    let len = u32::from_le_bytes(*header.get(8..)?.first_chunk()?) as usize;
    file.get(at + PACKET_HEADER..at + PACKET_HEADER + len)
}

/// The TCP segment in an Ethernet frame, if there is one.
fn segment(frame: &[u8]) -> Option<TcpSegment<'_>> {
    let ip = frame.get(14..).filter(|_| frame[12..14] == [8, 0])?;
    let ip_len = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
    let tcp = ip.get(usize::from(ip[0] & 15) * 4..ip_len).filter(|_| ip[9] == 6)?;
    let address = |at: usize, port: usize| -> Option<SocketAddrV4> {
        let bytes: [u8; 4] = *ip.get(at..)?.first_chunk()?;
        let port = u16::from_be_bytes(*tcp.get(port..)?.first_chunk()?);
        Some(SocketAddrV4::new(bytes.into(), port))
    };
    Some(TcpSegment {
        from: address(12, 0)?,
        to: address(16, 2)?,
        seq: u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?),
        syn: tcp.get(13)? & 2 != 0,
        ack: tcp[13] & 16 != 0,
        payload: tcp.get(usize::from(tcp[12] >> 4) * 4..)?,
    })
}

fn take(streams: &mut Vec<Stream>, segment: &TcpSegment<'_>) {
    let half = Half { next: segment.seq.wrapping_add(1), ahead: BTreeMap::new() };
    if segment.syn && !segment.ack {
        streams.push(Stream {
            client: segment.from,
            server: segment.to,
            pieces: Vec::new(),
            client_half: half,
            server_half: Half::default(),
        });
        return;
    }
    let ends = [segment.from, segment.to];
    let found = streams.iter_mut().rev().find(|stream| {
        ends == [stream.client, stream.server] || ends == [stream.server, stream.client]
    });
    let Some(stream) = found else { return };
    if segment.syn {
        stream.server_half = half;
        return;
    }
    let by_client = segment.from == stream.client;
    let half = if by_client { &mut stream.client_half } else { &mut stream.server_half };
    let bytes = half.take(segment.seq, segment.payload);
    if !bytes.is_empty() {
        stream.pieces.push(Piece { by_client, bytes });
    }
}

impl Half {
    /// The bytes that are in order now.
    fn take(&mut self, seq: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.ahead.insert(seq, payload.to_vec());
        while let Some(seq) = self.ahead.keys().copied().find(|seq| !is_after(*seq, self.next)) {
            let piece = self.ahead.remove(&seq).unwrap_or_default();
            let known = self.next.wrapping_sub(seq) as usize;
            if let Some(fresh) = piece.get(known..) {
                bytes.extend_from_slice(fresh);
                self.next = self.next.wrapping_add(u32::try_from(fresh.len()).unwrap_or(0));
            }
        }
        bytes
    }
}

/// Sequence numbers wrap: half of them are before, half are after.
fn is_after(seq: u32, reference: u32) -> bool {
    (1..1 << 31).contains(&seq.wrapping_sub(reference))
}

impl Stream {
    fn check(&self) -> Result<(), PcapError> {
        for (half, from) in [(&self.client_half, self.client), (&self.server_half, self.server)] {
            if half.ahead.values().any(|piece| !piece.is_empty()) {
                return Err(PcapError::Missing { from });
            }
        }
        Ok(())
    }

    /// All bytes of one side.
    pub fn said(&self, by_client: bool) -> Vec<u8> {
        let pieces = self.pieces.iter().filter(|piece| piece.by_client == by_client);
        pieces.flat_map(|piece| piece.bytes.iter().copied()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_order_and_once() {
        let mut half = Half { next: u32::MAX - 1, ahead: BTreeMap::new() };
        assert_eq!(half.take(2, b"efg"), b"");
        assert_eq!(half.take(u32::MAX, b"bc"), b"");
        assert_eq!(half.take(u32::MAX - 1, b"a"), b"abc");
        assert_eq!(half.take(u32::MAX - 1, b"abcd"), b"defg");
        assert_eq!(half.take(3, b"f"), b"");
        assert_eq!(half.take(5, b"h"), b"h");
    }

    #[test]
    fn other_files_are_refused() {
        assert_eq!(streams(b"GIF89a").err(), Some(PcapError::Format));
        let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1];
        file.resize(20, 0);
        file.extend_from_slice(&[1, 0, 0, 0]);
        assert!(streams(&file).is_ok_and(|streams| streams.is_empty()));
        file.push(0);
        assert_eq!(streams(&file).err(), Some(PcapError::CutShort { at: 24 }));
    }
}
