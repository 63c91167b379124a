//! Synchronous endpoints, devices, options, and what programs should not do.

use super::*;
use crate::cm::addrinfo::*;
use crate::cm::endpoint::*;
use crate::cm::extras::*;
use crate::cm::id::CmId;
use crate::cm::nic::*;
use crate::cm::queues::*;
use crate::object::find_shared;
use std::ptr::null;

fn info(node: Option<&CStr>, service: Option<&CStr>, flags: u32) -> *mut rdma_addrinfo {
    let mut found = null_mut();
    // SAFETY: as above.
    unsafe {
        let hints = rdma_addrinfo {
            ai_flags: flags.cast_signed(),
            ai_port_space: RDMA_PS_TCP.cast_signed(),
            ai_qp_type: IBV_QPT_RC.cast_signed(),
            ..zeroed()
        };
        let (node, service) =
            (node.map_or(null(), CStr::as_ptr), service.map_or(null(), CStr::as_ptr));
        assert_eq!(rdma_getaddrinfo(node, service, &raw const hints, &raw mut found), 0);
    }
    found
}

#[test]
fn endpoints_wait_for_their_events() {
    // SAFETY: as above.
    unsafe {
        let at = info(Some(c"127.0.0.1"), Some(c"0"), RAI_PASSIVE | RAI_NUMERICHOST);
        let mut listener = null_mut();
        assert_eq!(rdma_create_ep(&raw mut listener, at, null_mut(), &mut small()), 0);
        rdma_freeaddrinfo(at);
        assert_eq!(rdma_listen(listener, 0), 0);
        let port = u16::from_be(rdma_get_src_port(listener));
        let active = std::thread::spawn(move || {
            let port = std::ffi::CString::new(port.to_string()).expect("digits");
            let to = info(Some(c"127.0.0.1"), Some(&port), RAI_NUMERICHOST);
            let mut id = null_mut();
            assert_eq!(rdma_create_ep(&raw mut id, to, null_mut(), &mut small()), 0);
            rdma_freeaddrinfo(to);
            assert_eq!(rdma_connect(id, null_mut()), 0);
            assert_eq!((*(*id).event).event, RDMA_CM_EVENT_ESTABLISHED);
            assert!(!(*id).send_cq.is_null() && !(*id).recv_cq_channel.is_null());
            assert_eq!(rdma_disconnect(id), 0);
            assert_eq!((*(*id).event).event, RDMA_CM_EVENT_DISCONNECTED);
            rdma_destroy_ep(id);
        });
        let mut child = null_mut();
        assert_eq!(rdma_get_request(listener, &raw mut child), 0);
        assert_eq!((*(*child).event).event, RDMA_CM_EVENT_CONNECT_REQUEST);
        assert!(!(*child).qp.is_null());
        assert_eq!(rdma_accept(child, null_mut()), 0);
        assert_eq!(rdma_disconnect(child), 0);
        rdma_destroy_ep(child);
        rdma_destroy_ep(listener);
        assert!(active.join().is_ok());
    }
}

#[test]
fn a_synchronous_refusal_is_an_error() {
    // SAFETY: as above.
    unsafe {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = taken.local_addr().expect("an address").port();
        drop(taken);
        let port = std::ffi::CString::new(port.to_string()).expect("digits");
        let to = info(Some(c"127.0.0.1"), Some(&port), RAI_NUMERICHOST);
        let mut id = null_mut();
        assert_eq!(rdma_create_ep(&raw mut id, to, null_mut(), &mut small()), 0);
        rdma_freeaddrinfo(to);
        assert_eq!(rdma_connect(id, null_mut()), -1);
        assert_eq!(errno(), libc::ECONNREFUSED);
        rdma_destroy_ep(id);
    }
}

#[test]
fn devices_of_the_connection_manager() {
    // SAFETY: as above.
    unsafe {
        let (mut count, mut again) = (0, 0);
        let (list, other) = (rdma_get_devices(&raw mut count), rdma_get_devices(&raw mut again));
        assert!(count > 0 && count == again);
        let count = usize::try_from(count).expect("positive");
        let all = |list: *mut *mut ibv_context| std::slice::from_raw_parts(list, count + 1);
        assert_eq!(all(list), all(other), "opened once");
        assert!(all(list)[count].is_null());
        rdma_free_devices(list);
        rdma_free_devices(other);
    }
}

