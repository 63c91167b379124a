//! Every input that a fuzz target of this crate has kept, once.

mod manifest;
mod signed;

use std::fs;
use std::path::Path;

fn replay(target: &str, check: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).expect("a corpus");
    let inputs: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!inputs.is_empty(), "{} is empty", corpus.display());
    for input in inputs {
        println!("{}", input.display());
        check(&fs::read(&input).expect("an input"));
    }
}

#[test]
fn manifests() {
    replay("cast_manifest", manifest::check);
}

#[test]
fn headers_and_runs() {
    replay("cast_signed", signed::check);
}
