//! The connection manager: TCP connect and accept, the MPA start-up, and the events of
//! connections. RDMA's own part begins when a queue pair gets its link.
//!
//! Modules: `bound` (addresses), `channel` (events on their way to the program), `backlog` (the
//! peers that a listener holds), `listen` (the passive side), `connect` (the active side),
//! `secured` and `adopt` (either side, over a session).

mod adopt;
mod backlog;
mod bound;
mod channel;
mod connect;
mod listen;
mod secured;

pub use bound::Bound;
pub use channel::CmChannel;
pub(crate) use channel::CmShared;
pub use connect::Connected;
pub use listen::{ConnectRequest, Listener, NotAccepted};
pub use outboard_iwarp::startup::Role;
pub use secured::{Secured, StreamError};

use crate::error::ConnectError;
use crate::qp::QpShared;
use outboard_iwarp::startup::{LocalParams, Negotiated};
use outboard_iwarp::{Connection, Params};
use outboard_wire::ddp::UNTAGGED_LEN;
use outboard_wire::fpdu::{MAX_ULPDU, max_ulpdu};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// ULPDU on loopback with CRCs: both ends overlap on large messages.
const LOOPBACK_ULPDU_CRC: usize = 16 * 1024 + UNTAGGED_LEN;
/// Segment size assumed if the kernel does not report one.
const DEFAULT_MSS: usize = 536;

/// When nothing has come from a peer for this long, TCP asks whether its machine is there ...
const SILENCE: Duration = Duration::from_secs(60);
/// ... again after this long ...
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// ... this many times in all, before the connection is lost.
const ASK_TIMES: u32 = 3;

/// How large FPDUs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FpduPolicy {
    /// One TCP segment towards other machines, which may have hardware; large on loopback.
    Auto,
    /// ULPDUs of at most this many bytes, 128 to 64,768.
    Max(usize),
}

/// What one side brings to a connection.
#[derive(Clone, Debug)]
pub struct ConnectParams {
    /// For the peer's program: at most 508 bytes (512 with revision 1).
    pub private_data: Vec<u8>,
    /// Reads and atomics that the peer may have under way towards us.
    pub ird: u16,
    /// Reads and atomics that we want under way towards the peer.
    pub ord: u16,
    /// CRCs on every FPDU; off only when both sides turn them off.
    pub crc: bool,
    /// Ask the peer for markers in what it sends.
    pub markers: bool,
    /// MPA revision that an initiator speaks: 2 or 1.
    pub revision: u8,
    /// Initiator of revision 2: open with a zero-length message, so that the peer may speak first.
    pub peer_to_peer: bool,
    /// How large our FPDUs are.
    pub fpdu: FpduPolicy,
    /// How long the start-up may take.
    pub timeout: Duration,
}

impl Default for ConnectParams {
    fn default() -> Self {
        let params = LocalParams::default();
        Self {
            private_data: params.private_data,
            ird: params.ird,
            ord: params.ord,
            crc: params.crc,
            markers: params.markers,
            revision: params.revision,
            peer_to_peer: params.peer_to_peer,
            fpdu: FpduPolicy::Auto,
            timeout: Duration::from_secs(10),
        }
    }
}

impl ConnectParams {
    fn local(&self) -> LocalParams {
        LocalParams {
            revision: self.revision,
            markers: self.markers,
            crc: self.crc,
            ird: self.ird,
            ord: self.ord,
            peer_to_peer: self.peer_to_peer,
            private_data: self.private_data.clone(),
        }
    }
}

/// Something that happened to a connection.
#[derive(Debug)]
pub struct CmEvent {
    /// The key under which the listener or the queue pair got the channel ([`CmChannel::keyed`]).
    pub key: u64,
    /// Number of the queue pair; 0 for a connection request.
    pub qp: u32,
    /// What happened.
    pub kind: CmEventKind,
}

/// What happened to a connection.
#[derive(Debug)]
pub enum CmEventKind {
    /// A peer wants to connect to a listener.
    ConnectRequest(ConnectRequest),
    /// The active side's start-up is done.
    Connected(Connected),
    /// The passive side may send: the peer's first message is here.
    Established,
    /// The active side's attempt failed.
    Failed(ConnectError),
    /// The connection is over: both sides have closed, it was lost, or nothing has moved for 2 s
    /// after one side left. All completions are in their queues.
    Disconnected,
}

/// The connection that a finished start-up makes for a queue pair.
fn connection(
    qp: &QpShared,
    negotiated: Negotiated,
    policy: FpduPolicy,
    socket: &TcpStream,
) -> Connection {
    watch_peer(socket);
    if is_local(socket) {
        send_unpaced(socket);
    }
    let ulpdu = ulpdu_len(policy, &negotiated, socket);
    let params = Params {
        qp: qp.number,
        pd: qp.pd,
        negotiated,
        max_ulpdu: ulpdu,
        send_depth: qp.send_depth,
        rnr_policy: qp.rnr_policy,
    };
    Connection::new(params, Instant::now())
}

/// Lets TCP notice that the peer's machine has vanished while nothing is under way. With data under
/// way TCP's own repetitions end; TCP_USER_TIMEOUT would shorten that, but also ends a connection
/// whose peer is well and keeps its window closed, because it waits for a receive to be posted.
fn watch_peer(socket: &TcpStream) {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(SILENCE)
        .with_interval(ASK_AGAIN)
        .with_retries(ASK_TIMES);
    // The connection also works without it.
    let _set = socket2::SockRef::from(socket).set_tcp_keepalive(&keepalive);
}

/// Within one machine there is no network whose speed would have to be found out. A congestion
/// control that does so and paces what it sends, as BBR does, halves the speed there. Reno does not
/// pace; every kernel has it and allows it.
fn send_unpaced(socket: &TcpStream) {
    // Without it the connection works all the same.
    let _set = socket2::SockRef::from(socket).set_tcp_congestion(b"reno");
}

/// RFC 5044 §5: a sender that cannot see segments aims at one FPDU a segment. On loopback segments
/// do not matter, and larger FPDUs cost less.
fn ulpdu_len(policy: FpduPolicy, negotiated: &Negotiated, socket: &TcpStream) -> usize {
    match policy {
        FpduPolicy::Max(len) => len,
        FpduPolicy::Auto if is_local(socket) && negotiated.crc => LOOPBACK_ULPDU_CRC,
        FpduPolicy::Auto if is_local(socket) => MAX_ULPDU,
        FpduPolicy::Auto => {
            let mss = socket2::SockRef::from(socket).tcp_mss();
            let mss = mss.map_or(DEFAULT_MSS, |mss| mss as usize);
            max_ulpdu(mss, negotiated.tx_markers)
        }
    }
}

/// Both ends have the same address, or the loopback's.
fn is_local(socket: &TcpStream) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(ours), Ok(theirs)) => ours.ip() == theirs.ip() || theirs.ip().is_loopback(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connections_within_one_machine_are_not_paced() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let socket = TcpStream::connect(address).expect("connected");
        assert!(is_local(&socket));
        send_unpaced(&socket);
        let name = socket2::SockRef::from(&socket).tcp_congestion().expect("a name");
        assert!(name.starts_with(b"reno"), "{name:?}");
    }
}
