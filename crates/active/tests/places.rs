//! Executions at the client, on pages that are read from the node.

#[path = "support/modules.rs"]
#[expect(dead_code, reason = "other tests use it")]
mod modules;
#[path = "../../cluster/tests/support/sessions.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod sessions;
#[path = "support/stage.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod stage;

use outboard_active::{ActiveCall, ActiveClient, CallPlace, ModuleHash, Outcome, RemoteRegion};
use stage::Stage;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Walks a list, and keeps two words on pages of their own equal.
const MODULE: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "store64" (func $store (param i64 i64)))
    (import "ob" "load64" (func $load (param i64) (result i64)))
    (func $arg (result i64) (i64.load (i32.load (i32.const 0x10010))))
    (func $at (param i64) (result i64)
        (i64.load (i32.add (i32.const 0x100000) (i32.wrap_i64 (local.get 0)))))
    (func $out (param i64) (result i64)
        (i64.store (i32.load (i32.const 0x10020)) (local.get 0)) (i64.const 8))
    ;; Where a chain of offsets ends.
    (func (export "walk") (result i64)
        (local $next i64) (local $here i64)
        (local.set $next (call $arg))
        (loop $on
            (local.set $here (local.get $next))
            (local.set $next (call $at (local.get $here)))
            (br_if $on (i64.ne (local.get $next) (i64.const 0))))
        (call $out (local.get $here)))
    (func (export "twice") (result i64)
        (call $store (i64.const 8) (i64.add (call $load (i64.const 8)) (i64.const 1)))
        (call $store (i64.const 40960) (call $load (i64.const 8)))
        (i64.const 0))
    ;; With some pages between the two, which take time.
    (func (export "difference") (result i64)
        (local $first i64)
        (local.set $first (call $at (i64.const 8)))
        (drop (call $at (i64.const 81920)))
        (drop (call $at (i64.const 163840)))
        (drop (call $at (i64.const 245760)))
        (call $out (i64.sub (local.get $first) (call $at (i64.const 40960)))))
    ;; The caller's identity and the flags, as the call block has them.
    (func (export "who") (result i64)
        (local $at i32)
        (loop $more
            (i64.store (i32.add (i32.load (i32.const 0x10020)) (local.get $at))
                (i64.load (i32.add (i32.const 0x10048) (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 8)))
            (br_if $more (i32.lt_u (local.get $at) (i32.const 40))))
        (i64.const 40))
    ;; So many bytes.
    (func (export "long") (result i64) (call $arg))
    (func (export "constant") (result i64) (call $out (i64.const 77)))
    (func (export "outside") (result i64) (call $at (i64.const 0x7fffff00)))
)"#;

fn module(client: &mut ActiveClient) -> ModuleHash {
    let bytes = wat::parse_str(MODULE).expect("legal text");
    client.know("places", &bytes).expect("a short name")
}

fn word(outcome: Outcome) -> u64 {
    match outcome {
        Outcome::Done { result, .. } => u64::from_le_bytes(result.try_into().expect("a word")),
        other => panic!("{other:?}"),
    }
}

/// Puts a chain over many pages into a region; its first offset and its last.
fn chain(client: &mut ActiveClient, region: &RemoteRegion, hops: u64) -> (u64, u64) {
    let offset = |hop: u64| 4096 + hop * 7 % 200 * 4096 + hop * 8;
    for hop in 0..hops {
        let next = offset(hop + 1).to_le_bytes();
        region.write(client, offset(hop), &next).expect("written");
    }
    (offset(0), offset(hops))
}

