//! Two hubs over loopback.

mod pair;

use super::*;
use crate::arrivals::Arrivals;
use crate::node::Permit;
use crate::sessions::session;
use crate::waker::Waker;
use outboard_verbs::SharedRegion;
use pair::{Dialled, PATIENCE, dialled};
use rustix::event::{PollFd, PollFlags, poll};
use std::thread;

/// Two hubs that know each other.
struct Two {
    hubs: [Hub; 2],
    ids: [PeerId; 2],
}

/// Sleeps until a hub's descriptor is readable.
fn sleep_on(hub: &Hub) {
    let limit = PATIENCE.try_into().expect("short");
    assert_eq!(poll(&mut [PollFd::new(hub, PollFlags::IN)], Some(&limit)), Ok(1), "it is woken");
}

impl Two {
    fn new() -> Self {
        Self::of(HubOptions::default())
    }

    fn of(options: HubOptions) -> Self {
        let Dialled { mut server, accepted, mut client, peer: id } = dialled(options);
        // Messages that arrive before the enrolment wait.
        client.send(id, b"early").expect("sent");
        let accepted = server.enroll(accepted).expect("a peer");
        let mut two = Self { hubs: [server, client], ids: [accepted, id] };
        assert_eq!(two.message(0), b"early");
        two
    }

    /// The next event of a hub; sleeps on its descriptor until then.
    fn next(&mut self, side: usize) -> HubEvent {
        let mut events = Vec::new();
        loop {
            self.hubs[side].turn(&mut events).expect("a turn");
            if let Some(event) = events.pop() {
                assert!(events.is_empty(), "one at a time: {events:?} before {event:?}");
                return event;
            }
            sleep_on(&self.hubs[side]);
        }
    }

    fn message(&mut self, side: usize) -> Vec<u8> {
        match self.next(side) {
            HubEvent::Message { bytes, .. } => bytes,
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
        assert!(matches!(event, HubEvent::Message { bytes, .. } if *bytes == [number; 1000]));
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
        let HubEvent::Read { tag, bytes, .. } = event else { panic!("{event:?}") };
        assert_eq!((*tag, &bytes[..]), (at, &at.to_ne_bytes()[..]));
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
fn a_hub_counts_what_goes_and_comes() {
    let mut two = Two::new();
    let memory = SharedRegion::zeroed(4096).expect("memory");
    let slice = memory.slice(0..4096).expect("all of it");
    let exposed = two.hubs[0].expose(two.ids[0], slice, Access::REMOTE).expect("exposed");
    let at = exposed.range(0, 4096).expect("inside");
    two.hubs[1].write(two.ids[1], at, vec![1; 100]).expect("posted");
    two.hubs[1].fetch_add(two.ids[1], at, 1, 0).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Atomic { .. }));
    two.hubs[1].read(two.ids[1], at, 4096, 0).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Read { .. }));
    let counters = two.hubs[1].counters();
    assert_eq!((counters.peers_now, counters.peers, counters.peers_gone), (1, 1, 0));
    assert_eq!((counters.messages_sent, counters.messages_sent_bytes), (1, 5));
    assert_eq!((counters.reads, counters.reads_bytes), (1, 4096));
    assert_eq!((counters.writes, counters.writes_bytes, counters.atomics), (1, 100, 1));
    assert_eq!((counters.waiting_now, counters.waiting_now_bytes), (0, 0));
    assert!(counters.engine.received_bytes >= 4096, "{counters:?}");
    let counters = two.hubs[0].counters();
    assert_eq!((counters.messages_received, counters.messages_received_bytes), (1, 5));
    two.hubs[1].dismiss(two.ids[1]);
    let HubEvent::Gone { why, .. } = two.next(0) else { panic!("it left") };
    assert_eq!(why, "the peer has closed the connection");
    let counters = two.hubs[0].counters();
    assert_eq!((counters.peers_now, counters.peers_gone), (0, 1));
    assert_eq!(counters.engine.ended_in_order, 1);
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
    assert!(matches!(two.next(0), HubEvent::Gone { .. }));
    for hub in &mut two.hubs {
        hub.turn(&mut Vec::new()).expect("a turn");
        assert_eq!(hub.context().poll_async_event(), None, "a turn leaves no event behind");
    }
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

/// The next session that arrives; sleeps until then.
fn arrived(arrivals: &mut Arrivals, waker: &Waker) -> Option<crate::arrivals::Arrived> {
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(waker, PollFlags::IN)], Some(&limit)), Ok(1));
    waker.clear();
    arrivals.poll()
}

#[test]
fn a_node_that_is_revoked_while_it_arrives_does_not() {
    for revoked in [false, true] {
        let (client, server): (Hub, Hub) = (Hub::new().expect("a hub"), Hub::new().expect("a hub"));
        let waker = Waker::new().expect("a waker");
        let mut arrivals = Arrivals::new(waker.clone());
        let (there, here) = session("echo");
        let node = here.peer();
        arrivals.admit(&server, here, Permit::outside_a_node(node, 1)).expect("it begins");
        // The server's thread waits for the client's first message.
        if revoked {
            arrivals.shut_out(node);
        }
        let connected = client.prepare().expect("an admission").connect(|qp, params, channel| {
            qp.adopt(there, outboard_verbs::Role::Initiator, params, channel)
        });
        connected.expect("connected");
        assert_eq!(arrived(&mut arrivals, &waker).is_some(), !revoked, "revoked: {revoked}");
    }
}

