//! Beginnings and ends.

use super::support::*;
use outboard_offload::device::PortSend;
use outboard_offload::request::{CarrierKind, OffcodePhase};
use outboard_offload::runtime::{LifeStep, PlannedCode, Running, RuntimeError, RuntimeEvent};
use outboard_testkit::PATIENCE;
use std::sync::Arc;

#[test]
fn an_application_of_three_offcodes_on_two_devices() {
    let offcodes = vec![
        offcode("first", "relay", 0),
        offcode("relay", "relay", 0),
        offcode("count", "counter", 1),
    ];
    let channels = vec![
        channel(own("text"), at("first", 0), 8),
        channel(at("first", 1), at("relay", 0), 8),
        channel(at("relay", 1), at("count", 0), 8),
    ];
    for share in [true, false] {
        let running = start(plan(offcodes.clone(), channels.clone()), devices(2, share));
        let text = running.end("text").expect("it is there");
        assert!(running.end("text").is_err(), "it is handed out once");
        for word in [&b"one"[..], b"two", b"three"] {
            assert_eq!(text.send(word), PortSend::Taken);
        }
        assert_eq!(until(&running, "count", 3), (3, 11));
        let shown = running.snapshot().expect("it runs");
        assert!(shown.offcodes.iter().all(|offcode| offcode.phase == OffcodePhase::Started));
        let carriers: Vec<CarrierKind> =
            shown.channels.iter().map(|channel| channel.carrier).collect();
        let between = if share { CarrierKind::Ring } else { CarrierKind::Session };
        assert_eq!(carriers, [CarrierKind::Session, CarrierKind::Inside, between]);
        running.stop().expect("it runs");
        assert_eq!(running.stop(), Err(RuntimeError::Stopped));
        assert_eq!(text.send(b"more"), PortSend::NotConnected);
        event(&running, |event| *event == RuntimeEvent::Stopped);
    }
}

#[test]
fn one_step_that_fails_leaves_nothing_and_says_where() {
    for (step, expected) in [("initialize", LifeStep::Initialize), ("start", LifeStep::Start)] {
        let running = start(plan(vec![offcode("first", "echo", 0)], vec![]), devices(2, true));
        let offcodes = vec![
            offcode("good", "echo", 0),
            with(offcode("bad", "probe", 1), &[("fails", step)]),
            offcode("late", "echo", 1),
        ];
        let channels = vec![channel(at("good", 1), at("bad", 0), 4)];
        match running.create(plan(offcodes, channels)) {
            Err(RuntimeError::Step { offcode, device, step, fault }) => {
                assert_eq!((offcode.as_str(), device.as_str(), step), ("bad", "d1", expected));
                assert!(fault.to_string().contains("it was told to fail"), "{fault}");
            }
            other => panic!("{other:?}"),
        }
        let shown = running.snapshot().expect("it runs");
        let names: Vec<&str> = shown.offcodes.iter().map(|offcode| offcode.name.as_str()).collect();
        assert_eq!(names, ["first"]);
        assert!(shown.channels.is_empty());
        let again = plan(vec![offcode("good", "echo", 0)], vec![]);
        running.create(again).expect("the name is free");
    }
}

#[test]
fn plans_that_cannot_be_are_refused_in_words() {
    let wrong = |offcodes, channels, expected: &str| {
        let found = try_start(plan(offcodes, channels), devices(1, true));
        let text = found.expect_err(expected).to_string();
        assert!(text.contains(expected), "{text}");
    };
    let echo = || offcode("a", "echo", 0);
    wrong(vec![echo(), echo()], vec![], "two offcodes are called `a`");
    wrong(vec![offcode("a", "echo", 3)], vec![], "device 3, there are 1");
    wrong(vec![offcode("a", "nothing", 0)], vec![], "there is no builtin nothing");
    wrong(vec![echo()], vec![channel(at("a", 9), own("x"), 1)], "`a.9`, the offcode has 2 ports");
    wrong(vec![echo()], vec![channel(at("b", 0), own("x"), 1)], "names the offcode `b`");
    wrong(vec![echo()], vec![channel(at("a", 0), own("x"), 0)], "0 messages");
    let mut own_parent = echo();
    own_parent.parent = Some("a".to_owned());
    wrong(vec![own_parent], vec![], "its own parent");
}

#[test]
fn known_code_takes_one_round_trip_and_unknown_two() {
    // A module with a memory and nothing else.
    let module = b"\0asm\x01\0\0\0\x05\x03\x01\0\x01\x07\x0a\x01\x06memory\x02\0".to_vec();
    let mut wasm = offcode("a", "", 0);
    wasm.code = PlannedCode::Wasm(Arc::new(module));
    let running = start(plan(vec![wasm.clone()], vec![]), devices(1, true));
    assert_eq!(running.snapshot().expect("it runs").creations, 2);
    wasm.name = "b".to_owned();
    running.create(plan(vec![wasm], vec![])).expect("it starts");
    assert_eq!(running.snapshot().expect("it runs").creations, 3);
}

/// Answers each call with the next number of its library, in one byte.
const MAIN: &str = r#"(module
    (import "offcode" "answer" (func $answer (param i64 i32 i32) (result i32)))
    (import "numbers" "next" (func $next (result i32)))
    (memory (export "memory") 1 4)
    (func (export "oc_buffer") (param i32) (result i32) (i32.const 1024))
    (func (export "oc_call") (param i32 i32 i64 i32 i32)
        (i32.store8 (i32.const 512) (call $next))
        (drop (call $answer (local.get 2) (i32.const 512) (i32.const 1)))))"#;

