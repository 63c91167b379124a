//! Queue pairs in each of their states, and shared receive queues.

use super::*;
use crate::srq::*;

fn unconnected() -> Bed {
    Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) })
}

fn send(bed: &Bed) -> c_int {
    bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 8)))
}

#[test]
fn the_command_descriptor_can_be_copied() {
    let bed = unconnected();
    let copy = unsafe { libc::dup((*bed.context).cmd_fd) };
    assert!(copy >= 0 && unsafe { libc::close(copy) } == 0);
}

#[test]
fn each_state_takes_its_own_requests() {
    let bed = unconnected();
    assert_eq!(unsafe { (*bed.qps[0]).state }, IBV_QPS_RESET);
    // As RNICs have it; RoCE's begin in RESET.
    assert_eq!(bed.qp(0).state(), IBV_QPS_INIT);
    assert_eq!(bed.modify(0, IBV_QPS_RTS), libc::EINVAL);
    assert_eq!(bed.modify(0, IBV_QPS_INIT), 0);
    assert_eq!(unsafe { (*bed.qps[0]).state }, IBV_QPS_INIT);
    assert_eq!((bed.post_recv(0, 1, bed.sge(0, 8)), send(&bed)), (0, libc::EINVAL));
    assert_eq!(bed.modify(0, IBV_QPS_ERR), 0);
    assert_eq!((bed.post_recv(0, 2, bed.sge(0, 8)), send(&bed)), (0, 0));
    let found = bed.poll(3);
    assert_eq!(found.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2, 7]);
    assert!(found.iter().all(|wc| wc.status == IBV_WC_WR_FLUSH_ERR));
    assert_eq!(bed.modify(0, IBV_QPS_RESET), 0);
    assert_eq!(unsafe { (*bed.qps[0]).state }, IBV_QPS_RESET);
    assert_eq!(send(&bed), libc::EINVAL);
}

#[test]
fn reset_drops_completions() {
    let bed = unconnected();
    assert_eq!(bed.modify(0, IBV_QPS_ERR), 0);
    assert_eq!(send(&bed), 0);
    assert_eq!(bed.modify(0, IBV_QPS_RESET), 0);
    assert_eq!(bed.poll_once(4).len(), 0);
}

#[test]
fn the_end_of_a_connection_flushes() {
    let bed = Bed::new();
    assert_eq!(bed.post_recv(0, 1, bed.sge(0, 8)), 0);
    assert_eq!(bed.modify(1, IBV_QPS_ERR), 0);
    assert_eq!(bed.poll(1)[0].status, IBV_WC_WR_FLUSH_ERR);
    assert_eq!(send(&bed), 0);
    assert_eq!(bed.poll(1)[0].status, IBV_WC_WR_FLUSH_ERR);
    let (mut attr, mut made) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    assert_eq!(unsafe { ibv_query_qp(bed.qps[0], &mut attr, 0, &mut made) }, 0);
    assert_eq!((attr.qp_state, made.cap.max_send_wr), (IBV_QPS_ERR, 16));
}

/// Posts receives until one is refused, and returns how many were taken; 40 is too many.
fn receives(bed: &Bed) -> usize {
    (0..40).take_while(|wr_id| bed.post_recv(0, *wr_id, bed.sge(0, 8)) == 0).count()
}

fn sends(bed: &Bed) -> usize {
    (0..40).take_while(|_| send(bed) == 0).count()
}

/// `while (!ibv_post_recv(..))` ends, and so does posting sends, when no thread polls.
#[test]
fn queues_that_flush_are_full_some_time() {
    let (ended, never) = (Bed::new(), unconnected());
    assert_eq!(ended.modify(1, IBV_QPS_ERR), 0);
    while ended.qp(0).state() != IBV_QPS_ERR {
        std::thread::yield_now();
    }
    assert_eq!(never.modify(0, IBV_QPS_ERR), 0);
    for bed in [ended, never] {
        assert_eq!((receives(&bed), sends(&bed)), (16, 16));
        assert_eq!(bed.poll(3).len(), 3);
        assert_eq!((receives(&bed), sends(&bed)), (3, 0));
        assert_eq!(bed.poll(32).len(), 32);
        assert_eq!((sends(&bed), receives(&bed)), (16, 16));
    }
}

/// What is left of a list that is longer than a queue can be is refused.
#[test]
fn the_rest_of_a_list_too_long_is_refused() {
    let bed = unconnected();
    assert_eq!(bed.modify(0, IBV_QPS_ERR), 0);
    let mut list: Vec<_> = (0..20).map(|_| wr(IBV_WR_SEND, &mut bed.sge(0, 0))).collect();
    let first = list.as_mut_ptr();
    for at in 0..20 {
        unsafe {
            (*first.add(at)).num_sge = 0;
            (*first.add(at)).next = if at < 19 { first.add(at + 1) } else { null_mut() };
        }
    }
    let (mut bad, post) = (null_mut(), unsafe { (*bed.context).ops.post_send }.unwrap());
    assert_eq!(unsafe { post(bed.qps[0], first, &mut bad) }, libc::ENOMEM);
    assert_eq!(bad, unsafe { first.add(16) });
    assert_eq!(bed.poll(16).len(), 16);
    assert_eq!(bed.poll_once(4).len(), 0);
}

