//! Calls of the application and between offcodes.

use super::support::*;
use outboard_offload::device::PortSend;
use outboard_offload::request::{CallFailure, OffcodeId};
use outboard_testkit::PATIENCE;
use std::time::Duration;

#[test]
fn calls_are_answered_or_said_why_not() {
    let offcodes =
        vec![offcode("a", "echo", 0), offcode("b", "echo", 1), offcode("late", "probe", 1)];
    let running = start(plan(offcodes, vec![]), devices(2, true));
    let [a, b, late] = ["a", "b", "late"].map(|name| running.offcode(name).expect("there"));
    assert_eq!(running.call(a, FACE, 0, b"x", None), Ok(b"x".to_vec()));
    let both = running.call_many(&[b, a, b], FACE, 0, b"y", Some(PATIENCE));
    assert_eq!(both, vec![Ok(b"y".to_vec()); 3]);
    let wrong = running.call(a, [9; 16], 0, b"", Some(PATIENCE));
    assert!(matches!(wrong, Err(CallFailure::Misfit(_))), "{wrong:?}");
    let gone = running.call(OffcodeId(77), FACE, 0, b"", Some(PATIENCE));
    assert!(matches!(gone, Err(CallFailure::Gone(_))), "{gone:?}");
    let own = running.call(OffcodeId::APPLICATION, FACE, 0, b"", Some(PATIENCE));
    assert!(matches!(own, Err(CallFailure::Misfit(_))), "{own:?}");
    let soon = Duration::from_millis(20);
    assert_eq!(running.call(late, FACE, 0, b"", Some(soon)), Err(CallFailure::Deadline));
    let mut calls = running.begin_calls(&[late], FACE, 0, b"", None);
    running.tell(late, b"now").expect("it runs");
    assert_eq!(calls.next(), Some((late, Ok(b"now".to_vec()))));
    assert_eq!(calls.next(), None);
    let mut calls = running.begin_calls(&[late], FACE, 0, b"", None);
    running.remove("late").expect("it is there");
    let answer = calls.next().expect("every call is answered").1;
    assert!(matches!(answer, Err(CallFailure::Gone(_))), "{answer:?}");
    let calls = running.begin_calls(&[a], FACE, 0, b"", None);
    drop(running);
    assert_eq!(calls.count(), 1);
}

#[test]
fn a_call_finds_its_way_though_both_sides_move() {
    let mut caller = offcode("caller", "caller", 0);
    caller.imports = vec![(FACE, Some("late".to_owned()))];
    let offcodes = vec![caller, offcode("late", "probe", 0)];
    let channels = vec![channel(own("in"), at("caller", 0), 4)];
    let running = start(plan(offcodes, channels), devices(3, true));
    let end = running.end("in").expect("new");
    let late = running.offcode("late").expect("there");
    for (caller_to, late_to) in [(1, 0), (1, 2), (0, 0), (2, 1)] {
        assert_eq!(end.send_within(b"call", PATIENCE), PortSend::Taken);
        until_called(&running);
        running.move_offcode("caller", caller_to).expect("it moves");
        running.move_offcode("late", late_to).expect("it moves");
        running.tell(late, b"answer").expect("it runs");
        assert_eq!(told(&running), b"answer");
    }
    assert_eq!(end.send_within(b"call", PATIENCE), PortSend::Taken);
    until_called(&running);
    running.remove("late").expect("it is there");
    let text = String::from_utf8(told(&running)).expect("words");
    assert!(text.contains("gone"), "{text}");
}

/// The callee keeps calls in its state: it has one when that has grown.
fn until_called(running: &outboard_offload::runtime::Running) {
    let limit = std::time::Instant::now() + PATIENCE;
    let has_call = || {
        let shown = running.snapshot().expect("it runs");
        let late = shown.offcodes.iter().find(|offcode| offcode.name == "late");
        late.is_some_and(|late| late.counters.memory_bytes > 1)
    };
    while !has_call() {
        assert!(std::time::Instant::now() < limit, "it was not called");
        std::thread::yield_now();
    }
}
