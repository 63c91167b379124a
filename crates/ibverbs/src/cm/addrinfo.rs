//! Names and services (rdma_getaddrinfo(3)), resolved by the C library.

use super::address;
use crate::abi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IPOIB, RDMA_PS_TCP,
    RDMA_PS_UDP, rdma_addrinfo,
};
use crate::guard::{Outcome, fail, minus_one};
use libc::{addrinfo, c_char, c_int, c_void, sockaddr, socklen_t};
use std::collections::BTreeSet;
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lists that programs hold.
static LISTS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Locks the lists: for a moment, or over a fork.
pub(crate) fn lists() -> MutexGuard<'static, BTreeSet<usize>> {
    LISTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy that free(3) takes.
fn copy<T>(bytes: &[u8]) -> Outcome<*mut T> {
    // SAFETY: exactly this many bytes are allocated and written.
    unsafe {
        let copied = libc::malloc(bytes.len().max(1));
        if copied.is_null() {
            return fail(libc::ENOMEM);
        }
        copied.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        Ok(copied.cast())
    }
}

/// A copy of an address that the program or the C library has.
///
/// # Safety
/// `from` is null or points to that many bytes.
unsafe fn copy_address(from: *const sockaddr, len: socklen_t) -> Outcome<*mut sockaddr> {
    // SAFETY: the caller's word.
    copy(&unsafe { address::bytes(from.cast(), len as usize) })
}

/// rdma_getaddrinfo(3).
///
/// # Safety
/// As the manual page says.
#[unsafe(export_name = "outboard_rdma_getaddrinfo")]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    // The error of getaddrinfo(3) is not an errno number, and is returned as it is.
    let mut unresolved = 0;
    let done = minus_one("rdma_getaddrinfo", || {
        if res.is_null() || (node.is_null() && service.is_null() && hints.is_null()) {
            return fail(libc::EINVAL);
        }
        crate::fork::watch();
        // SAFETY: the program's own structure.
        let hints = unsafe { hints.as_ref() };
        // SAFETY: zeros and null are an empty structure, which free(3) takes.
        let rai = unsafe { libc::calloc(1, size_of::<rdma_addrinfo>()) }.cast::<rdma_addrinfo>();
        // SAFETY: allocated just now.
        let Some(info) = (unsafe { rai.as_mut() }) else { return fail(libc::ENOMEM) };
        lists().insert(rai.addr());
        // SAFETY: strings and hints are the program's own.
        let filled = unsafe { fill(info, node, service, hints, &mut unresolved) };
        if filled.is_err() || unresolved != 0 {
            // SAFETY: made here.
            unsafe { rdma_freeaddrinfo(rai) };
        } else {
            // SAFETY: the program gave room for a pointer.
            unsafe { *res = rai };
        }
        filled.map(|()| 0)
    });
    if unresolved != 0 { unresolved } else { done }
}

/// # Safety
/// Strings end with a zero, and what `hints` points to is as long as it says.
unsafe fn fill(
    info: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    unresolved: &mut c_int,
) -> Outcome<()> {
    // SAFETY: the caller's word, here and below.
    unsafe {
        if !node.is_null() || !service.is_null() {
            let asked = hints.map(to_c);
            let asked_c = asked.as_ref().map_or(null(), std::ptr::from_ref);
            let mut found = null_mut();
            *unresolved = libc::getaddrinfo(node, service, asked_c, &raw mut found);
            if *unresolved != 0 {
                return Ok(());
            }
            let passive = hints.is_some_and(is_passive);
            let taken = take(info, &*found, hints, passive);
            libc::freeaddrinfo(found);
            taken?;
        } else if let Some(hints) = hints {
            (info.ai_flags, info.ai_family) = (hints.ai_flags, hints.ai_family);
            (info.ai_qp_type, info.ai_port_space) = (hints.ai_qp_type, hints.ai_port_space);
            if hints.ai_dst_len > 0 {
                info.ai_dst_addr = copy_address(hints.ai_dst_addr, hints.ai_dst_len)?;
                info.ai_dst_len = hints.ai_dst_len;
            }
        }
        if let Some(hints) = hints.filter(|hints| info.ai_src_len == 0 && hints.ai_src_len > 0) {
            info.ai_src_addr = copy_address(hints.ai_src_addr, hints.ai_src_len)?;
            info.ai_src_len = hints.ai_src_len;
        }
    }
    Ok(())
}

