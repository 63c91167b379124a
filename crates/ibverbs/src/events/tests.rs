//! Events of live objects, and objects that wait for acknowledgements.

// Entries are called as programs call them; the tests choose the arguments.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::abi::{IBV_WR_RDMA_WRITE, IBV_WR_SEND, ibv_srq_attr, ibv_srq_init_attr};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::object::zeroed;
use crate::qp::ibv_destroy_qp;
use crate::tests::{Bed, wr};
use outboard_testkit::PATIENCE;
use std::ptr::{dangling_mut, null_mut};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_blocking(context: *mut ibv_context, blocking: bool) {
    let flags = if blocking { 0 } else { libc::O_NONBLOCK };
    assert_eq!(unsafe { libc::fcntl((*context).async_fd, libc::F_SETFL, flags) }, 0);
}

#[test]
fn a_peer_that_may_not_write_is_an_event() {
    let bed = Bed::new();
    let mut write = wr(IBV_WR_RDMA_WRITE, &mut bed.sge(0, 8));
    write.wr.rdma.remote_addr = bed.address(64);
    write.wr.rdma.rkey = bed.rkey() ^ 0x1000;
    assert_eq!(bed.post_send(0, &mut write), 0);
    let mut event: ibv_async_event = zeroed();
    let mut found = Vec::new();
    for _ in 0..2 {
        assert_eq!(unsafe { ibv_get_async_event(bed.context, &mut event) }, 0);
        found.push((event.event_type, unsafe { event.element.qp }));
        unsafe { ibv_ack_async_event(&mut event) };
    }
    found.sort_unstable();
    // The side at fault is told by a Terminate, the victim detects the fault.
    assert_eq!(found, [(IBV_EVENT_QP_FATAL, bed.qps[0]), (IBV_EVENT_QP_ACCESS_ERR, bed.qps[1])]);
    assert_eq!(unsafe { (*bed.qps[1]).events_completed }, 1);
}

#[test]
fn an_overflown_queue_waits_for_its_acknowledgement() {
    let mut bed = Bed::unconnected(|pd, cq| unsafe {
        let small = ibv_create_cq((*pd).context, 1, null_mut(), null_mut(), 0);
        let mut attr = crate::tests::init_attr(cq);
        attr.recv_cq = small;
        crate::qp::ibv_create_qp(pd, &mut attr)
    });
    bed.connect();
    let small = bed.qps.map(|qp| unsafe { (*qp).recv_cq });
    for id in 0..3 {
        assert_eq!(bed.post_recv(1, id, bed.sge(0, 8)), 0);
    }
    for _ in 0..3 {
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(64, 8))), 0);
    }
    let mut event: ibv_async_event = zeroed();
    while event.event_type != IBV_EVENT_CQ_ERR || unsafe { event.element.cq } != small[1] {
        unsafe { ibv_ack_async_event(&mut event) };
        assert_eq!(unsafe { ibv_get_async_event(bed.context, &mut event) }, 0);
    }
    assert_eq!(bed.qps.map(|qp| unsafe { ibv_destroy_qp(qp) }), [0, 0]);
    assert_eq!(unsafe { ibv_destroy_cq(small[0]) }, 0);
    let gone = AtomicBool::new(false);
    let victim = small[1].expose_provenance();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let victim = std::ptr::with_exposed_provenance_mut(victim);
            assert_eq!(unsafe { ibv_destroy_cq(victim) }, 0);
            gone.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!gone.load(Ordering::SeqCst));
        unsafe { ibv_ack_async_event(&mut event) };
    });
    assert!(gone.load(Ordering::SeqCst));
    // An event of an object that is gone is ignored.
    unsafe { ibv_ack_async_event(&mut event) };
    bed.qps = bed
        .qps
        .map(|_| unsafe { crate::qp::ibv_create_qp(bed.pd, &mut crate::tests::init_attr(bed.cq)) });
}

#[test]
fn a_non_blocking_descriptor_gives_eagain() {
    let bed = Bed::new();
    let mut event: ibv_async_event = zeroed();
    set_blocking(bed.context, false);
    assert_eq!(unsafe { ibv_get_async_event(bed.context, &mut event) }, -1);
    assert_eq!(errno(), libc::EAGAIN);
    set_blocking(bed.context, true);
}

#[test]
fn nonsense_is_refused() {
    let bed = Bed::new();
    let mut event: ibv_async_event = zeroed();
    for context in [null_mut(), dangling_mut(), bed.pd.cast()] {
        assert_eq!(unsafe { ibv_get_async_event(context, &mut event) }, -1);
        assert_eq!(errno(), libc::EINVAL);
    }
    assert_eq!(unsafe { ibv_get_async_event(bed.context, null_mut()) }, -1);
    unsafe { ibv_ack_async_event(null_mut()) };
    for event_type in 0..32 {
        event.event_type = event_type;
        for object in [null_mut(), dangling_mut(), bed.pd.cast()] {
            event.element.qp = object;
            unsafe { ibv_ack_async_event(&mut event) };
        }
    }
}

/// Two queue pairs on a shared receive queue.
fn on_shared_queue(connected: bool) -> (Bed, *mut ibv_srq) {
    let shared = std::cell::Cell::new(null_mut::<ibv_srq>());
    let bed = Bed::unconnected(|pd, cq| unsafe {
        if shared.get().is_null() {
            let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
            let mut attr = ibv_srq_init_attr { srq_context: null_mut(), attr };
            shared.set(crate::srq::ibv_create_srq(pd, &mut attr));
        }
        let mut attr = crate::tests::init_attr(cq);
        attr.srq = shared.get();
        crate::qp::ibv_create_qp(pd, &mut attr)
    });
    if connected {
        bed.connect();
    }
    (bed, shared.get())
}

fn end_shared(mut bed: Bed, srq: *mut ibv_srq) {
    assert_eq!(bed.qps.map(|qp| unsafe { ibv_destroy_qp(qp) }), [0, 0]);
    assert_eq!(unsafe { crate::srq::ibv_destroy_srq(srq) }, 0);
    bed.qps = [null_mut(); 2];
}

fn last_receive(bed: &Bed) -> *mut ibv_qp {
    let mut event: ibv_async_event = zeroed();
    let started = std::time::Instant::now();
    set_blocking(bed.context, false);
    while unsafe { ibv_get_async_event(bed.context, &mut event) } != 0 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    unsafe { ibv_ack_async_event(&mut event) };
    unsafe { event.element.qp }
}

#[test]
fn a_queue_pair_raises_last_wqe_reached() {
    // Both ends of a connection; one of them disconnects.
    let (bed, srq) = on_shared_queue(true);
    assert_eq!(bed.modify(0, crate::abi::IBV_QPS_ERR), 0);
    let mut told = [last_receive(&bed), last_receive(&bed)];
    told.sort_unstable();
    let mut both = bed.qps;
    both.sort_unstable();
    assert_eq!(told, both);
    // Only once for a queue pair.
    assert_eq!(bed.modify(0, crate::abi::IBV_QPS_ERR), 0);
    let mut event: ibv_async_event = zeroed();
    assert_eq!(unsafe { ibv_get_async_event(bed.context, &mut event) }, -1);
    end_shared(bed, srq);
    // One that was never connected.
    let (bed, srq) = on_shared_queue(false);
    assert_eq!(bed.modify(1, crate::abi::IBV_QPS_ERR), 0);
    assert_eq!(last_receive(&bed), bed.qps[1]);
    end_shared(bed, srq);
}