#[test]
fn shared_receive_queues_and_options() {
    let channel = Channel::new();
    let id = channel.resolved(1u16.to_be());
    // SAFETY: as above.
    unsafe {
        let mut attr: ibv_srq_init_attr = zeroed();
        (attr.attr.max_wr, attr.attr.max_sge) = (4, 1);
        assert_eq!(rdma_create_srq(id, null_mut(), &raw mut attr), 0);
        with_qp(id);
        assert_eq!((*(*id).qp).srq, (*id).srq);
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        assert!((*id).srq.is_null() && (*id).recv_cq.is_null());

        let (level, tos) = (RDMA_OPTION_ID.cast_signed(), RDMA_OPTION_ID_TOS.cast_signed());
        let mut byte = 32u8;
        assert_eq!(rdma_set_option(id, level, tos, (&raw mut byte).cast(), 1), 0);
        assert_eq!(rdma_set_option(id, level, tos, (&raw mut byte).cast(), 0), -1);
        assert_eq!(rdma_set_option(id, level, 99, (&raw mut byte).cast(), 1), -1);
        assert_eq!(errno(), libc::ENOSYS);

        let mut ece = ibv_ece { vendor_id: 1, options: 2, comp_mask: 0 };
        assert_eq!(rdma_set_local_ece(id, &raw mut ece), 0);
        assert_eq!(rdma_get_remote_ece(id, &raw mut ece), 0);
        assert_eq!((ece.vendor_id, ece.options), (0, 0));

        let mut group = c_address("224.0.0.1:0");
        assert_eq!(rdma_join_multicast(id, pointer(&mut group), null_mut()), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
        assert_eq!(rdma_leave_multicast(id, pointer(&mut group)), -1);
    }
    destroy(&[id]);
}

#[test]
fn queries_return_the_timeout_that_was_set() {
    let channel = Channel::new();
    let listener = channel.listener("127.0.0.1:0");
    // SAFETY: as above.
    unsafe {
        let id = channel.resolved(rdma_get_src_port(listener));
        let set = |mut exponent: u8| {
            let (level, name) = (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT);
            let value = (&raw mut exponent).cast();
            assert_eq!(rdma_set_option(id, level.cast_signed(), name.cast_signed(), value, 1), 0);
        };
        let found = || {
            let (mut attr, mut made) = (zeroed::<ibv_qp_attr>(), zeroed());
            assert_eq!(crate::qp::ibv_query_qp((*id).qp, &mut attr, 0, &mut made), 0);
            attr.timeout
        };
        set(21);
        with_qp(id);
        assert_eq!(found(), 21);
        set(20);
        assert_eq!(found(), 20);
        let (mut attr, mut mask) = (zeroed::<ibv_qp_attr>(), 0);
        attr.qp_state = IBV_QPS_RTS;
        assert_eq!(rdma_init_qp_attr(id, &raw mut attr, &raw mut mask), 0);
        assert_eq!(attr.timeout, 20);
        destroy(&[id, listener]);
    }
}

#[test]
fn nonsense_is_refused() {
    let channel = Channel::new();
    let mut id = null_mut();
    // SAFETY: as above.
    unsafe {
        assert_eq!(rdma_create_id(channel.0, &raw mut id, null_mut(), RDMA_PS_UDP), -1);
        assert_eq!(errno(), libc::EOPNOTSUPP);
        let foreign: *mut rdma_cm_id = std::ptr::without_provenance_mut(8);
        for id in [null_mut(), foreign] {
            assert_eq!(rdma_listen(id, 1), -1);
            assert_eq!(errno(), libc::EINVAL);
            assert_eq!(rdma_destroy_id(id), -1);
            assert_eq!(rdma_connect(id, null_mut()), -1);
            assert_eq!(rdma_get_src_port(id), 0);
            rdma_destroy_qp(id);
            rdma_destroy_ep(id);
        }
        assert_eq!(rdma_ack_cm_event(null_mut()), -1);
        rdma_freeaddrinfo(std::ptr::without_provenance_mut(8));
        rdma_free_devices(std::ptr::without_provenance_mut(8));
        let id = channel.id();
        assert_eq!(rdma_accept(id, null_mut()), -1, "nobody has asked");
        assert_eq!(rdma_connect(id, null_mut()), -1, "nothing is resolved");
        assert_eq!(rdma_resolve_route(id, 1), -1);
        assert_eq!(rdma_bind_addr(id, null_mut()), -1);
        let mut family: sockaddr_storage = zeroed();
        assert_eq!(rdma_bind_addr(id, pointer(&mut family)), -1);
        assert_eq!(errno(), libc::EAFNOSUPPORT);
        destroy(&[id]);
    }
}

#[test]
fn names_of_events() {
    // SAFETY: names end with a zero and live for ever.
    unsafe {
        let name = CStr::from_ptr(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT));
        assert_eq!(name, c"RDMA_CM_EVENT_TIMEWAIT_EXIT");
        assert_eq!(CStr::from_ptr(rdma_event_str(99)), c"UNKNOWN EVENT");
    }
}

#[test]
fn a_queue_pair_stays_while_it_is_looked_at() {
    let channel = Channel::new();
    let [listener, id, child] = connected(&channel, &channel);
    let found = find_shared::<CmId>(id).expect("live");
    // SAFETY: as above.
    let qp = unsafe { (*id).qp }.expose_provenance();
    // SAFETY: nobody else destroys it.
    let destroy_qp = move || unsafe { ibv_destroy_qp(std::ptr::with_exposed_provenance_mut(qp)) };
    let state = found.lock();
    let destroyer = found.with_connected_qp(&state, |_| {
        let destroyer = std::thread::spawn(destroy_qp);
        std::thread::sleep(Duration::from_millis(100));
        assert!(!destroyer.is_finished());
        destroyer
    });
    assert_eq!(destroyer.expect("it has one").join().ok(), Some(0));
    // The pointer is still in the identifier, and is not followed.
    assert!(found.with_connected_qp(&state, |_| ()).is_err());
    drop(state);
    let ends = [channel.next(), channel.next()];
    assert!(ends.iter().all(|end| end.event == RDMA_CM_EVENT_DISCONNECTED));
    // SAFETY: as above.
    unsafe { (*id).qp = null_mut() };
    drop(found);
    destroy(&[id, child, listener]);
}
