//! What entries do, and how residents end.

use super::*;
use std::sync::mpsc::channel;
use std::thread;

#[test]
fn every_entry_reaches_the_guest_and_every_import_the_host() {
    let mut one = resident(ALL);
    assert_eq!(one.initialize(), Ok(Some(5)));
    assert_eq!(one.start(), Ok(Some(6)));
    assert_eq!(one.call((3, 4), 50, b"ab"), Ok(Some(())));
    assert_eq!(asked(&mut one), ["hold 3", "hold 4", "answer 50 [97, 98]"]);
    assert_eq!(one.answer(60, ResidentAnswer::TimedOut, "späte".as_bytes()), Ok(Some(())));
    assert_eq!(asked(&mut one), ["hold 4", "refuse 60 späte"]);
    assert_eq!(one.writable(8), Ok(Some(())));
    assert_eq!(one.timer(9), Ok(Some(())));
    assert_eq!(asked(&mut one), ["release 8", "timer 9 1µs"]);
    assert_eq!(one.event(ResidentEvent::Disconnected, b"x"), Ok(Some(())));
    assert_eq!(one.event(ResidentEvent::Message, b"\xff"), Ok(Some(())));
    assert_eq!(asked(&mut one), ["log Info x", "log Error \u{fffd}"]);
    assert_eq!(one.restore(&[200, 1, 2, 3]), Ok(Some(200)));
    assert_eq!(one.save(), Ok(Some(vec![200, 1, 2, 3])), "what lies in the buffer");
    assert_eq!(one.stop(), Ok(Some(())));
    assert_eq!(asked(&mut one), ["hold 99"]);
}

/// The number that the guest was given.
fn given(one: &mut Resident<HostRecorder>, port: u32, command: u8, rest: &[u8]) -> i64 {
    let message = [&[command], rest].concat();
    assert_eq!(one.message(port, &message), Ok(Some(())));
    let last = asked(one).pop().expect("an answer");
    let numbers = last.strip_prefix("answer 1 [").and_then(|text| text.strip_suffix(']'));
    let bytes = numbers.expect("to call 1").split(", ").map(|byte| byte.parse().expect("a byte"));
    let bytes: Vec<u8> = bytes.collect();
    i64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

#[test]
fn the_guest_is_given_the_numbers_of_the_abi() {
    let mut one = resident(ALL);
    let sent: Vec<_> = (0..5).map(|port| given(&mut one, port, 1, b"m")).collect();
    assert_eq!(sent, [0, 1, -1, -2, -3]);
    let called: Vec<_> = (0..5).map(|import| given(&mut one, import, 2, b"p")).collect();
    assert_eq!(called, [77, -1, -2, -3, -4]);
    assert_eq!(given(&mut one, 0, 4, b"note"), 0);
    assert_eq!(given(&mut one, 0, 4, &[0; 200]), -1);
    assert_eq!(given(&mut one, 0, 6, b""), 222);
    assert_eq!(one.message(0, b"\x02ab"), Ok(Some(())));
    assert_eq!(asked(&mut one)[0], "call 0 9 [97, 98] Some(250ms)");
}

#[test]
fn an_attribute_is_copied_as_far_as_there_is_room() {
    let mut one = resident(ALL);
    one.host_mut().value = b"green".to_vec();
    assert_eq!(one.message(0, b"\x05colour"), Ok(Some(())));
    let all = asked(&mut one);
    assert_eq!(all[0], "attribute colour");
    assert_eq!(all[1], "answer 1 [5, 0, 0, 0, 0, 0, 0, 0]");
    assert_eq!(all[2], "answer 2 [103, 114, 101, 0]", "three bytes of it");
    assert_eq!(one.message(0, b"\x05taste"), Ok(Some(())));
    assert_eq!(asked(&mut one)[1], "answer 1 [255, 255, 255, 255, 255, 255, 255, 255]");
}

#[test]
fn what_a_module_does_not_export_is_none() {
    let mut one = resident(r#"(module (memory (export "memory") 1))"#);
    assert_eq!(one.initialize(), Ok(None));
    assert_eq!(one.start(), Ok(None));
    assert_eq!(one.stop(), Ok(None));
    assert_eq!(one.call((0, 0), 1, b"x"), Ok(None));
    assert_eq!(one.answer(1, ResidentAnswer::Gone, b"x"), Ok(None));
    assert_eq!(one.message(0, b"x"), Ok(None));
    assert_eq!((one.writable(0), one.timer(0)), (Ok(None), Ok(None)));
    assert_eq!(one.event(ResidentEvent::Attribute, b"x"), Ok(None));
    assert_eq!((one.save(), one.restore(b"x")), (Ok(None), Ok(None)));
}

#[test]
fn a_trap_says_what_and_where_and_is_the_end() {
    let text = r#"(module (memory (export "memory") 1)
        (func $inner (drop (i32.div_u (i32.const 1) (i32.const 0))))
        (func $outer (export "oc_stop") (call $inner))
        (func (export "oc_initialize") (result i32) (i32.const 0)))"#;
    let mut one = resident(text);
    let Err(ResidentEnd::Trapped(text)) = one.stop() else { panic!("it divides by zero") };
    assert!(text.contains("divide by zero") && text.contains("in inner; in outer"), "{text}");
    assert_eq!(one.initialize(), Err(ResidentEnd::Trapped(text.clone())), "it is dead");
    assert_eq!(one.ended(), Some(&ResidentEnd::Trapped(text.clone())));
    assert_eq!(one.snapshot(), Err(StateError::Dead(ResidentEnd::Trapped(text))));
}

#[test]
fn an_offcode_can_end_itself_with_a_reason() {
    let mut one = resident(ALL);
    let failed = one.message(0, b"\x03no more");
    assert_eq!(failed, Err(ResidentEnd::Failed("no more".into())));
    assert_eq!(one.start(), Err(ResidentEnd::Failed("no more".into())));
}

#[test]
fn bytes_outside_the_memory_are_a_trap() {
    for command in [7, 8, 9] {
        let mut one = resident(ALL);
        let Err(ResidentEnd::Trapped(text)) = one.message(0, &[command]) else {
            panic!("{command}")
        };
        assert!(text.contains("outside the memory"), "{text}");
        assert_eq!(asked(&mut one), [""; 0], "the host was not asked");
    }
}

#[test]
fn too_many_timers_are_a_trap() {
    let mut one = resident(ALL);
    let Err(ResidentEnd::Trapped(text)) = one.timer(64) else { panic!("the host refuses") };
    assert!(text.contains("more timers"), "{text}");
}

#[test]
fn calls_that_are_too_deep_are_a_trap() {
    let mut one = resident(
        r#"(module (memory (export "memory") 1)
            (func $deep (export "oc_stop") (call $deep) (call $deep)))"#,
    );
    let Err(ResidentEnd::Trapped(text)) = one.stop() else { panic!("it calls itself") };
    assert!(text.contains("stack") && text.len() < 1000, "{text}");
}

