//! Memory that is deregistered while requests name it, and requests that name none.

use super::*;
use crate::mr::ibv_rereg_mr;
use crate::post::send_list;
use crate::queues::Queues;
use crate::roce::Peer;
use crate::srq::*;
use crate::wr::ibv_qp_to_qp_ex;
use outboard_testkit::eventually;
use std::sync::Arc;

/// Registered memory of its own, which the program takes back: then no peer may write it.
pub(super) struct Loan {
    pub(super) start: *mut libc::c_void,
    len: usize,
    pub(super) mr: *mut ibv_mr,
    is_back: std::cell::Cell<bool>,
}

/// What the program fills memory with that is its own again.
const OWN: u8 = 0xEE;

impl Loan {
    fn new(bed: &Bed, len: usize) -> Self {
        Self::of(bed.pd, len)
    }

    pub(super) fn of(pd: *mut ibv_pd, len: usize) -> Self {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let start = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
        let mr = unsafe { ibv_reg_mr(pd, start, len, ALL.cast_signed()) };
        assert!(!mr.is_null());
        Self { start, len, mr, is_back: false.into() }
    }

    pub(super) fn sge(&self, len: usize) -> ibv_sge {
        let length = u32::try_from(len).unwrap();
        let addr = self.start.expose_provenance() as u64;
        ibv_sge { addr, length, lkey: unsafe { (*self.mr).lkey } }
    }

    fn rkey(&self) -> u32 {
        unsafe { (*self.mr).rkey }
    }

    /// From here on only the program uses the memory.
    pub(super) fn take_back(&self) {
        unsafe { self.start.cast::<u8>().write_bytes(OWN, self.len) };
        self.is_back.set(true);
    }

    /// Deregisters it and takes it back.
    pub(super) fn end(&self) {
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
        self.take_back();
    }

    /// Takes the pages away, registered as they are.
    fn unmap(&self) {
        assert_eq!(unsafe { libc::mprotect(self.start, self.len, libc::PROT_NONE) }, 0);
    }

    /// Ends a registration whose pages are away.
    fn end_unmapped(&self) {
        assert_eq!(unsafe { ibv_dereg_mr(self.mr) }, 0);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The engine may still use the memory.
            return;
        }
        let start = self.start.cast::<u8>();
        let looked_at = if self.is_back.get() { self.len.min(1 << 16) } else { 0 };
        let touched = (0..looked_at).find(|at| unsafe { start.add(*at).read_volatile() } != OWN);
        assert_eq!(touched, None, "memory was written after it was taken back");
        unsafe { libc::munmap(self.start, self.len) };
    }
}

fn read(bed: &Bed, sge: &mut ibv_sge) -> ibv_send_wr {
    let mut read = wr(IBV_WR_RDMA_READ, sge);
    let (remote_addr, rkey) = (bed.address(400), bed.rkey());
    read.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    read
}

fn status_of(found: &[ibv_wc], wr_id: u64) -> ibv_wc_status {
    found.iter().find(|wc| wc.wr_id == wr_id).unwrap().status
}

/// Polls until both ends are over, and a little longer; returns all completions.
fn until_over(bed: &Bed) -> Vec<ibv_wc> {
    let (mut found, started) = (Vec::new(), Instant::now());
    while ![0, 1].iter().all(|at| bed.qp(*at).native.state().is_over()) {
        assert!(started.elapsed() < PATIENCE);
        found.extend(bed.poll_once(16));
    }
    found.extend(bed.poll_once(16));
    found
}

fn stays_connected(bed: &Bed) -> bool {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(30) {
        assert_eq!(bed.poll_once(4).len(), 0);
    }
    [0, 1].iter().all(|at| bed.qp(*at).state() == IBV_QPS_RTS)
}

#[test]
fn a_receive_without_its_memory_fails_once_a_message_needs_it() {
    for len in [5, 8000] {
        let bed = Bed::new();
        let loan = Loan::new(&bed, 8192);
        assert_eq!(bed.post_recv(1, 5, loan.sge(8192)), 0);
        loan.end();
        assert!(stays_connected(&bed));
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, len))), 0);
        assert_eq!(status_of(&until_over(&bed), 5), IBV_WC_LOC_PROT_ERR);
        // The sender learns of it with the next send at the latest.
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, len))), 0);
        assert_eq!(status_of(&bed.poll(1), 7), IBV_WC_WR_FLUSH_ERR);
    }
}

