//! Messages between supervisor and service, over a pair of SEQPACKET sockets: each is one packet,
//! whose first byte is its kind.
//!
//! A service can send reports and requests only, and the supervisor checks each.
//! Nothing here waits.

use super::config::Grant;
use crate::codec::Protocol;
use outboard_secure::{NodeId, SecureSession};
use outboard_unix::rights;
use outboard_verbs::Secured;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zeroize::{Zeroize, Zeroizing};

/// What supervisor and service, which are one program, say to each other in requests.
const PROTOCOL: Protocol = Protocol::version(1);

/// Bytes of a message, at most: what the kernel's socket buffers take by default.
pub(super) const MESSAGE_MAX: usize = 160 * 1024;
/// Bytes of a report, at most.
pub(super) const REPORT_MAX: usize = 64 * 1024;
/// Bytes of a request, at most.
const REQUEST_MAX: usize = 4 * 1024;

const SETUP: u8 = 1;
const SESSION: u8 = 2;
const REVOKED: u8 = 3;
const REPORT_PLEASE: u8 = 4;
const STOP: u8 = 5;
const REPORT: u8 = 6;
const TAKEN: u8 = 7;
const KEPT: u8 = 8;
const REQUEST: u8 = 9;
const ANSWER: u8 = 10;

/// From the supervisor to a service.
#[derive(Debug)]
pub(super) enum ToService {
    /// The first message: the service's name and settings, as JSON.
    ServiceSetup(Vec<u8>),
    /// After that: memory that the supervisor has kept for it.
    Kept { name: String, memory: OwnedFd },
    /// A peer that has proven the service's key, and what it may use.
    Session { stream: Secured, grant: Grant },
    /// As it arrives where the service has no descriptor left for its socket: it is lost.
    SessionLost,
    /// A node that is revoked: end its sessions.
    Revoked(NodeId),
    /// A report is wanted.
    ReportPlease,
    /// The result of a request.
    Answer { id: u64, outcome: Result<Option<Secured>, String> },
    /// The node ends.
    Stop,
}

/// From a service to the supervisor.
#[derive(Debug)]
pub(super) enum FromService {
    /// It confirms the oldest session on its way, before it does anything with it.
    Taken,
    /// Its report, as JSON.
    Report(Vec<u8>),
    /// A request; the answer has the same number.
    Request { id: u64, request: ServiceRequest, memory: Option<OwnedFd> },
}

/// A service's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ServiceRequest {
    /// A session with a service of another node.
    Dial { host: String, service: String, limit_ms: u32 },
    /// Keep the memory that comes along, instead of what was kept under that name.
    Keep { name: String },
    /// Discard that memory.
    Discard { name: String },
}

/// Whether a message is kept if its process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketKind {
    /// A session of that node: the next process gets it, unless this one had taken it.
    Session(NodeId),
    /// It is for that process alone, and is dropped with it.
    Other,
}

/// A message that is ready to go; it may hold a session's keys.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: Zeroizing<Vec<u8>>,
    passed: Option<OwnedFd>,
    kind: PacketKind,
}

impl Packet {
    fn plain(kind: u8, parts: &[&[u8]]) -> Self {
        let bytes = Zeroizing::new([&[kind], &parts.concat()[..]].concat());
        Self { bytes, passed: None, kind: PacketKind::Other }
    }

    /// The message for a service; `None` when the session has failed.
    pub(super) fn of(message: ToService) -> Option<Self> {
        Some(match message {
            ToService::ServiceSetup(setup) => Self::plain(SETUP, &[&setup]),
            ToService::Revoked(node) => Self::plain(REVOKED, &[node.to_string().as_bytes()]),
            ToService::ReportPlease => Self::plain(REPORT_PLEASE, &[]),
            ToService::Stop => Self::plain(STOP, &[]),
            // Nobody sends it.
            ToService::SessionLost => return None,
            ToService::Kept { name, memory } => {
                Self { passed: Some(memory), ..Self::plain(KEPT, &[name.as_bytes()]) }
            }
            ToService::Session { stream, grant } => {
                let kind = PacketKind::Session(stream.peer());
                let words = [grant.sessions.to_be_bytes(), grant.slots.to_be_bytes()].concat();
                Self { kind, ..Self::handing(SESSION, &words, stream)? }
            }
            ToService::Answer { id, outcome: Ok(Some(stream)) } => {
                Self::handing(ANSWER, &[&id.to_be_bytes()[..], &[1]].concat(), stream)?
            }
            ToService::Answer { id, outcome: Ok(None) } => {
                Self::plain(ANSWER, &[&id.to_be_bytes(), &[0]])
            }
            ToService::Answer { id, outcome: Err(why) } => {
                Self::plain(ANSWER, &[&id.to_be_bytes(), &[2], why.as_bytes()])
            }
        })
    }

    fn handing(kind: u8, words: &[u8], stream: Secured) -> Option<Self> {
        let (socket, session, early) = stream.into_parts();
        let session = session.into_bytes().ok()?;
        let len = u32::try_from(session.len()).ok()?;
        // Room for everything at once: a buffer that grows leaves copies behind.
        let capacity = 1 + words.len() + 4 + session.len() + early.len();
        let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
        bytes.push(kind);
        bytes.extend_from_slice(words);
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(&session);
        bytes.extend_from_slice(&early);
        Some(Self { bytes, passed: Some(socket.into()), kind: PacketKind::Other })
    }

