//! The bytes on the wire as a capture that Wireshark opens: classic pcap, with made-up Ethernet,
//! IPv4 and TCP headers around the bytes that the connections really sent. It sees streams, not
//! packets: there are no retransmissions in it, and its segments are not the kernel's.

use outboard_verbs::tap::{Tap, TappedStream};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Payload bytes of a made-up segment at most: an IPv4 packet has room for them.
const SEGMENT_MAX: usize = 32 * 1024;
/// Longest packet, for the file's header.
const SNAP_LEN: u32 = 256 * 1024;
const LINK_ETHERNET: u32 = 1;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PUSH: u8 = 0x08;
const FIN: u8 = 0x01;

/// By generation of the process; `None` if nothing is recorded.
pub(crate) type Recorders = Vec<(u32, Option<Arc<Recorder>>)>;

/// Locks the recorders: for a moment, or over a fork.
pub(crate) fn recorders() -> MutexGuard<'static, Recorders> {
    static RECORDERS: Mutex<Recorders> = Mutex::new(Vec::new());
    RECORDERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recorder of this process, if the environment asks for one. Made at first use, and again in a
/// child process: the parent keeps its own.
pub(crate) fn recorder() -> Option<Arc<dyn Tap>> {
    let generation = crate::fork::generation();
    let mut recorders = recorders();
    let known = recorders.iter().find(|(made_in, _)| *made_in == generation);
    let found = known.map(|(_, recorder)| recorder.clone()).unwrap_or_else(|| {
        let made = create_wanted();
        // The parent's is not dropped here: dropping would write the parent's data a second time.
        recorders.push((generation, made.clone()));
        made
    });
    found.map(|recorder| recorder as Arc<dyn Tap>)
}

fn create_wanted() -> Option<Arc<Recorder>> {
    let path = crate::config::config().record.as_deref()?;
    match Recorder::create(path) {
        Ok((recorder, used)) => {
            if used != path {
                let (used, path) = (used.display(), path.display());
                say!("recording to {used}: there is a {path} already");
            }
            Some(Arc::new(recorder))
        }
        Err(error) => {
            let path = path.display();
            say!("cannot record to {path}: {error}. Going on without.");
            None
        }
    }
}

/// Writes a capture.
#[derive(Debug)]
pub(crate) struct Recorder(Mutex<RecorderState>);

#[derive(Debug)]
struct RecorderState {
    file: BufWriter<File>,
    path: PathBuf,
    streams: HashMap<u64, Stream>,
    failed: bool,
}

/// Both directions of a stream.
#[derive(Clone, Copy, Debug)]
struct Stream {
    local: Direction,
    peer: Direction,
}

/// One end: its address, and the sequence number of the next byte that it sends.
#[derive(Clone, Copy, Debug)]
struct Direction {
    address: (Ipv4Addr, u16),
    next: u32,
}

impl Recorder {
    /// Several processes may get the same name: the first takes it, the others add their process
    /// number. Returns the name.
    fn create(path: &Path) -> std::io::Result<(Self, PathBuf)> {
        let fresh = |path: &Path| File::options().write(true).create_new(true).open(path);
        let numbered = || {
            let mut name = path.as_os_str().to_owned();
            name.push(format!(".{}", std::process::id()));
            PathBuf::from(name)
        };
        let (file, path) = match fresh(path) {
            Ok(file) => (file, path.to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let path = numbered();
                (fresh(&path)?, path)
            }
            Err(error) => return Err(error),
        };
        let mut file = BufWriter::new(file);
        file.write_all(&file_header())?;
        file.flush()?;
        let used = path.clone();
        let state = RecorderState { file, path, streams: HashMap::new(), failed: false };
        Ok((Self(Mutex::new(state)), used))
    }

    fn with(&self, change: impl FnOnce(&mut RecorderState) -> std::io::Result<()>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.failed {
            return;
        }
        if let Err(error) = change(&mut state) {
            state.failed = true;
            let path = state.path.display();
            say!("cannot go on recording to {path}: {error}");
        }
    }
}

impl Tap for Recorder {
    fn opened(&self, stream: u64, ends: TappedStream) {
        let way = |address| Direction { address: v4(address), next: 1 };
        let opened = Stream { local: way(ends.local), peer: way(ends.peer) };
        self.with(|state| {
            state.streams.insert(stream, opened);
            let (client, server) = match ends.dialed {
                true => (opened.local, opened.peer),
                false => (opened.peer, opened.local),
            };
            let before = |way: Direction| Direction { next: 0, ..way };
            state.packet(before(client), before(server), SYN, &[])?;
            state.packet(before(server), client, SYN | ACK, &[])?;
            state.packet(client, server, ACK, &[])?;
            state.file.flush()
        });
    }

    fn sent(&self, stream: u64, bytes: &[u8]) {
        self.with(|state| state.say(stream, bytes, true));
    }

    fn received(&self, stream: u64, bytes: &[u8]) {
        self.with(|state| state.say(stream, bytes, false));
    }

