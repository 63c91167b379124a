//! OUTBOARD_CRC=off, seen from the other end of the wire. One test, because the environment is read
//! once and must be set before that.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::cm::connect::rdma_connect;
use outboard_ibverbs::cm::id::{rdma_create_id, rdma_destroy_id};
use outboard_ibverbs::cm::queues::{rdma_create_qp, rdma_destroy_qp};
use outboard_ibverbs::cm::resolve::{rdma_resolve_addr, rdma_resolve_route};
use std::io::Read;
use std::mem::zeroed;
use std::net::{Ipv4Addr, TcpListener};
use std::ptr::null_mut;

/// RFC 5044 §7.1.1: the byte behind the key, and its bit for "CRCs please".
const FLAGS_AT: usize = 16;
const CRC: u8 = 0x40;

/// Asks for a connection to a port where no MPA Reply comes.
fn connect_in_vain(port: u16) {
    let mut address = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).expect("16 bits"),
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    let mut id = null_mut();
    // SAFETY: what the entries want; zeros are a value and leave everything open.
    unsafe {
        assert_eq!(rdma_create_id(null_mut(), &raw mut id, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(rdma_resolve_addr(id, null_mut(), (&raw mut address).cast(), 1000), 0);
        assert_eq!(rdma_resolve_route(id, 1000), 0);
        let mut wanted: ibv_qp_init_attr = zeroed();
        (wanted.cap.max_send_wr, wanted.cap.max_recv_wr) = (1, 1);
        wanted.qp_type = IBV_QPT_RC;
        assert_eq!(rdma_create_qp(id, null_mut(), &raw mut wanted), 0);
        assert_eq!(rdma_connect(id, &mut zeroed()), -1);
        rdma_destroy_qp(id);
        assert_eq!(rdma_destroy_id(id), 0);
    }
}

#[test]
fn the_request_asks_for_no_checksums() {
    // SAFETY: the only test of this process, before any code of the library runs.
    unsafe {
        std::env::set_var("OUTBOARD_CRC", "off");
        std::env::set_var("OUTBOARD_DEVICES", "127.0.0.1");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let client = std::thread::spawn(move || connect_in_vain(port));
    let mut request = [0; FLAGS_AT + 1];
    listener.accept().expect("a client").0.read_exact(&mut request).expect("a Request");
    assert_eq!(&request[..FLAGS_AT], b"MPA ID Req Frame");
    assert_eq!(request[FLAGS_AT] & CRC, 0);
    client.join().expect("an end");
}
