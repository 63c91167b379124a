//! Children of a program whose other threads are in the middle of our calls. A binary of its own,
//! because children hold copies of all sockets of the process.

use outboard_ibverbs::abi::*;
use outboard_ibverbs::cm::addrinfo::{rdma_freeaddrinfo, rdma_getaddrinfo};
use outboard_ibverbs::cm::nic::{rdma_free_devices, rdma_get_devices};
use outboard_ibverbs::device::{ibv_free_device_list, ibv_get_device_list};
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
    // SAFETY: the child makes calls of ours and ends without a word to the test's harness.
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