    fn closed(&self, stream: u64) {
        self.with(|state| {
            let Some(Stream { local, peer }) = state.streams.remove(&stream) else { return Ok(()) };
            state.packet(local, peer, FIN | ACK, &[])?;
            state.packet(
                peer,
                Direction { next: local.next.wrapping_add(1), ..local },
                FIN | ACK,
                &[],
            )?;
            state.file.flush()
        });
    }
}

impl RecorderState {
    fn say(&mut self, stream: u64, bytes: &[u8], ours: bool) -> std::io::Result<()> {
        for piece in bytes.chunks(SEGMENT_MAX) {
            let Some(Stream { local, peer }) = self.streams.get(&stream).copied() else {
                return Ok(());
            };
            let (from, to) = if ours { (local, peer) } else { (peer, local) };
            self.packet(from, to, PUSH | ACK, piece)?;
            if let Some(stream) = self.streams.get_mut(&stream) {
                let way = if ours { &mut stream.local } else { &mut stream.peer };
                way.next = way.next.wrapping_add(u32::try_from(piece.len()).unwrap_or(0));
            }
        }
        // A program may end at any time: buffered data are written soon.
        self.file.flush()
    }

    fn packet(
        &mut self,
        from: Direction,
        to: Direction,
        flags: u8,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ip = ip_header(from, to, payload.len());
        let tcp = tcp_header(from, to, flags);
        let len = u32::try_from(ETHERNET.len() + ip.len() + tcp.len() + payload.len()).unwrap_or(0);
        let seconds = u32::try_from(now.as_secs() & 0xFFFF_FFFF).unwrap_or(0);
        for word in [seconds, now.subsec_micros(), len, len] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        for part in [&ETHERNET[..], &ip, &tcp, payload] {
            self.file.write_all(part)?;
        }
        Ok(())
    }
}

/// Two addresses of zeros, and the type IPv4.
const ETHERNET: [u8; 14] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];

fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[0..4].copy_from_slice(&0xA1B2_C3D4_u32.to_le_bytes());
    header[4..6].copy_from_slice(&2u16.to_le_bytes());
    header[6..8].copy_from_slice(&4u16.to_le_bytes());
    header[16..20].copy_from_slice(&SNAP_LEN.to_le_bytes());
    header[20..24].copy_from_slice(&LINK_ETHERNET.to_le_bytes());
    header
}

/// RFC 791 §3.1, without options.
fn ip_header(from: Direction, to: Direction, payload_len: usize) -> [u8; 20] {
    let mut header = [0; 20];
    let total = u16::try_from(20 + 20 + payload_len).unwrap_or(u16::MAX);
    (header[0], header[8], header[9]) = (0x45, 64, 6);
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[12..16].copy_from_slice(&from.address.0.octets());
    header[16..20].copy_from_slice(&to.address.0.octets());
    let words =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap_or(0);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header
}

/// RFC 9293 §3.1, without options. The checksum is 0, as in captures of offloaded traffic.
fn tcp_header(from: Direction, to: Direction, flags: u8) -> [u8; 20] {
    let mut header = [0; 20];
    header[0..2].copy_from_slice(&from.address.1.to_be_bytes());
    header[2..4].copy_from_slice(&to.address.1.to_be_bytes());
    header[4..8].copy_from_slice(&from.next.to_be_bytes());
    let acked = if flags & ACK == 0 { 0 } else { to.next };
    header[8..12].copy_from_slice(&acked.to_be_bytes());
    (header[12], header[13]) = (5 << 4, flags);
    header[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    header
}

/// IPv6 ends other than mapped IPv4 ones are shown as 0.0.0.0: the bytes matter, not the ends.
fn v4(address: SocketAddr) -> (Ipv4Addr, u16) {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    (ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_reads_back_as_the_recorded_bytes() {
        let path = std::env::temp_dir().join(format!("outboard-record-{}", std::process::id()));
        let (recorder, used) = Recorder::create(&path).unwrap();
        assert_eq!(used, path);
        let end = |port| SocketAddr::from(([127, 0, 0, 1], port));
        recorder.opened(7, TappedStream { local: end(1000), peer: end(2000), dialed: false });
        recorder.received(7, b"question");
        let answer: Vec<u8> = (0..100_000u32).map(|i| (i % 253) as u8).collect();
        recorder.sent(7, &answer);
        recorder.closed(7);
        let streams = outboard_sim::pcap::streams(&std::fs::read(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();

        let [stream] = &streams[..] else { panic!("{} streams", streams.len()) };
        assert_eq!((stream.client.port(), stream.server.port()), (2000, 1000));
        let said = |by_client| {
            let pieces = stream.pieces.iter().filter(|piece| piece.by_client == by_client);
            pieces.flat_map(|piece| piece.bytes.clone()).collect::<Vec<u8>>()
        };
        assert_eq!(said(true), b"question");
        assert_eq!(said(false), answer);
    }

    #[test]
    fn a_second_process_takes_another_name() {
        let path = std::env::temp_dir().join(format!("outboard-second-{}", std::process::id()));
        let (_first, _) = Recorder::create(&path).unwrap();
        let (_second, other) = Recorder::create(&path).unwrap();
        assert_eq!(other, path.with_extension(std::process::id().to_string()));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&other).unwrap();
    }
}
