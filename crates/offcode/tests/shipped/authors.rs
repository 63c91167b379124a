//! What authors of modules get: a template that builds, Rust guests, traps that name source lines.

use crate::interpreter::Interpreter;
use crate::native::sources;
use crate::sides::args;
use outboard_offcode::executor::Outcome;
use outboard_offcode::local::LocalRunner;
use outboard_offcode::{WasmEngine, Wasmtime};
use std::path::Path;
use std::process::Command;

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}

fn compiled() -> LocalRunner<Wasmtime> {
    LocalRunner::new(Wasmtime::new(None).expect("an engine"), 1 << 16).expect("a region")
}

fn done(value: u64, seq: u64) -> Outcome {
    Outcome::Done { result: value.to_le_bytes().to_vec(), seq }
}

/// A module with `add` (offset, delta, limit) and `get` (offset): the template and the example.
fn count<E: WasmEngine>(mut runner: LocalRunner<E>, module: &Path) {
    let bytes = std::fs::read(module).expect("it was built");
    let info = runner.load("counter", &bytes).unwrap_or_else(|error| panic!("{error}"));
    assert!(info.exports["add"].writes && !info.exports["get"].writes);
    let mut call = |entry: &str, words: &[u64]| runner.execute(info.hash, entry, &args(words, b""));
    assert_eq!(call("add", &[8, 5, 10]), done(5, 1));
    let over = call("add", &[8, 6, 10]);
    assert!(matches!(&over, Outcome::Failed { code: 100, text } if text.contains("limit")));
    assert_eq!(call("get", &[8]), done(5, 1));
    assert_eq!(call("add", &[8, 5, 10]), done(10, 2));
    assert!(matches!(call("get", &[]), Outcome::Failed { code: 1, .. }));
    assert!(matches!(call("get", &[1 << 16]), Outcome::Trap(_)));
    assert!(matches!(call("get", &[u64::MAX - 7]), Outcome::Trap(_)));
    assert!(matches!(call("get", &[9]), Outcome::Trap(_)));
}

#[test]
fn the_template_builds_and_works() {
    let directory = tempfile::tempdir().expect("a directory");
    for file in ["NAME.c", "Makefile"] {
        let text = std::fs::read_to_string(sources().join("template").join(file)).expect("text");
        let path = directory.path().join(file.replace("NAME", "example"));
        std::fs::write(path, text.replace("NAME", "example")).expect("written");
    }
    let header = "outboard.h";
    std::fs::copy(sources().join("include").join(header), directory.path().join(header))
        .expect("copied");
    run(Command::new("make").current_dir(directory.path()));
    count(compiled(), &directory.path().join("example.wasm"));
}

#[test]
fn a_rust_guest_builds_and_works() {
    let directory = tempfile::tempdir().expect("a directory");
    let module = directory.path().join("counter.wasm");
    let rust = sources().join("rust");
    run(Command::new("./build.sh").arg("counter").arg(&module).current_dir(rust));
    count(compiled(), &module);
    let interpreted = LocalRunner::new(Interpreter::default(), 1 << 16).expect("a region");
    count(interpreted, &module);
}

#[test]
fn a_trap_names_the_line_of_the_source() {
    let mut runner = compiled();
    let bytes = std::fs::read(sources().join("built/topk.wasm")).expect("a built module");
    let info = runner.load("topk", &bytes).expect("loaded");
    let outside = args(&[1 << 20, 1, 16 | 1 << 32, 0, 0, 0], b"");
    let Outcome::Trap(text) = runner.execute(info.hash, "top", &outside) else {
        panic!("no trap");
    };
    assert!(text.contains("topk.c:"), "{text}");
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "{text}");
}
