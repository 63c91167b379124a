//! Libraries as wasm-ld writes them, and modules that cannot be linked.

use super::super::tests::{HostRecorder, all_rules, asked, compile, engine, limits};
use super::super::{Resident, ResidentEnd, ResidentModule};
use super::*;

/// Uses both libraries, its own table and its own data.
const MAIN: &str = r#"(module
    (import "offcode" "hold" (func $hold (param i32)))
    (import "numbers" "next" (func $next (result i32)))
    (import "words" "letter" (func $letter (param i32) (result i32)))
    (import "words" "crash" (func $crash))
    (memory (export "memory") 1 3)
    (global $stack (export "__stack_pointer") (mut i32) (i32.const 4096))
    (type $one (func (result i32)))
    (table 2 2 funcref)
    (elem (i32.const 1) $five)
    (data (i32.const 8) "\2a")
    (func $five (result i32) (i32.const 5))
    (func $begin (call $hold (i32.load8_u (i32.const 8))))
    (start $begin)
    (func (export "oc_initialize") (result i32)
        (call $hold (call_indirect (type $one) (i32.const 1)))
        (call $hold (call $next)) (call $hold (call $next))
        (call $hold (call $letter (i32.const 0))) (call $hold (call $letter (i32.const 1)))
        (call $hold (memory.size))
        (global.get $stack))
    (func (export "oc_stop") (call $crash)))"#;

/// Counts in its data, of which it is told by a start function of its own.
const NUMBERS: &str = r#"(module
    (@dylink.0 (mem-info (memory 70000 4) (table 0 0)))
    (import "offcode" "hold" (func $hold (param i32)))
    (import "env" "memory" (memory 1))
    (import "env" "__memory_base" (global $base i32))
    (global $step (mut i32) (i32.const 1))
    (data (global.get $base) "\64")
    (func (export "__wasm_call_ctors") (call $hold (global.get $base)))
    (func (export "step") (result i32) (global.get $step))
    (func $next (export "next") (result i32)
        (i32.store (global.get $base)
            (i32.add (i32.load (global.get $base)) (global.get $step)))
        (i32.load (global.get $base))))"#;

/// Calls through its part of the table, and the other library.
const WORDS: &str = r#"(module
    (@dylink.0 (mem-info (memory 8 2) (table 1 0)))
    (import "numbers" "step" (func $step (result i32)))
    (import "env" "memory" (memory 1))
    (import "env" "__indirect_function_table" (table 1 funcref))
    (import "env" "__stack_pointer" (global $stack (mut i32)))
    (import "env" "__memory_base" (global $base i32))
    (import "env" "__table_base" (global $table i32))
    (type $of (func (param i32) (result i32)))
    (elem (global.get $table) $load)
    (data (global.get $base) "xyz")
    (func $load (param i32) (result i32)
        (i32.load8_u (i32.add (global.get $base) (local.get 0))))
    (func (export "letter") (param i32) (result i32)
        (global.set $stack (i32.sub (global.get $stack) (i32.const 16)))
        (call_indirect (type $of) (i32.add (local.get 0) (call $step)) (global.get $table)))
    (func $inside unreachable)
    (func $crash (export "crash") (call $inside)))"#;

fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("WAT")
}

fn linked(main: &str, libraries: &[(&str, &str)]) -> Result<Vec<u8>, MergeError> {
    let binaries: Vec<_> = libraries.iter().map(|(name, text)| (*name, binary(text))).collect();
    let libraries = binaries.iter().map(|(name, bytes)| OffcodeLibrary { name, bytes });
    merge(&binary(main), &libraries.collect::<Vec<_>>(), &ModuleLimits::default())
}

fn both() -> Vec<u8> {
    linked(MAIN, &[("words", WORDS), ("numbers", NUMBERS)]).expect("linked")
}

#[test]
fn a_module_runs_with_its_libraries() {
    let module = ResidentModule::compile(&engine(), &both(), &all_rules()).expect("compiled");
    let mut one = Resident::new(&module, HostRecorder::default(), limits()).expect("made");
    // The second library's data lie behind the first one's 8 bytes, aligned to 16.
    assert_eq!(asked(&mut one), ["hold 65552", "hold 42"]);
    assert_eq!(one.initialize(), Ok(Some(4096 - 32)), "the stack is shared");
    let expected =
        ["hold 5", "hold 101", "hold 102", "hold 121", "hold 122", "hold 3"].map(str::to_owned);
    assert_eq!(asked(&mut one), expected);
    let state = one.snapshot().expect("a state");
    let mut other = Resident::from_state(&module, &state, HostRecorder::default(), limits());
    let other = other.as_mut().expect("made");
    assert_eq!(other.initialize(), Ok(Some(4096 - 64)));
    assert_eq!(asked(other)[1], "hold 103", "a library's data are part of the state");
}

