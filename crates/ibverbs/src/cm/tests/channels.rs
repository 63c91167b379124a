//! What becomes of the engine's events when their identifier moves to another channel, or when the
//! program has no use for them any more.

use super::*;

/// Long enough for what the engine has to tell to have been told.
const A_WHILE: Duration = Duration::from_millis(100);

impl Channel {
    fn wait_readable(&self) {
        let end = Instant::now() + PATIENCE;
        while !is_readable(self.0) {
            assert!(Instant::now() < end, "nothing comes");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn migrate(id: *mut rdma_cm_id, to: &Channel) {
    // SAFETY: the entries check what they are given, here and below.
    unsafe {
        assert_eq!(rdma_migrate_id(id, to.0), 0);
        assert_eq!((*id).channel, to.0);
    }
}

/// Begins to connect to a listener.
fn connecting(active: &Channel, listener: *mut rdma_cm_id) -> *mut rdma_cm_id {
    // SAFETY: as above.
    unsafe {
        let id = with_qp(active.resolved(rdma_get_src_port(listener)));
        assert_eq!(rdma_connect(id, null_mut()), 0);
        id
    }
}

#[test]
fn an_end_that_the_engine_has_told_moves_along() {
    let [passive, active, later] = [(); 3].map(|()| Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_disconnect(id) }, 0);
    passive.wait_readable();
    migrate(child, &later);
    assert!(!is_readable(passive.0), "the old channel has nothing any more");
    later.wait_readable();
    assert_eq!(later.expect(RDMA_CM_EVENT_DISCONNECTED).id, child);
    assert!(passive.is_silent() && later.is_silent());
    assert_eq!(active.expect(RDMA_CM_EVENT_DISCONNECTED).id, id);
    destroy(&[id, child, listener]);
}

#[test]
fn an_end_after_the_move_comes_on_the_new_channel() {
    let [passive, active, later] = [(); 3].map(|()| Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    // There and back again, and a third time.
    [&later, &active, &later].into_iter().for_each(|to| migrate(child, to));
    migrate(id, &later);
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_disconnect(id) }, 0);
    let ends = [(); 2].map(|()| later.expect(RDMA_CM_EVENT_DISCONNECTED).id);
    assert!(ends.contains(&id) && ends.contains(&child));
    assert!(passive.is_silent() && active.is_silent() && later.is_silent());
    destroy(&[id, child, listener]);
}

#[test]
fn requests_move_with_their_listener() {
    let [first, second, active] = [(); 3].map(|()| Channel::new());
    let (moving, staying) = (first.listener("127.0.0.1:0"), first.listener("127.0.0.1:0"));
    let early = connecting(&active, moving);
    first.wait_readable();
    migrate(moving, &second);
    let late = connecting(&active, moving);
    let children = [(); 2].map(|()| {
        let request = second.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
        // SAFETY: as above.
        assert_eq!((request.listener, unsafe { (*request.id).channel }), (moving, second.0));
        request.id
    });
    assert!(!is_readable(first.0));
    let other = connecting(&active, staying);
    let request = first.expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    assert_eq!(request.listener, staying, "each request names its own listener");
    destroy(&children);
    destroy(&[request.id, early, late, other, moving, staying]);
}

#[test]
fn the_end_of_a_queue_pair_that_is_gone_wakes_the_program_once() {
    let (passive, active) = (Channel::new(), Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    // SAFETY: as above.
    unsafe { rdma_destroy_qp(id) };
    assert_eq!(active.expect(RDMA_CM_EVENT_DISCONNECTED).id, id);
    assert_eq!(passive.expect(RDMA_CM_EVENT_DISCONNECTED).id, child);
    std::thread::sleep(A_WHILE);
    assert!(!is_readable(active.0), "a program that sleeps in poll(2) finds no event");
    destroy(&[id, child, listener]);
}

#[test]
fn events_of_a_destroyed_identifier_wake_nobody() {
    let (passive, active) = (Channel::new(), Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    destroy(&[id]);
    passive.wait_readable();
    destroy(&[child]);
    std::thread::sleep(A_WHILE);
    assert!(!is_readable(active.0) && !is_readable(passive.0));
    let waiting = connecting(&active, listener);
    passive.wait_readable();
    destroy(&[listener]);
    assert!(!is_readable(passive.0), "the request went with its listener");
    assert_eq!(active.expect(RDMA_CM_EVENT_REJECTED).id, waiting);
    destroy(&[waiting]);
}

#[test]
fn a_channel_may_go_before_its_identifiers() {
    let (passive, active) = (Channel::new(), Channel::new());
    let [listener, id, child] = connected(&passive, &active);
    // SAFETY: as above.
    assert_eq!(unsafe { rdma_disconnect(id) }, 0);
    drop((passive, active));
    destroy(&[listener, child, id]);
}
