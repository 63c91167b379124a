//! Differences of RoCE.

use super::*;
use crate::post::send_list;
use crate::queues::Queues;
use crate::roce::Peer;
use outboard_verbs::{
    Access, RecvRequest, Remote, SendOp, SendRequest, SgList, SharedRegion, SharedSlice, Stag,
};
use std::sync::Arc;

const FLUSHED: ibv_wc_status = IBV_WC_WR_FLUSH_ERR;

/// The first queue pair as RoCE has it, with the number 77.
pub(super) fn as_roce(bed: &Bed) -> Arc<Queues> {
    let (qp, cq) = (bed.qp(0), find::<Cq>(bed.cq).unwrap());
    let (native, limits) = (Arc::clone(&qp.native), qp.queues.limits);
    let queues = Queues::roce(native, cq.native.clone(), cq.native.clone(), limits, false);
    assert_eq!(queues.state(), IBV_QPS_RESET);
    assert!(queues.receive(RecvRequest { wr_id: 1, local: SgList::new() }).is_err());
    let queues = Arc::new(queues);
    cq.rename(&queues, 77);
    queues.set_state(IBV_QPS_RTS);
    queues
}

/// What the queue pair's own entries would post through.
pub(super) fn requests(queues: &Arc<Queues>) -> Arc<QpRequests> {
    Arc::new(QpRequests::new(Arc::clone(queues)))
}

fn connected(bed: &Bed) -> Arc<Queues> {
    let queues = as_roce(bed);
    queues.connected();
    queues
}

/// Memory that is registered nowhere.
fn memory(bytes: &[u8]) -> SgList {
    let slice = SharedSlice::from(SharedRegion::zeroed(bytes.len()).unwrap());
    slice.copy_in(0, bytes).unwrap();
    SgList::from(slice)
}

fn request(wr_id: u64, op: SendOp, bytes: &[u8], signaled: bool) -> SendRequest {
    SendRequest { signaled, ..SendRequest::new(wr_id, op, memory(bytes)) }
}

const SEND: SendOp = SendOp::Send { invalidate: None };

fn to(bed: &Bed, at: usize) -> Remote {
    Remote { stag: Stag(bed.rkey()), offset: bed.address(at) }
}

fn seen(found: &[ibv_wc]) -> Vec<(u64, ibv_wc_status)> {
    found.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

#[test]
fn sends_wait_for_the_connection() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let queues = as_roce(&bed);
    for wr_id in 0..16 {
        queues.send(request(wr_id, SEND, b"12345678", true)).unwrap();
    }
    assert!(queues.send(request(16, SEND, b"", true)).is_err());
    assert!(queues.has_sends());
    bed.connect();
    for wr_id in 100..116 {
        assert_eq!(bed.post_recv(1, wr_id, bed.sge(100, 8)), 0);
    }
    queues.connected();
    let mut found = seen(&bed.poll(32));
    found.sort_unstable();
    assert!(found.into_iter().eq((0..16).chain(100..116).map(|wr_id| (wr_id, IBV_WC_SUCCESS))));
    assert_eq!(bed.bytes(100, 8), b"12345678");
}

#[test]
fn sends_fail_when_no_peer_connects() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let queues = as_roce(&bed);
    queues.send(request(1, SEND, b"", false)).unwrap();
    queues.send(request(2, SEND, b"", true)).unwrap();
    queues.receive(RecvRequest { wr_id: 3, local: SgList::new() }).unwrap();
    queues.failed();
    assert_eq!(queues.state(), IBV_QPS_ERR);
    let expected = [(1, IBV_WC_RETRY_EXC_ERR), (2, FLUSHED), (3, FLUSHED)];
    assert_eq!(seen(&bed.poll(3)), expected);
}

#[test]
fn inline_data_may_change_at_once() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let queues = as_roce(&bed);
    let mut own = *b"before";
    let addr = own.as_mut_ptr().expose_provenance() as u64;
    let mut sge = ibv_sge { addr, length: 6, lkey: 0 };
    let mut send = wr(IBV_WR_SEND, &mut sge);
    send.send_flags |= IBV_SEND_INLINE;
    send_list(&requests(&queues), bed.qp(0).pd(), &mut &raw mut send).unwrap();
    unsafe { own.as_mut_ptr().write_volatile(b'X') };
    bed.connect();
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    queues.connected();
    bed.poll(2);
    assert_eq!(bed.bytes(100, 6), b"before");
}

#[test]
fn a_completion_says_that_the_peer_has_it() {
    let bed = Bed::new();
    let queues = connected(&bed);
    let bytes = [0x5A; 4096];
    for wr_id in 0..100 {
        // What was there before is not what is awaited.
        let at = 4000 - usize::try_from(wr_id).unwrap() * 8;
        let op = SendOp::Write { to: to(&bed, at) };
        queues.send(request(wr_id, op, &bytes, true)).unwrap();
        let found = bed.poll(1);
        assert_eq!((found[0].wr_id, found[0].opcode), (wr_id, IBV_WC_RDMA_WRITE));
        assert_eq!((found[0].byte_len, found[0].qp_num), (4096, 77));
        assert_eq!(bed.bytes(at, 8), bytes[..8]);
    }
}