#[test]
fn a_trap_names_the_library() {
    let module = ResidentModule::compile(&engine(), &both(), &all_rules()).expect("compiled");
    let mut one = Resident::new(&module, HostRecorder::default(), limits()).expect("made");
    let Err(ResidentEnd::Trapped(text)) = one.stop() else { panic!("it is unreachable") };
    assert!(text.contains("in words.inside; in words.crash"), "{text}");
}

#[test]
fn linking_gives_the_same_bytes_on_every_machine() {
    assert_eq!(both(), both());
}

#[test]
fn a_module_without_libraries_stays_what_it_was() {
    let text = super::super::tests::STATEFUL;
    let merged = linked(text, &[]).expect("linked");
    let mut ones = [compile(text).expect("compiled"), {
        ResidentModule::compile(&engine(), &merged, &all_rules()).expect("compiled")
    }]
    .map(|module| Resident::new(&module, HostRecorder::default(), limits()).expect("made"));
    for one in &mut ones {
        for method in 0..5 {
            assert_eq!(one.call((0, method), 1, b"some bytes"), Ok(Some(())));
        }
    }
    let [first, second] = &mut ones;
    assert_eq!(asked(first), asked(second));
}

/// What the authors are told.
fn told(main: &str, libraries: &[(&str, &str)]) -> String {
    linked(main, libraries).expect_err(main).to_string()
}

#[test]
fn imports_must_be_there() {
    let text = told(MAIN, &[("numbers", NUMBERS)]);
    assert!(text.contains("imports words.letter, which is neither the device's"), "{text}");
    let text = told(MAIN, &[("numbers", "(module)"), ("words", WORDS)]);
    assert!(text.contains("imports numbers.next, which it does not export"), "{text}");
    let wrong = r#"(module (func (export "next") (param i32)))"#;
    let text = told(MAIN, &[("numbers", wrong), ("words", WORDS)]);
    assert!(text.contains("has type (i32) -> (), not () -> (i32)"), "{text}");
    let hands_on = r#"(module (import "numbers" "next" (func $f (result i32)))
        (export "next" (func $f)))"#;
    let text = told(MAIN, &[("numbers", hands_on), ("words", WORDS)]);
    assert!(text.contains("is another library's"), "{text}");
}

#[test]
fn shapes_that_cannot_be_linked_say_why() {
    let main = r#"(module (memory (export "memory") 1))"#;
    let text = told("(module)", &[]);
    assert!(text.contains("the offcode: it has no memory"), "{text}");
    let text = told(main, &[("l", "(module (memory 1))")]);
    assert!(text.contains("l: it has a memory or a table of its own"), "{text}");
    let data = r#"(module (import "env" "memory" (memory 1)) (data (i32.const 8) "x"))"#;
    let text = told(main, &[("l", data)]);
    assert!(text.contains("fixed places"), "{text}");
    let got = r#"(module (import "GOT.mem" "x" (global (mut i32))))"#;
    let text = told(main, &[("l", got)]);
    assert!(text.contains("it imports GOT.mem.x, which cannot be linked"), "{text}");
    let text = told(main, &[("l", "(module)"), ("l", "(module)")]);
    assert!(text.contains("another module has this name"), "{text}");
    let text = told(main, &[("offcode", "(module)")]);
    assert!(text.contains("another module has this name"), "{text}");
    let stack = r#"(module (import "env" "__stack_pointer" (global (mut i32))))"#;
    let text = told(main, &[("l", stack)]);
    assert!(text.contains("--export=__stack_pointer"), "{text}");
    let large = r#"(module (@dylink.0 (mem-info (memory 4294967295 0) (table 0 0))))"#;
    let text = told(main, &[("l", large)]);
    assert!(text.contains("more than 4 GiB"), "{text}");
    let bytes = OffcodeLibrary { name: "l", bytes: b"\0asm no more" };
    let refused = merge(&binary(main), &[bytes], &ModuleLimits::default());
    assert!(matches!(refused, Err(MergeError::Load { .. })), "{refused:?}");
}