/// Two connected queue pairs on a shared receive queue.
fn on_shared_queue() -> (Bed, *mut ibv_srq) {
    let srq = std::cell::Cell::new(null_mut::<ibv_srq>());
    let bed = Bed::unconnected(|pd, cq| unsafe {
        if srq.get().is_null() {
            let attr = ibv_srq_attr { max_wr: 4, max_sge: 1, srq_limit: 0 };
            srq.set(ibv_create_srq(pd, &mut ibv_srq_init_attr { srq_context: null_mut(), attr }));
        }
        ibv_create_qp(pd, &mut ibv_qp_init_attr { srq: srq.get(), ..init_attr(cq) })
    });
    bed.connect();
    (bed, srq.get())
}

#[test]
fn so_does_one_of_a_shared_queue() {
    let (mut bed, srq) = on_shared_queue();
    let loan = Loan::new(&bed, 8192);
    let mut sge = loan.sge(8192);
    let mut recv = ibv_recv_wr { wr_id: 5, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
    let post = unsafe { (*bed.context).ops.post_srq_recv }.unwrap();
    assert_eq!(unsafe { post(srq, &mut recv, &mut null_mut()) }, 0);
    loan.end();
    assert!(stays_connected(&bed));
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    assert_eq!(status_of(&until_over(&bed), 5), IBV_WC_LOC_PROT_ERR);
    let plain = bed.qps.map(|qp| unsafe { ibv_destroy_qp(qp) });
    assert_eq!((plain, unsafe { ibv_destroy_srq(srq) }), ([0, 0], 0));
    bed.qps = [null_mut(); 2];
}

#[test]
fn a_read_without_its_sink_fails() {
    let bed = Bed::new();
    let loan = Loan::new(&bed, 8192);
    // Nothing behind a message that finds no receive is looked at.
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    let mut sge = loan.sge(2000);
    let mut request = read(&bed, &mut sge);
    request.wr_id = 8;
    assert_eq!(bed.post_send(0, &mut request), 0);
    assert_eq!(bed.poll(1)[0].wr_id, 7);
    loan.end();
    assert!(stays_connected(&bed));
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    let found = until_over(&bed);
    assert_eq!([5, 8].map(|id| status_of(&found, id)), [IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR]);
}

#[test]
fn a_send_that_loses_its_memory_half_way_fails() {
    const LEN: usize = 64 << 20;
    let bed = Bed::new();
    let (loan, theirs) = (Loan::new(&bed, LEN), Loan::new(&bed, LEN));
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut loan.sge(LEN))), 0);
    assert!(stays_connected(&bed));
    loan.end();
    assert_eq!(bed.post_recv(1, 5, theirs.sge(LEN)), 0);
    let found = until_over(&bed);
    assert_eq!([5, 7].map(|id| status_of(&found, id)), [IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_PROT_ERR]);
    theirs.end();
}

#[test]
fn a_bad_key_fails_its_request_alone() {
    let spoil: [&dyn Fn(&mut ibv_sge); 3] =
        [&|sge| sge.lkey ^= 1, &|sge| sge.length = 8193, &|sge| sge.addr = u64::MAX];
    for spoil in spoil {
        let bed = Bed::new();
        assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
        let (mut good, mut bad) = (bed.sge(0, 8), bed.sge(0, 8));
        spoil(&mut bad);
        let mut list = [wr(IBV_WR_SEND, &mut good), read(&bed, &mut bad)];
        list[1].wr_id = 8;
        assert_eq!(bed.post_list(0, &mut list), (0, None));
        let found = until_over(&bed);
        let expected = [IBV_WC_SUCCESS, IBV_WC_SUCCESS, IBV_WC_LOC_PROT_ERR];
        assert_eq!([5, 7, 8].map(|id| status_of(&found, id)), expected);
    }
}

#[test]
fn a_request_that_is_being_built_loses_its_memory() {
    let bed = Bed::unconnected(|pd, cq| {
        let pair = extended::make(pd, cq, u64::from(IBV_QP_EX_WITH_SEND));
        assert!(!pair.is_null());
        pair
    });
    bed.connect();
    let (loan, qp) = (Loan::new(&bed, 4096), unsafe { ibv_qp_to_qp_ex(bed.qps[0]) });
    let sge = loan.sge(64);
    unsafe {
        (*qp).wr_start.unwrap()(qp);
        ((*qp).wr_id, (*qp).wr_flags) = (9, IBV_SEND_SIGNALED);
        (*qp).wr_send.unwrap()(qp);
        (*qp).wr_set_sge.unwrap()(qp, sge.lkey, sge.addr, sge.length);
        loan.end();
        assert_eq!((*qp).wr_complete.unwrap()(qp), 0);
    }
    assert_eq!(status_of(&until_over(&bed), 9), IBV_WC_LOC_PROT_ERR);
}

