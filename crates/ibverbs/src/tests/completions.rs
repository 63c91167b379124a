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

/// As on hardware: what a program leaves behind wakes it, whether it asks for the event or sleeps
/// in a poll(2) of its own.
#[test]
fn completions_left_behind_make_an_event_of_arming() {
    let bed = Bed::new();
    let fd = unsafe { (*bed.channel).fd };
    assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    for wr_id in 0..2 {
        assert_eq!(bed.post_recv(1, wr_id, bed.sge(100, 64)), 0);
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    }
    let started = Instant::now();
    let cq: &Cq = find(bed.cq).unwrap();
    while cq.native.waiting().unwrap() < 4 {
        assert!(started.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(bed.poll_once(3).len(), 3);
    arm(&bed, 0);
    assert!(is_readable(&bed));
    assert_eq!(event(&bed), 0);
    // An unsolicited receive does not wake a program that waits for solicited ones.
    arm(&bed, 1);
    assert!(!is_readable(&bed));
    assert_eq!(bed.poll_once(1).len(), 1);
    arm(&bed, 0);
    assert!(!is_readable(&bed));
    unsafe { ibv_ack_cq_events(bed.cq, 1) };
}

/// perftest asks for the next event before it polls, and fails at an event without a completion.
#[test]
fn completions_that_are_polled_after_arming_leave_no_event_to_a_program_that_blocks() {
    let bed = Bed::new();
    let send = |wr_id| {
        assert_eq!(bed.post_recv(1, wr_id, bed.sge(100, 64)), 0);
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
        let cq: &Cq = find(bed.cq).unwrap();
        let started = Instant::now();
        while cq.native.waiting().unwrap() < 2 {
            assert!(started.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
    };
    send(0);
    arm(&bed, 0);
    assert_eq!(bed.poll_once(2).len(), 2);
    assert!(!is_readable(&bed));
    // What is left when the program sleeps wakes it.
    send(1);
    assert_eq!(event(&bed), 0, "of the queue that was asked before");
    arm(&bed, 0);
    assert_eq!(event(&bed), 0, "of what was left");
    assert_eq!(bed.poll_once(2).len(), 2);
    unsafe { ibv_ack_cq_events(bed.cq, 2) };
}

#[test]
fn a_channel_knows_its_own_queues_only() {
    let bed = Bed::new();
    let others: Vec<_> = (0..10)
        .map(|_| unsafe { ibv_create_cq(bed.context, 1, null_mut(), null_mut(), 0) })
        .collect();
    let channel: &CompChannel = find(bed.channel).unwrap();
    assert_eq!(channel.queues(), 1);
    let second = unsafe { ibv_create_cq(bed.context, 1, null_mut(), bed.channel, 0) };
    assert_eq!(channel.queues(), 2);
    assert_eq!(unsafe { ibv_destroy_cq(second) }, 0);
    assert_eq!(channel.queues(), 1);
    others.iter().for_each(|cq| assert_eq!(unsafe { ibv_destroy_cq(*cq) }, 0));
}

#[test]
fn acknowledgements_of_several_threads_all_count() {
    const EACH: u32 = 200_000;
    let bed = Bed::new();
    let cq: &Cq = find(bed.cq).unwrap();
    (0..4 * EACH).for_each(|_| cq.events.deliver());
    let shown = bed.cq.expose_provenance();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let shown = std::ptr::with_exposed_provenance_mut(shown);
                (0..EACH).for_each(|_| unsafe { ibv_ack_cq_events(shown, 1) });
            });
        }
    });
    assert_eq!(unsafe { (*bed.cq).comp_events_completed }, 4 * EACH);
}

/// Checks, whenever the polling thread makes the engine receive, whether another thread could poll.
#[derive(Debug)]
struct Watcher {
    poller: std::thread::ThreadId,
    cq: std::sync::atomic::AtomicUsize,
    seen: std::sync::atomic::AtomicU32,
    busy: std::sync::atomic::AtomicU32,
}

impl outboard_verbs::tap::Tap for Watcher {
    fn opened(&self, _: u64, _: outboard_verbs::tap::TappedStream) {}
    fn sent(&self, _: u64, _: &[u8]) {}
    fn received(&self, _: u64, _: &[u8]) {
        use std::sync::atomic::Ordering::SeqCst;
        let cq = self.cq.load(SeqCst);
        if std::thread::current().id() == self.poller
            && let Ok(cq) = find::<Cq>(std::ptr::with_exposed_provenance_mut(cq))
        {
            self.seen.fetch_add(1, SeqCst);
            self.busy.fetch_add(u32::from(cq.is_being_polled()), SeqCst);
        }
    }
    fn closed(&self, _: u64) {}
}

#[test]
fn a_poll_that_drives_the_engine_keeps_no_other_poll_waiting() {
    use std::sync::atomic::Ordering::SeqCst;
    let watcher = std::sync::Arc::new(Watcher {
        poller: std::thread::current().id(),
        cq: 0.into(),
        seen: 0.into(),
        busy: 0.into(),
    });
    let tapped = outboard_verbs::Context::open_tapped(watcher.clone()).unwrap();
    let context = Context::open_on(devices()[0].0, tapped).unwrap();
    let bed = Bed::on(context, |pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
    bed.connect();
    watcher.cq.store(bed.cq.expose_provenance(), SeqCst);
    let started = Instant::now();
    // The background thread may be faster, until it leaves the work to the polling thread.
    while watcher.seen.load(SeqCst) < 20 {
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(bed.post_recv(1, 1, bed.sge(100, 64)), 0);
        assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
        bed.poll(2);
    }
    watcher.cq.store(0, SeqCst);
    assert_eq!(watcher.busy.load(SeqCst), 0);
}
