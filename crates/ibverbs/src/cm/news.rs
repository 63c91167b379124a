//! The engine's connection events as events of rdma_cm. Statuses are those of the kernel's
//! connection manager: negative errno numbers on iWARP; on InfiniBand, for refusals, the reasons of
//! its REJ messages.

use super::event::{News, Plain, publish};
use super::id::{CmId, CmPhase, IdState};
use super::{address, nic};
use crate::abi::{
    IBV_QPS_ERR, IBV_QPS_RTS, RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event,
};
use crate::config::{Personality, config};
use crate::guard::{Errno, Outcome, fail};
use crate::roce::hello;
use libc::c_int;
use outboard_verbs::{CmEventKind, ConnectError, ConnectRequest, Connected, VerbsError};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};

/// InfiniBand's reason "invalid service ID": no program listens there.
const REASON_NO_SERVICE: c_int = 8;
/// InfiniBand's reason "consumer reject": the program refused.
const REASON_CONSUMER: c_int = 28;

/// The number for an error of the caller's or this machine's.
pub(crate) fn errno(error: &VerbsError) -> Errno {
    Errno(match error {
        VerbsError::System { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        VerbsError::Memory(_) => libc::ENOMEM,
        _ => libc::EINVAL,
    })
}

/// Puts an event of the engine's about an identifier into its channel's queue; false if the program
/// does not hear of it.
pub(crate) fn gather(id: &CmId, kind: CmEventKind) -> bool {
    let mut state = id.lock();
    if state.phase == CmPhase::Gone {
        return false;
    }
    let news = translate(id, &mut state, kind);
    news.map(|news| state.channel.push(id, news)).is_some()
}

fn translate(id: &CmId, state: &mut IdState, kind: CmEventKind) -> Option<News> {
    match kind {
        CmEventKind::ConnectRequest(request) => {
            unwrap(request.private_data(), request.peer_addr())?;
            Some(News::Request(Box::new(request)))
        }
        CmEventKind::Connected(connected) => {
            (state.phase == CmPhase::Connecting).then(|| News::Plain(active(id, state, connected)))
        }
        CmEventKind::Failed(error) => {
            (state.phase == CmPhase::Connecting).then(|| News::Plain(failed(id, state, error)))
        }
        CmEventKind::Disconnected => over(id, state).map(News::Plain),
        CmEventKind::Established => None,
    }
}

/// The private data that the peer's program gave; `None` for a peer of another kind or version.
fn unwrap(bytes: &[u8], peer: SocketAddr) -> Option<Vec<u8>> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let data = hello::unwrap(config().personality, bytes).map(<[u8]>::to_vec);
    if data.is_none() && !SAID.swap(true, Ordering::Relaxed) {
        say!("the peer {peer} is no roce device of this version of Outboard; both ends must be");
    }
    data
}

/// The active side's connection is there.
fn active(id: &CmId, state: &mut IdState, connected: Connected) -> Plain {
    let nowhere = || SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let peer = state.destination.unwrap_or_else(nowhere);
    let Some(private_data) = unwrap(&connected.private_data, peer) else {
        state.phase = CmPhase::Over;
        // Without it there is nothing to end.
        let _gone = end(id, state);
        id.silence(state);
        return Plain::with_status(RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO);
    };
    state.phase = CmPhase::Connected;
    ready(id, state);
    // A program that changes its queue pair's state by itself does so now (rdma_establish(3)).
    let own = !id.qp().is_null() || config().personality == Personality::Iwarp;
    Plain {
        event: if own { RDMA_CM_EVENT_ESTABLISHED } else { RDMA_CM_EVENT_CONNECT_RESPONSE },
        status: 0,
        responder_resources: byte(connected.ird),
        initiator_depth: byte(connected.ord),
        private_data,
    }
}

/// A queue pair has its connection. If the program has destroyed it by now, the end follows.
pub(crate) fn ready(id: &CmId, state: &IdState) {
    let _gone = id.with_connected_qp(state, |qp| {
        if !id.qp().is_null() || config().personality == Personality::Iwarp {
            qp.set_state(IBV_QPS_RTS);
        }
        crate::roce::Peer::connected(&*qp.queues);
    });
}

/// The attempt to connect failed.
pub(crate) fn failed(id: &CmId, state: &mut IdState, error: ConnectError) -> Plain {
    state.phase = CmPhase::Over;
    // Without it there is nothing to end.
    let _gone = end(id, state);
    why(error)
}

/// Flushes the queue pair's requests.
pub(crate) fn end(id: &CmId, state: &IdState) -> Outcome<()> {
    id.with_connected_qp(state, |qp| {
        qp.queues.end();
        qp.set_state(IBV_QPS_ERR);
    })
}

