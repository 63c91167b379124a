//! Addresses: taken, resolved, listened at (rdma_bind_addr(3), rdma_resolve_addr(3),
//! rdma_resolve_route(3), rdma_listen(3)). The kernel's routing table says which device is the way
//! to a peer; nothing has to be waited for, but the results still arrive as events.

use super::address;
use super::endpoint::complete;
use super::event::Plain;
use super::id::{CmId, CmPhase, IdState};
use super::news::errno;
use super::nic::{self, Nic};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, rdma_cm_id,
};
use crate::guard::{Errno, Outcome, fail, minus_one};
use crate::object::find_shared;
use libc::{c_int, sockaddr};
use outboard_verbs::Bound;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// The kernel's own limit of requests that wait for an answer.
const BACKLOG_MAX: usize = 1024;
/// How often a free port of one device may turn out to be taken on another.
const PORT_TRIES: u32 = 32;

/// Takes an RDMA port at one address.
fn take(nic: Nic, address: Ipv4Addr, port: u16) -> Outcome<(Nic, Bound)> {
    let bound = Bound::new(address::other_side(SocketAddrV4::new(address, port)).into());
    Ok((nic, bound.map_err(|error| errno(&error))?))
}

/// The RDMA port.
fn port_of(bound: &Bound) -> Outcome<u16> {
    let tcp = address::v4(bound.local_addr().map_err(|error| errno(&error))?)?;
    Ok(address::other_side(tcp).port())
}

/// Takes the same port of every device.
fn take_everywhere(port: u16) -> Outcome<Vec<(Nic, Bound)>> {
    let nics = nic::all()?;
    let Some((first, others)) = nics.split_first() else { return fail(libc::ENODEV) };
    for attempt in 1..=PORT_TRIES {
        let mut taken = vec![take(*first, first.device.address, port)?];
        let same = port_of(&taken[0].1)?;
        let rest: Outcome<Vec<_>> =
            others.iter().map(|nic| take(*nic, nic.device.address, same)).collect();
        match rest {
            Ok(rest) => {
                taken.extend(rest);
                return Ok(taken);
            }
            Err(Errno(libc::EADDRINUSE)) if port == 0 && attempt < PORT_TRIES => {}
            Err(error) => return Err(error),
        }
    }
    fail(libc::EADDRINUSE)
}

fn bind(id: &CmId, state: &mut IdState, wanted: SocketAddr) -> Outcome<()> {
    let v4 = address::v4(wanted)?;
    let everywhere = v4.ip().is_unspecified();
    let taken = if everywhere {
        take_everywhere(v4.port())?
    } else {
        let nic = nic::at(*v4.ip())?;
        // As with the kernel, a loopback address belongs to no particular device; libfabric relies
        // on that. If loopback is the only device, the address belongs to it, because pyverbs needs
        // a device.
        if !v4.ip().is_loopback() || nic::is_only(nic) {
            id.use_nic(state, nic);
        }
        vec![take(nic, *v4.ip(), v4.port())?]
    };
    let mut source = wanted;
    source.set_port(port_of(&taken[0].1)?);
    if let Some(byte) = state.type_of_service {
        taken
            .iter()
            .try_for_each(|(_, bound)| bound.set_type_of_service(byte))
            .map_err(|error| errno(&error))?;
    }
    state.bound = taken;
    id.set_source(state, source);
    state.phase = CmPhase::Bound;
    Ok(())
}

/// rdma_bind_addr(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_bind_addr")]
pub unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    minus_one("rdma_bind_addr", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own address.
        let wanted = unsafe { address::read(addr) }?;
        let mut state = found.lock();
        state.need(&[CmPhase::Idle])?;
        bind(&found, &mut state, wanted)?;
        Ok(0)
    })
}

