//! Structures of the kernel's interface (rdma/ib_user_verbs.h, rdma/ib_user_sa.h), which a few
//! entries convert for other libraries.

use crate::abi::{
    ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap, ibv_sa_path_rec,
};
use crate::guard::{Errno, Outcome, minus_one};

/// `struct ib_uverbs_global_route`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KernelRoute {
    pub dgid: [u8; 16],
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
}

/// `struct ib_uverbs_ah_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KernelAhAttr {
    pub grh: KernelRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
    pub reserved: u8,
}

/// `struct ib_uverbs_qp_attr`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KernelQpAttr {
    pub qp_attr_mask: u32,
    pub qp_state: u32,
    pub cur_qp_state: u32,
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub ah_attr: KernelAhAttr,
    pub alt_ah_attr: KernelAhAttr,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub reserved: [u8; 5],
}

/// `struct ib_user_path_rec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KernelPath {
    pub dgid: [u8; 16],
    pub sgid: [u8; 16],
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: u32,
    pub flow_label: u32,
    pub reversible: u32,
    pub mtu: u32,
    pub pkey: u16,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub numb_path: u8,
    pub sl: u8,
    pub mtu_selector: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

const _: () = {
    assert!(size_of::<KernelRoute>() == 24 && size_of::<KernelAhAttr>() == 32);
    assert!(size_of::<KernelQpAttr>() == 144 && size_of::<KernelPath>() == 64);
};

fn address(from: &KernelAhAttr, to: &mut ibv_ah_attr) {
    to.grh = ibv_global_route {
        dgid: ibv_gid { raw: from.grh.dgid },
        flow_label: from.grh.flow_label,
        sgid_index: from.grh.sgid_index,
        hop_limit: from.grh.hop_limit,
        traffic_class: from.grh.traffic_class,
    };
    (to.dlid, to.sl, to.src_path_bits) = (from.dlid, from.sl, from.src_path_bits);
    (to.static_rate, to.is_global, to.port_num) = (from.static_rate, from.is_global, from.port_num);
}

/// Everything but `qp_state` and `rate_limit`, which the caller sets.
fn queue_pair(from: &KernelQpAttr, to: &mut ibv_qp_attr) {
    to.cur_qp_state = from.cur_qp_state;
    (to.path_mtu, to.path_mig_state) = (from.path_mtu, from.path_mig_state);
    (to.qkey, to.rq_psn, to.sq_psn) = (from.qkey, from.rq_psn, from.sq_psn);
    (to.dest_qp_num, to.qp_access_flags) = (from.dest_qp_num, from.qp_access_flags);
    to.cap = ibv_qp_cap {
        max_send_wr: from.max_send_wr,
        max_recv_wr: from.max_recv_wr,
        max_send_sge: from.max_send_sge,
        max_recv_sge: from.max_recv_sge,
        max_inline_data: from.max_inline_data,
    };
    address(&from.ah_attr, &mut to.ah_attr);
    address(&from.alt_ah_attr, &mut to.alt_ah_attr);
    (to.pkey_index, to.alt_pkey_index) = (from.pkey_index, from.alt_pkey_index);
    (to.en_sqd_async_notify, to.sq_draining) = (from.en_sqd_async_notify, from.sq_draining);
    (to.max_rd_atomic, to.max_dest_rd_atomic) = (from.max_rd_atomic, from.max_dest_rd_atomic);
    (to.min_rnr_timer, to.port_num, to.timeout) = (from.min_rnr_timer, from.port_num, from.timeout);
    (to.retry_cnt, to.rnr_retry) = (from.retry_cnt, from.rnr_retry);
    (to.alt_port_num, to.alt_timeout) = (from.alt_port_num, from.alt_timeout);
}

