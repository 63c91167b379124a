//! Events of live objects, and objects that wait for acknowledgements.

// Entries are called as programs call them; what they may be given is what is tested.
#![allow(clippy::undocumented_unsafe_blocks)]

use super::*;
use crate::abi::{IBV_WR_RDMA_WRITE, IBV_WR_SEND};
use crate::cq::{ibv_create_cq, ibv_destroy_cq};
use crate::object::zeroed;
use crate::qp::ibv_destroy_qp;
use crate::tests::{Bed, wr};
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
    // The culprit hears of it by a Terminate, the victim finds it.
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
    // What names an object that is gone is ignored.
    unsafe { ibv_ack_async_event(&mut event) };
    bed.qps = bed
        .qps
        .map(|_| unsafe { crate::qp::ibv_create_qp(bed.pd, &mut crate::tests::init_attr(bed.cq)) });
}

#[test]
fn a_descriptor_that_does_not_block_says_so() {
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
