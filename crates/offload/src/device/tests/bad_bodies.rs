//! Offcodes that do what they should not: each ends alone, and what it asks too much is refused.

use super::*;

/// A module whose `oc_call` is `body`, with parameters `$interface $method $call $ptr $len`.
fn guest(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(module
        (import "offcode" "answer" (func $answer (param i64 i32 i32) (result i32)))
        (import "offcode" "send" (func $send (param i32 i32 i32) (result i32)))
        (import "offcode" "log" (func $log (param i32 i32 i32)))
        (import "offcode" "tell" (func $tell (param i32 i32) (result i32)))
        (import "offcode" "timer" (func $timer (param i32 i64)))
        (import "offcode" "call" (func $call (param i32 i32 i32 i32 i32) (result i64)))
        (memory (export "memory") 1)
        (global $n (mut i32) (i32.const 0))
        (func (export "oc_buffer") (param i32) (result i32) (i32.const 1024))
        (func (export "oc_initialize") (result i32) (global.get $n))
        (func (export "oc_timer") (param i32)
          (global.set $n (i32.add (global.get $n) (i32.const 1))))
        (func $number (param $call i64) (param $value i32)
          (i32.store8 (i32.const 512) (local.get $value))
          (drop (call $answer (local.get $call) (i32.const 512) (i32.const 1))))
        (func (export "oc_call")
          (param $interface i32) (param $method i32) (param $call i64)
          (param $ptr i32) (param $len i32)
          (local $i i32)
          {body}))"#
    );
    wat::parse_str(text).expect("a module")
}

fn wasm(offcode: u32, bytes: &[u8], device: &mut Device) -> Creation {
    assert_eq!(ask(device, DeviceRequest::Code(bytes.to_vec())), Ok(DeviceReply::Done));
    let mut creation = creation(offcode, "guest", &[]);
    creation.code = BodyCode::Wasm(outboard_offcode::ModuleHash::of(bytes).0);
    creation.needs =
        BodyNeeds { memory_bytes: 4 << 20, clock: false, timers: true, watchdog_ms: 2000 };
    creation.imports = vec![(COUNTER, Some(OffcodeId(2)))];
    creation
}

/// A device with the guest as offcode 1, and an echo as offcode 2.
fn with_guest(body: &str) -> Device {
    with_watched(body, 2000)
}

fn with_watched(body: &str, watchdog_ms: u32) -> Device {
    let mut device = device();
    let mut guest = wasm(1, &guest(body), &mut device);
    guest.needs.watchdog_ms = watchdog_ms;
    begin(&mut device, guest);
    begin(&mut device, creation(2, "echo", &[]));
    device
}

/// What comes of a call of the guest.
fn called(device: &mut Device, number: u64) -> (Vec<CallResult>, Vec<DeviceEvent>) {
    ask(device, call(1, number)).expect("queued");
    let (mut answers, mut others) = (Vec::new(), Vec::new());
    for event in run(device) {
        match event {
            DeviceEvent::Answer(key, result) if key.number == number => answers.push(result),
            other => others.push(other),
        }
    }
    (answers, others)
}

/// The other offcode of the device goes on.
fn echo_lives(device: &mut Device) {
    ask(device, call(2, 77)).expect("queued");
    let lives =
        |event: &DeviceEvent| matches!(event, DeviceEvent::Answer(key, Ok(_)) if key.number == 77);
    assert!(run(device).iter().any(lives));
}

#[test]
fn one_that_loops_or_traps_is_over_and_the_others_go_on() {
    for body in ["(loop $l (br $l))", "unreachable", "(drop (i32.load (i32.const -8)))"] {
        let mut device = with_watched(body, 50);
        let (answers, others) = called(&mut device, 3);
        assert!(matches!(answers[..], [Err(CallFailure::Trapped(_))]), "{body}: {answers:?}");
        assert!(matches!(others[..], [DeviceEvent::Ended(OffcodeId(1), _)]), "{others:?}");
        assert_eq!(
            ask(&mut device, DeviceRequest::Start(OffcodeId(1))),
            Err(DeviceError::NoOffcode(1))
        );
        echo_lives(&mut device);
    }
}

