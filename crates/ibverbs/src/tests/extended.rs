//! Requests built call by call, and completions read call by call.

use super::*;
use crate::cq_ex;
use crate::wr::ibv_qp_to_qp_ex;

const OPERATIONS: u64 = (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE) as u64;

pub(super) fn make(pd: *mut ibv_pd, cq: *mut ibv_cq, operations: u64) -> *mut ibv_qp {
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.send_cq, attr.recv_cq, attr.cap) = (cq, cq, init_attr(cq).cap);
    (attr.pd, attr.qp_type, attr.send_ops_flags) = (pd, IBV_QPT_RC, operations);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    unsafe {
        let context = (*pd).context;
        let shown = context.byte_sub(std::mem::offset_of!(verbs_context, context));
        (*shown.cast::<verbs_context>()).create_qp_ex.unwrap()(context, &mut attr)
    }
}

fn extended() -> Bed {
    let bed = Bed::unconnected(|pd, cq| make(pd, cq, OPERATIONS));
    bed.connect();
    bed
}

/// The functions of a queue pair, as the headers' inline functions call them.
macro_rules! call {
    ($qp:expr, $function:ident $(, $argument:expr)*) => {{
        let qp: *mut ibv_qp_ex = $qp;
        unsafe { (*qp).$function.unwrap()(qp $(, $argument)*) }
    }};
}

fn begin(qp: *mut ibv_qp_ex, wr_id: u64, wr_flags: u32) {
    call!(qp, wr_start);
    unsafe { ((*qp).wr_id, (*qp).wr_flags) = (wr_id, wr_flags) };
}

#[test]
fn requests_go_out_together() {
    let mut bed = extended();
    bed.put(0, b"hello");
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    let qp = unsafe { ibv_qp_to_qp_ex(bed.qps[0]) };
    begin(qp, 1, IBV_SEND_SIGNALED);
    call!(qp, wr_rdma_write, bed.rkey(), bed.address(200));
    let mut own = *b"inline";
    call!(qp, wr_set_inline_data, own.as_mut_ptr().cast(), 6);
    unsafe { (*qp).wr_id = 2 };
    call!(qp, wr_send);
    let list = [bed.sge(0, 2), bed.sge(2, 3)];
    call!(qp, wr_set_sge_list, 2, list.as_ptr());
    assert_eq!(bed.poll_once(4).len(), 0);
    assert_eq!(call!(qp, wr_complete), 0);
    let mut ids: Vec<_> = bed.poll(3).iter().map(|wc| wc.wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 5]);
    assert_eq!((bed.bytes(100, 5), bed.bytes(200, 6)), (b"hello".into(), b"inline".into()));
}

#[test]
fn a_mistake_spoils_the_whole() {
    let bed = extended();
    let qp = unsafe { ibv_qp_to_qp_ex(bed.qps[0]) };
    begin(qp, 1, IBV_SEND_SIGNALED);
    call!(qp, wr_rdma_write, bed.rkey(), bed.address(200));
    call!(qp, wr_set_inline_data, null_mut(), 8);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL);
    begin(qp, 1, IBV_SEND_SIGNALED);
    call!(qp, wr_set_sge, bed.sge(0, 8).lkey, bed.address(0), 8);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL);
    begin(qp, 1, IBV_SEND_SIGNALED);
    call!(qp, wr_send);
    call!(qp, wr_abort);
    assert_eq!(call!(qp, wr_complete), libc::EINVAL);
    assert_eq!(bed.poll_once(4).len(), 0);
}

#[test]
fn not_every_queue_pair_is_extended() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    assert!(unsafe { ibv_qp_to_qp_ex(bed.qps[0]) }.is_null());
    assert!(make(bed.pd, bed.cq, u64::from(IBV_QP_EX_WITH_TSO)).is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
}

fn create(bed: &Bed, wc_flags: u32) -> *mut ibv_cq_ex {
    let mut attr: ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
    (attr.cqe, attr.wc_flags) = (16, wc_flags.into());
    unsafe { cq_ex::create_cq_ex(bed.context, &mut attr) }
}

#[test]
fn completions_are_read_call_by_call() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let clock = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    let cq = create(&bed, IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM | clock);
    let qp = unsafe { ibv_create_qp(bed.pd, &mut init_attr(cq.cast())) };
    let mut bed = bed;
    let plain = std::mem::replace(&mut bed.qps[1], qp);
    bed.connect();
    for wr_id in [5, 6] {
        assert_eq!(bed.post_recv(1, wr_id, bed.sge(100, 64)), 0);
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    }
    bed.poll(2);
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    let started = Instant::now();
    while unsafe { (*cq).start_poll.unwrap()(cq, &mut attr) } == libc::ENOENT {
        assert!(started.elapsed() < PATIENCE);
    }
    unsafe {
        assert_eq!(((*cq).wr_id, (*cq).status), (5, IBV_WC_SUCCESS));
        assert_eq!((*cq).read_opcode.unwrap()(cq), IBV_WC_RECV);
        assert_eq!((*cq).read_byte_len.unwrap()(cq), 5);
        assert_eq!((*cq).read_qp_num.unwrap()(cq), (*qp).qp_num);
        assert!((*cq).read_completion_wallclock_ns.unwrap()(cq) > 0);
        assert!((*cq).read_completion_ts.is_none());
        assert_eq!((*cq).next_poll.unwrap()(cq), 0);
        assert_eq!((*cq).wr_id, 6);
        assert_eq!((*cq).next_poll.unwrap()(cq), libc::ENOENT);
        (*cq).end_poll.unwrap()(cq);
        assert_eq!(ibv_destroy_qp(qp), 0);
        assert_eq!(ibv_destroy_cq(cq.cast()), 0);
    }
    bed.qps[1] = plain;
}

#[test]
fn fields_that_completions_lack_are_refused() {
    let bed = Bed::new();
    for flag in [IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, IBV_WC_EX_WITH_CVLAN, 1 << 20] {
        assert!(create(&bed, flag).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
