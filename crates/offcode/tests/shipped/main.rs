//! The shipped modules (`/modules`): by the compiler, by the interpreter and natively, on the same
//! random operations, against a model. Needs a C compiler.

#[path = "../support/interpreter.rs"]
mod interpreter;
mod native;
mod peer;
mod sides;

mod alloc;
mod authors;
mod blocks;
mod fs;
mod inode;
mod list;
mod lock;
mod names;
mod script;
mod table;
mod topk;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sides::Sides;
use std::cell::RefCell;
use std::fmt::Debug;

/// Runs operations of a module on all sides, case after case. `begin` is called before each.
fn check_cases<O: Debug>(
    region_len: usize,
    operations: impl Strategy<Value = Vec<O>>,
    begin: impl Fn(&mut Sides),
    run: impl Fn(&mut Sides, &[O]),
) {
    let sides = RefCell::new(Sides::new(region_len));
    let cases = if std::env::var_os("OUTBOARD_FULL").is_some() { 500 } else { 40 };
    let config =
        Config { cases, max_shrink_iters: 300, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let case = |operations: Vec<O>| {
        let run = std::panic::AssertUnwindSafe(|| {
            let mut sides = sides.borrow_mut();
            begin(&mut sides);
            run(&mut sides, &operations);
            sides.region();
        });
        std::panic::catch_unwind(run).map_err(|panic| {
            let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
            TestCaseError::fail(text.to_owned())
        })
    };
    if let Err(error) = runner.run(&operations, case) {
        panic!("{error}");
    }
}

#[test]
fn only_entries_that_write_are_said_to() {
    let sides = Sides::new(1 << 16);
    let read_only = [
        ("empty", "run"),
        ("alloc", "stats"),
        ("table", "get"),
        ("table", "scan"),
        ("table", "count"),
        ("list", "get"),
        ("list", "at"),
        ("list", "count"),
        ("lock", "look"),
        ("script", "get"),
        ("topk", "top"),
        ("blocks", "users"),
        ("blocks", "stats"),
        ("inode", "get"),
        ("inode", "extents"),
        ("names", "find"),
        ("names", "list"),
        ("names", "count"),
        ("fs", "get"),
        ("fs", "find"),
        ("fs", "list"),
        ("fs", "target"),
        ("fs", "walk"),
        ("fs", "access"),
        ("fs", "open"),
        ("fs", "read"),
        ("fs", "seek"),
        ("fs", "orphans"),
        ("fs", "get_xattr"),
        ("fs", "list_xattr"),
        ("fs", "stats"),
    ];
    for (module, entry) in read_only {
        assert!(sides.is_read_only(module, entry), "{module}.{entry} can reach a call that writes");
    }
    for (module, entry) in [("table", "put"), ("script", "cas"), ("lock", "acquire")] {
        assert!(!sides.is_read_only(module, entry), "{module}.{entry}");
    }
}