#[test]
fn both_places_come_to_the_same() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = module(&mut client);
    for hops in [0, 1, 30] {
        let (first, last) = chain(&mut client, &region, hops);
        let args = first.to_le_bytes();
        let call = ActiveCall::new(&region, module, "walk", &args);
        for place in [CallPlace::Remote, CallPlace::Local, CallPlace::Local] {
            let (outcome, was) = client.execute_at(&call, place).expect("an outcome");
            assert_eq!((word(outcome), was), (last, place), "{hops} hops");
        }
        // What has changed is seen: no page is kept.
        region.write(&mut client, last, &8_u64.to_le_bytes()).expect("written");
        let (outcome, _) = client.execute_at(&call, CallPlace::Local).expect("an outcome");
        assert_eq!(word(outcome), 8);
        region.write(&mut client, last, &0_u64.to_le_bytes()).expect("written");
    }
    let call = ActiveCall::new(&region, module, "constant", b"");
    let (outcome, place) = client.execute_at(&call, CallPlace::Local).expect("an outcome");
    assert_eq!((word(outcome), place), (77, CallPlace::Local));
    let call = ActiveCall::new(&region, module, "outside", b"");
    for place in [CallPlace::Remote, CallPlace::Local] {
        let (outcome, _) = client.execute_at(&call, place).expect("an outcome");
        assert!(matches!(outcome, Outcome::Trap(_)), "{outcome:?}");
    }
}

#[test]
fn what_writes_is_executed_at_the_node() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = module(&mut client);
    let call = ActiveCall::new(&region, module, "twice", b"");
    let (outcome, place) = client.execute_at(&call, CallPlace::Local).expect("an outcome");
    assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    assert_eq!(place, CallPlace::Remote);
    assert_eq!(region.read(&mut client, 40960, 8).expect("read"), 1_u64.to_le_bytes());
    // A module whose bytes this client does not have, though the node has it.
    let walk = ActiveCall::new(&region, module, "constant", b"");
    client.execute(&walk).expect("an outcome");
    client.forget(&module);
    let mut other = stage.client();
    let region = other.attach("kv").expect("attached");
    let call = ActiveCall::new(&region, module, "constant", b"");
    let (outcome, place) = other.execute_at(&call, CallPlace::Local).expect("an outcome");
    assert_eq!((outcome, place), (Outcome::NoCode(module), CallPlace::Remote));
}

/// Stops the writer, also when the reader fails.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_local_execution_sees_one_state() {
    let stage = Stage::new();
    let stop = AtomicBool::new(false);
    let (mut writer, mut client) = (stage.client(), stage.client());
    thread::scope(|threads| {
        threads.spawn(|| {
            let client = &mut writer;
            let region = client.attach("kv").expect("attached");
            let module = module(client);
            while !stop.load(Ordering::Relaxed) {
                let call = ActiveCall::new(&region, module, "twice", b"");
                client.execute(&call).expect("an outcome");
            }
        });
        let region = client.attach("kv").expect("attached");
        let module = module(&mut client);
        let stopping = Stopping(&stop);
        let mut elsewhere = 0;
        for _ in 0..400 {
            let call = ActiveCall::new(&region, module, "difference", b"");
            let (outcome, place) = client.execute_at(&call, CallPlace::Local).expect("an outcome");
            assert_eq!(word(outcome), 0);
            elsewhere += u32::from(place == CallPlace::Remote);
        }
        drop(stopping);
        println!("{elsewhere} of 400 were executed at the node in the end");
    });
}

#[test]
fn both_places_see_one_caller_and_have_one_limit_of_results() {
    let stage = Stage::new();
    let mut client = stage.client();
    let region = client.attach("kv").expect("attached");
    let module = module(&mut client);
    let mut seen = Vec::new();
    for (place, flags) in [(CallPlace::Remote, 0), (CallPlace::Local, 1)] {
        let call = ActiveCall::new(&region, module, "who", &[]);
        let (outcome, was) = client.execute_at(&call, place).expect("an outcome");
        let Outcome::Done { result, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!((was, result[32..].to_vec()), (place, u64::to_le_bytes(flags).to_vec()));
        seen.push(result[..32].to_vec());
        for (len, fits) in [(48 << 10, true), ((48 << 10) + 1, false)] {
            let args = u64::to_le_bytes(len);
            let call = ActiveCall::new(&region, module, "long", &args);
            let (outcome, _) = client.execute_at(&call, place).expect("an outcome");
            assert_eq!(matches!(outcome, Outcome::Done { .. }), fits, "{place:?}: {outcome:?}");
        }
    }
    assert!(seen[0] == seen[1] && seen[0] != [0; 32], "{seen:?}");
}