/// rdma_listen(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_listen")]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    minus_one("rdma_listen", || {
        let found = find_shared::<CmId>(id)?;
        let mut state = found.lock();
        state.need(&[CmPhase::Idle, CmPhase::Bound])?;
        if state.phase == CmPhase::Idle {
            bind(&found, &mut state, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        }
        let backlog = match usize::try_from(backlog) {
            Ok(some @ 1..BACKLOG_MAX) => some,
            _ => BACKLOG_MAX,
        };
        listen(&found, &mut state, backlog)?;
        Ok(0)
    })
}

fn listen(id: &CmId, state: &mut IdState, backlog: usize) -> Outcome<()> {
    let bound = std::mem::take(&mut state.bound);
    // Whatever goes wrong below, the addresses are given back.
    state.phase = CmPhase::Over;
    for (nic, at) in bound {
        let native = id.told(state, nic)?;
        let listener = nic.context()?.native.listen_at(at, backlog, &native);
        match listener {
            Ok(listener) => state.listeners.push(listener),
            Err(error) => {
                state.listeners.clear();
                return Err(errno(&error));
            }
        }
    }
    state.phase = CmPhase::Listening;
    Ok(())
}

/// rdma_resolve_addr(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_resolve_addr")]
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let done = start_resolve(id, src_addr, dst_addr, timeout_ms);
    if done != 0 { done } else { complete(id) }
}

fn start_resolve(
    id: *mut rdma_cm_id,
    src_addr: *mut sockaddr,
    dst_addr: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    minus_one("rdma_resolve_addr", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own addresses.
        let peer = unsafe { address::read(dst_addr) }?;
        let source = if src_addr.is_null() {
            None
        } else {
            // SAFETY: as above.
            Some(unsafe { address::read(src_addr) }?)
        };
        let mut state = found.lock();
        state.need(&[CmPhase::Idle, CmPhase::Bound])?;
        let news = match resolve(&found, &mut state, source, peer) {
            Ok(()) => Plain::new(RDMA_CM_EVENT_ADDR_RESOLVED),
            Err(Errno(number)) => Plain::with_status(RDMA_CM_EVENT_ADDR_ERROR, -number),
        };
        found.push_event(&state, news);
        Ok(0)
    })
}

fn resolve(
    id: &CmId,
    state: &mut IdState,
    source: Option<SocketAddr>,
    peer: SocketAddr,
) -> Outcome<()> {
    let mut towards = address::v4(peer)?;
    if towards.ip().is_unspecified() {
        towards.set_ip(Ipv4Addr::LOCALHOST);
    }
    let known = if state.phase == CmPhase::Bound { state.source } else { source };
    let known = known.map(address::v4).transpose()?;
    let ip = match known {
        Some(v4) if !v4.ip().is_unspecified() => *v4.ip(),
        _ => nic::source_towards(towards)?,
    };
    let nic = nic::at(ip)?;
    state.bound.retain(|(taken, _)| taken.device.index == nic.device.index);
    if state.bound.is_empty() {
        state.bound.push(take(nic, ip, known.map_or(0, |v4| v4.port()))?);
    }
    let port = port_of(&state.bound[0].1)?;
    id.use_nic(state, nic);
    id.set_source(state, address::in_family(SocketAddrV4::new(ip, port), peer));
    id.set_destination(state, address::in_family(towards, peer));
    state.phase = CmPhase::AddrResolved;
    Ok(())
}

/// rdma_resolve_route(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_resolve_route")]
pub unsafe extern "C-unwind" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    timeout_ms: c_int,
) -> c_int {
    let done = start_route(id, timeout_ms);
    if done != 0 { done } else { complete(id) }
}

fn start_route(id: *mut rdma_cm_id, _timeout_ms: c_int) -> c_int {
    minus_one("rdma_resolve_route", || {
        let found = find_shared::<CmId>(id)?;
        let mut state = found.lock();
        state.need(&[CmPhase::AddrResolved])?;
        state.phase = CmPhase::RouteResolved;
        found.push_event(&state, Plain::new(RDMA_CM_EVENT_ROUTE_RESOLVED));
        Ok(0)
    })
}