#[test]
fn an_input_that_is_too_long_harms_nobody() {
    let mut one = resident(ALL);
    let limit = limits().input_bytes;
    let (long, fits) = (vec![0; limit + 1], vec![0; 1000]);
    let refused = one.message(0, &long).expect_err("too long");
    assert_eq!(refused, ResidentEnd::InputTooLong { found: limit + 1, limit });
    assert!(!refused.is_final() && one.ended().is_none());
    assert_eq!(one.message(0, &fits), Ok(Some(())));
}

#[test]
fn a_buffer_is_asked_for_only_when_an_input_is_longer() {
    let mut one = resident(
        r#"(module (import "offcode" "hold" (func $hold (param i32)))
            (memory (export "memory") 2)
            (func (export "oc_buffer") (param i32) (result i32)
                (call $hold (local.get 0)) (i32.const 1024))
            (func (export "oc_message") (param i32 i32 i32)))"#,
    );
    for len in [0, 0, 1, 200, 256, 257, 300, 5, 512, 600] {
        assert_eq!(one.message(0, &vec![7; len]), Ok(Some(())));
    }
    assert_eq!(asked(&mut one), ["hold 256", "hold 512", "hold 1024"]);
}

#[test]
fn a_buffer_outside_the_memory_is_a_trap() {
    for place in ["0", "0xffff", "-1"] {
        let mut one = resident(&format!(
            r#"(module (memory (export "memory") 1)
                (func (export "oc_buffer") (param i32) (result i32) (i32.const {place}))
                (func (export "oc_message") (param i32 i32 i32)))"#
        ));
        let Err(ResidentEnd::Trapped(text)) = one.message(0, b"x") else { panic!("{place}") };
        assert!(text.contains("oc_buffer gave"), "{text}");
    }
}

