//! Completion queues and their events.

use super::*;
use libc::c_void;

fn arm(bed: &Bed, solicited: c_int) {
    let arm = unsafe { (*bed.context).ops.req_notify_cq }.unwrap();
    assert_eq!(unsafe { arm(bed.cq, solicited) }, 0);
}

fn event(bed: &Bed) -> c_int {
    let (mut cq, mut cq_context): (*mut ibv_cq, *mut c_void) = (null_mut(), null_mut());
    let result = unsafe { ibv_get_cq_event(bed.channel, &mut cq, &mut cq_context) };
    assert_eq!(result == 0, cq == bed.cq);
    result
}

fn is_readable(bed: &Bed) -> bool {
    let fd = unsafe { (*bed.channel).fd };
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    unsafe { libc::poll(&mut wanted, 1, 0) == 1 }
}

fn never_block(bed: &Bed) {
    unsafe { libc::fcntl((*bed.channel).fd, libc::F_SETFL, libc::O_NONBLOCK) };
}

#[test]
fn an_armed_queue_makes_one_event() {
    let bed = Bed::new();
    never_block(&bed);
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    arm(&bed, 0);
    assert!(!is_readable(&bed));
    assert_eq!(event(&bed), -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN));
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    bed.poll(2);
    assert!(is_readable(&bed));
    assert_eq!(event(&bed), 0);
    assert!(!is_readable(&bed));
    unsafe { ibv_ack_cq_events(bed.cq, 1) };
}

#[test]
fn a_thread_sleeps_until_an_event() {
    let bed = Bed::new();
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    arm(&bed, 1);
    let mut sge = bed.sge(0, 5);
    let mut send = wr(IBV_WR_SEND, &mut sge);
    send.send_flags = IBV_SEND_SOLICITED;
    let waiter = Waiter(bed.channel);
    let asleep = std::thread::spawn(move || waiter.wait());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!asleep.is_finished());
    assert_eq!(bed.post_send(0, &mut send), 0);
    assert_eq!(asleep.join().unwrap(), 0);
    unsafe { ibv_ack_cq_events(bed.cq, 1) };
    assert_eq!(bed.poll(1)[0].wr_id, 5);
}

struct Waiter(*mut ibv_comp_channel);

unsafe impl Send for Waiter {}

impl Waiter {
    fn wait(self) -> c_int {
        let (mut cq, mut cq_context) = (null_mut(), null_mut());
        unsafe { ibv_get_cq_event(self.0, &mut cq, &mut cq_context) }
    }
}

#[test]
fn a_queue_goes_only_when_its_events_are_acknowledged() {
    let bed = Bed::new();
    let other = unsafe { ibv_create_cq(bed.context, 1, null_mut(), null_mut(), 0) };
    let cq: &Cq = find(other).unwrap();
    cq.events.deliver();
    let shown = other.expose_provenance();
    let gone = std::thread::spawn(move || unsafe {
        ibv_destroy_cq(std::ptr::with_exposed_provenance_mut(shown))
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(!gone.is_finished());
    unsafe { ibv_ack_cq_events(other, 1) };
    assert_eq!(gone.join().unwrap(), 0);
}

#[test]
fn sizes_have_limits() {
    let bed = Bed::new();
    let make =
        |cqe, vector| unsafe { ibv_create_cq(bed.context, cqe, null_mut(), null_mut(), vector) };
    for (cqe, vector) in [(0, 0), (-1, 0), (c_int::MAX, 0), (1, 1), (1, -1)] {
        assert!(make(cqe, vector).is_null());
    }
    let cq = make(100, 0);
    assert!(unsafe { (*cq).cqe } >= 100);
    assert_eq!(unsafe { ibv_resize_cq(cq, 1000) }, 0);
    assert!(unsafe { (*cq).cqe } >= 1000);
    assert_eq!(unsafe { ibv_resize_cq(cq, 0) }, libc::EINVAL);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, 0);
    assert_eq!(unsafe { ibv_destroy_cq(cq) }, libc::EINVAL);
}

#[test]
fn polling_nonsense_is_refused() {
    let bed = Bed::new();
    let poll = unsafe { (*bed.context).ops.poll_cq }.unwrap();
    assert_eq!(unsafe { poll(bed.cq, -1, null_mut()) }, -1);
    assert_eq!(unsafe { poll(bed.cq, 1, null_mut()) }, -1);
    assert_eq!(unsafe { poll(null_mut(), 0, null_mut()) }, -1);
    assert_eq!(unsafe { poll(bed.cq, 0, null_mut()) }, 0);
}
