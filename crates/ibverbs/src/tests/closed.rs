//! Devices that are closed while everything on them is in use.

use super::revoked::Loan;
use super::*;

/// A separate device with one queue pair and memory that peers may write.
struct Side {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    loan: Loan,
}

impl Side {
    fn new() -> Self {
        unsafe {
            let context = ibv_open_device(devices()[0].0);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 64, null_mut(), null_mut(), 0);
            let qp = ibv_create_qp(pd, &mut init_attr(cq));
            assert!(!qp.is_null());
            Self { context, pd, cq, qp, loan: Loan::of(pd, 8192) }
        }
    }

    /// With the first queue pair of `bed` as its peer.
    fn connected(bed: &Bed) -> Self {
        let side = Self::new();
        let (ours, theirs) = (find::<Qp>(side.qp).unwrap(), bed.qp(0));
        let native = |context| &find::<Context>(context).unwrap().native;
        let listener = native(side.context).listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let events = native(bed.context).create_cm_channel().unwrap();
        let params = ConnectParams::default();
        theirs.native.start_connect(listener.local_addr(), &params, &events).unwrap();
        let request = listener.next_request(Some(PATIENCE)).unwrap();
        request.accept(&ours.native, &params).unwrap();
        events.next(Some(PATIENCE)).unwrap();
        [ours, theirs].iter().for_each(|qp| qp.set_state(IBV_QPS_RTS));
        side
    }

    fn close(&self) {
        assert_eq!(unsafe { ibv_close_device(self.context) }, 0);
    }

    fn post_recv(&self) -> c_int {
        let mut sge = self.loan.sge(64);
        let mut wr = ibv_recv_wr { wr_id: 5, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        // What inline code of the headers finds in the context, which may be gone.
        let mut operations: verbs_context = crate::object::zeroed();
        crate::qp::set_operations(&mut operations);
        unsafe { operations.context.ops.post_recv.unwrap()(self.qp, &mut wr, &mut null_mut()) }
    }

    /// What a program that closes first does after that.
    fn destroy(self) {
        unsafe {
            assert_eq!(ibv_destroy_qp(self.qp), 0);
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
        }
    }
}

fn unconnected() -> Bed {
    Bed::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) })
}

/// Posts to the side's peer until the connection is over.
fn until_refused(bed: &Bed, request: impl Fn(&mut ibv_sge) -> ibv_send_wr) {
    let started = Instant::now();
    loop {
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(bed.post_send(0, &mut request(&mut bed.sge(0, 8))), 0);
        if bed.poll(1)[0].status != IBV_WC_SUCCESS {
            return;
        }
    }
}

#[test]
fn memory_is_out_of_reach_once_its_device_is_closed() {
    // Without deregistering, as of a program that leaves that to the kernel, and with it.
    for deregisters in [false, true] {
        let bed = unconnected();
        let side = Side::connected(&bed);
        assert_eq!(side.post_recv(), 0);
        let rkey = unsafe { (*side.loan.mr).rkey };
        side.close();
        if deregisters {
            assert_eq!(unsafe { ibv_dereg_mr(side.loan.mr) }, 0);
        }
        side.loan.take_back();
        let at = side.loan.start.expose_provenance() as u64;
        let write = |sge: &mut ibv_sge| {
            let mut write = wr(IBV_WR_RDMA_WRITE, sge);
            write.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr: at, rkey };
            write
        };
        until_refused(&bed, write);
        if !deregisters {
            assert_eq!(unsafe { ibv_dereg_mr(side.loan.mr) }, 0);
        }
        side.destroy();
    }
}

#[test]
fn a_posted_receive_is_out_of_reach_too() {
    let bed = unconnected();
    let side = Side::connected(&bed);
    assert_eq!(side.post_recv(), 0);
    side.close();
    side.loan.take_back();
    until_refused(&bed, |sge| wr(IBV_WR_SEND, sge));
    assert_eq!(unsafe { ibv_dereg_mr(side.loan.mr) }, 0);
    side.destroy();
}

#[test]
fn nothing_new_is_made_on_a_closed_device() {
    let side = Side::new();
    side.close();
    unsafe {
        assert!(ibv_create_qp(side.pd, &mut init_attr(side.cq)).is_null());
        let mut memory = [0u64; 8];
        let start = memory.as_mut_ptr().cast();
        assert!(ibv_reg_mr(side.pd, start, 64, IBV_ACCESS_LOCAL_WRITE.cast_signed()).is_null());
        assert_eq!(ibv_close_device(side.context), -1);
        assert_eq!(ibv_dereg_mr(side.loan.mr), 0);
        assert_eq!(ibv_dereg_mr(side.loan.mr), libc::EINVAL);
    }
    // It is a queue pair in ERR, whose receives are flushed.
    assert_eq!(side.post_recv(), 0);
    assert_eq!(find::<Qp>(side.qp).unwrap().state(), IBV_QPS_ERR);
    side.destroy();
}

/// The next context may be where the closed one was, with the same numbers.
#[test]
fn leftovers_of_a_closed_device_are_not_the_next_ones() {
    let old = Side::new();
    old.close();
    let new = Side::new();
    assert_eq!(new.post_recv(), 0);
    assert_eq!(unsafe { ibv_dereg_mr(old.loan.mr) }, 0);
    old.destroy();
    let context: &Context = find(new.context).unwrap();
    let known = crate::cq::lock(&context.qps).len() + crate::cq::lock(&context.cqs).len();
    assert_eq!(known, 2);
    let region = find::<crate::mr::Mr>(new.loan.mr).unwrap().region();
    assert!(!region.is_sole());
    new.loan.end();
    assert!(region.is_sole());
    new.close();
    new.destroy();
}

/// What inline code polls with stays valid: completions are there to be taken.
#[test]
fn a_device_of_the_connection_managers_stays_open() {
    let nic = crate::cm::nic::all().unwrap()[0];
    assert_eq!(unsafe { ibv_close_device(nic.verbs) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
    assert!(nic.context().is_ok());
}
