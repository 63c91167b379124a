//! How many descriptors connections cost: of each end its socket, whatever the number of
//! identifiers on a channel. One test, because it counts those of the process.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::cm::channel::{
    rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
use outboard_ibverbs::cm::connect::{rdma_accept, rdma_connect, rdma_disconnect};
use outboard_ibverbs::cm::event::rdma_ack_cm_event;
use outboard_ibverbs::cm::extras::rdma_get_src_port;
use outboard_ibverbs::cm::id::{rdma_create_id, rdma_destroy_id};
use outboard_ibverbs::cm::queues::{rdma_create_qp, rdma_destroy_qp};
use outboard_ibverbs::cm::resolve::{
    rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_resolve_route,
};
use outboard_ibverbs::cq::ibv_create_cq;
use std::mem::zeroed;
use std::ptr::null_mut;

/// Enough to tell one descriptor for each from two.
const CONNECTIONS: usize = 200;
/// What the engine, the channels, the listener and the completion queue have.
const SHARED: usize = 20;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

/// Waits for the next event, which is to be this one; returns its identifier.
fn expect(channel: *mut rdma_event_channel, wanted: rdma_cm_event_type) -> *mut rdma_cm_id {
    let mut event = null_mut();
    // SAFETY: what the entries want, here and below.
    unsafe {
        assert_eq!(rdma_get_cm_event(channel, &raw mut event), 0);
        let (kind, id) = ((*event).event, (*event).id);
        assert_eq!(rdma_ack_cm_event(event), 0);
        assert_eq!(kind, wanted);
        id
    }
}

fn loopback(port: u16) -> libc::sockaddr_in {
    // SAFETY: all zero bits are an address.
    let mut address: libc::sockaddr_in = unsafe { zeroed() };
    address.sin_family = libc::AF_INET.try_into().expect("small");
    address.sin_addr.s_addr = u32::from(std::net::Ipv4Addr::LOCALHOST).to_be();
    address.sin_port = port;
    address
}

fn make_id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = null_mut();
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_create_id(channel, &raw mut id, null_mut(), RDMA_PS_TCP) }, 0);
    id
}

/// A queue pair on a completion queue that all of them share.
fn make_qp(id: *mut rdma_cm_id, cq: &mut *mut ibv_cq) {
    // SAFETY: as above; all zero bits leave everything open.
    unsafe {
        if cq.is_null() {
            *cq = ibv_create_cq((*id).verbs, 4000, null_mut(), null_mut(), 0);
        }
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (*cq, *cq, IBV_QPT_RC);
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
        assert_eq!(rdma_create_qp(id, null_mut(), &raw mut attr), 0);
    }
}

#[test]
fn a_connection_costs_each_end_one_descriptor() {
    // SAFETY: the environment is read by this thread only, later.
    unsafe { std::env::set_var("OUTBOARD_DEVICES", "127.0.0.1") };
    // SAFETY: as above.
    unsafe {
        let (passive, active) = (rdma_create_event_channel(), rdma_create_event_channel());
        let (listener, mut address) = (make_id(passive), loopback(0));
        assert_eq!(rdma_bind_addr(listener, (&raw mut address).cast()), 0);
        assert_eq!(rdma_listen(listener, 8), 0);
        let before = descriptors();
        let (mut ids, mut cq) = (Vec::new(), null_mut());
        for _ in 0..CONNECTIONS {
            let (id, mut peer) = (make_id(active), loopback(rdma_get_src_port(listener)));
            assert_eq!(rdma_resolve_addr(id, null_mut(), (&raw mut peer).cast(), 1000), 0);
            expect(active, RDMA_CM_EVENT_ADDR_RESOLVED);
            assert_eq!(rdma_resolve_route(id, 1000), 0);
            expect(active, RDMA_CM_EVENT_ROUTE_RESOLVED);
            make_qp(id, &mut cq);
            assert_eq!(rdma_connect(id, null_mut()), 0);
            let child = expect(passive, RDMA_CM_EVENT_CONNECT_REQUEST);
            make_qp(child, &mut cq);
            assert_eq!(rdma_accept(child, null_mut()), 0);
            assert_eq!(expect(passive, RDMA_CM_EVENT_ESTABLISHED), child);
            assert_eq!(expect(active, RDMA_CM_EVENT_ESTABLISHED), id);
            ids.push([id, child]);
        }
        let more = descriptors() - before;
        assert!(more <= 2 * CONNECTIONS + SHARED, "{more} descriptors more");
        for [id, child] in ids {
            assert_eq!(rdma_disconnect(id), 0);
            assert_eq!(expect(active, RDMA_CM_EVENT_DISCONNECTED), id);
            assert_eq!(expect(passive, RDMA_CM_EVENT_DISCONNECTED), child);
            for end in [id, child] {
                rdma_destroy_qp(end);
                assert_eq!(rdma_destroy_id(end), 0);
            }
        }
        let left = descriptors().saturating_sub(before);
        assert!(left <= SHARED, "{left} descriptors are left");
        assert_eq!(rdma_destroy_id(listener), 0);
        [passive, active].into_iter().for_each(|channel| rdma_destroy_event_channel(channel));
    }
}