#[test]
fn a_send_that_waits_for_a_connection_loses_its_memory() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let queues: Arc<Queues> = on_roce::as_roce(&bed);
    let loan = Loan::new(&bed, 4096);
    let mut send = wr(IBV_WR_SEND, &mut loan.sge(64));
    send_list(&on_roce::requests(&queues), bed.qp(0).pd(), &mut &raw mut send).unwrap();
    queues.revoke(&crate::object::find::<crate::mr::Mr>(loan.mr).unwrap().region());
    loan.take_back();
    bed.connect();
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    queues.connected();
    let found = bed.poll(2);
    assert_eq!([5, 7].map(|id| status_of(&found, id)), [IBV_WC_WR_FLUSH_ERR, IBV_WC_LOC_PROT_ERR]);
    assert_eq!(unsafe { ibv_dereg_mr(loan.mr) }, 0);
}

#[test]
fn a_region_that_moves_leaves_no_request_behind() {
    let rights = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ).cast_signed();
    let cases = [
        (IBV_REREG_MR_CHANGE_ACCESS, rights, IBV_WC_SUCCESS),
        (IBV_REREG_MR_CHANGE_ACCESS, 0, IBV_WC_LOC_PROT_ERR),
        (IBV_REREG_MR_CHANGE_TRANSLATION, 0, IBV_WC_LOC_PROT_ERR),
    ];
    for (change, access, expected) in cases {
        let bed = Bed::new();
        let (loan, other) = (Loan::new(&bed, 4096), Loan::new(&bed, 4096));
        assert_eq!(bed.post_recv(1, 5, loan.sge(64)), 0);
        let to = other.start;
        let change = change.cast_signed();
        assert_eq!(unsafe { ibv_rereg_mr(loan.mr, change, null_mut(), to, 4096, access) }, 0);
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
        assert_eq!(status_of(&bed.poll(2), 5), expected);
        // What is left of it goes with it.
        if expected == IBV_WC_SUCCESS {
            assert_eq!(bed.post_recv(1, 6, loan.sge(64)), 0);
            loan.end();
            assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
            assert_eq!(status_of(&until_over(&bed), 6), IBV_WC_LOC_PROT_ERR);
        } else {
            loan.end();
        }
        other.end();
    }
}

/// The shortest time that registering and deregistering takes, with a receive that names the memory
/// and without.
fn cost_of_a_region(bed: &Bed) -> [Duration; 2] {
    [false, true].map(|named| {
        let round = |_| {
            let started = Instant::now();
            let loan = Loan::new(bed, 4096);
            let posted = started.elapsed();
            if named {
                assert_eq!(bed.post_recv(0, 1, loan.sge(64)), 0);
            }
            let started = Instant::now();
            assert_eq!(unsafe { ibv_dereg_mr(loan.mr) }, 0);
            let took = posted + started.elapsed();
            if named {
                assert_eq!((bed.modify(0, IBV_QPS_RESET), bed.modify(0, IBV_QPS_INIT)), (0, 0));
            }
            took
        };
        (0..200).map(round).min().unwrap()
    })
}

/// Other queue pairs and what is posted to them cost nothing.
#[test]
fn deregistering_looks_at_no_other_queue_pair() {
    let bed = Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    let few = cost_of_a_region(&bed);
    let sge = bed.sge(0, 64);
    let others: Vec<_> = (0..2000)
        .map(|_| {
            let qp = unsafe { ibv_create_qp(bed.pd, &mut init_attr(bed.cq)) };
            let (mut sge, post) = (sge, unsafe { (*bed.context).ops.post_recv }.unwrap());
            for wr_id in 0..4 {
                let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
                assert_eq!(unsafe { post(qp, &mut wr, &mut null_mut()) }, 0);
            }
            qp
        })
        .collect();
    let many = cost_of_a_region(&bed);
    others.iter().for_each(|qp| assert_eq!(unsafe { ibv_destroy_qp(*qp) }, 0));
    for (few, many) in few.into_iter().zip(many) {
        assert!(many < few * 2 + Duration::from_micros(5), "{few:?} with 2, {many:?} with 2,002");
    }
}