#[test]
fn slices_are_sent_and_filled_without_a_copy_and_tell_when_they_are_free() {
    const LEN: usize = 1 << 20;
    let mut two = Two::new();
    let [there, here] = [(); 2].map(|()| SharedRegion::zeroed(LEN).expect("memory"));
    let all = |of: &SharedRegion| of.slice(0..LEN).expect("all of it");
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let exposed = two.hubs[0].expose(two.ids[0], all(&there), access).expect("exposed");
    let at = exposed.range(0, LEN as u64).expect("inside");
    here.copy_in(0, &[7; LEN]).expect("inside");
    two.hubs[1].write_from(two.ids[1], at, all(&here), 5).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Written { tag: 5, .. }));
    here.copy_in(0, &[8; LEN]).expect("inside");
    two.hubs[1].read_to(two.ids[1], at, all(&here), 6).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Read { tag: 6, bytes, .. } if bytes.is_empty()));
    assert_eq!(here.snapshot(0..LEN).expect("inside"), vec![7; LEN]);
    let slice = here.slice(LEN - 3..LEN).expect("inside");
    two.hubs[1].send_from(two.ids[1], slice).expect("posted");
    assert_eq!(two.message(0), [7; 3]);
}

#[test]
fn atomics_tell_what_was_there_and_immediates_that_a_write_is() {
    let mut two = Two::new();
    let memory = SharedRegion::zeroed(64).expect("memory");
    let access = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let slice = memory.slice(0..64).expect("all of it");
    let exposed = two.hubs[0].expose(two.ids[0], slice, access).expect("exposed");
    let at = exposed.range(0, 8).expect("inside");
    let [server, client] = two.ids;
    two.hubs[1].fetch_add(client, at, 5, 1).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Atomic { tag: 1, original: 0, .. }));
    two.hubs[1].compare_swap(client, at, (5, 9), 2).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Atomic { tag: 2, original: 5, .. }));
    assert_eq!(memory.load_u64(0), Ok(9));
    let own = SharedRegion::zeroed(8).expect("memory");
    own.store_u64(0, 77).expect("inside");
    let from = own.slice(0..8).expect("all of it");
    let to = exposed.range(8, 8).expect("inside");
    two.hubs[1].write_immediate(client, to, (from, 42), 3).expect("posted");
    assert!(matches!(two.next(0), HubEvent::Immediate { peer, immediate: 42 } if peer == server));
    assert_eq!(memory.load_u64(8), Ok(77));
    assert!(matches!(two.next(1), HubEvent::Written { tag: 3, .. }));
    two.hubs[0].send_immediate(server, 43).expect("posted");
    assert!(matches!(two.next(1), HubEvent::Immediate { immediate: 43, .. }));
}

/// For a peer that accepts nothing a bounded number of bytes is queued, however they are split into
/// messages.
#[test]
fn what_waits_is_bounded_in_bytes() {
    for len in [0, 1000, 1 << 20] {
        let two =
            &mut Two::of(HubOptions { waiting_max: 8 << 20, sends: 4, ..HubOptions::default() });
        let memory = SharedRegion::zeroed(1 << 20).expect("memory");
        let slice = memory.slice(0..1 << 20).expect("all of it");
        let exposed = two.hubs[1].expose(two.ids[1], slice, Access::REMOTE_WRITE).expect("exposed");
        let to = exposed.range(0, len).expect("inside");
        let len = usize::try_from(len).expect("small");
        let posted = (0_usize..).find(|_| {
            // No turn takes completions, so no room is made.
            two.hubs[0].write(two.ids[0], to, vec![0; len]).is_err()
        });
        let bound = (8 << 20) / (len + 256) + 4;
        assert_eq!(posted, Some(bound), "{len} bytes each");
    }
}

/// Messages that come one after the other wake the loop that takes them once each.
#[test]
fn a_message_wakes_a_loop_once() {
    const MESSAGES: usize = 300;
    let Two { hubs: [mut server, mut client], ids: [accepted, dialled] } = Two::new();
    let turn = |hub: &mut Hub, id: PeerId, count: usize, begins: bool| {
        let (mut events, mut wakes) = (Vec::new(), 0);
        if begins {
            hub.send(id, b"ping").expect("sent");
        }
        let mut seen = 0;
        while seen < count {
            hub.turn(&mut events).expect("a turn");
            for _ in events.drain(..) {
                seen += 1;
                hub.send(id, b"pong").expect("sent");
            }
            if seen < count {
                sleep_on(hub);
                wakes += 1;
            }
        }
        wakes
    };
    let serving = thread::spawn(move || (turn(&mut server, accepted, MESSAGES, false), server));
    let wakes = turn(&mut client, dialled, MESSAGES, true);
    let (served, _server) = serving.join().expect("the server");
    println!("{MESSAGES} messages woke the client {wakes} times and the server {served} times");
    // One send of sixty-four tells that it is done.
    let most = MESSAGES + MESSAGES / 20;
    assert!(wakes <= most && served <= most, "{wakes} and {served} for {MESSAGES}");
}
