//! Modules that do harm: each is refused or stopped within its limit, the region stays as it was,
//! and the process lives.

use outboard_offcode::executor::Outcome;
use outboard_offcode::inspect::ModuleInfo;
use outboard_offcode::local::LocalRunner;
use outboard_offcode::{LoadError, Wasmtime};
use std::sync::Arc;
use std::time::{Duration, Instant};

const REGION_LEN: usize = 1 << 16;

fn runner() -> LocalRunner<Wasmtime> {
    let engine = Wasmtime::new(None).expect("an engine");
    let mut runner = LocalRunner::new(engine, REGION_LEN).expect("a runner");
    runner.set_limit(Duration::from_millis(100));
    let pattern: Vec<u8> = (0..REGION_LEN).map(|at| at.to_le_bytes()[0] ^ 0x5a).collect();
    runner.region().memory().copy_in(0, &pattern).expect("inside");
    runner
}

fn load(runner: &LocalRunner<Wasmtime>, body: &str) -> Result<Arc<ModuleInfo>, LoadError> {
    let text = format!(
        r#"(module
            (import "env" "memory" (memory 1))
            (import "ob" "read" (func $read (param i64 i32 i32)))
            (import "ob" "write" (func $write (param i64 i32 i32)))
            (import "ob" "store64" (func $store (param i64 i64)))
            (import "ob" "expect64" (func $expect (param i64 i64)))
            (import "ob" "fail" (func $fail (param i32 i32 i32)))
            (import "ob" "log" (func $log (param i32 i32)))
            {body})"#
    );
    runner.load("hostile", &wat::parse_str(text).expect("legal text"))
}

/// Runs the entry `x` of a module; the region must not change.
fn run(body: &str) -> Outcome {
    let mut runner = runner();
    let before = runner.region().snapshot().expect("memory");
    let info = load(&runner, body).expect("loaded");
    let since = Instant::now();
    let outcome = runner.execute(info.hash, "x", b"");
    assert!(since.elapsed() < Duration::from_secs(20), "{body}: {:?}", since.elapsed());
    assert!(runner.region().snapshot().expect("memory") == before, "{body}: the region changed");
    outcome
}

fn entry(instructions: &str) -> String {
    format!("(func (export \"x\") (result i64) {instructions} (i64.const 0))")
}

#[test]
fn what_reaches_outside_traps() {
    let cases = [
        "(drop (i64.load (i32.const 0)))",
        "(drop (i64.load (i32.const 0xfffffff8)))",
        "(drop (i64.load offset=0xffffffff (i32.const 0xffffffff)))",
        // Right behind the region.
        "(drop (i64.load (i32.const 0x110000)))",
        "(drop (i64.load (i32.const 0x10fffc)))",
        // Into the region, without a host call.
        "(i64.store (i32.const 0x100000) (i64.const 1))",
        "(i64.store (i32.const 0x0ffffc) (i64.const -1))",
        "(i64.store8 (i32.const 0x10ffff) (i64.const 1))",
        // By host calls.
        "(call $write (i64.const 65535) (i32.const 0x11000) (i32.const 2))",
        "(call $write (i64.const -1) (i32.const 0x11000) (i32.const 2))",
        "(call $write (i64.const 0) (i32.const 0xfffff) (i32.const 2))",
        "(call $write (i64.const 0) (i32.const 0x100000) (i32.const 8))",
        "(call $write (i64.const 0) (i32.const 0) (i32.const 8))",
        "(call $read (i64.const 0) (i32.const 0x100000) (i32.const 8))",
        "(call $read (i64.const 0) (i32.const 0) (i32.const 8))",
        "(call $read (i64.const 0) (i32.const 0x11000) (i32.const -1))",
        "(call $store (i64.const 65536) (i64.const 1))",
        "(call $store (i64.const 3) (i64.const 1))",
        "(call $store (i64.const -8) (i64.const 1))",
        "(call $log (i32.const -1) (i32.const -1))",
        "(call $fail (i32.const 1) (i32.const -1) (i32.const -1))",
        "unreachable",
        "(drop (i32.div_u (i32.const 1) (i32.const 0)))",
        "(drop (i32.trunc_f64_s (f64.const inf)))",
    ];
    for case in cases {
        let outcome = run(&entry(case));
        assert!(matches!(outcome, Outcome::Trap(_)), "{case}: {outcome:?}");
    }
}

