//! What supervisor and service tell each other, over a pair of SEQPACKET sockets: one message is
//! one packet, its first octet says which.
//!
//! A service is not trusted with more than a report. Nothing here waits.

use outboard_secure::{NodeId, Session};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zeroize::Zeroizing;

/// Octets of a message, at most: what the kernel's socket buffers take by default.
pub(super) const MESSAGE_MAX: usize = 160 * 1024;
/// Octets of a report, at most.
pub(super) const REPORT_MAX: usize = 64 * 1024;

const WELCOME: u8 = 1;
const GUEST: u8 = 2;
const REVOKED: u8 = 3;
const REPORT_PLEASE: u8 = 4;
const STOP: u8 = 5;
const REPORT: u8 = 6;
const TAKEN: u8 = 7;

/// From the supervisor to a service.
#[derive(Debug)]
pub(super) enum ToService {
    /// The first: who it is, as JSON.
    Welcome(Vec<u8>),
    /// Somebody who has proven the service's key.
    Guest { socket: TcpStream, session: Session, early: Vec<u8> },
    /// A node that must not stay.
    Revoked(NodeId),
    /// A report is wanted.
    ReportPlease,
    /// The node ends.
    Stop,
}

/// From a service to the supervisor.
#[derive(Debug)]
pub(super) enum FromService {
    /// It has the oldest guest of those on their way: before it does anything with it.
    Taken,
    /// How it is, as JSON.
    Report(Vec<u8>),
}

/// A message that is ready to go; it may hold a session's keys.
#[derive(Debug)]
pub(super) struct Packet {
    octets: Zeroizing<Vec<u8>>,
    socket: Option<TcpStream>,
}

impl Packet {
    /// The message for a service; `None` when the session has failed.
    pub(super) fn of(message: ToService) -> Option<Self> {
        let plain = |kind, rest: &[u8]| {
            let octets = Zeroizing::new([&[kind], rest].concat());
            Some(Self { octets, socket: None })
        };
        match message {
            ToService::Welcome(welcome) => plain(WELCOME, &welcome),
            ToService::Revoked(node) => plain(REVOKED, node.to_string().as_bytes()),
            ToService::ReportPlease => plain(REPORT_PLEASE, &[]),
            ToService::Stop => plain(STOP, &[]),
            ToService::Guest { socket, session, early } => {
                let session = session.into_octets().ok()?;
                let len = u32::try_from(session.len()).ok()?;
                let capacity = 1 + 4 + session.len() + early.len();
                let mut octets = Zeroizing::new(Vec::with_capacity(capacity));
                octets.push(GUEST);
                octets.extend_from_slice(&len.to_be_bytes());
                octets.extend_from_slice(&session);
                octets.extend_from_slice(&early);
                Some(Self { octets, socket: Some(socket) })
            }
        }
    }

    /// The message for the supervisor.
    pub(super) fn from_service(message: &FromService) -> Self {
        let octets = match message {
            FromService::Taken => vec![TAKEN],
            FromService::Report(json) => [&[REPORT], &json[..]].concat(),
        };
        Self { octets: Zeroizing::new(octets), socket: None }
    }

    pub(super) fn is_guest(&self) -> bool {
        self.socket.is_some()
    }

    /// Sends it whole; false when there is no room now.
    pub(super) fn send(&self, to: BorrowedFd<'_>) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = self.socket.as_ref().map(|socket| [socket.as_fd()]);
        if let Some(passed) = &passed {
            control.push(SendAncillaryMessage::ScmRights(passed));
        }
        let octets = [IoSlice::new(&self.octets)];
        loop {
            return match sendmsg(to, &octets, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => Ok(true),
                // So many descriptors are on their way to services already.
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
                Err(Errno::INTR) => continue,
                Err(error) => Err(error.into()),
            };
        }
    }
}

/// What came in.
pub(super) enum Received<T> {
    Message(T),
    /// Nothing now.
    Nothing,
    /// The other end is gone, or says what means nothing.
    Ended,
}

/// The next message from the supervisor.
pub(super) fn receive(from: BorrowedFd<'_>) -> Received<ToService> {
    let mut octets = Zeroizing::new(vec![0; MESSAGE_MAX]);
    match receive_packet(from, &mut octets) {
        Received::Message((len, fd)) => {
            parse(&octets[..len], fd).map_or(Received::Ended, Received::Message)
        }
        Received::Nothing => Received::Nothing,
        Received::Ended => Received::Ended,
    }
}

/// The next message of a service.
pub(super) fn receive_from_service(from: BorrowedFd<'_>) -> Received<FromService> {
    let mut octets = vec![0; REPORT_MAX + 1];
    match receive_packet(from, &mut octets) {
        Received::Message((len, _)) => match octets[..len].split_first() {
            Some((&REPORT, json)) => Received::Message(FromService::Report(json.to_vec())),
            Some((&TAKEN, [])) => Received::Message(FromService::Taken),
            _ => Received::Ended,
        },
        Received::Nothing => Received::Nothing,
        Received::Ended => Received::Ended,
    }
}

fn receive_packet(from: BorrowedFd<'_>, octets: &mut [u8]) -> Received<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let mut pieces = [IoSliceMut::new(octets)];
        match recvmsg(from, &mut pieces, &mut control, RecvFlags::CMSG_CLOEXEC) {
            // It died with messages unread; what it said before is still to come.
            Err(Errno::INTR | Errno::CONNRESET) => {}
            Err(Errno::AGAIN) => return Received::Nothing,
            Err(_) => return Received::Ended,
            Ok(got) => break got,
        }
    };
    let mut fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.next().and_then(|mut fds| fds.next());
    if got.bytes == 0 {
        return Received::Ended;
    }
    Received::Message((got.bytes, fd))
}

fn parse(octets: &[u8], fd: Option<OwnedFd>) -> Option<ToService> {
    let (kind, rest) = octets.split_first()?;
    Some(match *kind {
        WELCOME => ToService::Welcome(rest.to_vec()),
        REVOKED => ToService::Revoked(str::from_utf8(rest).ok()?.parse().ok()?),
        REPORT_PLEASE => ToService::ReportPlease,
        STOP => ToService::Stop,
        GUEST => {
            let (len, rest) = rest.split_first_chunk()?;
            let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
            let (session, early) = rest.split_at_checked(len)?;
            let session = Session::from_octets(session).ok()?;
            ToService::Guest { socket: TcpStream::from(fd?), session, early: early.to_vec() }
        }
        _ => return None,
    })
}
