//! Attributes of devices and ports (ibv_query_device(3), ibv_query_port(3), ibv_query_gid(3)).
//! They promise only what the stack does.

use crate::abi::{
    _compat_ibv_port_attr, IBV_ATOMIC_GLOB, IBV_ATOMIC_HCA, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096,
    IBV_PORT_ACTIVE, IBV_PORT_CM_SUP, IBV_PORT_DOWN, IBV_PORT_IP_BASED_GIDS, ibv_context,
    ibv_device_attr, ibv_device_attr_ex, ibv_gid, ibv_gid_entry, ibv_mtu, ibv_port_attr,
    ibv_query_device_ex_input, verbs_context,
};
use crate::config::{Personality, config};
use crate::context::Context;
use crate::cq::MAX_CQE;
use crate::device::{Device, put};
use crate::guard::{Errno, Outcome, code, fail, minus_one};
use crate::interface;
use crate::object::{find, zeroed};
use crate::qp::{MAX_SGE, MAX_WR};
use libc::{c_int, c_uint};
use std::mem::offset_of;

/// Bytes of a message, at most (InfiniBand's limit; the stack's is twice that).
pub(crate) const MAX_MESSAGE: u32 = 1 << 31;
/// Reads and atomics under way in one direction: the API has a byte for it.
pub(crate) const MAX_RD_ATOMIC: u8 = 128;
/// Queue pairs of an RoCE device: their numbers have eight bits of their own.
const MAX_ROCE_QP: u64 = 256;
/// Not 0, which programs take for a failed query: an IEEE number that is never assigned.
const VENDOR: u32 = 0x02_4F42;
/// The limit for other kinds of objects: more than memory allows.
const MAX_OBJECTS: c_int = 1 << 16;
/// Memory regions: the STag table's slots but the first.
const MAX_MR: c_int = (1 << 20) - 1;
/// `IBV_LINK_LAYER_ETHERNET` as the byte that it is in structures.
const LINK_LAYER: u8 = IBV_LINK_LAYER_ETHERNET.to_le_bytes()[0];
/// The only partition.
const PKEY: u16 = 0xFFFF;
/// RoCE needs a GRH (`IBV_QPF_GRH_REQUIRED`, which the headers define as a macro).
const GRH_REQUIRED: u8 = 1;

/// Fills in this file's functions.
pub(crate) fn set_operations(c: &mut verbs_context) {
    c.query_device_ex = Some(query_device_ex);
    c.query_port = Some(query_port);
    c.context.ops._compat_query_device = Some(ibv_query_device);
    c.context.ops._compat_query_port = Some(ibv_query_port);
    crate::extras::set_operations(c);
    crate::mr::set_operations(c);
}

/// Writes the first `room` bytes of a structure, and zeros where the program's is longer.
///
/// # Safety
/// `to` may be written for `room` bytes.
unsafe fn write_part<T>(to: *mut T, room: usize, from: &T) -> Outcome<()> {
    if to.is_null() {
        return fail(libc::EINVAL);
    }
    let len = room.min(size_of::<T>());
    // SAFETY: the caller's word for one side, a reference on the other.
    unsafe {
        to.cast::<u8>().write_bytes(0, room);
        to.cast::<u8>().copy_from_nonoverlapping(std::ptr::from_ref(from).cast(), len);
    }
    Ok(())
}

fn device_attr(device: &Device) -> ibv_device_attr {
    let mut attr: ibv_device_attr = zeroed();
    put(&mut attr.fw_ver, env!("CARGO_PKG_VERSION"));
    attr.node_guid = u64::from_ne_bytes(device.guid());
    attr.sys_image_guid = attr.node_guid;
    attr.vendor_id = VENDOR;
    attr.max_mr_size = u64::MAX;
    attr.page_size_cap = page_size();
    let (wr, sge) = (MAX_WR.cast_signed(), MAX_SGE.cast_signed());
    let depth = c_int::from(MAX_RD_ATOMIC);
    attr.max_qp = max_qp();
    (attr.max_qp_wr, attr.max_sge, attr.max_sge_rd) = (wr, sge, sge);
    (attr.max_srq, attr.max_srq_wr, attr.max_srq_sge) = (MAX_OBJECTS, wr, sge);
    (attr.max_cq, attr.max_cqe) = (MAX_OBJECTS, MAX_CQE.cast_signed());
    (attr.max_mr, attr.max_pd) = (MAX_MR, MAX_OBJECTS);
    (attr.max_qp_rd_atom, attr.max_qp_init_rd_atom) = (depth, depth);
    attr.max_res_rd_atom = depth.saturating_mul(attr.max_qp);
    // Atomics are the processor's, so they are also atomic towards the program's own. Programs for
    // RoCE, such as UCX, test for the value ATOMIC_HCA, so RoCE devices report that.
    attr.atomic_cap = if is_roce() { IBV_ATOMIC_HCA } else { IBV_ATOMIC_GLOB };
    attr.max_ah = if is_roce() { MAX_OBJECTS } else { 0 };
    (attr.max_pkeys, attr.phys_port_cnt) = (1, 1);
    attr
}