fn path_in(from: &KernelPath, to: &mut ibv_sa_path_rec) {
    *to = ibv_sa_path_rec {
        dgid: ibv_gid { raw: from.dgid },
        sgid: ibv_gid { raw: from.sgid },
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_signed(),
        flow_label: from.flow_label,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        reversible: from.reversible.cast_signed(),
        numb_path: from.numb_path,
        pkey: from.pkey,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        // An enumeration below 6, in four bytes.
        mtu: from.mtu.to_le_bytes()[0],
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

fn path_out(from: &ibv_sa_path_rec, to: &mut KernelPath) {
    *to = KernelPath {
        // SAFETY: 16 bytes however they are named.
        dgid: unsafe { from.dgid.raw },
        // SAFETY: as above.
        sgid: unsafe { from.sgid.raw },
        dlid: from.dlid,
        slid: from.slid,
        raw_traffic: from.raw_traffic.cast_unsigned(),
        flow_label: from.flow_label,
        reversible: from.reversible.cast_unsigned(),
        mtu: from.mtu.into(),
        pkey: from.pkey,
        hop_limit: from.hop_limit,
        traffic_class: from.traffic_class,
        numb_path: from.numb_path,
        sl: from.sl,
        mtu_selector: from.mtu_selector,
        rate_selector: from.rate_selector,
        rate: from.rate,
        packet_life_time_selector: from.packet_life_time_selector,
        packet_life_time: from.packet_life_time,
        preference: from.preference,
    };
}

/// Converts between two structures of the caller's; nulls are left alone.
///
/// # Safety
/// `from` is null or may be read, `to` is null or may be written, and they do not overlap.
unsafe fn convert<F, T>(
    entry: &'static str,
    from: *const F,
    to: *mut T,
    with: impl FnOnce(&F, &mut T),
) {
    minus_one(entry, || {
        // SAFETY: the caller's word.
        let both: Outcome<_> = unsafe { from.as_ref().zip(to.as_mut()) }.ok_or(Errno(libc::EINVAL));
        both.map(|(from, to)| with(from, to))?;
        Ok(0)
    });
}

/// An address as the kernel has it, for libraries.
///
/// # Safety
/// Two structures of the caller's, or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    to: *mut ibv_ah_attr,
    from: *const KernelAhAttr,
) {
    // SAFETY: the caller's word.
    unsafe { convert("ibv_copy_ah_attr_from_kern", from, to, address) };
}

/// A queue pair's attributes as the kernel has them, for libraries. `qp_state` is left alone.
///
/// # Safety
/// Two structures of the caller's, or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    to: *mut ibv_qp_attr,
    from: *const KernelQpAttr,
) {
    // SAFETY: the caller's word.
    unsafe { convert("ibv_copy_qp_attr_from_kern", from, to, queue_pair) };
}

/// A path as the kernel has it, for libraries.
///
/// # Safety
/// Two structures of the caller's, or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    to: *mut ibv_sa_path_rec,
    from: *const KernelPath,
) {
    // SAFETY: the caller's word.
    unsafe { convert("ibv_copy_path_rec_from_kern", from, to, path_in) };
}

/// A path as the kernel wants it, for libraries.
///
/// # Safety
/// Two structures of the caller's, or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    to: *mut KernelPath,
    from: *const ibv_sa_path_rec,
) {
    // SAFETY: the caller's word.
    unsafe { convert("ibv_copy_path_rec_to_kern", from, to, path_out) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_as_it_went() {
        let bytes: [u8; 64] = std::array::from_fn(|at| u8::try_from(at + 1).unwrap_or(0));
        // SAFETY: integers of 64 bytes without gaps.
        let mut there: KernelPath = unsafe { std::mem::transmute(bytes) };
        // The program's structure has one byte for it.
        there.mtu = 5;
        let (mut path, mut back) =
            (crate::object::zeroed::<ibv_sa_path_rec>(), KernelPath::default());
        // SAFETY: structures of this test.
        unsafe {
            ibv_copy_path_rec_from_kern(&raw mut path, &raw const there);
            ibv_copy_path_rec_to_kern(&raw mut back, &raw const path);
        }
        assert_eq!(back, there);
        assert_eq!((path.hop_limit, path.preference), (there.hop_limit, there.preference));
    }

    #[test]
    fn attributes_arrive_where_they_belong() {
        let mut from = KernelQpAttr { dest_qp_num: 7, alt_timeout: 9, ..Default::default() };
        from.ah_attr.grh.dgid = [3; 16];
        from.ah_attr.port_num = 1;
        from.max_inline_data = 64;
        from.qp_state = 3;
        let mut to = crate::object::zeroed::<ibv_qp_attr>();
        to.qp_state = 2;
        // SAFETY: structures of this test.
        unsafe { ibv_copy_qp_attr_from_kern(&raw mut to, &raw const from) };
        assert_eq!((to.dest_qp_num, to.alt_timeout, to.cap.max_inline_data), (7, 9, 64));
        // SAFETY: written just now.
        assert_eq!(unsafe { to.ah_attr.grh.dgid.raw }, [3; 16]);
        assert_eq!((to.ah_attr.port_num, to.qp_state), (1, 2));
    }

    #[test]
    fn nulls_are_left_alone() {
        let (mut path, mut attr) = (KernelPath::default(), crate::object::zeroed::<ibv_qp_attr>());
        // SAFETY: nulls are allowed.
        unsafe {
            ibv_copy_path_rec_to_kern(&raw mut path, std::ptr::null());
            ibv_copy_path_rec_from_kern(std::ptr::null_mut(), &raw const path);
            ibv_copy_qp_attr_from_kern(&raw mut attr, std::ptr::null());
            ibv_copy_ah_attr_from_kern(std::ptr::null_mut(), std::ptr::null());
        }
        assert_eq!(path, KernelPath::default());
    }
}
