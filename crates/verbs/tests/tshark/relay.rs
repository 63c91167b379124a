//! A TCP relay that writes down what passes through it as a capture file, so that recording needs
//! no privileges. Addresses, ports and headers below MPA are made up; the bytes are not.

use super::common::ANY;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Made-up ports of the two sides; no dissector claims them.
pub(crate) const CLIENT_PORT: u16 = 40_001;
pub(crate) const SERVER_PORT: u16 = 50_002;
/// Bytes of one recorded TCP segment at most.
const SEGMENT: usize = 16 * 1024;

/// Bytes of the stream from one marker to the next.
const INTERVAL: usize = 512;

/// Which way a piece went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToServer,
    ToClient,
}

/// What passed, in order.
type Record = Arc<Mutex<Vec<(Way, Vec<u8>)>>>;

/// One connection's recorder.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    record: Record,
    thread: JoinHandle<()>,
}

impl Relay {
    /// Stands before `server` for one connection.
    pub(crate) fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(ANY).expect("a port");
        let address = listener.local_addr().expect("an address");
        let record = Record::default();
        let ours = Arc::clone(&record);
        let thread = std::thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client");
            let server = TcpStream::connect(server).expect("a server");
            std::thread::scope(|scope| {
                scope.spawn(|| copy(&client, &server, Way::ToServer, &ours));
                scope.spawn(|| copy(&server, &client, Way::ToClient, &ours));
            });
        });
        Self { address, record, thread }
    }

    /// Waits for the end of both directions and gives what passed.
    pub(crate) fn finish(self) -> Vec<(Way, Vec<u8>)> {
        self.thread.join().expect("relayed");
        std::mem::take(&mut self.record.lock().expect("recorded"))
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, way: Way, record: &Record) {
    let mut bytes = vec![0; SEGMENT];
    // A reset is an end like any other here.
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // Written down first: an answer cannot come before its question then.
        record.lock().expect("recorded").push((way, bytes[..count].to_vec()));
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    // Fails when the other end is gone already.
    let _ended = to.shutdown(Shutdown::Write);
}

/// One direction alone, one FPDU in each piece: what Wireshark can read of a connection with
/// markers. It believes that markers go both ways when either side asks for them, and that a TCP
/// segment holds one FPDU, so the flags of both start-up frames are made to say what holds here.
/// `None`: an FPDU ends where a marker stands, and Wireshark counts that marker to it (RFC 5044
/// §4.3 counts it to the next).
pub(crate) fn one_way(
    record: &[(Way, Vec<u8>)],
    way: Way,
    markers: bool,
) -> Option<Vec<(Way, Vec<u8>)>> {
    const FLAGS: usize = 16;
    const MARKERS: u8 = 0x80;
    let mut pieces = record.to_vec();
    for (_, frame) in &mut pieces[..2] {
        frame[FLAGS] = frame[FLAGS] & !MARKERS | if markers { MARKERS } else { 0 };
    }
    let fpdus = pieces.split_off(2);
    let stream: Vec<u8> =
        fpdus.into_iter().filter(|piece| piece.0 == way).flat_map(|piece| piece.1).collect();
    let mut start = 0;
    while start < stream.len() {
        let end = fpdu_end(&stream, start, markers);
        if markers && end.is_multiple_of(INTERVAL) {
            return None;
        }
        pieces.push((way, stream[start..end].to_vec()));
        start = end;
    }
    Some(pieces)
}

/// Where the FPDU that begins at `start` ends; markers stand at every 512th byte of the stream
/// (RFC 5044 §4.3).
fn fpdu_end(stream: &[u8], start: usize, markers: bool) -> usize {
    const MARKER: usize = 4;
    let skip = |at: usize| if markers && at.is_multiple_of(INTERVAL) { at + MARKER } else { at };
    // Length, ULPDU, pad and CRC are all in units of four bytes, as markers are.
    let mut at = skip(start);
    let ulpdu = usize::from(u16::from_be_bytes([stream[at], stream[at + 1]]));
    let words = (2 + ulpdu).div_ceil(4) + 1;
    for _ in 0..words {
        at = skip(at) + 4;
    }
    at
}

/// Writes a capture file of raw IPv4 packets.
pub(crate) fn write_pcap(path: &Path, record: &[(Way, Vec<u8>)]) {
    const MAGIC_AND_VERSION: [u8; 8] = [0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0];
    const RAW_IP: u32 = 101;
    let mut file = MAGIC_AND_VERSION.to_vec();
    file.extend([0, 0, 1 << 18, RAW_IP].map(u32::to_le_bytes).as_flattened());
    let mut tcp = Tcp { packets: 0, next: [1000, 5000] };
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    tcp.add(&mut file, Way::ToServer, SYN, &[]);
    tcp.add(&mut file, Way::ToClient, SYN | ACK, &[]);
    tcp.add(&mut file, Way::ToServer, ACK, &[]);
    for (way, bytes) in record {
        tcp.add(&mut file, *way, ACK, bytes);
    }
    std::fs::write(path, file).expect("written");
}

/// Both directions' sequence numbers.
struct Tcp {
    packets: u32,
    next: [u32; 2],
}

impl Tcp {
    fn add(&mut self, file: &mut Vec<u8>, way: Way, flags: u8, payload: &[u8]) {
        let mine = usize::from(way == Way::ToClient);
        let ports = [[CLIENT_PORT, SERVER_PORT], [SERVER_PORT, CLIENT_PORT]][mine];
        let total = u16::try_from(40 + payload.len()).expect("short");
        // Checksums stay 0: tshark does not look at them unless told to.
        let mut packet = vec![0x45, 0];
        packet.extend(total.to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        let hosts = [[10, 0, 0, 1], [10, 0, 0, 2]];
        packet.extend([hosts[mine], hosts[1 - mine]].as_flattened());
        packet.extend(ports.map(u16::to_be_bytes).as_flattened());
        packet.extend([self.next[mine], self.next[1 - mine]].map(u32::to_be_bytes).as_flattened());
        packet.extend([0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        packet.extend(payload);
        let len = u32::try_from(packet.len()).expect("short");
        self.packets += 1;
        // A microsecond apart each.
        file.extend([0, self.packets, len, len].map(u32::to_le_bytes).as_flattened());
        file.extend(packet);
        let sequence = u32::try_from(payload.len()).expect("short") + u32::from(flags & 2 != 0);
        self.next[mine] = self.next[mine].wrapping_add(sequence);
    }
}
