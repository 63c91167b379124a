//! Modules in WebAssembly's text form, and their results.

use outboard_active::Outcome;

/// A counter, a reader, and executions that take long.
pub(crate) const BASICS: &str = r#"(module
    (import "env" "memory" (memory 1))
    (import "ob" "load64" (func $load (param i64) (result i64)))
    (import "ob" "add64" (func $add (param i64 i64) (result i64)))
    (import "ob" "store64" (func $store (param i64 i64)))
    (import "ob" "fail" (func $fail (param i32 i32 i32)))
    (data (i32.const 0x11000) "no more")
    ;; Adds 1 to the first word, and returns what was there.
    (func (export "count") (result i64)
        (i64.store (i32.load (i32.const 0x10020)) (call $add (i64.const 0) (i64.const 1)))
        (i64.const 8))
    ;; The region's first word.
    (func (export "get") (result i64)
        (i64.store (i32.load (i32.const 0x10020)) (i64.load (i32.const 0x100000)))
        (i64.const 8))
    ;; Its arguments.
    (func $echo (export "echo") (result i64)
        (local $at i32)
        (loop $more
            (if (i64.lt_u (i64.extend_i32_u (local.get $at)) (i64.load (i32.const 0x10018)))
                (then
                    (i32.store8
                        (i32.add (i32.load (i32.const 0x10020)) (local.get $at))
                        (i32.load8_u (i32.add (i32.load (i32.const 0x10010)) (local.get $at))))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br $more))))
        (i64.load (i32.const 0x10018)))
    (func (export "empty") (result i64) (i64.const 0))
    (func (export "spin") (result i64) (loop $again (br $again)) (i64.const 0))
    ;; Adds 1 to the second word, and takes some milliseconds.
    (func (export "slow_count") (result i64)
        (local $left i64)
        (local.set $left (i64.const 3000000))
        (loop $again
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (br_if $again (i64.ne (local.get $left) (i64.const 0))))
        (i64.store (i32.load (i32.const 0x10020)) (call $add (i64.const 8) (i64.const 1)))
        (i64.const 8))
    ;; Takes some ten microseconds.
    (func (export "work") (result i64)
        (local $left i64)
        (local.set $left (i64.const 8000))
        (loop $again
            (local.set $left (i64.sub (local.get $left) (i64.const 1)))
            (br_if $again (i64.ne (local.get $left) (i64.const 0))))
        (i64.const 0))
    (func (export "refuse") (result i64)
        (call $store (i64.const 0) (i64.const 99))
        (call $fail (i32.const 5) (i32.const 0x11000) (i32.const 7)) (i64.const 0))
    (func (export "trap") (result i64) (unreachable))
)"#;

/// A module's bytes; different ones for each number.
pub(crate) fn basics(number: u32) -> Vec<u8> {
    let text = BASICS.replacen("\"no more\"", &format!("\"no more\" \"{number}\""), 1);
    wat::parse_str(text).expect("legal text")
}

/// A library that knows a number, and a module that asks it.
pub(crate) fn library_and_user(hash_of: impl Fn(&[u8]) -> String) -> (Vec<u8>, Vec<u8>) {
    let shared = r#"(import "env" "memory" (memory 1))
        (import "env" "__indirect_function_table" (table 0 funcref))
        (import "env" "__stack_pointer" (global (mut i32)))
        (import "env" "__memory_base" (global i32))
        (import "env" "__table_base" (global i32))"#;
    let dylink = r#"(@custom "dylink.0" (before first) "\01\04\00\00\00\00")"#;
    let library = format!(
        r#"(module {dylink} {shared} (func (export "number") (result i64) (i64.const 42)))"#
    );
    let library = wat::parse_str(library).expect("legal text");
    let user = format!(
        r#"(module {dylink} (import "numbers#{}" "number" (func $number (result i64))) {shared}
            (func (export "ask") (result i64)
                (i64.store (i32.load (i32.const 0x10020)) (call $number)) (i64.const 8)))"#,
        hash_of(&library)
    );
    (library, wat::parse_str(user).expect("legal text"))
}

/// The eight bytes of a result.
pub(crate) fn word(outcome: &Outcome) -> u64 {
    match outcome {
        Outcome::Done { result, .. } => {
            u64::from_le_bytes(result[..].try_into().expect("eight bytes"))
        }
        other => panic!("{other:?}"),
    }
}