/// The memory of a receive that a queue pair has taken from a shared queue is found, too.
#[test]
fn a_receive_that_a_queue_pair_has_begun_loses_its_memory() {
    const LEN: usize = 64 << 20;
    let (mut bed, srq) = on_shared_queue();
    let (loan, source) = (Loan::new(&bed, LEN), Loan::new(&bed, LEN));
    let mut sge = loan.sge(LEN);
    let mut recv = ibv_recv_wr { wr_id: 5, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
    let post = unsafe { (*bed.context).ops.post_srq_recv }.unwrap();
    assert_eq!(unsafe { post(srq, &mut recv, &mut null_mut()) }, 0);
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut source.sge(LEN))), 0);
    // Taken from the shared queue, and not all here.
    let native = &find::<Srq>(srq).unwrap().native;
    let started = Instant::now();
    while !native.is_empty() {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    loan.end();
    let mut found = Vec::new();
    eventually("the receive is over", || {
        found.extend(bed.poll_once(16));
        found.iter().any(|wc| wc.wr_id == 5)
    });
    match status_of(&found, 5) {
        IBV_WC_LOC_PROT_ERR => drop(until_over(&bed)),
        // It was all here after all: the connection stays.
        IBV_WC_SUCCESS => {}
        status => panic!("{status}"),
    }
    source.end();
    let plain = bed.qps.map(|qp| unsafe { ibv_destroy_qp(qp) });
    assert_eq!((plain, unsafe { ibv_destroy_srq(srq) }), ([0, 0], 0));
    bed.qps = [null_mut(); 2];
}

/// The program has unmapped what is registered still: the request fails that needs it.
#[test]
fn missing_memory_fails_the_request_that_needs_it() {
    for len in [8, 8000, 1 << 20] {
        let case = |post: &dyn Fn(&Bed, &Loan, &Loan) -> c_int,
                    expected: &[(u64, ibv_wc_status)]| {
            let bed = Bed::new();
            let (loan, there) = (Loan::new(&bed, len), Loan::new(&bed, len));
            assert_eq!(bed.post_recv(1, 5, there.sge(len)), 0);
            loan.unmap();
            assert_eq!(post(&bed, &loan, &there), 0);
            let found = until_over(&bed);
            for (wr_id, status) in expected {
                assert_eq!(status_of(&found, *wr_id), *status, "{len} bytes");
            }
            loan.end_unmapped();
            there.end();
        };
        let at = |loan: &Loan| {
            let (remote_addr, rkey) = (loan.start.expose_provenance() as u64, loan.rkey());
            ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey }
        };
        let to_peer = |opcode: ibv_wr_opcode| {
            move |bed: &Bed, loan: &Loan, there: &Loan| {
                let mut sge = there.sge(len);
                let mut request = wr(opcode, &mut sge);
                request.wr.rdma = at(loan);
                bed.post_send(0, &mut request)
            }
        };
        // What the peer's memory refuses.
        case(&to_peer(IBV_WR_RDMA_WRITE), &[(5, IBV_WC_WR_FLUSH_ERR)]);
        let refused = [(5, IBV_WC_WR_FLUSH_ERR), (7, IBV_WC_REM_ACCESS_ERR)];
        case(&to_peer(IBV_WR_RDMA_READ), &refused);
        // A source and a sink of this side's.
        let send = |bed: &Bed, loan: &Loan, _: &Loan| {
            bed.post_send(0, &mut wr(IBV_WR_SEND, &mut loan.sge(len)))
        };
        case(&send, &[(7, IBV_WC_LOC_PROT_ERR)]);
        let receive = |bed: &Bed, loan: &Loan, there: &Loan| {
            assert_eq!(bed.post_recv(0, 6, loan.sge(len)), 0);
            bed.post_send(1, &mut wr(IBV_WR_SEND, &mut there.sge(len)))
        };
        case(&receive, &[(6, IBV_WC_LOC_PROT_ERR)]);
    }
}

#[test]
fn a_write_into_memory_that_is_not_there_is_an_event() {
    let bed = Bed::new();
    let loan = Loan::new(&bed, 4096);
    loan.unmap();
    let mut write = wr(IBV_WR_RDMA_WRITE, &mut bed.sge(0, 8));
    let (remote_addr, rkey) = (loan.start.expose_provenance() as u64, loan.rkey());
    write.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    assert_eq!(bed.post_send(0, &mut write), 0);
    let mut found = [(0, null_mut()); 2];
    for found in &mut found {
        let mut event: ibv_async_event = crate::object::zeroed();
        unsafe {
            assert_eq!(crate::events::ibv_get_async_event(bed.context, &mut event), 0);
            *found = (event.event_type, event.element.qp);
            crate::events::ibv_ack_async_event(&mut event);
        }
    }
    found.sort_unstable();
    assert_eq!(found, [(IBV_EVENT_QP_FATAL, bed.qps[0]), (IBV_EVENT_QP_ACCESS_ERR, bed.qps[1])]);
    loan.end_unmapped();
}