/// Counts by FIRST.
const LIBRARY: &str = r#"(module
    (@dylink.0 (mem-info (memory 8 2) (table 0 0)))
    (import "env" "memory" (memory 1))
    (import "env" "__memory_base" (global $base i32))
    (data (global.get $base) "\00")
    (func (export "next") (result i32)
        (i32.store (global.get $base) (i32.add (i32.load (global.get $base)) (i32.const FIRST)))
        (i32.load (global.get $base))))"#;

fn module(text: &str) -> Arc<Vec<u8>> {
    Arc::new(wat::parse_str(text).expect("WAT"))
}

fn called(running: &Running, name: &str) -> Vec<u8> {
    let id = running.offcode(name).expect("it runs");
    running.call(id, FACE, 0, &[], Some(PATIENCE)).expect("it answers")
}

#[test]
fn a_device_links_modules_and_is_sent_only_those_that_it_does_not_know() {
    let linked = |name: &str, step: &str| {
        let library = module(&LIBRARY.replace("FIRST", step));
        let parts = vec![("main".to_owned(), module(MAIN)), ("numbers".to_owned(), library)];
        let mut offcode = offcode(name, "", 0);
        offcode.code = PlannedCode::Linked(parts);
        offcode.interfaces = vec![FACE];
        offcode
    };
    let running = start(plan(vec![linked("a", "1")], vec![]), devices(2, true));
    assert_eq!(running.snapshot().expect("it runs").creations, 2, "unknown: two round trips");
    running.create(plan(vec![linked("b", "1")], vec![])).expect("it starts");
    assert_eq!(running.snapshot().expect("it runs").creations, 3, "known: one");
    running.create(plan(vec![linked("c", "5")], vec![])).expect("it starts");
    assert_eq!(running.snapshot().expect("it runs").creations, 5, "one library is new");
    assert_eq!([called(&running, "a"), called(&running, "a")], [[1], [2]]);
    assert_eq!([called(&running, "c"), called(&running, "c")], [[5], [10]]);
    running.move_offcode("c", 1).expect("the other device links it, too");
    assert_eq!([called(&running, "c"), called(&running, "b")], [[15], [1]]);
}

#[test]
fn a_full_channel_pushes_back_and_loses_nothing() {
    for share in [true, false] {
        let offcodes = vec![offcode("a", "relay", 0), offcode("b", "relay", 1)];
        let channels = vec![
            channel(own("in"), at("a", 0), 4),
            channel(at("a", 1), at("b", 0), 4),
            channel(at("b", 1), own("out"), 4),
        ];
        let running = start(plan(offcodes, channels), devices(2, share));
        let (near, far) = (running.end("in").expect("new"), running.end("out").expect("new"));
        let mut sent = 0_u64;
        // All queues together hold less than this.
        while near.send_within(&sent.to_le_bytes(), PATIENCE / 200) == PortSend::Taken {
            sent += 1;
            assert!(sent < 64, "nothing pushes back");
        }
        assert!(sent >= 12, "queues of 4 have taken {sent}");
        for number in 0..200_u64 {
            let message = far.receive_within(PATIENCE).expect("it comes");
            assert_eq!(message, number.to_le_bytes());
            if sent < 200 && near.send_within(&sent.to_le_bytes(), PATIENCE) == PortSend::Taken {
                sent += 1;
            }
        }
        assert_eq!(far.receive(), None);
    }
}

#[test]
fn one_channel_to_several_receivers() {
    let offcodes =
        vec![offcode("from", "source", 0), offcode("a", "sink", 0), offcode("b", "sink", 1)];
    let offcodes: Vec<_> =
        offcodes.into_iter().map(|offcode| with(offcode, &[("count", "500")])).collect();
    let mut several = channel(at("from", 0), at("a", 0), 4);
    several.to.push(at("b", 0));
    several.to.push(own("c"));
    let running = start(plan(offcodes, vec![several]), devices(2, true));
    let end = running.end("c").expect("new");
    for number in 0..500_u64 {
        assert_eq!(end.receive_within(PATIENCE).expect("it comes"), number.to_le_bytes());
    }
    assert_eq!(until(&running, "a", 500), (500, 0));
    assert_eq!(until(&running, "b", 500), (500, 0));
}

#[test]
fn who_is_removed_takes_all_below_along() {
    let mut child = offcode("child", "echo", 1);
    child.parent = Some("top".to_owned());
    let mut grandchild = offcode("grandchild", "echo", 0);
    grandchild.parent = Some("child".to_owned());
    let offcodes = vec![offcode("top", "echo", 0), child, grandchild, offcode("other", "echo", 1)];
    let channels = vec![channel(at("child", 1), own("end"), 4)];
    let running = start(plan(offcodes, channels), devices(2, true));
    let end = running.end("end").expect("new");
    assert!(end.is_connected());
    running.remove("top").expect("it is there");
    assert!(!end.is_connected());
    let (why, with) = ended(&running, "top");
    assert_eq!(why, "it was removed");
    assert_eq!(with, ["child", "grandchild"]);
    let left = running.snapshot().expect("it runs").offcodes;
    assert_eq!(left.len(), 1);
    assert_eq!(running.remove("top"), Err(RuntimeError::NoOffcode { name: "top".to_owned() }));
}

#[test]
fn attributes_are_set_and_obsolete_offcodes_go() {
    let running = start(
        plan(vec![with(offcode("a", "echo", 0), &[("colour", "red")])], vec![]),
        devices(1, true),
    );
    let id = running.offcode("a").expect("it is there");
    running.set_attribute(id, "colour", "blue").expect("it is there");
    assert_eq!(running.attributes(id).expect("it is there")["colour"], "blue");
    running.set_attribute(id, "OBSOLETE_TIME", "50").expect("it is there");
    let (why, _) = ended(&running, "a");
    assert!(why.contains("obsolete"), "{why}");
    assert!(matches!(running.attributes(id), Err(RuntimeError::Gone { .. })));
}