#[test]
fn memory_ends_at_its_limit() {
    // Counts the pages that it gets, up to 200.
    let body = "(block $b (loop $l
        (br_if $b (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (i32.const 200)))))
        (call $number (local.get $call) (local.get $i))";
    let mut device = with_guest(body);
    assert_eq!(called(&mut device, 3).0, [Ok(vec![63])], "64 pages are 4 MiB");
    let mut greedy = creation(5, "echo", &[]);
    greedy.needs.memory_bytes = u64::MAX;
    let refused = ask(&mut device, DeviceRequest::Create(Box::new(greedy)));
    assert!(matches!(refused, Err(DeviceError::Full(_))), "{refused:?}");
}

#[test]
fn an_answer_counts_once_and_ports_that_are_not_there_take_nothing() {
    let body = "
        (call $number (local.get $call) (i32.sub (i32.const 0)
            (call $send (i32.const 99) (i32.const 0) (i32.const 8))))
        (call $number (local.get $call) (i32.const 7))
        (call $number (i64.const 1234567) (i32.const 7))";
    let mut device = with_guest(body);
    let (answers, others) = called(&mut device, 3);
    assert_eq!((answers, others), (vec![Ok(vec![1])], vec![]), "-1: no such port");
}

#[test]
fn floods_end_at_their_bounds() {
    let body = "(loop $l
        (call $log (i32.const 1) (i32.const 0) (i32.const 8))
        (drop (call $tell (i32.const 0) (i32.const 8)))
        (drop (call $call (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 0)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (i32.const 6000))))";
    let mut device = with_guest(body);
    ask(&mut device, call(1, 3)).expect("queued");
    device.run(OffcodeId(1));
    let count =
        |matches: fn(&DeviceEvent) -> bool| device.events.iter().filter(|e| matches(e)).count();
    assert_eq!(count(|event| matches!(event, DeviceEvent::Log(..))), 64);
    assert_eq!(count(|event| matches!(event, DeviceEvent::Told(..))), 256);
    let waiting = device.placed_for_test(OffcodeId(1)).context().waiting.len();
    assert_eq!(waiting, 4096);
    run(&mut device);
    assert_eq!(device.placed_for_test(OffcodeId(1)).context().waiting.len(), 0, "all are answered");
    echo_lives(&mut device);
}

#[test]
fn large_calls_of_one_entry_end_at_its_bytes() {
    let body = "(drop (memory.grow (i32.const 20)))
        (loop $l
        (drop (call $call
          (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1048576) (i32.const 0)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (i32.const 100))))";
    let mut device = with_guest(body);
    ask(&mut device, call(1, 3)).expect("queued");
    device.run(OffcodeId(1));
    assert_eq!(device.placed_for_test(OffcodeId(1)).context().waiting.len(), 64, "64 MiB");
    run(&mut device);
    echo_lives(&mut device);
}

#[test]
fn timers_that_are_due_count() {
    let body = "(loop $l
        (call $timer
          (i32.add (local.get $i) (i32.mul (local.get $len) (i32.const 64))) (i64.const 0))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (i32.const 64))))";
    let mut device = with_guest(body);
    ask(&mut device, call(1, 3)).expect("queued");
    device.run(OffcodeId(1));
    device.take_due(Instant::now());
    let DeviceRequest::Call(mut second) = call(1, 4) else { unreachable!() };
    second.params = vec![0];
    device.placed_for_test(OffcodeId(1)).phase = OffcodePhase::Started;
    // The call comes before the timers' entries: it may not set 64 more.
    let key = second.key;
    let ended = {
        let placed = device.placed_for_test(OffcodeId(1));
        let number = placed.context().open_call(key).expect("a number");
        placed.body.call(0, 0, number, &second.params)
    };
    assert!(ended.expect_err("a trap").to_string().contains("timers"));
}

#[test]
fn times_that_are_out_of_date_are_forgotten() {
    let mut device = with_guest("");
    for after in (0..5000_u64).rev() {
        let placed = device.placed_for_test(OffcodeId(1));
        let after = std::time::Duration::from_secs(3600 + after);
        assert!(placed.context().timer(1, after));
        device.carry_out(OffcodeId(1));
    }
    assert!(device.due.len() < 200, "{}", device.due.len());
    assert!(device.deadline().is_some());
}

