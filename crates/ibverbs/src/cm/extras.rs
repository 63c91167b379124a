//! Options, ports, vendors' extensions and multicast (rdma_set_option(3), rdma_get_src_port(3),
//! rdma_set_local_ece(3), rdma_join_multicast(3)).

use super::address;
use super::id::CmId;
use super::news::errno;
use crate::abi::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, ibv_ece, rdma_cm_id, rdma_cm_join_mc_attr_ex,
};
use crate::absent::{Absent, refuse};
use crate::guard::{Errno, Outcome, fail, minus_one};
use crate::object::{find, find_shared};
use crate::qp::Qp;
use libc::{c_int, c_void, sockaddr};
use std::net::SocketAddr;

/// rdma_set_option(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_set_option")]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: usize,
) -> c_int {
    minus_one("rdma_set_option", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own bytes.
        let value = unsafe { address::bytes(optval.cast(), optlen.min(size_of::<c_int>())) };
        if u32::try_from(level) != Ok(RDMA_OPTION_ID) {
            // Paths of InfiniBand's subnet manager.
            return fail(libc::EOPNOTSUPP);
        }
        match (u32::try_from(optname), value.as_slice()) {
            (Ok(RDMA_OPTION_ID_TOS), [byte]) => set_type_of_service(&found, *byte)?,
            (Ok(RDMA_OPTION_ID_ACK_TIMEOUT), [exponent]) => set_ack_timeout(&found, *exponent),
            // Ports can be used again at once, and families do not mix.
            (Ok(RDMA_OPTION_ID_REUSEADDR | RDMA_OPTION_ID_AFONLY), [_, _, _, _]) => {}
            (Ok(RDMA_OPTION_ID_TOS..=RDMA_OPTION_ID_ACK_TIMEOUT), _) => return fail(libc::EINVAL),
            _ => return fail(libc::ENOSYS),
        }
        Ok(0)
    })
}

fn set_ack_timeout(id: &CmId, exponent: u8) {
    let mut state = id.lock();
    state.ack_timeout = Some(exponent);
    if let Ok(qp) = find::<Qp>(id.qp()) {
        qp.note_timeout(exponent);
    }
}

fn set_type_of_service(id: &CmId, byte: u8) -> Outcome<()> {
    let mut state = id.lock();
    state.type_of_service = Some(byte);
    let set = state.bound.iter().try_for_each(|(_, bound)| bound.set_type_of_service(byte));
    set.map_err(|error| errno(&error))
}

/// A port in network order, 0 when there is none.
fn port(id: *mut rdma_cm_id, which: impl FnOnce(&CmId) -> Option<SocketAddr>) -> u16 {
    find_shared::<CmId>(id).ok().and_then(|id| which(&id)).map_or(0, |found| found.port().to_be())
}

/// rdma_get_src_port(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers have no port.
#[unsafe(export_name = "outboard_rdma_get_src_port")]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port(id, |id| id.lock().source)
}

/// rdma_get_dst_port(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers have no port.
#[unsafe(export_name = "outboard_rdma_get_dst_port")]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port(id, |id| id.lock().destination)
}

/// rdma_set_local_ece(3): ignored, because we have no extensions.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_set_local_ece")]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    minus_one("rdma_set_local_ece", || {
        let found = find_shared::<CmId>(id)?;
        // SAFETY: the program's own structure.
        let ece = unsafe { ece.as_ref() }.ok_or(Errno(libc::EINVAL))?;
        if !found.qp().is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
            return fail(libc::EINVAL);
        }
        Ok(0)
    })
}

/// rdma_get_remote_ece(3): peers have none.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_get_remote_ece")]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    minus_one("rdma_get_remote_ece", || {
        let found = find_shared::<CmId>(id)?;
        if ece.is_null() || !found.qp().is_null() {
            return fail(libc::EINVAL);
        }
        // SAFETY: the program's own structure.
        unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
        Ok(0)
    })
}

/// rdma_join_multicast(3): there is none.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_join_multicast")]
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    _context: *mut c_void,
) -> c_int {
    minus_one("rdma_join_multicast", || {
        find_shared::<CmId>(id)?;
        // SAFETY: the program's own address.
        unsafe { address::read(addr) }?;
        refuse(Some(Absent::Multicast))
    })
}

/// rdma_join_multicast_ex(3): there is none.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_join_multicast_ex")]
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    _context: *mut c_void,
) -> c_int {
    minus_one("rdma_join_multicast_ex", || {
        find_shared::<CmId>(id)?;
        if mc_join_attr.is_null() {
            return fail(libc::EINVAL);
        }
        refuse(Some(Absent::Multicast))
    })
}

/// rdma_leave_multicast(3): there are no multicast groups to leave.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(export_name = "outboard_rdma_leave_multicast")]
pub unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    minus_one("rdma_leave_multicast", || {
        find_shared::<CmId>(id)?;
        // SAFETY: the program's own address.
        unsafe { address::read(addr) }?;
        fail(libc::EADDRNOTAVAIL)
    })
}
