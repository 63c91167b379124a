//! Modules that are taken and modules that are refused.

use super::*;

fn module(text: &str) -> Vec<u8> {
    wat::parse_str(text).expect("legal text")
}

fn read(text: &str) -> Result<ModuleInfo, LoadError> {
    inspect(&module(text), &ModuleLimits::default(), |_, _| None)
}

fn refused(text: &str) -> String {
    read(text).expect_err("refused").to_string()
}

const MEMORY: &str = "(import \"env\" \"memory\" (memory 1))";

#[test]
fn entries_are_known_and_which_of_them_may_write() {
    let info = read(
        r#"(module
            (import "env" "memory" (memory 1))
            (import "ob" "load64" (func $load (param i64) (result i64)))
            (import "ob" "store64" (func $store (param i64 i64)))
            (table 1 funcref)
            (elem (i32.const 0) $deep)
            (func $deep (call $store (i64.const 0) (i64.const 1)))
            (func (export "get") (result i64) (call $load (i64.const 0)))
            (func (export "put") (result i64) (call $deep) (i64.const 0))
            (func (export "by_table") (result i64)
                (call_indirect (i32.const 0)) (i64.const 0))
            (func (export "helper") (param i32) (result i64) (i64.const 0)))"#,
    )
    .expect("legal");
    let entries: Vec<_> = info.entries().collect();
    assert_eq!(entries, [("by_table", true), ("get", false), ("put", true)]);
    assert!(!info.exports["helper"].signature.is_entry());
    assert_eq!(info.shape, ModuleShape::Static { data_end: DATA_START, table: 1 });
}

#[test]
fn what_cannot_be_linked_is_refused_with_the_reason() {
    let cases = [
        ("(module)".to_owned(), "does not import env.memory"),
        ("(module (memory 1))".into(), "memory of its own"),
        (format!("(module {MEMORY} (data (i32.const 8) \"x\"))"), "static modules begin at"),
        (format!("(module {MEMORY} (data (i32.const 1048575) \"xy\"))"), "end of its data"),
        (format!("(module {MEMORY} (global (mut i32) (i32.const 0)))"), "mutable global 0"),
        (format!("(module {MEMORY} (import \"wasi\" \"f\" (func)))"), "import wasi.f"),
        (format!("(module {MEMORY} (import \"ob\" \"fork\" (func)))"), "there is no such call"),
        (format!("(module {MEMORY} (import \"ob\" \"load64\" (func)))"), "it has the type"),
        (format!("(module {MEMORY} (import \"env\" \"x\" (global i32)))"), "import env.x"),
        (format!("(module {MEMORY} (table 20000 funcref))"), "entries of tables"),
        ("(module (import \"env\" \"memory\" (memory 1 2)))".into(), "import env.memory"),
        ("(module (import \"env\" \"memory\" (memory 17)))".into(), "import env.memory"),
        ("(module (import \"env\" \"memory\" (memory i64 1)))".into(), "no valid"),
    ];
    for (text, why) in cases {
        let found = refused(&text);
        assert!(found.contains(why), "{text}: {found}");
    }
}

#[test]
fn a_module_that_is_missing_is_named() {
    let hash = "ab".repeat(32);
    let text = format!("(module {MEMORY} (import \"alloc#{hash}\" \"take\" (func)))");
    let found = refused(&text);
    assert!(found.contains(&format!("alloc#{hash}, which is not loaded")), "{found}");
    let other = |_: &ModuleHash, field: &str| {
        let signature = Signature::new(&[ValType::I32], &[]);
        Some((field == "take").then_some(ExportedFunction { signature, writes: true }))
    };
    let bytes = module(&text);
    let error = inspect(&bytes, &ModuleLimits::default(), other).expect_err("another type");
    assert!(error.to_string().contains("which has take(i32)"), "{error}");
}

#[test]
fn limits_hold() {
    let limits = ModuleLimits {
        bytes: 4000,
        functions: 20,
        body_bytes: 200,
        locals: 10,
        targets: 5,
        items: 20,
        table: 10,
    };
    let check = |text: String, what: &str| {
        let error = inspect(&module(&text), &limits, |_, _| None).expect_err("too much");
        assert!(error.to_string().contains(what), "{error}");
    };
    let body = |body: String| format!("(module {MEMORY} (func {body}))");
    check(format!("(module {MEMORY} {})", "(func)".repeat(21)), "functions");
    check(body("nop ".repeat(300)), "bytes in one function");
    check(body("(local i32 i64)".repeat(6)), "locals");
    let targets = "0 ".repeat(6);
    check(body(format!("(block (br_table {targets} 0 (i32.const 0)))")), "targets");
    check(format!("(module {MEMORY} {})", "(type (func (param i32)))".repeat(21)), "types");
    check(body("nop ".repeat(5000)), "bytes");
}

#[test]
fn bytes_that_are_no_module_are_refused() {
    let whole =
        module(&format!("(module {MEMORY} (func (export \"f\") (result i64) (i64.const 3)))"));
    for end in 0..whole.len() {
        // A module may end behind any section.
        let _refused_or_not = inspect(&whole[..end], &ModuleLimits::default(), |_, _| None);
    }
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let _refused_or_not = inspect(&bytes, &ModuleLimits::default(), |_, _| None);
        }
    }
    inspect(b"(module)", &ModuleLimits::default(), |_, _| None).expect_err("text");
}