#[test]
fn one_that_refuses_its_start_is_not_started() {
    let mut device = device();
    let text = r#"(module (memory (export "memory") 1)
        (func (export "oc_initialize") (result i32) (i32.const 7)))"#;
    let bytes = wat::parse_str(text).expect("a module");
    let refusing = wasm(1, &bytes, &mut device);
    assert_eq!(ask(&mut device, DeviceRequest::Create(Box::new(refusing))), Ok(DeviceReply::Done));
    let refused = ask(&mut device, DeviceRequest::Initialize(OffcodeId(1)));
    assert!(matches!(refused, Err(DeviceError::Refused(_, 7))), "{refused:?}");
    let started = ask(&mut device, DeviceRequest::Start(OffcodeId(1)));
    assert!(matches!(started, Err(DeviceError::Phase { .. })), "{started:?}");
}

#[test]
fn what_others_send_keeps_nothing_from_an_offcode() {
    let mut device = device();
    begin(&mut device, creation(1, "echo", &[]));
    for number in 0..9000 {
        ask(&mut device, call(1, number)).expect("asked");
        device
            .events
            .retain(|event| matches!(event, DeviceEvent::Answer(_, Err(CallFailure::Refused(_)))));
    }
    let refused = device.events.len();
    assert_eq!(refused, 9000 - 8192);
    assert!(device.deliver(OffcodeId(1), InboxItem::Writable(0)), "it waits for that");
    assert!(!device.deliver(OffcodeId(1), InboxItem::Event(event_kind::MESSAGE, vec![])));
}

fn frozen() -> Frozen {
    Frozen {
        state: FrozenState::Whole(vec![0, 0]),
        inbox: Vec::new(),
        pending: Vec::new(),
        held: Vec::new(),
        timers: Vec::new(),
        open_calls: Vec::new(),
        own_calls: Vec::new(),
        next_call: 1,
        next_open: 1,
        phase: OffcodePhase::Started,
    }
}

#[test]
fn states_that_cannot_be_are_refused() {
    let key = CallKey { caller: OffcodeId(9), number: 1 };
    let own = OwnCall { number: 1, target: OffcodeId(9), left_ms: 0 };
    let empty = serde_bytes::ByteBuf::new;
    let wrong: [fn(&mut Frozen, CallKey, OwnCall); 10] = [
        |it, _, _| it.timers = (0..65).map(|timer| (timer, 0)).collect(),
        |it, key, _| it.open_calls = (0..5000).map(|number| (number, key)).collect(),
        |it, _, own| it.own_calls = vec![own; 5000],
        |it, _, own| it.own_calls = vec![own],
        |it, key, _| it.open_calls = vec![(1, key)],
        |it, _, _| it.next_call = u64::MAX,
        |it, _, _| it.next_open = 0,
        |it, key, _| it.inbox = vec![InboxItem::Call(key, 5, 0, vec![])],
        |it, _, _| it.inbox = vec![InboxItem::Writable(200)],
        |it, _, _| it.inbox = vec![InboxItem::Timer(1); 65],
    ];
    let mut device = device();
    for (at, change) in wrong.iter().enumerate() {
        let mut from = frozen();
        change(&mut from, key, own);
        let made_up = Creation { from: Some(from), ..creation(1, "sink", &[]) };
        let refused = ask(&mut device, DeviceRequest::Create(Box::new(made_up)));
        assert!(matches!(refused, Err(DeviceError::Body(_))), "{at}: {refused:?}");
    }
    let mut from = frozen();
    from.pending = vec![(9, vec![empty()])];
    let made_up = Creation { from: Some(from), ..creation(1, "sink", &[]) };
    let refused = ask(&mut device, DeviceRequest::Create(Box::new(made_up)));
    assert_eq!(refused, Err(DeviceError::NoPort(1, 9)));
    let right = Creation { from: Some(frozen()), ..creation(1, "sink", &[]) };
    assert_eq!(ask(&mut device, DeviceRequest::Create(Box::new(right))), Ok(DeviceReply::Done));
}