#[test]
fn saved_bytes_outside_the_memory_are_a_trap() {
    let mut one = resident(
        r#"(module (memory (export "memory") 1)
            (func (export "oc_save") (result i64) (i64.const 0x0000_ffff_0000_0002)))"#,
    );
    let Err(ResidentEnd::Trapped(text)) = one.save() else { panic!("it is outside") };
    assert!(text.contains("oc_save gave 2 bytes at address 0xffff"), "{text}");
}

#[test]
fn memory_grows_up_to_its_limit() {
    let mut one = resident(
        r#"(module (memory (export "memory") 1)
            (func (export "oc_initialize") (result i32) (memory.grow (i32.const 7)))
            (func (export "oc_start") (result i32) (memory.grow (i32.const 1))))"#,
    );
    assert_eq!(one.start(), Ok(Some(1)), "to two pages");
    assert_eq!(one.initialize(), Ok(Some(-1)), "to nine");
    assert_eq!(one.memory_bytes(), 2 << 16);
}

const LOOPS: &str = r#"(module
    (import "offcode" "tell" (func $tell (param i32 i32) (result i32)))
    (memory (export "memory") 1)
    (func (export "oc_initialize") (result i32) (i32.const 0))
    (func (export "oc_stop")
        (drop (call $tell (i32.const 0) (i32.const 0)))
        (loop $again (br $again))))"#;

#[test]
fn an_entry_that_does_not_end_is_ended() {
    let module = compile(LOOPS).expect("compiled");
    let mut one = Resident::new(&module, HostRecorder::default(), short()).expect("made");
    assert_eq!(one.stop(), Err(ResidentEnd::OutOfTime { limit: short().entry_time }));
    assert_eq!(one.initialize(), Err(ResidentEnd::OutOfTime { limit: short().entry_time }));
}

#[test]
fn time_goes_on_after_a_pause() {
    let engine = engine();
    let bytes = wat::parse_str(LOOPS).expect("WAT");
    let module = ResidentModule::compile(&engine, &bytes, &all_rules()).expect("compiled");
    let mut one = Resident::new(&module, HostRecorder::default(), short()).expect("made");
    assert_eq!(one.initialize(), Ok(Some(0)));
    while !engine.ticks().is_asleep() {
        thread::sleep(Duration::from_millis(1));
    }
    // It falls asleep no more while the entry is in its host.
    let ticks = engine.ticks().clone();
    one.host_mut().on_tell = Some(Box::new(move || assert!(!ticks.is_asleep())));
    assert_eq!(one.stop(), Err(ResidentEnd::OutOfTime { limit: short().entry_time }));
}

#[test]
fn a_start_function_that_does_not_end_is_ended() {
    let module = compile(
        r#"(module (memory (export "memory") 1)
            (func $begin (loop $again (br $again))) (start $begin))"#,
    );
    let module = module.expect("compiled");
    let made = Resident::new(&module, HostRecorder::default(), short()).map(drop);
    let ended = ResidentEnd::OutOfTime { limit: short().entry_time };
    assert_eq!(made, Err(ResidentError::Start(ended)));
}

#[test]
fn a_resident_is_killed_from_another_thread() {
    let mut one = resident(LOOPS);
    let switch = one.kill_switch();
    let (runs, is_running) = channel();
    one.host_mut().on_tell = Some(Box::new(move || runs.send(()).expect("somebody waits")));
    let killer = thread::spawn(move || {
        is_running.recv().expect("it runs");
        switch.kill();
    });
    assert_eq!(one.stop(), Err(ResidentEnd::Killed));
    assert_eq!(one.initialize(), Err(ResidentEnd::Killed));
    killer.join().expect("no panic");
}

#[test]
fn one_that_was_killed_before_does_not_begin() {
    let mut one = resident(ALL);
    one.kill_switch().kill();
    assert_eq!(one.initialize(), Err(ResidentEnd::Killed));
}

#[test]
fn segments_outside_are_the_modules_fault() {
    let module = compile(r#"(module (memory (export "memory") 1) (data (i32.const 65535) "two"))"#);
    let made = Resident::new(&module.expect("compiled"), HostRecorder::default(), limits());
    assert!(matches!(made, Err(ResidentError::Start(ResidentEnd::Trapped(_)))), "{made:?}");
}
