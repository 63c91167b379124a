//! Channels of connection events that many listeners and queue pairs share, each under a key.

mod common;

use common::{ANY, Side, address};
use outboard_testkit::PATIENCE;
use outboard_verbs::{CmChannel, CmEvent, CmEventKind, ConnectParams, VerbsError};
use std::time::Duration;

/// Long enough for an event that comes at all to have come.
const A_WHILE: Duration = Duration::from_millis(50);

fn next(channel: &CmChannel) -> CmEvent {
    channel.next(Some(PATIENCE)).expect("an event")
}

fn is_quiet(channel: &CmChannel) -> bool {
    channel.next(Some(A_WHILE)).is_none()
}

/// Connects the queue pairs of `a` and `b`, whose events go to `to_a` and `to_b`.
fn connect(a: &Side, b: &Side, to_a: &CmChannel, to_b: &CmChannel) {
    let (listener, params) = (b.listen(), ConnectParams::default());
    a.qp.start_connect(listener.local_addr(), &params, to_a).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept_on(&b.qp, &params, to_b).expect("accepted");
    let event = next(to_a);
    assert!(matches!(event.kind, CmEventKind::Connected(_)), "{event:?}");
}

fn quiet_channel(side: &Side) -> CmChannel {
    side.context.create_cm_channel_without_established().expect("a channel")
}

#[test]
fn each_event_bears_the_key_of_its_source() {
    let (a, b) = (Side::new(), Side::new());
    let channel = b.context.create_cm_channel().expect("a channel");
    let listeners = [5, 6].map(|key| {
        let made = b.context.listen_on(address(ANY), 4, &channel.keyed(key));
        made.expect("a listener")
    });
    let events = quiet_channel(&a).keyed(9);
    let to = listeners[1].local_addr();
    a.qp.start_connect(to, &ConnectParams::default(), &events).expect("an attempt");
    let request = next(&channel);
    assert_eq!((request.key, request.qp), (6, 0));
    let CmEventKind::ConnectRequest(request) = request.kind else { panic!("{request:?}") };
    let later = channel.keyed(7);
    request.accept_on(&b.qp, &ConnectParams::default(), &later).expect("accepted");
    assert_eq!((next(&events).key, events.try_next().is_none()), (9, true));
    a.qp.disconnect();
    let over = next(&channel);
    assert_eq!((over.key, over.qp), (7, b.qp.number()), "{:?}", over.kind);
    assert_eq!(next(&events).key, 9);
}

#[test]
fn silence_is_for_one_key() {
    let ends = [Side::new(), Side::new()];
    let more =
        ends.each_ref().map(|end| Side::in_domain(end.context.clone(), end.pd.clone(), |_| {}));
    let [to_a, to_b] = ends.each_ref().map(quiet_channel);
    let keys = [1, 2].map(|key| to_b.keyed(key));
    connect(&ends[0], &ends[1], &to_a, &keys[0]);
    connect(&more[0], &more[1], &to_a, &keys[1]);
    [&ends[0], &more[0]].iter().for_each(|side| side.qp.disconnect());
    // One end waits already, or comes later: both are dropped.
    keys[0].silence();
    assert_eq!(next(&to_b).key, 2);
    assert!(is_quiet(&to_b));
}

#[test]
fn a_key_moves_with_what_waits_and_what_comes() {
    let (a, b) = (Side::new(), Side::new());
    let (first, second) = (quiet_channel(&b), quiet_channel(&b));
    let listen = |key| b.context.listen_on(address(ANY), 4, &first.keyed(key)).expect("a port");
    let staying = listen(1);
    let mut moving = first.keyed(2);
    let listener = b.context.listen_on(address(ANY), 4, &moving).expect("a listener");
    let (params, told) = (ConnectParams::default(), quiet_channel(&a));
    let clients = [(); 3].map(|()| Side::in_domain(a.context.clone(), a.pd.clone(), |_| {}));
    let begin = |client: &Side, to| client.qp.start_connect(to, &params, &told).expect("begun");
    begin(&clients[0], listener.local_addr());
    begin(&clients[1], staying.local_addr());
    // Both requests wait, or the later one is on its way: it moves all the same.
    std::thread::sleep(A_WHILE);
    moving.move_to(&second).expect("the same context");
    begin(&clients[2], listener.local_addr());
    assert_eq!([next(&second).key, next(&second).key], [2, 2]);
    assert_eq!(next(&first).key, 1);
    assert!(is_quiet(&first) && is_quiet(&second));
    let elsewhere = moving.move_to(&told).expect_err("another context's");
    assert!(matches!(elsewhere, VerbsError::OtherContext { .. }), "{elsewhere}");
}