fn why(error: ConnectError) -> Plain {
    let is_iwarp = config().personality == Personality::Iwarp;
    let rejected = |reason, number: c_int| {
        let status = if is_iwarp { -number } else { reason };
        Plain::with_status(RDMA_CM_EVENT_REJECTED, status)
    };
    match error {
        ConnectError::Unreachable { source, .. } => match source.raw_os_error() {
            Some(libc::ECONNREFUSED) => rejected(REASON_NO_SERVICE, libc::ECONNREFUSED),
            Some(libc::ECONNRESET) => rejected(REASON_NO_SERVICE, libc::ECONNRESET),
            Some(number) => Plain::with_status(RDMA_CM_EVENT_UNREACHABLE, -number),
            None => Plain::with_status(RDMA_CM_EVENT_UNREACHABLE, -libc::EIO),
        },
        ConnectError::TimedOut { .. } => {
            Plain::with_status(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT)
        }
        ConnectError::Closed { .. } => rejected(REASON_NO_SERVICE, libc::ECONNRESET),
        ConnectError::Rejected { private_data, .. } => {
            // A peer that refuses need not run Outboard.
            let private_data = hello::unwrap(config().personality, &private_data);
            let private_data = private_data.unwrap_or_default().to_vec();
            Plain { private_data, ..rejected(REASON_CONSUMER, libc::ECONNREFUSED) }
        }
        ConnectError::Cancelled { .. } => {
            Plain::with_status(RDMA_CM_EVENT_CONNECT_ERROR, -libc::ECONNABORTED)
        }
        ConnectError::Startup { .. } | ConnectError::SecureSession { .. } => {
            Plain::with_status(RDMA_CM_EVENT_CONNECT_ERROR, -libc::EPROTO)
        }
        ConnectError::Verbs(error) => {
            Plain::with_status(RDMA_CM_EVENT_CONNECT_ERROR, -errno(&error).0)
        }
    }
}

/// The connection is over, which is reported once.
pub(crate) fn over(id: &CmId, state: &mut IdState) -> Option<Plain> {
    if state.phase != CmPhase::Connected {
        return None;
    }
    state.phase = CmPhase::Over;
    // A queue pair that is gone shows no state.
    let _gone = id.with_connected_qp(state, |qp| qp.set_state(IBV_QPS_ERR));
    Some(Plain::new(RDMA_CM_EVENT_DISCONNECTED))
}

/// The API has one byte; a larger value becomes the largest possible.
fn byte(depth: u16) -> u8 {
    u8::try_from(depth).unwrap_or(u8::MAX)
}

/// Makes an identifier for a peer that wants to connect, and queues the event for the listener's
/// program. `None` drops the request, which closes its connection.
pub(crate) fn deliver_request(
    listener: &Arc<CmId>,
    state: MutexGuard<'_, IdState>,
    request: ConnectRequest,
) -> Option<*mut rdma_cm_event> {
    let about = Plain {
        event: RDMA_CM_EVENT_CONNECT_REQUEST,
        status: 0,
        responder_resources: request.peer_ord().map_or(u8::MAX, byte),
        initiator_depth: request.peer_ird().map_or(u8::MAX, byte),
        private_data: hello::unwrap(config().personality, request.private_data())?.to_vec(),
    };
    let child = child(listener, &state, request, &about).ok()?;
    Some(publish(Arc::clone(listener), child.pointer(), about))
}

fn child(
    listener: &CmId,
    state: &IdState,
    request: ConnectRequest,
    about: &Plain,
) -> Outcome<Arc<CmId>> {
    if state.phase != CmPhase::Listening {
        return fail(libc::EINVAL);
    }
    let gone = |_| Errno(libc::ECONNRESET);
    let seen = |tcp| address::v4(tcp).map(address::other_side);
    let (local, peer) = (seen(request.local_addr().map_err(gone)?)?, seen(request.peer_addr())?);
    let nic = nic::at(*local.ip())?;
    let c = listener.pointer();
    // SAFETY: programs may set `context`, between calls.
    let (context, space, qp_type) = unsafe { ((*c).context, (*c).ps, (*c).qp_type) };
    let channel = if state.is_sync { std::ptr::null_mut() } else { state.channel.pointer() };
    let id = CmId::create(channel, context, space, qp_type)?;
    let mut new = id.lock();
    id.use_nic(&mut new, nic);
    id.set_source(&mut new, local.into());
    id.set_destination(&mut new, peer.into());
    new.phase = CmPhase::Requested;
    new.depths = (about.responder_resources, about.initiator_depth);
    new.request = Some(request);
    drop(new);
    Ok(id)
}
