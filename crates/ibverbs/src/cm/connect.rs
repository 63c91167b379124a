//! Connections: asked for, accepted, refused, ended (rdma_connect(3), rdma_accept(3),
//! rdma_reject(3), rdma_disconnect(3)).

use super::address::{self, bytes};
use super::endpoint::complete;
use super::event::Plain;
use super::id::{CmId, CmPhase, IdState};
use super::news::{end, errno, failed, ready};
use crate::abi::{
    RDMA_CM_EVENT_ESTABLISHED, RDMA_MAX_INIT_DEPTH, ibv_event_type, rdma_cm_id, rdma_conn_param,
};
use crate::config::config;
use crate::guard::{Errno, Outcome, fail, minus_one};
use crate::object::find_shared;
use crate::qp::is_roce;
use crate::query::MAX_RD_ATOMIC;
use crate::roce::hello;
use libc::{c_int, c_void};
use outboard_verbs::{Bound, ConnectError, ConnectParams};
use std::net::SocketAddrV4;
use std::sync::Arc;

/// The parameters that a program passes to rdma_connect(3) or rdma_accept(3).
struct ConnParam {
    ird: u8,
    ord: u8,
    private_data: Vec<u8>,
    qp_num: u32,
}

impl ConnParam {
    /// `most` is used if the program does not give the depths.
    ///
    /// # Safety
    /// `param` is null or the program's own structure.
    unsafe fn read(param: *const rdma_conn_param, most: (u8, u8)) -> Outcome<Self> {
        // A Send's completion on RoCE takes a Read (`crate::ledger`).
        let least = if is_roce() { 1 } else { 0 };
        let most = (most.0.clamp(least, MAX_RD_ATOMIC), most.1.clamp(least, MAX_RD_ATOMIC));
        // SAFETY: the caller's word.
        let Some(param) = (unsafe { param.as_ref() }) else {
            return Ok(Self { ird: most.0, ord: most.1, private_data: Vec::new(), qp_num: 0 });
        };
        let private_data = param.private_data.cast::<u8>();
        // SAFETY: the program's own bytes.
        let private_data = unsafe { bytes(private_data, param.private_data_len.into()) };
        let ird = depth(param.responder_resources, most.0)?.max(least);
        let ord = depth(param.initiator_depth, most.1)?.max(least);
        Ok(Self { ird, ord, private_data, qp_num: param.qp_num })
    }

    fn params(self, brought: &[u8]) -> ConnectParams {
        ConnectParams {
            private_data: hello::wrap(config().personality, [brought, &self.private_data].concat()),
            ird: self.ird.into(),
            ord: self.ord.into(),
            crc: config().crc,
            ..ConnectParams::default()
        }
    }
}

fn depth(asked: u8, most: u8) -> Outcome<u8> {
    match asked {
        open if u32::from(open) == RDMA_MAX_INIT_DEPTH => Ok(most),
        too_much if too_much > MAX_RD_ATOMIC => fail(libc::EINVAL),
        fine => Ok(fine),
    }
}

/// rdma_connect(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_connect")]
pub unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let done = start_connect(id, conn_param);
    if done != 0 { done } else { complete(id) }
}

fn start_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    minus_one("rdma_connect", || {
        let found = find_shared::<CmId>(id)?;
        let mut state = found.lock();
        state.need(&[CmPhase::RouteResolved])?;
        // SAFETY: the program's own structure.
        let asked = unsafe { ConnParam::read(conn_param, (u8::MAX, u8::MAX)) }?;
        connect(&found, &mut state, asked)?;
        Ok(0)
    })
}

fn connect(id: &Arc<CmId>, state: &mut IdState, asked: ConnParam) -> Outcome<()> {
    state.qp_num = asked.qp_num;
    let native = id.with_connected_qp(state, |qp| Arc::clone(&qp.native))?;
    let params = asked.params(&std::mem::take(&mut state.connect_data));
    let (nic, peer) = (state.nic()?, address::other_side(CmId::peer(state)?));
    let from = match state.bound.pop() {
        Some((_, bound)) => bound,
        None => Bound::new(SocketAddrV4::new(nic.device.address, 0).into())
            .map_err(|error| errno(&error))?,
    };
    let told = id.told(state, nic)?;
    match native.start_connect_from(from, peer.into(), &params, &told) {
        Ok(()) => state.phase = CmPhase::Connecting,
        Err(ConnectError::Verbs(error)) => return Err(errno(&error)),
        Err(ConnectError::Startup { .. }) => return fail(libc::EINVAL),
        Err(error) => {
            let news = failed(id, state, error);
            id.push_event(state, news);
        }
    }
    Ok(())
}