fn is_roce() -> bool {
    config().personality == Personality::Roce
}

fn page_size() -> u64 {
    // SAFETY: asks for a number.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// A queue pair needs a descriptor.
fn max_qp() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes one rlimit.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let most = if is_roce() { MAX_ROCE_QP } else { 1 << 16 };
    c_int::try_from(limit.rlim_cur.clamp(1, most)).unwrap_or(c_int::MAX)
}

fn port_attr(device: &Device) -> ibv_port_attr {
    let mut attr: ibv_port_attr = zeroed();
    let running = interface::is_running(&device.interface);
    // PortPhysicalState of InfiniBand: LinkUp, Disabled.
    (attr.state, attr.phys_state) = if running { (IBV_PORT_ACTIVE, 5) } else { (IBV_PORT_DOWN, 3) };
    attr.max_mtu = IBV_MTU_4096;
    attr.active_mtu = active_mtu(device);
    attr.port_cap_flags = IBV_PORT_CM_SUP;
    if is_roce() {
        attr.port_cap_flags |= IBV_PORT_IP_BASED_GIDS;
        attr.flags = GRH_REQUIRED;
    }
    (attr.gid_tbl_len, attr.pkey_tbl_len) = (1, 1);
    attr.max_msg_sz = MAX_MESSAGE;
    attr.max_vl_num = 1;
    (attr.active_width, attr.active_speed) = lanes(interface::speed(&device.interface));
    attr.link_layer = LINK_LAYER;
    attr
}

/// TCP cuts segments by itself, so RoCE programs need not care for the interface's MTU.
pub(crate) fn active_mtu(device: &Device) -> ibv_mtu {
    if is_roce() {
        return IBV_MTU_4096;
    }
    match interface::mtu(&device.interface).unwrap_or(1500) {
        4096.. => IBV_MTU_4096,
        2048.. => IBV_MTU_2048,
        1024.. => IBV_MTU_1024,
        512.. => IBV_MTU_512,
        _ => IBV_MTU_256,
    }
}

/// Link speeds in Mb/s, with InfiniBand's codes of width and speed.
const LANES: [(u32, (u8, u8)); 9] = [
    (2_500, (1, 1)),
    (5_000, (1, 2)),
    (10_000, (1, 4)),
    (25_000, (1, 32)),
    (40_000, (2, 4)),
    (50_000, (1, 64)),
    (100_000, (2, 32)),
    (200_000, (2, 64)),
    (u32::MAX, (2, 128)),
];

/// The slowest link that is this fast; 10 Gb/s where that is unknown.
fn lanes(speed: Option<u32>) -> (u8, u8) {
    let speed = speed.unwrap_or(10_000);
    LANES.iter().find(|(limit, _)| speed <= *limit).map_or((1, 1), |(_, codes)| *codes)
}

fn device_of(context: *mut ibv_context) -> Outcome<&'static Device> {
    Ok(find::<Context>(context)?.device)
}

/// The device, if it has this port.
fn device_at(context: *mut ibv_context, port: u32) -> Outcome<&'static Device> {
    let device = device_of(context)?;
    if port == 1 { Ok(device) } else { fail(libc::EINVAL) }
}

/// ibv_query_device(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    code("ibv_query_device", || {
        let answer = device_attr(device_of(context)?);
        // SAFETY: the caller's word.
        unsafe { write_part(attr, size_of::<ibv_device_attr>(), &answer) }
    })
}

