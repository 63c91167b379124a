//! Two hubs over loopback.

use super::*;
use outboard_verbs::{ConnectRequest, SharedRegion};
use rustix::event::{PollFd, PollFlags, poll};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);

/// Two hubs that know each other.
struct Two {
    hubs: [Hub; 2],
    ids: [PeerId; 2],
}

impl Two {
    fn new() -> Self {
        let (mut server, mut client) = (Hub::new().expect("a hub"), Hub::new().expect("a hub"));
        let loopback = "127.0.0.1:0".parse().expect("an address");
        let listener = server.context().listen(loopback, 4).expect("a listener");
        let address = listener.local_addr();
        let admission = client.prepare().expect("an admission");
        let dialling =
            thread::spawn(move || admission.connect(|qp, params, _| qp.connect(address, params)));
        let request: ConnectRequest = listener.next_request(Some(PATIENCE)).expect("a request");
        let accepted = server.prepare().expect("an admission").connect(|qp, params, channel| {
            request.accept_on(qp, params, channel).map_err(|refused| refused.error)
        });
        let dialled = dialling.join().expect("the client").expect("a connection");
        let id = client.enroll(dialled).expect("a peer");
        // What comes before the enrolment waits.
        client.send(id, b"early").expect("sent");
        let accepted = server.enroll(accepted.expect("a connection")).expect("a peer");
        let mut two = Self { hubs: [server, client], ids: [accepted, id] };
        assert_eq!(two.message(0), b"early");
        two
    }

    /// The next event of one of them, asleep on its descriptor until then.
    fn next(&mut self, side: usize) -> HubEvent {
        let deadline = Instant::now() + PATIENCE;
        let mut events = Vec::new();
        while Instant::now() < deadline {
            self.hubs[side].turn(&mut events).expect("a turn");
            if let Some(event) = events.pop() {
                assert!(events.is_empty(), "one at a time: {events:?} before {event:?}");
                return event;
            }
            let mut fds = [PollFd::new(&self.hubs[side], PollFlags::IN)];
            let tenth = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            poll(&mut fds, Some(&tenth)).expect("poll");
        }
        panic!("nothing happens");
    }

    fn message(&mut self, side: usize) -> Vec<u8> {
        match self.next(side) {
            HubEvent::Message { octets, .. } => octets,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn messages_go_both_ways_in_order() {
    let mut two = Two::new();
    two.hubs[1].send(two.ids[1], b"hello").expect("sent");
    assert_eq!(two.message(0), b"hello");
    for number in 0..40_u8 {
        two.hubs[0].send(two.ids[0], &[number; 1000]).expect("sent");
    }
    let mut events = Vec::new();
    while events.len() < 40 {
        two.hubs[1].turn(&mut events).expect("a turn");
    }
    for (number, event) in (0_u8..).zip(&events) {
        assert!(matches!(event, HubEvent::Message { octets, .. } if *octets == [number; 1000]));
    }
}

#[test]
fn more_requests_than_the_queue_holds_wait_their_turn() {
    let mut two = Two::new();
    let memory = SharedRegion::zeroed(8 * 2000).expect("memory");
    for at in 0..2000_u64 {
        memory.store_u64(usize::try_from(at).expect("small") * 8, at).expect("inside");
    }
    let slice = memory.slice(0..8 * 2000).expect("all of it");
    let exposed = two.hubs[0].expose(two.ids[0], slice, Access::REMOTE_READ).expect("exposed");
    for at in 0..2000 {
        let from = exposed.range(at * 8, 8).expect("inside");
        two.hubs[1].read(two.ids[1], from, 8, at).expect("posted");
    }
    let mut events = Vec::new();
    while events.len() < 2000 {
        two.hubs[1].turn(&mut events).expect("a turn");
    }
    for (at, event) in (0_u64..).zip(&events) {
        let HubEvent::Read { tag, octets, .. } = event else { panic!("{event:?}") };
        assert_eq!((*tag, &octets[..]), (at, &at.to_ne_bytes()[..]));
    }
}

#[test]
fn a_write_is_there_before_the_message_behind_it() {
    let mut two = Two::new();
    let memory = SharedRegion::zeroed(1 << 20).expect("memory");
    let slice = memory.slice(0..1 << 20).expect("all of it");
    let exposed = two.hubs[1].expose(two.ids[1], slice, Access::REMOTE_WRITE).expect("exposed");
    let to = exposed.range(0, 1 << 20).expect("inside");
    two.hubs[0].write(two.ids[0], to, vec![7; 1 << 20]).expect("posted");
    two.hubs[0].send(two.ids[0], b"done").expect("sent");
    assert_eq!(two.message(1), b"done");
    assert_eq!(memory.snapshot(0..1 << 20).expect("inside"), vec![7; 1 << 20]);
}

#[test]
fn a_peer_that_leaves_is_gone_once() {
    let mut two = Two::new();
    two.hubs[1].dismiss(two.ids[1]);
    assert!(matches!(two.next(0), HubEvent::Gone { peer, .. } if peer == two.ids[0]));
    assert!(matches!(two.hubs[0].send(two.ids[0], b"?"), Err(HubError::NoPeer)));
}

#[test]
fn withdrawn_memory_ends_the_connection_of_who_still_uses_it() {
    let mut two = Two::new();
    let memory = SharedRegion::zeroed(4096).expect("memory");
    let slice = memory.slice(0..4096).expect("all of it");
    let exposed = two.hubs[0].expose(two.ids[0], slice, Access::REMOTE_READ).expect("exposed");
    two.hubs[0].withdraw(two.ids[0], exposed);
    let from = exposed.range(0, 64).expect("inside");
    two.hubs[1].read(two.ids[1], from, 64, 1).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Gone { .. }));
}

#[test]
fn a_message_too_long_is_refused_and_costs_nothing() {
    let mut two = Two::new();
    let long = vec![0; MESSAGE_MAX + 1];
    let refused = two.hubs[1].send(two.ids[1], &long);
    assert!(matches!(refused, Err(HubError::TooLong { .. })));
    two.hubs[1].send(two.ids[1], &long[1..]).expect("sent");
    assert_eq!(two.message(0), &long[1..]);
}

#[test]
fn ranges_stay_inside() {
    let two = &mut Two::new();
    let memory = SharedRegion::zeroed(64).expect("memory");
    let slice = memory.slice(0..64).expect("all of it");
    let exposed = two.hubs[0].expose(two.ids[0], slice, Access::empty()).expect("exposed");
    assert!(exposed.range(0, 64).is_some());
    assert!(exposed.range(1, 64).is_none());
    assert!(exposed.range(u64::MAX, 2).is_none());
}