#[test]
fn only_signaled_sends_complete_and_all_in_order() {
    let bed = Bed::new();
    let queues = connected(&bed);
    let write = |wr_id, signaled| {
        request(wr_id, SendOp::Write { to: to(&bed, 400) }, b"12345678", signaled)
    };
    let read = |wr_id, signaled| {
        request(wr_id, SendOp::Read { from: to(&bed, 400) }, b"12345678", signaled)
    };
    let list = vec![write(1, true), write(2, false), read(3, false), write(4, true), read(5, true)];
    queues.send_all(list).unwrap();
    queues.send(write(6, false)).unwrap();
    queues.send(write(7, true)).unwrap();
    assert_eq!(seen(&bed.poll(4)), [1, 4, 5, 7].map(|wr_id| (wr_id, IBV_WC_SUCCESS)));
    assert_eq!(bed.poll_once(4).len(), 0);
    // Unsignaled requests make room only when one behind them completes, as on hardware.
    (0..16).for_each(|wr_id| queues.send(write(wr_id, false)).unwrap());
    assert!(queues.send(write(16, true)).is_err());
}

/// On hardware the two directions of a connection do not wait for each other.
#[test]
fn a_send_completes_while_one_from_the_peer_lacks_a_receive() {
    let bed = Bed::new();
    let queues = connected(&bed);
    for len in [8, 2000] {
        let mut sge = bed.sge(4096, len);
        assert_eq!(bed.post_send(1, &mut wr(IBV_WR_SEND, &mut sge)), 0);
        assert_eq!(bed.poll(1)[0].status, IBV_WC_SUCCESS);
    }
    // On the receiver's side nothing has been delivered, on the sender's everything has.
    for wr_id in 10..20 {
        assert_eq!(bed.post_recv(1, wr_id, bed.sge(100, 8)), 0);
        queues.send(request(wr_id + 10, SEND, b"12345678", true)).unwrap();
        let mut found = seen(&bed.poll(2));
        found.sort_unstable();
        assert_eq!(found, [wr_id, wr_id + 10].map(|wr_id| (wr_id, IBV_WC_SUCCESS)));
    }
    for (wr_id, len) in [(1, 8), (2, 2000)] {
        queues.receive(RecvRequest { wr_id, local: memory(&vec![0; len as usize]) }).unwrap();
        let found = bed.poll(1);
        assert_eq!((found[0].wr_id, found[0].byte_len), (wr_id, len));
    }
}

#[test]
fn a_peer_leaves_unnoticed() {
    let bed = Bed::new();
    let queues = connected(&bed);
    queues.receive(RecvRequest { wr_id: 1, local: SgList::new() }).unwrap();
    assert_eq!(bed.modify(1, IBV_QPS_ERR), 0);
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(50) {
        assert_eq!(bed.poll_once(4).len(), 0);
    }
    assert_eq!(queues.state(), IBV_QPS_RTS);
    queues.send(request(2, SEND, b"", false)).unwrap();
    queues.send(request(3, SEND, b"", true)).unwrap();
    let expected = [(2, IBV_WC_RETRY_EXC_ERR), (1, FLUSHED), (3, FLUSHED)];
    assert_eq!(seen(&bed.poll(3)), expected);
    assert_eq!(queues.state(), IBV_QPS_ERR);
}

/// A program that has not been told yet posts no more than its queue holds.
#[test]
fn receives_after_an_unnoticed_end_are_bounded() {
    let bed = Bed::new();
    let queues = connected(&bed);
    assert_eq!(bed.modify(1, IBV_QPS_ERR), 0);
    while !queues.native.state().is_over() {
        std::thread::yield_now();
    }
    let receive = |wr_id| queues.receive(RecvRequest { wr_id, local: SgList::new() });
    let mut taken = 0;
    for wr_id in 0..60 {
        taken += usize::from(receive(wr_id).is_ok());
        if wr_id % 3 == 0 {
            assert_eq!(bed.poll_once(4).len(), 0);
        }
    }
    assert_eq!(taken, 16);
    queues.set_state(IBV_QPS_ERR);
    assert_eq!(bed.poll(16).len(), 16);
    receive(60).unwrap();
    assert_eq!(seen(&bed.poll(1)), [(60, FLUSHED)]);
}

#[test]
fn a_refused_read_ends_both() {
    let bed = Bed::new();
    let queues = connected(&bed);
    queues.receive(RecvRequest { wr_id: 1, local: SgList::new() }).unwrap();
    let from = Remote { stag: Stag(bed.rkey() ^ 1), offset: 0 };
    let write = SendOp::Write { to: to(&bed, 400) };
    let list = vec![
        request(2, write, b"12345678", true),
        request(3, SendOp::Read { from }, b"12345678", true),
    ];
    queues.send_all(list).unwrap();
    let mut found = seen(&bed.poll(3));
    found.sort_unstable();
    assert_eq!(found, [(1, FLUSHED), (2, IBV_WC_SUCCESS), (3, IBV_WC_REM_ACCESS_ERR)]);
}

#[test]
fn a_refused_write_completes_with_an_error() {
    let bed = Bed::new();
    let queues = connected(&bed);
    let bad = Remote { stag: Stag(bed.rkey() ^ 1), offset: 0 };
    queues.send(request(2, SendOp::Write { to: bad }, b"12345678", true)).unwrap();
    assert_eq!(seen(&bed.poll(1)), [(2, IBV_WC_REM_ACCESS_ERR)]);
}

#[test]
fn a_queue_pair_may_refuse_rights_that_its_memory_grants() {
    let bed = Bed::new();
    let queues = connected(&bed);
    bed.qp(1).native.set_access(Access::REMOTE_WRITE);
    let write = SendOp::Write { to: to(&bed, 400) };
    queues.send(request(1, write, b"12345678", true)).unwrap();
    queues.send(request(2, SendOp::fetch_add(to(&bed, 400), 1), b"12345678", true)).unwrap();
    let expected = [(1, IBV_WC_SUCCESS), (2, IBV_WC_REM_ACCESS_ERR)];
    assert_eq!(seen(&bed.poll(2)), expected);
    assert_eq!(bed.bytes(400, 8), b"12345678");
}
