//! Connections within one process, through the C entries; [`channels`] has what becomes of events,
//! [`others`] endpoints, options and nonsense.

mod channels;
mod others;

use super::address;
use super::channel::{rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event};
use super::connect::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_establish, rdma_notify, rdma_reject,
};
use super::event::{rdma_ack_cm_event, rdma_event_str};
use super::extras::{rdma_get_dst_port, rdma_get_src_port};
use super::id::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
use super::queues::{rdma_create_qp, rdma_destroy_qp, rdma_init_qp_attr};
use super::resolve::{rdma_bind_addr, rdma_listen, rdma_resolve_addr, rdma_resolve_route};
use crate::abi::*;
use crate::qp::modify::ibv_modify_qp;
use crate::qp::{ibv_create_qp, ibv_destroy_qp};
use libc::{c_int, sockaddr, sockaddr_storage};
use outboard_testkit::PATIENCE;
use std::ffi::CStr;
use std::mem::zeroed;
use std::net::{SocketAddr, TcpListener};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

#[test]
fn an_identifiers_queue_pair_is_found_without_a_scan() {
    let (passive, active) = (Channel::new(), Channel::new());
    let idle: Vec<_> = (0..100).map(|_| with_qp(active.resolved(1))).collect();
    super::id::LOOKS.take();
    let ids = connected(&passive, &active);
    destroy(&ids[1..]);
    // Each step at most the one queue pair; both ends are in this thread.
    let looks = super::id::LOOKS.take();
    assert!((2..20).contains(&looks), "{looks} queue pairs were looked at");
    destroy(&ids[..1]);
    destroy(&idle);
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn c_address(text: &str) -> sockaddr_storage {
    // SAFETY: all zero bits are an address.
    let mut storage = unsafe { zeroed() };
    let address: SocketAddr = text.parse().expect("an address");
    // SAFETY: it is a whole storage.
    unsafe { address::write(&raw mut storage, address) };
    storage
}

fn pointer(storage: &mut sockaddr_storage) -> *mut sockaddr {
    std::ptr::from_mut(storage).cast()
}

fn is_readable(channel: *mut rdma_event_channel) -> bool {
    // SAFETY: the channel is live.
    let mut poll = libc::pollfd { fd: unsafe { (*channel).fd }, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
}

/// An event, copied, and acknowledged.
struct Told {
    id: *mut rdma_cm_id,
    listener: *mut rdma_cm_id,
    event: rdma_cm_event_type,
    status: c_int,
    conn: rdma_conn_param,
    private_data: Vec<u8>,
}

/// A channel that does not block.
struct Channel(*mut rdma_event_channel);

impl Channel {
    fn new() -> Self {
        // SAFETY: the entries check what they are given, here and below.
        unsafe {
            let channel = rdma_create_event_channel();
            assert!(!channel.is_null());
            let flags = libc::fcntl((*channel).fd, libc::F_GETFL);
            libc::fcntl((*channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            Self(channel)
        }
    }

    fn id(&self) -> *mut rdma_cm_id {
        let mut id = null_mut();
        let context = std::ptr::without_provenance_mut(7);
        // SAFETY: as above.
        assert_eq!(unsafe { rdma_create_id(self.0, &raw mut id, context, RDMA_PS_TCP) }, 0);
        id
    }

    fn raw(&self) -> *mut rdma_cm_event {
        let end = Instant::now() + PATIENCE;
        let mut event = null_mut();
        // SAFETY: as above.
        while unsafe { rdma_get_cm_event(self.0, &raw mut event) } != 0 {
            assert_eq!(errno(), libc::EAGAIN);
            assert!(Instant::now() < end, "no event");
            std::thread::sleep(Duration::from_micros(200));
        }
        event
    }

    fn next(&self) -> Told {
        let event = self.raw();
        // SAFETY: the event is live until it is acknowledged.
        unsafe {
            let conn = (*event).param.conn;
            let len = usize::from(conn.private_data_len);
            let told = Told {
                id: (*event).id,
                listener: (*event).listen_id,
                event: (*event).event,
                status: (*event).status,
                conn,
                private_data: address::bytes(conn.private_data.cast(), len),
            };
            assert_eq!(rdma_ack_cm_event(event), 0);
            told
        }
    }

    fn expect(&self, event: rdma_cm_event_type) -> Told {
        let told = self.next();
        let name = |event| {
            // SAFETY: names end with a zero and live for ever.
            unsafe { CStr::from_ptr(rdma_event_str(event)) }.to_str().unwrap_or("?")
        };
        assert_eq!(name(told.event), name(event), "status {}", told.status);
        told
    }

    fn is_silent(&self) -> bool {
        let mut event = null_mut();
        // SAFETY: as above.
        let none = unsafe { rdma_get_cm_event(self.0, &raw mut event) } == -1;
        none && errno() == libc::EAGAIN && !is_readable(self.0)
    }

    fn listener(&self, at: &str) -> *mut rdma_cm_id {
        let id = self.id();
        // SAFETY: as above.
        unsafe {
            assert_eq!(rdma_bind_addr(id, pointer(&mut c_address(at))), 0);
            assert_eq!(rdma_listen(id, 8), 0);
        }
        id
    }

    /// An identifier that may connect to a port of the loopback.
    fn resolved(&self, port: u16) -> *mut rdma_cm_id {
        let id = self.id();
        let mut peer = c_address("127.0.0.1:0");
        peer_port(&mut peer, port);
        // SAFETY: as above.
        unsafe {
            assert_eq!(rdma_resolve_addr(id, null_mut(), pointer(&mut peer), 1000), 0);
            assert_eq!(self.expect(RDMA_CM_EVENT_ADDR_RESOLVED).id, id);
            assert_eq!(rdma_resolve_route(id, 1000), 0);
            assert_eq!(self.expect(RDMA_CM_EVENT_ROUTE_RESOLVED).id, id);
        }
        id
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { rdma_destroy_event_channel(self.0) };
    }
}

/// `port` in network order.
fn peer_port(address: &mut sockaddr_storage, port: u16) {
    // SAFETY: an IPv4 address.
    unsafe { (*std::ptr::from_mut(address).cast::<libc::sockaddr_in>()).sin_port = port };
}

fn small() -> ibv_qp_init_attr {
    // SAFETY: all zero bits leave everything open.
    let mut attr: ibv_qp_init_attr = unsafe { zeroed() };
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (4, 4);
    (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
    attr.qp_type = IBV_QPT_RC;
    attr
}

fn param(private_data: &[u8], depths: (u8, u8)) -> rdma_conn_param {
    // SAFETY: all zero bits are a value.
    let mut param: rdma_conn_param = unsafe { zeroed() };
    param.private_data = private_data.as_ptr().cast();
    param.private_data_len = u8::try_from(private_data.len()).expect("short");
    (param.responder_resources, param.initiator_depth) = depths;
    param
}

fn with_qp(id: *mut rdma_cm_id) -> *mut rdma_cm_id {
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_create_qp(id, null_mut(), &mut small()) }, 0, "{}", errno());
    id
}

fn state(id: *mut rdma_cm_id) -> ibv_qp_state {
    // SAFETY: the identifier and its queue pair are live.
    unsafe { (*(*id).qp).state }
}

fn destroy(ids: &[*mut rdma_cm_id]) {
    for id in ids {
        // SAFETY: as above.
        unsafe {
            if !(**id).qp.is_null() {
                rdma_destroy_qp(*id);
            }
            assert_eq!(rdma_destroy_id(*id), 0);
        }
    }
}

/// Two connected identifiers: (listener, active, passive).
fn connected(passive: &Channel, active: &Channel) -> [*mut rdma_cm_id; 3] {
    let listener = passive.listener("127.0.0.1:0");
    // SAFETY: as above.
    unsafe {
        let id = with_qp(active.resolved(rdma_get_src_port(listener)));
        assert_eq!(state(id), IBV_QPS_INIT);
        assert_eq!(rdma_connect(id, &mut param(b"hello", (3, 5))), 0);
        let request = passive.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(request.listener, listener);
        assert_eq!(request.private_data, b"hello");
        let depths = (request.conn.responder_resources, request.conn.initiator_depth);
        assert_eq!(depths, (5, 3));
        let child = with_qp(request.id);
        assert_eq!((*child).context, (*listener).context);
        assert_eq!((*child).verbs, (*(*child).pd).context);
        assert_eq!(rdma_accept(child, &mut param(b"welcome", (5, 3))), 0);
        assert_eq!(passive.expect(RDMA_CM_EVENT_ESTABLISHED).id, child);
        let there = active.expect(RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!((there.id, there.private_data.as_slice()), (id, b"welcome".as_slice()));
        assert_eq!((state(id), state(child)), (IBV_QPS_RTS, IBV_QPS_RTS));
        assert_eq!(rdma_get_dst_port(child), rdma_get_src_port(id));
        assert_eq!(rdma_get_dst_port(id), rdma_get_src_port(child));
        [listener, id, child]
    }
}

#[test]
fn a_connection_from_beginning_to_end() {
    let (passive, active) = (Channel::new(), Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    // SAFETY: as above.
    unsafe {
        assert_eq!(rdma_notify(child, IBV_EVENT_COMM_EST), 0);
        assert_eq!(rdma_disconnect(id), 0);
    }
    assert_eq!(active.expect(RDMA_CM_EVENT_DISCONNECTED).id, id);
    assert_eq!(passive.expect(RDMA_CM_EVENT_DISCONNECTED).id, child);
    assert_eq!((state(id), state(child)), (IBV_QPS_ERR, IBV_QPS_ERR));
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_disconnect(child) }, 0);
    assert!(active.is_silent() && passive.is_silent(), "the end is reported once");
    destroy(&[id, child, listener]);
}

#[test]
fn a_refusal_brings_private_data() {
    let channel = Channel::new();
    let listener = channel.listener("127.0.0.1:0");
    // SAFETY: as above.
    unsafe {
        let id = with_qp(channel.resolved(rdma_get_src_port(listener)));
        assert_eq!(rdma_connect(id, null_mut()), 0);
        let request = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!(rdma_reject(request.id, b"no".as_ptr().cast(), 2), 0);
        let refused = channel.expect(RDMA_CM_EVENT_REJECTED);
        assert_eq!(refused.status, -libc::ECONNREFUSED);
        assert_eq!((refused.id, refused.private_data.as_slice()), (id, b"no".as_slice()));
        assert_eq!(state(id), IBV_QPS_ERR);
        destroy(&[id, request.id, listener]);
    }
}

#[test]
fn a_destroyed_request_is_refused() {
    let channel = Channel::new();
    let listener = channel.listener("127.0.0.1:0");
    // SAFETY: as above.
    unsafe {
        let id = with_qp(channel.resolved(rdma_get_src_port(listener)));
        assert_eq!(rdma_connect(id, null_mut()), 0);
        destroy(&[channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id]);
        let refused = channel.expect(RDMA_CM_EVENT_REJECTED);
        assert_eq!((refused.id, refused.status), (id, -libc::ECONNREFUSED));
        destroy(&[id, listener]);
    }
}

#[test]
fn nobody_listens_there() {
    let channel = Channel::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    drop(taken);
    let id = with_qp(channel.resolved(port.to_be()));
    // SAFETY: as above.
    unsafe { assert_eq!(rdma_connect(id, null_mut()), 0) };
    let refused = channel.expect(RDMA_CM_EVENT_REJECTED);
    assert_eq!((refused.id, refused.status), (id, -libc::ECONNREFUSED));
    destroy(&[id]);
}

#[test]
fn addresses_that_no_device_has() {
    let channel = Channel::new();
    let id = channel.id();
    // SAFETY: as above.
    unsafe {
        assert_eq!(rdma_bind_addr(id, pointer(&mut c_address("192.0.2.1:0"))), -1);
        assert_eq!(errno(), libc::ENODEV);
        let (mut source, mut peer) = (c_address("192.0.2.1:0"), c_address("127.0.0.1:1"));
        assert_eq!(rdma_resolve_addr(id, pointer(&mut source), pointer(&mut peer), 1), 0);
        assert_eq!(channel.expect(RDMA_CM_EVENT_ADDR_ERROR).status, -libc::ENODEV);
    }
    destroy(&[id]);
}

#[test]
fn a_listener_everywhere_has_one_port() {
    let channel = Channel::new();
    let listener = channel.listener("[::]:0");
    // SAFETY: as above.
    unsafe {
        let port = rdma_get_src_port(listener);
        assert_ne!(port, 0);
        assert!((*listener).verbs.is_null(), "it belongs to no particular device");
        let id = with_qp(channel.resolved(port));
        assert_eq!(rdma_connect(id, null_mut()), 0);
        let request = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        assert_eq!((*request.id).verbs, (*id).verbs);
        destroy(&[request.id, id, listener]);
    }
}

#[test]
fn a_port_has_one_listener() {
    let channel = Channel::new();
    let listener = channel.listener("127.0.0.1:0");
    let other = channel.id();
    // SAFETY: as above.
    unsafe {
        let mut same = c_address("127.0.0.1:0");
        peer_port(&mut same, rdma_get_src_port(listener));
        assert_eq!(rdma_bind_addr(other, pointer(&mut same)), -1);
        assert_eq!(errno(), libc::EADDRINUSE);
        destroy(&[listener]);
        assert_eq!(rdma_bind_addr(other, pointer(&mut same)), 0, "at once");
    }
    destroy(&[other]);
}

#[test]
fn destroying_waits_for_acknowledgements() {
    let channel = Channel::new();
    let id = channel.id();
    // SAFETY: as above.
    unsafe {
        let mut peer = c_address("127.0.0.1:1");
        assert_eq!(rdma_resolve_addr(id, null_mut(), pointer(&mut peer), 1), 0);
        let event = channel.raw().expose_provenance();
        let started = Instant::now();
        let pause = Duration::from_millis(50);
        let acknowledge = std::thread::spawn(move || {
            std::thread::sleep(pause);
            rdma_ack_cm_event(std::ptr::with_exposed_provenance_mut(event))
        });
        assert_eq!(rdma_destroy_id(id), 0);
        assert!(started.elapsed() >= pause);
        assert_eq!(acknowledge.join().ok(), Some(0));
    }
}

#[test]
fn queued_events_move_along() {
    let (first, second) = (Channel::new(), Channel::new());
    let [listener, id, child] = connected(&first, &first);
    // SAFETY: as above.
    unsafe {
        assert_eq!(rdma_migrate_id(child, second.0), 0);
        assert_eq!((*child).channel, second.0);
        assert_eq!(rdma_disconnect(id), 0);
        assert_eq!(second.expect(RDMA_CM_EVENT_DISCONNECTED).id, child);
        assert_eq!(first.expect(RDMA_CM_EVENT_DISCONNECTED).id, id);
        let mut peer = c_address("127.0.0.1:1");
        let waiting = first.id();
        assert_eq!(rdma_resolve_addr(waiting, null_mut(), pointer(&mut peer), 1), 0);
        assert_eq!(rdma_migrate_id(waiting, second.0), 0);
        assert!(first.is_silent());
        assert_eq!(second.expect(RDMA_CM_EVENT_ADDR_RESOLVED).id, waiting);
        destroy(&[id, child, listener, waiting]);
    }
}

#[test]
fn destroying_a_connected_queue_pair_ends_the_connection() {
    let channel = Channel::new();
    let [listener, id, child] = connected(&channel, &channel);
    // SAFETY: as above.
    unsafe { rdma_destroy_qp(id) };
    let ends =
        [channel.expect(RDMA_CM_EVENT_DISCONNECTED), channel.expect(RDMA_CM_EVENT_DISCONNECTED)];
    assert!(ends.iter().any(|end| end.id == id) && ends.iter().any(|end| end.id == child));
    destroy(&[id, child, listener]);
}

#[test]
fn queue_pairs_of_ones_own() {
    let channel = Channel::new();
    let listener = channel.listener("127.0.0.1:0");
    // SAFETY: as above.
    unsafe {
        let id = channel.resolved(rdma_get_src_port(listener));
        let cq = crate::cq::ibv_create_cq((*id).verbs, 16, null_mut(), null_mut(), 0);
        let mut attr = ibv_qp_init_attr { send_cq: cq, recv_cq: cq, ..small() };
        let qps = [(); 2].map(|()| ibv_create_qp((*id).pd, &raw mut attr));
        step(id, qps[0], IBV_QPS_INIT);
        let mut asked = rdma_conn_param { qp_num: (*qps[0]).qp_num, ..param(b"", (1, 1)) };
        assert_eq!(rdma_connect(id, &raw mut asked), 0);
        let child = channel.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id;
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            step(child, qps[1], state);
        }
        assert_eq!(rdma_accept(child, null_mut()), -1, "which queue pair?");
        asked.qp_num = (*qps[1]).qp_num;
        assert_eq!(rdma_accept(child, &raw mut asked), 0);
        let ends = [channel.next(), channel.next()];
        assert!(ends.iter().all(|end| end.event == RDMA_CM_EVENT_ESTABLISHED));
        for state in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
            step(id, qps[0], state);
        }
        assert_eq!(rdma_establish(id), 0);
        assert_eq!(((*qps[0]).state, (*qps[1]).state), (IBV_QPS_RTS, IBV_QPS_RTS));
        assert_eq!(rdma_disconnect(id), 0);
        destroy(&[id, child, listener]);
        qps.iter().for_each(|qp| assert_eq!(ibv_destroy_qp(*qp), 0));
        assert_eq!(crate::cq::ibv_destroy_cq(cq), 0);
    }
}

/// # Safety
/// Live objects.
unsafe fn step(id: *mut rdma_cm_id, qp: *mut ibv_qp, state: ibv_qp_state) {
    // SAFETY: the caller's word.
    unsafe {
        let mut attr: ibv_qp_attr = zeroed();
        let mut mask = 0;
        attr.qp_state = state;
        assert_eq!(rdma_init_qp_attr(id, &raw mut attr, &raw mut mask), 0);
        assert_eq!(ibv_modify_qp(qp, &raw mut attr, mask), 0, "to {state}");
    }
}
