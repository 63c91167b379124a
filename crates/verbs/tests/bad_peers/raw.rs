//! A peer made of bytes: plain sockets, frames built by hand from the RFCs, and no code of the
//! stack but its CRC.

use outboard_testkit::PATIENCE;
use outboard_wire::crc::crc32c;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Bytes of start-up frames without private data.
pub(crate) const FRAME_LEN: usize = 20;
/// Asks for CRCs.
pub(crate) const CRC: u8 = 0x40;

/// RFC 5044 §7.1.1: a Request of revision 1 with these flags.
pub(crate) fn request(flags: u8) -> Vec<u8> {
    [b"MPA ID Req Frame".as_slice(), &[flags, 1, 0, 0]].concat()
}

/// RFC 5044 §4: length, ULPDU, pad and CRC.
pub(crate) fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ulpdu.len()).expect("short");
    let mut bytes = [&length.to_be_bytes(), ulpdu].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

/// RFC 5041 §4.2 and RFC 5040 §4.1: the last segment of a tagged message.
pub(crate) fn tagged(opcode: u8, stag: u32, offset: u64) -> Vec<u8> {
    let control = [0xC1, 0x40 | opcode];
    [control.as_slice(), &stag.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// RFC 5041 §4.3 and RFC 5040 §4.1: the last segment of an untagged message.
pub(crate) fn untagged(opcode: u8, queue: u32, msn: u32, offset: u32) -> Vec<u8> {
    invalidating(opcode, 0, queue, msn, offset)
}

/// The same with an STag to invalidate.
pub(crate) fn invalidating(opcode: u8, stag: u32, queue: u32, msn: u32, offset: u32) -> Vec<u8> {
    let fields = [stag, queue, msn, offset].map(u32::to_be_bytes);
    [[0x41, 0x40 | opcode].as_slice(), fields.as_flattened()].concat()
}

/// RFC 5040 §4.4: where a Read's data comes from, and how much.
pub(crate) fn read_request(stag: u32, offset: u64, size: u32) -> Vec<u8> {
    let sink = [7u32.to_be_bytes().as_slice(), &0u64.to_be_bytes()].concat();
    let source = [stag.to_be_bytes().as_slice(), &offset.to_be_bytes()].concat();
    [sink.as_slice(), &size.to_be_bytes(), &source].concat()
}

/// RFC 7306 §5.2.1: a FetchAdd of 1.
pub(crate) fn fetch_add(stag: u32, offset: u64) -> Vec<u8> {
    let target = [stag.to_be_bytes().as_slice(), &offset.to_be_bytes()].concat();
    let [add, none] = [1u64, 0].map(u64::to_be_bytes);
    [[0; 4].as_slice(), &[0, 0, 0, 1], &target, &add, &none, &none, &none].concat()
}

/// RFC 5040 §4.8: the one Terminate of a stream, as an FPDU.
pub(crate) fn terminate(
    code: (u8, u8, u8),
    quoted: Option<(&[u8], usize)>,
    read: &[u8],
) -> Vec<u8> {
    let (layer, etype, code) = code;
    let bits = if quoted.is_some() { 0xC0 } else { 0 } | if read.is_empty() { 0 } else { 0x20 };
    let mut ulpdu = untagged(7, 2, 1, 0);
    ulpdu.extend([layer << 4 | etype, code, bits, 0]);
    if let Some((header, len)) = quoted {
        ulpdu.extend(u16::try_from(len).expect("short").to_be_bytes());
        ulpdu.extend(header);
    }
    ulpdu.extend(read);
    fpdu(&ulpdu)
}

/// One connection as the operating system sees it.
pub(crate) struct Raw(pub(crate) TcpStream);

impl Raw {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("a stream");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
        stream.set_nodelay(true).expect("an option");
        Self(stream)
    }

    /// Sends as much as the other end takes: it may close the connection before the end.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.0.write_all(bytes) {
            assert!(is_reset(error.kind()), "{error}");
        }
    }

    /// The other end has closed nothing, and said nothing.
    pub(crate) fn is_open(&self) -> bool {
        self.0.set_nonblocking(true).expect("an option");
        let peeked = self.0.peek(&mut [0]);
        self.0.set_nonblocking(false).expect("an option");
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// The Reply to a Request.
    pub(crate) fn reply(&mut self) -> [u8; FRAME_LEN] {
        let mut frame = [0; FRAME_LEN];
        self.0.read_exact(&mut frame).expect("a Reply");
        frame
    }

    /// Everything up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert!(is_reset(error.kind()), "the stream did not end: {error}");
        }
        bytes
    }
}

fn is_reset(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

/// Cuts a stream without markers into FPDUs, each with its CRC checked.
pub(crate) fn cut(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(length) = stream.first_chunk::<2>() {
        let len = (2 + usize::from(u16::from_be_bytes(*length))).next_multiple_of(4) + 4;
        let (one, rest) = stream.split_at_checked(len).expect("no FPDU is cut short");
        let (covered, crc) = one.split_at(len - 4);
        assert_eq!(crc, crc32c(covered).to_le_bytes());
        all.push(one);
        stream = rest;
    }
    all
}

/// The last ULPDU of a stream that may break any rule except framing.
pub(crate) fn last_ulpdu(mut stream: &[u8]) -> &[u8] {
    let mut last: &[u8] = &[];
    while let Some((length, rest)) = stream.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*length));
        last = &rest[..len];
        stream = &stream[(2 + len).next_multiple_of(4) + 4..];
    }
    last
}