/// rdma_accept(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_accept")]
pub unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    let done = start_accept(id, conn_param);
    if done != 0 { done } else { complete(id) }
}

fn start_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int {
    minus_one("rdma_accept", || {
        let found = find_shared::<CmId>(id)?;
        let mut state = found.lock();
        state.need(&[CmPhase::Requested])?;
        // SAFETY: the program's own structure.
        let asked = unsafe { ConnParam::read(conn_param, state.depths) }?;
        accept(&found, &mut state, asked)?;
        Ok(0)
    })
}

/// The lock is held throughout, so that the connection's end is reported after its beginning.
fn accept(id: &Arc<CmId>, state: &mut IdState, asked: ConnParam) -> Outcome<()> {
    state.qp_num = asked.qp_num;
    let native = id.with_connected_qp(state, |qp| Arc::clone(&qp.native))?;
    if native.state() != outboard_verbs::QpState::Idle {
        return fail(libc::EINVAL);
    }
    let told = id.told(state, state.nic()?)?;
    let Some(request) = state.request.take() else { return fail(libc::EINVAL) };
    let params = asked.params(&[]);
    match request.accept_on(&native, &params, &told) {
        Ok(_) => {
            state.phase = CmPhase::Connected;
            ready(id, state);
            id.push_event(state, Plain::new(RDMA_CM_EVENT_ESTABLISHED));
            Ok(())
        }
        Err(error) => {
            state.phase = CmPhase::Over;
            // Without it there is nothing to end.
            let _gone = end(id, state);
            Err(match error.into() {
                ConnectError::Verbs(error) => errno(&error),
                ConnectError::Startup { .. } => Errno(libc::EINVAL),
                _ => Errno(libc::ECONNRESET),
            })
        }
    }
}

/// rdma_reject(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_reject")]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    minus_one("rdma_reject", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own bytes.
        let private_data = unsafe { bytes(private_data.cast(), private_data_len.into()) };
        let mut state = found.lock();
        state.need(&[CmPhase::Requested])?;
        let Some(request) = state.request.take() else { return fail(libc::EINVAL) };
        state.phase = CmPhase::Over;
        drop(state);
        // A peer that has gone needs no answer.
        let _told = request.reject(&hello::wrap(config().personality, private_data));
        Ok(0)
    })
}

/// rdma_reject_ece(3): as [`rdma_reject`]; iWARP has no reasons.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_reject_ece")]
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    // SAFETY: the same contract.
    unsafe { rdma_reject(id, private_data, private_data_len) }
}

/// An event for which a synchronous program must not wait, because it will not come.
const NO_EVENT: c_int = 1;

/// rdma_disconnect(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_disconnect")]
pub unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    match start_disconnect(id) {
        0 => complete(id),
        NO_EVENT => 0,
        error => error,
    }
}

fn start_disconnect(id: *mut rdma_cm_id) -> c_int {
    minus_one("rdma_disconnect", || {
        let found = find_shared::<CmId>(id)?;
        let state = found.lock();
        state.need(&[CmPhase::Connecting, CmPhase::Connected, CmPhase::Over])?;
        if state.phase == CmPhase::Over {
            // The peer has disconnected first; that event may still wait for the program.
            return Ok(if state.channel.has_of(&found) { 0 } else { NO_EVENT });
        }
        // What was posted is flushed; the engine reports when the connection is over.
        end(&found, &state)?;
        Ok(0)
    })
}

/// rdma_establish(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_establish")]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    minus_one("rdma_establish", || {
        let found = find_shared::<CmId>(id)?;
        if !found.qp().is_null() {
            return fail(libc::EINVAL);
        }
        found.lock().need(&[CmPhase::Connected])?;
        Ok(0)
    })
}

/// rdma_notify(3): the connection manager knows everything already.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_notify")]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, _event: ibv_event_type) -> c_int {
    minus_one("rdma_notify", || {
        let phases = [CmPhase::Requested, CmPhase::Connecting, CmPhase::Connected, CmPhase::Over];
        find_shared::<CmId>(id)?.lock().need(&phases)?;
        Ok(0)
    })
}
