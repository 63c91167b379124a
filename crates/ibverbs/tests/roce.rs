//! The personality roce through the C entries: queue pairs that programs connect by number and
//! GID, and the results of requests whose peer is absent.
//!
//! One test, because the environment is read once and must be set before that.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::context::{ibv_close_device, ibv_open_device};
use outboard_ibverbs::cq::{ibv_create_cq, ibv_destroy_cq};
use outboard_ibverbs::device::ibv_get_device_list;
use outboard_ibverbs::mr::{ibv_dereg_mr, ibv_reg_mr};
use outboard_ibverbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use outboard_ibverbs::qp::modify::ibv_modify_qp;
use outboard_ibverbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_query_qp};
use outboard_ibverbs::query::ibv_query_gid;
use outboard_testkit::PATIENCE;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Long enough for any immediate event to have arrived.
const A_WHILE: Duration = Duration::from_millis(200);

const TO_INIT: ibv_qp_attr_mask =
    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
const TO_RTR: ibv_qp_attr_mask = IBV_QP_STATE
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_DEST_QPN
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER;
const TO_RTS: ibv_qp_attr_mask = IBV_QP_STATE
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC;

/// A device with one queue pair.
struct Side {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
}

impl Side {
    fn open() -> Self {
        // SAFETY: what the entries want, here and below.
        unsafe {
            let list = ibv_get_device_list(null_mut());
            let context = ibv_open_device(*list);
            let pd = ibv_alloc_pd(context);
            let cq = ibv_create_cq(context, 16, null_mut(), null_mut(), 0);
            let mut side = Self { context, pd, cq, qp: null_mut() };
            side.make();
            side
        }
    }

    /// Makes the queue pair, in the state INIT.
    fn make(&mut self) {
        // SAFETY: a structure of zeros is one without anything.
        let mut wanted: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        (wanted.send_cq, wanted.recv_cq) = (self.cq, self.cq);
        (wanted.cap.max_send_wr, wanted.cap.max_recv_wr) = (8, 8);
        (wanted.qp_type, wanted.sq_sig_all) = (IBV_QPT_RC, 1);
        // SAFETY: as above.
        self.qp = unsafe { ibv_create_qp(self.pd, &raw mut wanted) };
        assert!(!self.qp.is_null());
        assert_eq!(self.modify(IBV_QPS_INIT, TO_INIT, |attr| attr.port_num = 1), 0);
    }

    fn modify(
        &self,
        state: ibv_qp_state,
        mask: ibv_qp_attr_mask,
        more: impl Fn(&mut ibv_qp_attr),
    ) -> i32 {
        // SAFETY: as above.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        more(&mut attr);
        // SAFETY: as above.
        unsafe { ibv_modify_qp(self.qp, &raw mut attr, mask.cast_signed()) }
    }

    fn ready_to_receive(&self, number: u32, gid: ibv_gid, is_global: u8) -> i32 {
        self.modify(IBV_QPS_RTR, TO_RTR, |attr| {
            attr.dest_qp_num = number;
            (attr.ah_attr.is_global, attr.ah_attr.grh.dgid) = (is_global, gid);
        })
    }

    fn ready_to_send(&self) -> i32 {
        self.modify(IBV_QPS_RTS, TO_RTS, |attr| (attr.timeout, attr.retry_cnt) = (14, 7))
    }

    /// Connects the queue pair to this one as far as this side can.
    fn connect(&self, number: u32) {
        assert_eq!(self.ready_to_receive(number, self.gid(), 1), 0);
        assert_eq!(self.ready_to_send(), 0);
    }

    fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.qp).qp_num }
    }

    fn gid(&self) -> ibv_gid {
        let mut gid = ibv_gid { raw: [0; 16] };
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_query_gid(self.context, 1, 0, &raw mut gid) }, 0);
        gid
    }

    fn state(&self) -> ibv_qp_state {
        // SAFETY: as above.
        unsafe {
            let (mut attr, mut made) = (std::mem::zeroed(), std::mem::zeroed());
            let mask = IBV_QP_STATE.cast_signed();
            assert_eq!(ibv_query_qp(self.qp, &raw mut attr, mask, &raw mut made), 0);
            attr.qp_state
        }
    }

    fn send(&self, wr_id: u64) {
        assert_eq!(self.post(wr_id, IBV_WR_SEND, 0, &[]), 0);
    }

    /// Posts a Send of a few bytes.
    fn post(&self, wr_id: u64, opcode: ibv_wr_opcode, imm: u32, bytes: &[u8]) -> i32 {
        let addr = bytes.as_ptr().expose_provenance() as u64;
        let mut sge = ibv_sge { addr, length: length(bytes.len()), lkey: 0 };
        // SAFETY: as above.
        unsafe {
            let mut wr: ibv_send_wr = std::mem::zeroed();
            (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, IBV_SEND_INLINE);
            (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
            wr.__bindgen_anon_1.imm_data = imm.to_be();
            let post = (*self.context).ops.post_send.expect("an operation");
            post(self.qp, &raw mut wr, &mut null_mut())
        }
    }

    fn receive(&self, wr_id: u64) {
        self.receive_into(wr_id, null_mut());
    }

    fn receive_into(&self, wr_id: u64, mr: *mut ibv_mr) {
        // SAFETY: as above.
        unsafe {
            let mut wr: ibv_recv_wr = std::mem::zeroed();
            wr.wr_id = wr_id;
            let mut sge: ibv_sge = std::mem::zeroed();
            if let Some(mr) = mr.as_ref() {
                (sge.addr, sge.length) = (mr.addr.expose_provenance() as u64, length(mr.length));
                sge.lkey = mr.lkey;
                (wr.sg_list, wr.num_sge) = (&raw mut sge, 1);
            }
            let post = (*self.context).ops.post_recv.expect("an operation");
            assert_eq!(post(self.qp, &raw mut wr, &mut null_mut()), 0);
        }
    }

    fn poll(&self) -> Option<ibv_wc> {
        // SAFETY: as above.
        unsafe {
            let mut wc = std::mem::zeroed();
            let poll = (*self.context).ops.poll_cq.expect("an operation");
            (poll(self.cq, 1, &raw mut wc) == 1).then_some(wc)
        }
    }

    /// The next completion must be this, of this queue pair.
    fn expect(&self, wr_id: u64, status: ibv_wc_status) -> ibv_wc {
        let end = Instant::now() + PATIENCE;
        let wc = loop {
            if let Some(wc) = self.poll() {
                break wc;
            }
            assert!(Instant::now() < end, "request {wr_id} did not complete in time");
            std::thread::yield_now();
        };
        assert_eq!((wc.wr_id, wc.status, wc.qp_num), (wr_id, status, self.number()));
        wc
    }

    fn expect_nothing(&self) {
        std::thread::sleep(A_WHILE);
        assert!(self.poll().is_none());
    }

    fn destroy(&self) {
        // SAFETY: as above.
        assert_eq!(unsafe { ibv_destroy_qp(self.qp) }, 0);
    }

    fn close(self) {
        // SAFETY: as above.
        unsafe {
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
            assert_eq!(ibv_close_device(self.context), 0);
        }
    }
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a few")
}

#[test]
fn queue_pairs_connect_by_number_and_gid() {
    // SAFETY: the only test of this process, before any code of the library runs.
    unsafe {
        std::env::set_var("OUTBOARD_PERSONALITY", "roce");
        std::env::set_var("OUTBOARD_DEVICES", "127.0.0.1");
    }
    let (mut a, mut b) = (Side::open(), Side::open());
    what_cannot_be_a_peer(&a);
    for again in [true, true, false] {
        a.connect(b.number());
        // Before the peer has connected.
        a.send(1);
        a.expect_nothing();
        b.receive(2);
        b.connect(a.number());
        a.expect(1, IBV_WC_SUCCESS);
        b.expect(2, IBV_WC_SUCCESS);
        immediate_data_comes_with_sends(&a, &b);
        immediate_data_comes_with_sends(&b, &a);
        the_peer_leaves(&a, &b);
        if again {
            a.make();
            b.make();
        }
    }
    a.make();
    b.make();
    nobody_is_there(&a, &b);
    a.close();
    b.close();
}

