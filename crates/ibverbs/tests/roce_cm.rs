//! The personality roce through the connection manager's entries: what is different from iWARP
//! there. One test, because the environment is read once and must be set before that.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::cm::connect::{rdma_accept, rdma_connect};
use outboard_ibverbs::cm::endpoint::rdma_get_request;
use outboard_ibverbs::cm::extras::rdma_get_src_port;
use outboard_ibverbs::cm::id::{rdma_create_id, rdma_destroy_id};
use outboard_ibverbs::cm::queues::{rdma_create_qp, rdma_destroy_qp};
use outboard_ibverbs::cm::resolve::{
    rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_resolve_route,
};
use outboard_testkit::PATIENCE;
use std::mem::zeroed;
use std::net::{Ipv4Addr, TcpListener};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// What Sends bring along.
const IMMEDIATE: u32 = 0x0102_0304;
/// Long enough for any immediate event to have arrived.
const A_WHILE: Duration = Duration::from_millis(200);

/// A synchronous identifier.
struct Id(*mut rdma_cm_id);

// SAFETY: the entries may be called from any thread.
unsafe impl Send for Id {}

impl Id {
    fn new() -> Self {
        let mut id = null_mut();
        // SAFETY: what the entries want, here and below.
        assert_eq!(unsafe { rdma_create_id(null_mut(), &raw mut id, null_mut(), RDMA_PS_TCP) }, 0);
        Self(id)
    }

    fn listener(port: u16) -> Self {
        let id = Self::new();
        let mut address = loopback(port);
        // SAFETY: as above.
        unsafe {
            assert_eq!(rdma_bind_addr(id.0, (&raw mut address).cast()), 0);
            assert_eq!(rdma_listen(id.0, 1), 0);
        }
        id
    }

    /// A connection to this port.
    fn connect(port: u16) -> Self {
        let id = Self::new();
        let mut address = loopback(port);
        // SAFETY: as above.
        unsafe {
            assert_eq!(rdma_resolve_addr(id.0, null_mut(), (&raw mut address).cast(), 1000), 0);
            assert_eq!(rdma_resolve_route(id.0, 1000), 0);
            id.make_qp();
            assert_eq!(rdma_connect(id.0, &mut without_depths()), 0);
        }
        id
    }

    /// The next connection of a listener.
    fn accept(&self) -> Self {
        let mut id = null_mut();
        // SAFETY: as above.
        unsafe {
            assert_eq!(rdma_get_request(self.0, &raw mut id), 0);
            let id = Self(id);
            id.make_qp();
            assert_eq!(rdma_accept(id.0, &mut without_depths()), 0);
            id
        }
    }

    fn make_qp(&self) {
        // SAFETY: as above; zeros leave everything open.
        unsafe {
            let mut wanted: ibv_qp_init_attr = zeroed();
            (wanted.cap.max_send_wr, wanted.cap.max_recv_wr) = (4, 4);
            (wanted.qp_type, wanted.sq_sig_all) = (IBV_QPT_RC, 1);
            assert_eq!(rdma_create_qp(self.0, null_mut(), &raw mut wanted), 0);
        }
    }

    fn send(&self, opcode: ibv_wr_opcode) -> i32 {
        // SAFETY: as above.
        unsafe {
            let mut wr: ibv_send_wr = zeroed();
            wr.opcode = opcode;
            wr.__bindgen_anon_1.imm_data = IMMEDIATE.to_be();
            let post = (*(*self.0).verbs).ops.post_send.expect("an operation");
            post((*self.0).qp, &raw mut wr, &mut null_mut())
        }
    }

    fn receive(&self) {
        // SAFETY: as above.
        unsafe {
            let mut wr: ibv_recv_wr = zeroed();
            let post = (*(*self.0).verbs).ops.post_recv.expect("an operation");
            assert_eq!(post((*self.0).qp, &raw mut wr, &mut null_mut()), 0);
        }
    }

    /// The immediate data of the next receive's completion.
    fn immediate(&self) -> u32 {
        let end = Instant::now() + PATIENCE;
        // SAFETY: as above.
        unsafe {
            let mut wc: ibv_wc = zeroed();
            let poll = (*(*self.0).verbs).ops.poll_cq.expect("an operation");
            while poll((*self.0).recv_cq, 1, &raw mut wc) == 0 {
                assert!(Instant::now() < end, "waited too long for a message");
                std::thread::yield_now();
            }
            assert_eq!((wc.status, wc.opcode), (IBV_WC_SUCCESS, IBV_WC_RECV));
            assert_eq!(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
            u32::from_be(wc.__bindgen_anon_1.imm_data)
        }
    }

    /// Whether a send has completed.
    fn has_sent(&self) -> bool {
        // SAFETY: as above.
        unsafe {
            let mut wc: ibv_wc = zeroed();
            let poll = (*(*self.0).verbs).ops.poll_cq.expect("an operation");
            let count = poll((*self.0).send_cq, 1, &raw mut wc);
            assert_eq!(wc.status, IBV_WC_SUCCESS);
            count == 1
        }
    }

    fn destroy(self) {
        // SAFETY: as above.
        unsafe {
            if !(*self.0).qp.is_null() {
                rdma_destroy_qp(self.0);
            }
            assert_eq!(rdma_destroy_id(self.0), 0);
        }
    }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("16 bits"),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

/// A program that never reads.
fn without_depths() -> rdma_conn_param {
    // SAFETY: all zero bits are a value.
    unsafe { zeroed() }
}

#[test]
fn a_completion_says_that_the_peer_has_it() {
    // SAFETY: the only test of this process, before any code of the library runs.
    unsafe {
        std::env::set_var("OUTBOARD_PERSONALITY", "roce");
        std::env::set_var("OUTBOARD_DEVICES", "127.0.0.1");
    }
    // The port of a TCP server is free for RDMA, and the other way round.
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let listener = Id::listener(tcp.local_addr().expect("an address").port());
    // SAFETY: a live identifier.
    let port = u16::from_be(unsafe { rdma_get_src_port(listener.0) });
    assert_eq!(port, tcp.local_addr().expect("an address").port());
    let other = Id::listener(0);
    // SAFETY: as above.
    let free = u16::from_be(unsafe { rdma_get_src_port(other.0) });
    TcpListener::bind((Ipv4Addr::LOCALHOST, free)).expect("the port of an RDMA listener");
    other.destroy();
    let active = std::thread::spawn(move || Id::connect(port));
    let passive = listener.accept();
    let active = active.join().expect("a connection");
    for (from, to) in [(&active, &passive), (&passive, &active)] {
        assert_eq!(from.send(IBV_WR_SEND_WITH_IMM), 0);
        std::thread::sleep(A_WHILE);
        assert!(!from.has_sent(), "it has no receive yet");
        to.receive();
        let end = Instant::now() + PATIENCE;
        while !from.has_sent() {
            assert!(Instant::now() < end, "waited too long for the completion");
            std::thread::yield_now();
        }
        assert_eq!(to.immediate(), IMMEDIATE);
    }
    [active, passive, listener].into_iter().for_each(Id::destroy);
}
