//! Children of a program whose other threads are in the middle of library calls. A binary of its
//! own, because children hold copies of all sockets of the process.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::cm::addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
use outboard_ibverbs::cm::nic::{rdma_free_devices, rdma_get_devices};
use outboard_ibverbs::context::ibv_open_device;
use outboard_ibverbs::cq::ibv_create_cq;
use outboard_ibverbs::device::{ibv_free_device_list, ibv_get_device_list};
use outboard_ibverbs::pd::ibv_alloc_pd;
use outboard_ibverbs::qp::ibv_create_qp;
use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

const CHILDREN: usize = 60;
/// Seconds after which a child is stuck.
const LIMIT: u32 = 10;

fn lists() {
    let mut count = 0;
    // SAFETY: the list is freed once.
    unsafe { ibv_free_device_list(ibv_get_device_list(&raw mut count)) };
}

fn addresses() {
    let mut found = null_mut();
    // SAFETY: zeros leave everything open; the list is freed once.
    unsafe {
        let hints = rdma_addrinfo { ai_flags: RAI_NUMERICHOST.cast_signed(), ..zeroed() };
        let done =
            rdma_getaddrinfo(c"127.0.0.1".as_ptr(), null_mut(), &raw const hints, &mut found);
        if done == 0 {
            rdma_freeaddrinfo(found);
        }
    }
}

fn devices() {
    let mut count = 0;
    // SAFETY: the list is freed once.
    unsafe { rdma_free_devices(rdma_get_devices(&raw mut count)) };
}

/// How a child ends that makes a call of each kind.
fn child(call: fn()) -> i32 {
    // SAFETY: the child makes library calls and ends without calling the test harness.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(LIMIT);
            call();
            libc::_exit(0);
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        status
    }
}

/// What a child may do with a queue of its parent's: nothing.
#[test]
fn a_child_touches_no_connection_of_its_parents() {
    // SAFETY: a program's calls in their order; the child ends without a word to the harness.
    unsafe {
        let list = ibv_get_device_list(null_mut());
        let context = ibv_open_device(*list);
        let pd = ibv_alloc_pd(context);
        let cq = ibv_create_cq(context, 4, null_mut(), null_mut(), 0);
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, IBV_QPT_RC);
        attr.cap.max_recv_wr = 2;
        let qp = ibv_create_qp(pd, &raw mut attr);
        let operations = (*context).ops;
        let (mut wc, mut bad) = (zeroed(), null_mut());
        let mut recv: ibv_recv_wr = zeroed();
        let mut calls = || {
            [
                operations.poll_cq.unwrap()(cq, 1, &raw mut wc),
                operations.req_notify_cq.unwrap()(cq, 0),
                operations.post_recv.unwrap()(qp, &raw mut recv, &raw mut bad),
            ]
        };
        assert_eq!(calls(), [0, 0, 0]);
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(LIMIT);
            libc::_exit(i32::from(calls() != [-1, libc::EINVAL, libc::EINVAL]));
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        assert_eq!(status, 0);
        assert_eq!(calls(), [0, 0, 0]);
        ibv_free_device_list(list);
    }
}

#[test]
fn no_child_waits_for_a_thread_that_it_does_not_have() {
    // SAFETY: no other thread is here yet.
    unsafe { std::env::set_var("OUTBOARD_DEVICES", "127.0.0.1") };
    devices();
    let calls: [fn(); 3] = [lists, addresses, devices];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for call in calls.iter().cycle().take(6) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    call();
                }
            });
        }
        let ends: Vec<i32> = calls.iter().cycle().take(CHILDREN).map(|call| child(*call)).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(|end| *end == 0), "{ends:?}");
    });
}