#[test]
fn a_shared_queue_feeds_both() {
    let bed = unconnected();
    let mut wanted: ibv_srq_init_attr = unsafe { std::mem::zeroed() };
    wanted.attr.max_wr = 8;
    let srq = unsafe { ibv_create_srq(bed.pd, &mut wanted) };
    assert_eq!(wanted.attr.max_sge, 1);
    let make = |pd, cq| {
        let mut attr = init_attr(cq);
        attr.srq = srq;
        unsafe { ibv_create_qp(pd, &mut attr) }
    };
    let shared = [make(bed.pd, bed.cq), make(bed.pd, bed.cq)];
    let mut bed = bed;
    let plain = std::mem::replace(&mut bed.qps, shared);
    bed.connect();
    let post = unsafe { (*bed.context).ops.post_srq_recv }.unwrap();
    for wr_id in 1..3 {
        let mut sge = bed.sge(100, 64);
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        assert_eq!(unsafe { post(srq, &mut wr, &mut null_mut()) }, 0);
    }
    for at in 0..2 {
        assert_eq!(bed.post_send(at, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    }
    let found = bed.poll(4);
    assert!(found.iter().filter(|wc| wc.opcode == IBV_WC_RECV).map(|wc| wc.wr_id).eq(1..3));
    assert_eq!(bed.post_recv(0, 1, bed.sge(0, 8)), libc::EINVAL);
    let mut limit = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 9 };
    let mask = IBV_SRQ_LIMIT.cast_signed();
    assert_eq!(unsafe { ibv_modify_srq(srq, &mut limit, mask) }, libc::EINVAL);
    limit.srq_limit = 3;
    assert_eq!(unsafe { ibv_modify_srq(srq, &mut limit, mask) }, 0);
    assert_eq!(unsafe { ibv_query_srq(srq, &mut limit) }, 0);
    assert_eq!((limit.max_wr, limit.srq_limit), (8, 3));
    assert_eq!(unsafe { ibv_destroy_srq(srq) }, libc::EBUSY);
    assert_eq!(shared.map(|qp| unsafe { ibv_destroy_qp(qp) }), [0, 0]);
    assert_eq!(unsafe { ibv_destroy_srq(srq) }, 0);
    bed.qps = plain;
}

#[test]
fn capabilities_have_limits() {
    let bed = unconnected();
    let refused = |change: &dyn Fn(&mut ibv_qp_init_attr)| {
        let mut attr = init_attr(bed.cq);
        change(&mut attr);
        let qp = unsafe { ibv_create_qp(bed.pd, &mut attr) };
        assert!(qp.is_null());
        std::io::Error::last_os_error().raw_os_error().unwrap()
    };
    assert_eq!(refused(&|attr| attr.cap.max_inline_data = MAX_INLINE + 1), libc::EINVAL);
    assert_eq!(refused(&|attr| attr.cap.max_send_wr = u32::MAX), libc::EINVAL);
    assert_eq!(refused(&|attr| attr.cap.max_recv_sge = MAX_SGE + 1), libc::EINVAL);
    assert_eq!(refused(&|attr| attr.qp_type = IBV_QPT_UD), libc::EOPNOTSUPP);
    assert_eq!(refused(&|attr| attr.send_cq = null_mut()), libc::EINVAL);
    assert!(unsafe { ibv_create_qp(null_mut(), &mut init_attr(bed.cq)) }.is_null());
    assert!(unsafe { ibv_create_qp(bed.pd, null_mut()) }.is_null());
}

#[test]
fn objects_in_use_are_not_destroyed() {
    let bed = unconnected();
    assert_eq!(unsafe { ibv_destroy_cq(bed.cq) }, libc::EBUSY);
    assert_eq!(unsafe { ibv_destroy_comp_channel(bed.channel) }, libc::EBUSY);
    assert_eq!(unsafe { ibv_dealloc_pd(bed.pd) }, libc::EBUSY);
    assert_eq!(unsafe { ibv_destroy_qp(null_mut()) }, libc::EINVAL);
    assert_eq!(unsafe { ibv_destroy_qp(bed.cq.cast()) }, libc::EINVAL);
}

fn query(bed: &Bed, at: usize) -> ibv_qp_attr {
    let (mut attr, mut made) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    assert_eq!(unsafe { ibv_query_qp(bed.qps[at], &mut attr, 0, &mut made) }, 0);
    attr
}

/// What the connection manager has agreed on shows, also when the connection is over.
#[test]
fn a_connection_has_attributes() {
    let bed = Bed::new();
    let check = |state| {
        for at in 0..2 {
            let attr = query(&bed, at);
            assert_eq!((attr.qp_state, attr.port_num), (state, 1));
            assert!(attr.path_mtu >= IBV_MTU_256 && attr.path_mtu <= IBV_MTU_4096);
            assert!(attr.max_rd_atomic > 0 && attr.max_dest_rd_atomic > 0);
            assert_ne!(attr.qp_access_flags & IBV_ACCESS_REMOTE_READ, 0);
        }
    };
    check(IBV_QPS_RTS);
    assert_eq!(bed.modify(1, IBV_QPS_ERR), 0);
    let started = Instant::now();
    while !bed.qp(0).native.state().is_over() {
        assert!(started.elapsed() < PATIENCE);
        bed.poll_once(1);
    }
    check(IBV_QPS_ERR);
    assert_eq!(bed.modify(0, IBV_QPS_RESET), 0);
    let attr = query(&bed, 0);
    assert_eq!((attr.port_num, attr.max_rd_atomic, attr.qp_access_flags), (0, 0, 0));
}
