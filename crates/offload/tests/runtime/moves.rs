//! Offcodes that move, or get other code, while messages and calls are under way.

use super::support::*;
use outboard_offload::device::PortSend;
use outboard_offload::runtime::{PlannedCode, RuntimeError};
use outboard_testkit::PATIENCE;
use std::thread;

#[test]
fn messages_stay_in_order_while_all_offcodes_move() {
    for (share, seed) in [(true, 11), (false, 12), (true, 13)] {
        let count = 3000;
        let offcodes = vec![
            with(offcode("source", "source", 0), &[("count", &count.to_string())]),
            offcode("relay", "relay", 1),
            offcode("sink", "sink", 2),
        ];
        let channels = vec![
            channel(at("source", 0), at("relay", 0), 8),
            channel(at("relay", 1), at("sink", 0), 8),
        ];
        let running = start(plan(offcodes, channels), devices(3, share));
        let mut dice = Dice(seed);
        for _ in 0..12 {
            let name = ["source", "relay", "sink"][dice.below(3)];
            running.move_offcode(name, dice.below(3)).expect("it moves");
        }
        assert_eq!(until(&running, "sink", count), (count, 0), "share {share}, seed {seed}");
    }
}

#[test]
fn the_applications_messages_stay_in_order_while_their_relay_moves() {
    let channels =
        vec![channel(own("in"), at("relay", 0), 8), channel(at("relay", 1), own("out"), 8)];
    let running = start(plan(vec![offcode("relay", "relay", 0)], channels), devices(2, true));
    let (near, far) = (running.end("in").expect("new"), running.end("out").expect("new"));
    let count = 2000_u64;
    let sender = thread::spawn(move || {
        for number in 0..count {
            assert_eq!(near.send_within(&number.to_le_bytes(), PATIENCE), PortSend::Taken);
        }
    });
    let mover = running.handle();
    let mover = thread::spawn(move || {
        for turn in 0..20 {
            mover.move_offcode("relay", (turn + 1) % 2).expect("it moves");
        }
    });
    for number in 0..count {
        assert_eq!(far.receive_within(PATIENCE).expect("it comes"), number.to_le_bytes());
    }
    sender.join().expect("all was sent");
    mover.join().expect("all was moved");
    assert_eq!(far.receive(), None);
}

#[test]
fn other_code_goes_on_from_what_was_saved() {
    let channels = vec![channel(own("in"), at("count", 0), 8)];
    let running = start(plan(vec![offcode("count", "counter", 0)], channels), devices(1, true));
    let end = running.end("in").expect("new");
    assert_eq!(end.send(b"one"), PortSend::Taken);
    assert_eq!(until(&running, "count", 1), (1, 3));
    // The state of a sink is two numbers, too.
    running.update("count", PlannedCode::Builtin("sink".to_owned())).expect("it goes on");
    assert_eq!(numbers(&running, "count"), (1, 3));
    assert_eq!(end.send(&1_u64.to_le_bytes()), PortSend::Taken);
    assert_eq!(until(&running, "count", 2), (2, 3));
    match running.update("count", PlannedCode::Builtin("nothing".to_owned())) {
        Err(RuntimeError::Stays { offcode, why }) => {
            assert_eq!(offcode, "count");
            assert!(why.to_string().contains("there is no builtin nothing"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(end.send(&2_u64.to_le_bytes()), PortSend::Taken);
    assert_eq!(until(&running, "count", 3), (3, 3));
}

#[test]
fn an_offcode_whose_new_device_dies_goes_on_where_it_was() {
    let (first, second) = (TestDevice::start("d0"), TestDevice::start("d1"));
    let fuel = second.fuel();
    let channels = vec![channel(own("in"), at("sink", 0), 8)];
    let running = start(
        plan(vec![offcode("sink", "sink", 0)], channels),
        vec![Box::new(first), Box::new(second)],
    );
    let end = running.end("in").expect("new");
    for number in 0..8_u64 {
        assert_eq!(end.send(&number.to_le_bytes()), PortSend::Taken);
    }
    fuel.store(0, std::sync::atomic::Ordering::SeqCst);
    let moved = running.move_offcode("sink", 1);
    assert!(matches!(moved, Err(RuntimeError::Stays { .. })), "{moved:?}");
    assert_eq!(end.send_within(&8_u64.to_le_bytes(), PATIENCE), PortSend::Taken);
    assert_eq!(until(&running, "sink", 9), (9, 0));
    assert!(matches!(running.move_offcode("sink", 7), Err(RuntimeError::NoDevice { .. })));
}