fn is_passive(hints: &rdma_addrinfo) -> bool {
    hints.ai_flags & RAI_PASSIVE.cast_signed() != 0
}

/// The hints in the C library's form.
fn to_c(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: integers and pointers, whose zero is valid.
    let mut asked: addrinfo = unsafe { std::mem::zeroed() };
    asked.ai_flags = if is_passive(hints) { libc::AI_PASSIVE } else { 0 };
    if hints.ai_flags & RAI_NUMERICHOST.cast_signed() != 0 {
        asked.ai_flags |= libc::AI_NUMERICHOST;
    }
    asked.ai_family = hints.ai_family;
    asked.ai_socktype = match u32::try_from(hints.ai_qp_type) {
        Ok(IBV_QPT_RC | IBV_QPT_UC) => libc::SOCK_STREAM,
        Ok(IBV_QPT_UD) => libc::SOCK_DGRAM,
        _ => 0,
    };
    asked.ai_protocol = match u32::try_from(hints.ai_port_space) {
        Ok(RDMA_PS_TCP) => libc::IPPROTO_TCP,
        Ok(RDMA_PS_UDP | RDMA_PS_IPOIB) => libc::IPPROTO_UDP,
        _ => 0,
    };
    asked
}

/// The result in RDMA's form.
///
/// # Safety
/// What `found` points to is as long as it says.
unsafe fn take(
    info: &mut rdma_addrinfo,
    found: &addrinfo,
    hints: Option<&rdma_addrinfo>,
    passive: bool,
) -> Outcome<()> {
    let is_datagram = found.ai_socktype == libc::SOCK_DGRAM;
    let (kind, space) =
        if is_datagram { (IBV_QPT_UD, RDMA_PS_UDP) } else { (IBV_QPT_RC, RDMA_PS_TCP) };
    let (kind, space) = (kind.cast_signed(), space.cast_signed());
    let asked = |value: Option<c_int>| value.filter(|value| *value != 0);
    let asked_kind = asked(hints.map(|hints| hints.ai_qp_type));
    let asked_space = asked(hints.map(|hints| hints.ai_port_space));
    info.ai_qp_type = asked_kind.unwrap_or(kind);
    info.ai_port_space = asked_space.unwrap_or(space);
    info.ai_family = found.ai_family;
    // SAFETY: the caller's word; the name ends with a zero.
    let (address, name) = unsafe {
        let name = found.ai_canonname;
        let name = if name.is_null() { null_mut() } else { libc::strdup(name) };
        (copy_address(found.ai_addr, found.ai_addrlen)?, name)
    };
    if passive {
        info.ai_flags = RAI_PASSIVE.cast_signed();
        (info.ai_src_addr, info.ai_src_len) = (address, found.ai_addrlen);
        info.ai_src_canonname = name;
    } else {
        (info.ai_dst_addr, info.ai_dst_len) = (address, found.ai_addrlen);
        info.ai_dst_canonname = name;
    }
    Ok(())
}

/// rdma_freeaddrinfo(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are ignored.
#[unsafe(export_name = "outboard_rdma_freeaddrinfo")]
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    minus_one("rdma_freeaddrinfo", || {
        if !lists().remove(&res.addr()) {
            return Ok(0);
        }
        // SAFETY: `rdma_getaddrinfo` allocated it and what it points to, and it is freed once.
        // Programs may have put allocated private data and routes into it.
        unsafe {
            let parts: [*mut c_void; 6] = [
                (*res).ai_src_addr.cast(),
                (*res).ai_dst_addr.cast(),
                (*res).ai_src_canonname.cast(),
                (*res).ai_dst_canonname.cast(),
                (*res).ai_route,
                (*res).ai_connect,
            ];
            parts.into_iter().for_each(|part| libc::free(part));
            libc::free(res.cast());
        }
        Ok(0)
    });
}