/// ibv_query_device_ex(3), through the context.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    code("ibv_query_device_ex", || {
        // SAFETY: null, or the caller's word.
        let asked = unsafe { input.as_ref() }.map_or(0, |input| input.comp_mask);
        if asked != 0 || attr_size < size_of::<ibv_device_attr>() {
            return fail(libc::EINVAL);
        }
        // Zero means that a device does not have the feature.
        let mut answer: ibv_device_attr_ex = zeroed();
        answer.orig_attr = device_attr(device_of(context)?);
        answer.device_cap_flags_ex = u64::from(answer.orig_attr.device_cap_flags);
        answer.phys_port_cnt_ex = 1;
        // SAFETY: the caller's word.
        unsafe { write_part(attr, attr_size, &answer) }
    })
}

/// ibv_query_port(3), through the context.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    attr_len: usize,
) -> c_int {
    code("ibv_query_port", || {
        let answer = port_attr(device_at(context, port_num.into())?);
        // SAFETY: the caller's word.
        unsafe { write_part(attr, attr_len, &answer) }
    })
}

/// ibv_query_port(3), for programs that were built before the context had this function.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the old structure is the new one up to the field that it lacks.
    unsafe {
        query_port(context, port_num, attr.cast(), offset_of!(ibv_port_attr, port_cap_flags2))
    }
}

/// The GID, if the port has one of this number.
fn gid_at(context: *mut ibv_context, port: u32, index: u32) -> Outcome<&'static Device> {
    let device = device_at(context, port)?;
    if index == 0 { Ok(device) } else { fail(libc::EINVAL) }
}

fn gid_entry(device: &Device) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: device.gid() },
        gid_index: 0,
        port_num: 1,
        gid_type: if is_roce() { IBV_GID_TYPE_ROCE_V2 } else { IBV_GID_TYPE_IB },
        ndev_ifindex: interface::index(&device.interface),
    }
}

/// ibv_query_gid(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    minus_one("ibv_query_gid", || {
        let device = gid_at(context, port_num.into(), index.cast_unsigned())?;
        // SAFETY: the caller's word.
        unsafe { write_part(gid, size_of::<ibv_gid>(), &ibv_gid { raw: device.gid() }) }?;
        Ok(0)
    })
}

/// ibv_query_gid_ex(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    code("ibv_query_gid_ex", || {
        if flags != 0 || entry_size < size_of::<ibv_gid_entry>() {
            return fail(libc::EINVAL);
        }
        let answer = gid_entry(gid_at(context, port_num, gid_index)?);
        // SAFETY: the caller's word.
        unsafe { write_part(entry, entry_size, &answer) }
    })
}

/// ibv_query_gid_table(3): the number of entries, or an errno number below 0.
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> libc::ssize_t {
    let number = code("ibv_query_gid_table", || {
        if flags != 0 || max_entries == 0 || entry_size < size_of::<ibv_gid_entry>() {
            return fail(libc::EINVAL);
        }
        let answer = gid_entry(device_of(context)?);
        // SAFETY: the caller's word.
        unsafe { write_part(entries, entry_size, &answer) }
    });
    if number == 0 { 1 } else { -(number as libc::ssize_t) }
}

/// The type of a GID as sysfs would have it, for rdma-core's own programs: 0 for InfiniBand and
/// RoCE v1, 1 for RoCE v2.
///
/// # Safety
/// `kind` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port_num: u8,
    index: c_uint,
    kind: *mut c_uint,
) -> c_int {
    minus_one("ibv_query_gid_type", || {
        gid_at(context, port_num.into(), index)?;
        // SAFETY: the caller's word.
        unsafe { write_part(kind, size_of::<c_uint>(), &c_uint::from(is_roce())) }?;
        Ok(0)
    })
}

/// ibv_query_pkey(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    minus_one("ibv_query_pkey", || {
        device_at(context, port_num.into())?;
        if index != 0 {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's word.
        unsafe { write_part(pkey, size_of::<u16>(), &PKEY.to_be()) }?;
        Ok(0)
    })
}

/// ibv_get_pkey_index(3).
///
/// # Safety
/// As the manual page says; null and foreign pointers are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    port_num: u8,
    pkey: u16,
) -> c_int {
    minus_one("ibv_get_pkey_index", || {
        device_at(context, port_num.into())?;
        if pkey == PKEY.to_be() { Ok(0) } else { Err(Errno(libc::EINVAL)) }
    })
}

#[cfg(test)]
mod tests;