    /// The message for the supervisor.
    pub(super) fn from_service(message: FromService) -> Self {
        match message {
            FromService::Taken => Self::plain(TAKEN, &[]),
            FromService::Report(json) => Self::plain(REPORT, &[&json]),
            FromService::Request { id, request, memory } => {
                let request = PROTOCOL.encode(&request);
                Self { passed: memory, ..Self::plain(REQUEST, &[&id.to_be_bytes(), &request]) }
            }
        }
    }

    pub(super) fn kind(&self) -> PacketKind {
        self.kind
    }

    /// Sends it whole; false when there is no room now.
    pub(super) fn send(&self, to: BorrowedFd<'_>) -> io::Result<bool> {
        let passed = self.passed.as_ref().map(AsFd::as_fd);
        match rights::send(to, &self.bytes, passed.as_slice(), SendFlags::empty()) {
            Ok(_) => Ok(true),
            // Or the kernel's limit of descriptors in flight is reached.
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// What came in.
pub(super) enum ReceivedMessage<T> {
    Message(T),
    /// Nothing now.
    Nothing,
    /// The other end is gone, or has sent an invalid message.
    Ended,
}

/// The next message from the supervisor.
pub(super) fn receive(from: BorrowedFd<'_>) -> ReceivedMessage<ToService> {
    let mut bytes = vec![0; MESSAGE_MAX];
    match receive_packet(from, &mut bytes) {
        ReceivedMessage::Message((len, fd)) => {
            let message = parse(&bytes[..len], fd);
            // Keys of a session. What is behind them was not written.
            bytes[..len].zeroize();
            message.map_or(ReceivedMessage::Ended, ReceivedMessage::Message)
        }
        ReceivedMessage::Nothing => ReceivedMessage::Nothing,
        ReceivedMessage::Ended => ReceivedMessage::Ended,
    }
}

/// The next message of a service.
pub(super) fn receive_from_service(from: BorrowedFd<'_>) -> ReceivedMessage<FromService> {
    let mut bytes = vec![0; REPORT_MAX + 1];
    match receive_packet(from, &mut bytes) {
        ReceivedMessage::Message((len, memory)) => parse_from_service(&bytes[..len], memory)
            .map_or(ReceivedMessage::Ended, ReceivedMessage::Message),
        ReceivedMessage::Nothing => ReceivedMessage::Nothing,
        ReceivedMessage::Ended => ReceivedMessage::Ended,
    }
}

fn parse_from_service(bytes: &[u8], memory: Option<OwnedFd>) -> Option<FromService> {
    Some(match bytes.split_first()? {
        (&REPORT, json) => FromService::Report(json.to_vec()),
        (&TAKEN, []) => FromService::Taken,
        (&REQUEST, rest) if rest.len() <= REQUEST_MAX => {
            let (id, request) = rest.split_first_chunk()?;
            let request = PROTOCOL.decode(request).ok()?;
            FromService::Request { id: u64::from_be_bytes(*id), request, memory }
        }
        _ => return None,
    })
}

fn receive_packet(
    from: BorrowedFd<'_>,
    bytes: &mut [u8],
) -> ReceivedMessage<(usize, Option<OwnedFd>)> {
    loop {
        match rights::receive(from, bytes, RecvFlags::empty()) {
            // It died with messages unread; its earlier messages can still be received.
            Err(Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return ReceivedMessage::Nothing,
            Ok(got) if got.len > 0 => {
                return ReceivedMessage::Message((got.len, got.fds.into_iter().next()));
            }
            Ok(_) | Err(_) => return ReceivedMessage::Ended,
        }
    }
}

fn parse(bytes: &[u8], fd: Option<OwnedFd>) -> Option<ToService> {
    let (kind, rest) = bytes.split_first()?;
    let text = |bytes: &[u8]| str::from_utf8(bytes).ok().map(str::to_owned);
    Some(match *kind {
        SETUP => ToService::ServiceSetup(rest.to_vec()),
        KEPT => ToService::Kept { name: text(rest)?, memory: fd? },
        REVOKED => ToService::Revoked(text(rest)?.parse().ok()?),
        REPORT_PLEASE => ToService::ReportPlease,
        STOP => ToService::Stop,
        // The kernel had no descriptor to give.
        SESSION if fd.is_none() => ToService::SessionLost,
        SESSION => {
            let (sessions, rest) = rest.split_first_chunk()?;
            let (slots, rest) = rest.split_first_chunk()?;
            let (sessions, slots) = (u32::from_be_bytes(*sessions), u32::from_be_bytes(*slots));
            ToService::Session { stream: handed(rest, fd)?, grant: Grant { sessions, slots } }
        }
        ANSWER => {
            let (id, rest) = rest.split_first_chunk()?;
            let outcome = match rest.split_first()? {
                (0, []) => Ok(None),
                (1, _) if fd.is_none() => Err("this process has too many open files".to_owned()),
                (1, rest) => Ok(Some(handed(rest, fd)?)),
                (2, why) => Err(text(why)?),
                _ => return None,
            };
            ToService::Answer { id: u64::from_be_bytes(*id), outcome }
        }
        _ => return None,
    })
}

fn handed(bytes: &[u8], fd: Option<OwnedFd>) -> Option<Secured> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (session, early) = rest.split_at_checked(len)?;
    let session = SecureSession::from_bytes(session).ok()?;
    Some(Secured::new(TcpStream::from(fd?), session, early.to_vec()))
}
