//! The table: what a peer sends on a connection with CRCs, and the Terminate that it gets
//! (RFC 5040 figure 9, RFC 5041 §7.1 and §7.2, RFC 5044 §8, RFC 7306 §8).

use super::raw::{
    fetch_add, fpdu, invalidating, last_ulpdu, read_request, tagged, terminate, untagged,
};
use super::scene::{OFFERED, RECEIVE_LEN, Victim};
use outboard_wire::crc::crc32c;

/// One broken rule.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// The victim asked for markers.
    pub(crate) markers: bool,
    /// The whole stream behind the start-up; the last FPDU is the bad one.
    pub(crate) bytes: fn(&Victim) -> Vec<u8>,
    pub(crate) expect: Expect,
}

pub(crate) enum Expect {
    /// The connection ends without a Terminate.
    Silence,
    Terminate {
        code: (u8, u8, u8),
        quotes: Quotes,
    },
}

/// The part of the bad segment that the Terminate quotes.
#[derive(Clone, Copy)]
pub(crate) enum Quotes {
    Nothing,
    Header,
    HeaderAndRead,
}

impl Quotes {
    /// The DDP header and the segment's length.
    pub(crate) fn header(self, sent: &[u8]) -> Option<(Vec<u8>, usize)> {
        if matches!(self, Self::Nothing) {
            return None;
        }
        let ulpdu = last_ulpdu(sent);
        Some((ulpdu[..if ulpdu[0] & 0x80 != 0 { 14 } else { 18 }].to_vec(), ulpdu.len()))
    }

    pub(crate) fn read(self, sent: &[u8]) -> Vec<u8> {
        match self {
            Self::HeaderAndRead => last_ulpdu(sent)[18..].to_vec(),
            _ => Vec::new(),
        }
    }
}

/// A rule with a Terminate.
const fn told(
    name: &'static str,
    code: (u8, u8, u8),
    quotes: Quotes,
    bytes: fn(&Victim) -> Vec<u8>,
) -> Rule {
    Rule { name, markers: false, bytes, expect: Expect::Terminate { code, quotes } }
}

/// A whole FPDU of a header and 8 bytes.
fn with_payload(header: Vec<u8>) -> Vec<u8> {
    fpdu(&[header, vec![0xAA; 8]].concat())
}

fn write(stag: u32, offset: u64) -> Vec<u8> {
    with_payload(tagged(0, stag, offset))
}

fn send(msn: u32, offset: u32) -> Vec<u8> {
    with_payload(untagged(3, 0, msn, offset))
}

/// The first Read Request of a stream, for 8 bytes.
fn read(stag: u32, offset: u64) -> Vec<u8> {
    nth_read(1, stag, offset)
}

fn nth_read(msn: u32, stag: u32, offset: u64) -> Vec<u8> {
    fpdu(&[untagged(1, 1, msn, 0), read_request(stag, offset, 8)].concat())
}

fn add(stag: u32, offset: u64) -> Vec<u8> {
    fpdu(&[untagged(10, 1, 1, 0), fetch_add(stag, offset)].concat())
}

/// A Send whose header was changed at one byte.
fn changed(mut header: Vec<u8>, byte: usize, to: u8) -> Vec<u8> {
    header[byte] = to;
    with_payload(header)
}

/// A correct Send of which one byte was changed after the CRC was computed.
fn flipped(at: usize) -> Vec<u8> {
    let mut bytes = send(1, 0);
    let at = if at < bytes.len() { at } else { bytes.len() - 1 };
    bytes[at] ^= 1;
    bytes
}

