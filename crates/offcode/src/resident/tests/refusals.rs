//! Modules that are not compiled, and what their authors are told.

use super::*;

/// A module with a memory and more.
fn told(more: &str) -> String {
    told_of(&format!(r#"(module {more} (memory (export "memory") 1))"#))
}

fn told_of(text: &str) -> String {
    compile(text).expect_err(text).to_string()
}

#[test]
fn imports_must_be_those_of_the_abi() {
    let told = |import: &str| told(&format!("(import {import})"));
    let text = told(r#""wasi" "write" (func)"#);
    assert!(text.starts_with("the offcode imports wasi.write() -> ()"), "{text}");
    assert!(text.contains("only functions of module `offcode`"), "{text}");
    let text = told(r#""offcode" "sent" (func)"#);
    assert!(text.contains("no such function, only send, call"), "{text}");
    let text = told(r#""offcode" "send" (func (param i32))"#);
    assert!(text.contains("send(i32) -> ()"), "{text}");
    assert!(text.contains("its type is (i32, i32, i32) -> (i32)"), "{text}");
    let text = told(r#""offcode" "memory" (global i32)"#);
    assert!(text.contains("which is no function"), "{text}");
}

#[test]
fn clocks_and_timers_need_permission() {
    let module = |import: &str| {
        let text = format!(r#"(module (import {import}) (memory (export "memory") 1))"#);
        wat::parse_str(text).expect("WAT")
    };
    let engine = engine();
    for (import, need) in [
        (r#""offcode" "clock" (func (result i64))"#, "needs.clock = true"),
        (r#""offcode" "wall" (func (result i64))"#, "needs.clock = true"),
        (r#""offcode" "timer" (func (param i32 i64))"#, "needs.timers = true"),
    ] {
        let refused = ResidentModule::compile(&engine, &module(import), &ResidentRules::default());
        let text = refused.expect_err(import).to_string();
        assert!(text.contains(need), "{text}");
        ResidentModule::compile(&engine, &module(import), &all_rules()).expect(import);
    }
}

#[test]
fn exports_must_be_those_of_the_abi() {
    let text = told(r#"(func (export "oc_stopp"))"#);
    assert!(text.contains("`oc_stopp`: no entry has this name, only oc_buffer"), "{text}");
    let text = told(r#"(func (export "oc_stop") (param i32))"#);
    assert!(text.contains("has type (i32) -> (), must have () -> ()"), "{text}");
    let text = told(r#"(global (export "oc_stop") i32 (i32.const 0))"#);
    assert!(text.contains("must be a function of type () -> ()"), "{text}");
    let text = told(r#"(func (export "oc_message") (param i32 i32 i32))"#);
    assert!(text.contains("`oc_buffer`: is missing, and `oc_message` has input"), "{text}");
    let text = told(r#"(func (export "oc:start"))"#);
    assert!(text.contains("Outboard's own"), "{text}");
}

#[test]
fn a_memory_is_exported_and_not_too_large() {
    let text = told_of("(module (memory 1))");
    assert!(text.contains("`memory`: is missing"), "{text}");
    let text = told_of(r#"(module (memory 1) (func (export "memory")))"#);
    assert!(text.contains("`memory`: is missing"), "{text}");
    let text = told_of("(module)");
    assert!(text.contains("no memory of its own"), "{text}");
    let text = told_of(r#"(module (import "env" "memory" (memory 1)))"#);
    assert!(text.contains("link it without --import-memory"), "{text}");
    let text = told_of(r#"(module (memory (export "memory") 9))"#);
    assert!(text.contains("has 589824 bytes from the beginning, and may have 524288"), "{text}");
}

#[test]
fn limits_of_modules_hold_here_too() {
    let text = told("(table 10001 funcref)");
    assert!(text.contains("at most 10000 are allowed"), "{text}");
    let text = told("(func (result i32))");
    assert!(text.contains("no valid WebAssembly module"), "{text}");
    let text = told("(func (local externref))");
    assert!(text.contains("no valid WebAssembly module"), "{text}");
    let refused = ResidentModule::compile(&engine(), b"(module)", &all_rules());
    assert!(refused.expect_err("text").to_string().contains("does not begin as one"));
}