fn what_cannot_be_a_peer(a: &Side) {
    let (number, gid) = (a.number(), a.gid());
    assert_eq!(a.ready_to_receive(number, gid, 1), libc::EOPNOTSUPP);
    assert_eq!(a.ready_to_receive(number ^ 1, gid, 0), libc::EINVAL);
    let link_local = ibv_gid { raw: [0xFE, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1] };
    assert_eq!(a.ready_to_receive(number ^ 1, link_local, 1), libc::EINVAL);
    assert_eq!(a.state(), IBV_QPS_INIT);
}

/// One receive takes each Send, with its immediate data and without another's; a Write's is told
/// from it.
fn immediate_data_comes_with_sends(a: &Side, b: &Side) {
    let mut memory = [0u8; 64];
    // SAFETY: as above; the memory outlives its registration.
    let mr = unsafe { ibv_reg_mr(b.pd, memory.as_mut_ptr().cast(), 64, 1) };
    assert!(!mr.is_null());
    (10..13).for_each(|wr_id| b.receive_into(wr_id, mr));
    assert_eq!(a.post(20, IBV_WR_SEND_WITH_IMM, 0x0102_0304, b"with"), 0);
    assert_eq!(a.post(21, IBV_WR_SEND, 0, b"without"), 0);
    // Of no bytes: no key is needed.
    assert_eq!(a.post(22, IBV_WR_RDMA_WRITE_WITH_IMM, 1, b""), 0);
    assert_eq!(a.post(23, IBV_WR_SEND_WITH_IMM, 0, b""), 0);
    let told = |wr_id: u64| {
        let wc = b.expect(wr_id, IBV_WC_SUCCESS);
        // SAFETY: both members are integers.
        let imm = unsafe { wc.__bindgen_anon_1.imm_data };
        (wc.opcode, wc.byte_len, wc.wc_flags, u32::from_be(imm))
    };
    assert_eq!(told(10), (IBV_WC_RECV, 4, IBV_WC_WITH_IMM, 0x0102_0304));
    assert_eq!(told(11), (IBV_WC_RECV, 7, 0, 0));
    assert_eq!(told(12), (IBV_WC_RECV_RDMA_WITH_IMM, 0, IBV_WC_WITH_IMM, 1));
    // The last waits for a receive.
    b.expect_nothing();
    b.receive(13);
    assert_eq!(told(13), (IBV_WC_RECV, 0, IBV_WC_WITH_IMM, 0));
    let sent: Vec<_> = (20..24).map(|wr_id| a.expect(wr_id, IBV_WC_SUCCESS).opcode).collect();
    assert_eq!(sent, [IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_SEND]);
    // SAFETY: as above.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    assert_eq!(memory[..7], *b"without");
}

/// The end is not noticed before the first send.
fn the_peer_leaves(a: &Side, b: &Side) {
    a.receive(3);
    b.destroy();
    a.expect_nothing();
    assert_eq!(a.state(), IBV_QPS_RTS);
    a.send(4);
    // It is repeated for half a second.
    a.expect_nothing();
    assert_eq!(a.state(), IBV_QPS_RTS);
    a.expect(4, IBV_WC_RETRY_EXC_ERR);
    a.expect(3, IBV_WC_WR_FLUSH_ERR);
    assert_eq!(a.state(), IBV_QPS_ERR);
    a.send(5);
    a.expect(5, IBV_WC_WR_FLUSH_ERR);
    a.receive(6);
    a.expect(6, IBV_WC_WR_FLUSH_ERR);
    a.destroy();
}

/// The same when there has never been a connection.
fn nobody_is_there(a: &Side, b: &Side) {
    let (dialer, gone) = if a.number() < b.number() { (a, b) } else { (b, a) };
    let number = gone.number();
    gone.destroy();
    dialer.receive(1);
    dialer.connect(number);
    dialer.expect_nothing();
    assert_eq!(dialer.state(), IBV_QPS_RTS);
    dialer.send(2);
    dialer.expect(2, IBV_WC_RETRY_EXC_ERR);
    dialer.expect(1, IBV_WC_WR_FLUSH_ERR);
    dialer.send(3);
    dialer.expect(3, IBV_WC_WR_FLUSH_ERR);
    dialer.destroy();
}