/// A first FPDU behind a marker that says this (RFC 5044 §4.3), its CRC right.
fn behind_marker(marker: [u8; 4]) -> Vec<u8> {
    let one = send(1, 0);
    let mut bytes = [&marker, &one[..one.len() - 4]].concat();
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

use Quotes::{Header, HeaderAndRead, Nothing};

const END: u64 = OFFERED as u64;

pub(crate) const RULES: &[Rule] = &[
    told("garbage", (2, 0, 2), Nothing, |_| b"GET / HTTP/1.1\r\n\r\n".repeat(4096)),
    told("a CRC that is wrong", (2, 0, 2), Nothing, |_| flipped(usize::MAX)),
    told("a payload changed", (2, 0, 2), Nothing, |_| flipped(24)),
    told("a good FPDU, then a changed one", (2, 0, 2), Nothing, |_| {
        [send(1, 0), flipped(30)].concat()
    }),
    Rule {
        name: "a marker that points elsewhere",
        markers: true,
        bytes: |_| behind_marker([0, 0, 0, 4]),
        expect: Expect::Terminate { code: (2, 0, 3), quotes: Nothing },
    },
    told("a ULPDU of no bytes", (2, 0, 3), Nothing, |_| fpdu(&[])),
    told("half a header", (2, 0, 3), Nothing, |_| fpdu(&untagged(3, 0, 1, 0)[..9])),
    told("a Write of an unregistered STag", (1, 1, 0), Header, |_| write(0xDEAD_BEEF, 0)),
    told("a Write of STag 0", (1, 1, 0), Header, |_| write(0, 0)),
    told("a Write of a stale STag", (1, 1, 0), Header, |victim| write(victim.stale, 0)),
    told("a Write of another domain's STag", (1, 1, 2), Header, |victim| {
        write(victim.foreign.stag().0, 0)
    }),
    told("a Write without the right", (1, 1, 0), Header, |victim| {
        write(victim.readable.stag().0, 0)
    }),
    told("a Write that starts behind the end", (1, 1, 1), Header, |victim| {
        write(victim.offered.stag().0, END)
    }),
    told("a Write that ends behind the end", (1, 1, 1), Header, |victim| {
        write(victim.offered.stag().0, END - 7)
    }),
    told("a Write that starts before the start", (1, 1, 1), Header, |victim| {
        write(victim.offered.stag().0, u64::MAX - 1000)
    }),
    told("a Write that wraps", (1, 1, 3), Header, |victim| {
        write(victim.offered.stag().0, u64::MAX - 3)
    }),
    told("a Read of an unregistered STag", (0, 1, 0), HeaderAndRead, |_| read(0xDEAD_BEEF, 0)),
    told("a Read of a stale STag", (0, 1, 0), HeaderAndRead, |victim| read(victim.stale, 0)),
    told("a Read of another domain's STag", (0, 1, 3), HeaderAndRead, |victim| {
        read(victim.foreign.stag().0, 0)
    }),
    told("a Read without the right", (0, 1, 2), HeaderAndRead, |victim| {
        read(victim.writable.stag().0, 0)
    }),
    told("a Read behind the end", (0, 1, 1), HeaderAndRead, |victim| {
        read(victim.offered.stag().0, END - 7)
    }),
    told("a Read that wraps", (0, 1, 4), HeaderAndRead, |victim| {
        read(victim.offered.stag().0, u64::MAX - 3)
    }),
    told("more Reads than the IRD", (1, 2, 2), Header, |victim| {
        (1..=3).flat_map(|msn| nth_read(msn, victim.offered.stag().0, 0)).collect()
    }),
    told("a Read Request cut short", (0, 2, 0xFF), Header, |victim| {
        let whole = [untagged(1, 1, 1, 0), read_request(victim.offered.stag().0, 0, 8)].concat();
        fpdu(&whole[..40])
    }),
    told("a Read's MSN", (1, 2, 3), Header, |victim| nth_read(2, victim.offered.stag().0, 0)),
    told("an atomic without the right", (0, 1, 2), Header, |victim| {
        add(victim.readable.stag().0, 0)
    }),
    told("an atomic behind the end", (0, 1, 1), Header, |victim| {
        add(victim.offered.stag().0, END - 4)
    }),
    told("an unaligned atomic", (0, 2, 7), Header, |victim| add(victim.offered.stag().0, 4)),
    told("a Send's MSN too high", (1, 2, 3), Header, |_| send(2, 0)),
    told("a Send's MSN again", (1, 2, 3), Header, |_| [send(1, 0), send(1, 0)].concat()),
    told("a Send's MSN 0", (1, 2, 3), Header, |_| send(0, 0)),
    told("a Send's MO", (1, 2, 4), Header, |_| send(1, 8)),
    told("a Send on the queue of Reads", (1, 2, 1), Header, |_| with_payload(untagged(3, 1, 1, 0))),
    told("a queue that does not exist", (1, 2, 1), Header, |_| with_payload(untagged(3, 9, 1, 0))),
    told("a Send longer than its receive", (1, 2, 5), Header, |_| {
        fpdu(&[untagged(3, 0, 1, 0), vec![1; RECEIVE_LEN + 1]].concat())
    }),
    told("more Sends than receives", (1, 2, 2), Header, |_| {
        (1..=4).flat_map(|msn| send(msn, 0)).collect()
    }),
    told("an unregistered STag to invalidate", (0, 1, 0), Header, |_| {
        with_payload(invalidating(4, 0xDEAD_BEEF, 0, 1, 0))
    }),
    told("an STag to invalidate of another domain", (0, 1, 3), Header, |victim| {
        with_payload(invalidating(4, victim.foreign.stag().0, 0, 1, 0))
    }),
    told("DDP version 0, tagged", (1, 1, 4), Header, |_| changed(tagged(0, 7, 0), 0, 0xC0)),
    told("DDP version 2, untagged", (1, 2, 6), Header, |_| changed(untagged(3, 0, 1, 0), 0, 0x42)),
    told("RDMAP version 2", (0, 2, 5), Header, |_| changed(untagged(3, 0, 1, 0), 1, 0x83)),
    told("opcode 15", (0, 2, 6), Header, |_| changed(untagged(3, 0, 1, 0), 1, 0x4F)),
    told("a tagged Send", (0, 2, 6), Header, |_| with_payload(tagged(3, 7, 0))),
    told("an untagged Write", (0, 2, 6), Header, |_| with_payload(untagged(0, 0, 1, 0))),
    told("a Read Response without a request", (1, 1, 0), Header, |_| with_payload(tagged(2, 1, 0))),
    told("an Atomic Response without a request", (0, 2, 6), Header, |_| {
        fpdu(&[untagged(11, 3, 1, 0), vec![0; 12]].concat())
    }),
    told("Immediate Data of 4 bytes", (0, 2, 0xFF), Header, |_| {
        fpdu(&[untagged(8, 0, 1, 0), vec![0; 4]].concat())
    }),
    Rule {
        name: "a Terminate of the peer's own",
        markers: false,
        bytes: |_| terminate((0, 0, 0), None, &[]),
        expect: Expect::Silence,
    },
];