/// The engine's own functions do these, and must not touch what has no access.
#[test]
fn bulk_instructions_cannot_leave_their_memory() {
    let cases = [
        "(memory.fill (i32.const 0x100000) (i32.const 1) (i32.const 8))",
        "(memory.fill (i32.const 0xffff8) (i32.const 1) (i32.const 9))",
        "(memory.copy (i32.const 0x100000) (i32.const 0x11000) (i32.const 8))",
        "(memory.copy (i32.const 0x11000) (i32.const 0x100000) (i32.const 8))",
        "(memory.copy (i32.const -1) (i32.const -1) (i32.const -1))",
        "(memory.init 0 (i32.const 0x100000) (i32.const 0) (i32.const 4))",
        "(memory.init 0 (i32.const 0x11000) (i32.const 0) (i32.const 5))",
    ];
    for case in cases {
        let outcome = run(&format!("(data \"abcd\") {}", entry(case)));
        assert!(matches!(outcome, Outcome::Trap(_)), "{case}: {outcome:?}");
    }
    // At address 0 there is memory for those that use such instructions.
    let zero = "(memory.fill (i32.const 0) (i32.const 7) (i32.const 0x1000))";
    assert!(matches!(run(&entry(zero)), Outcome::Done { .. }));
}

#[test]
fn what_never_ends_is_stopped() {
    let cases = [
        entry("(loop $again (br $again))"),
        entry("(loop $again (drop (memory.grow (i32.const 1))) (br $again))"),
        entry("(loop $again (call $log (i32.const 0x11000) (i32.const 4096)) (br $again))"),
        entry(
            "(loop $again (call $read (i64.const 0) (i32.const 0x20000) (i32.const 65536)) \
             (br $again))",
        ),
        entry("(loop $again (call $store (i64.const 0) (i64.const 1)) (br $again))"),
    ];
    for case in cases {
        assert!(matches!(run(&case), Outcome::Timeout(_)), "{case}");
    }
    // A start function, when the instance is made.
    let start = format!("(func $s (loop $again (br $again))) (start $s) {}", entry(""));
    let started = run(&start);
    assert!(matches!(&started, Outcome::Trap(why) if why.contains("start")), "{started:?}");
}

#[test]
fn what_takes_too_much_is_stopped() {
    let recursion = "(func $f (param i64) (result i64) (local i64 i64 i64 i64 i64 i64 i64 i64)
        (i64.add (call $f (i64.add (local.get 0) (i64.const 1))) (i64.const 1)))
        (func (export \"x\") (result i64) (call $f (i64.const 0)))";
    let expects = "(local $n i32) (loop $again (call $expect (i64.const 0) (i64.const 1))
        (local.set $n (i32.add (local.get $n) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $n) (i32.const 5000))))";
    let length = "(func (export \"x\") (result i64) (i64.const 0x7fffffffffffffff))";
    for case in [recursion.to_owned(), entry(expects), length.to_owned()] {
        let outcome = run(&case);
        assert!(matches!(outcome, Outcome::Trap(_)), "{case}: {outcome:?}");
    }
}

#[test]
fn start_functions_write_nothing_and_their_traps_are_answers() {
    let start = |body: &str| format!("(func $s {body}) (start $s) {}", entry(""));
    let outcome = run(&start("(call $store (i64.const 0) (i64.const 1))"));
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    assert!(matches!(run(&start("unreachable")), Outcome::Trap(_)));
    let outcome = run(&start("(call $fail (i32.const 3) (i32.const 0x11000) (i32.const 0))"));
    assert_eq!(outcome, Outcome::Failed { code: 3, text: String::new() });
}

#[test]
fn what_is_too_large_is_not_loaded() {
    let runner = runner();
    let refused = |body: &str, what: &str| {
        let since = Instant::now();
        let error = load(&runner, body).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
        assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    };
    refused(&"(func)".repeat(100_000), "functions");
    refused("(table 10000000 funcref)", "entries of tables");
}

#[test]
fn a_million_functions_are_refused_before_anything_is_compiled() {
    // Written as bytes: one type, a memory, a million functions of that type, as many bodies.
    let number = |mut value: u32| {
        let mut bytes = Vec::new();
        loop {
            let low = value & 0x7f;
            value >>= 7;
            bytes.push(low.to_le_bytes()[0] | if value > 0 { 0x80 } else { 0 });
            if value == 0 {
                return bytes;
            }
        }
    };
    let count = 1_000_000;
    let mut module = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0".to_vec();
    module.extend(b"\x02\x0f\x01\x03env\x06memory\x02\0\x01");
    let mut functions = number(count);
    functions.resize(functions.len() + count as usize, 0);
    module.push(3);
    module.extend(number(u32::try_from(functions.len()).expect("small")));
    module.extend(functions);
    let error = runner().load("million", &module).expect_err("refused").to_string();
    assert!(error.contains("1000000 functions, at most"), "{error}");
}

#[test]
fn after_all_this_the_others_run_as_before() {
    let mut runner = runner();
    let bad = load(&runner, &entry("unreachable")).expect("loaded").hash;
    let good = load(&runner, &entry("(nop)")).expect("loaded").hash;
    for _ in 0..200 {
        assert!(matches!(runner.execute(bad, "x", b""), Outcome::Trap(_)));
        assert!(matches!(runner.execute(good, "x", b""), Outcome::Done { .. }));
    }
}
