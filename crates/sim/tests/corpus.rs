//! Every input that a fuzz target of this crate has kept, once.

use std::fs;
use std::path::{Path, PathBuf};

use outboard_sim::{hostile, intruder, metadata_log, script};

/// Corpora by the test file that replays them.
const REPLAYED: [(&str, &[&str]); 2] = [
    ("crates/cast/tests/corpus/main.rs", &["cast_manifest", "cast_signed"]),
    (
        "crates/sim/tests/corpus.rs",
        &[
            "fpdu_stream",
            "metadata_log",
            "mpa_startup",
            "pair_ops",
            "session_handshake",
            "session_records",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = root().join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&corpus).expect("a corpus");
    let inputs: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!inputs.is_empty(), "{} is empty", corpus.display());
    for input in inputs {
        println!("{}", input.display());
        run(&fs::read(&input).expect("an input"));
    }
}

#[test]
fn start_ups() {
    replay("mpa_startup", hostile::start_up);
}

#[test]
fn streams_of_fpdus() {
    replay("fpdu_stream", hostile::full_operation);
}

#[test]
fn operations_on_a_pair() {
    replay("pair_ops", script::run);
}

#[test]
fn handshakes() {
    replay("session_handshake", intruder::handshake);
}

#[test]
fn records() {
    replay("session_records", intruder::records);
}

#[test]
fn metadata_logs() {
    replay("metadata_log", metadata_log::replay);
}

#[test]
fn every_corpus_is_replayed() {
    let corpora = fs::read_dir(root().join("fuzz/corpus")).expect("corpora");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut corpora: Vec<_> = corpora.map(name).collect();
    corpora.sort();
    let listed: Vec<&str> = REPLAYED.iter().flat_map(|(_, names)| *names).copied().collect();
    assert_eq!(corpora, listed);
    for (file, names) in REPLAYED {
        let text = fs::read_to_string(root().join(file)).expect("a test");
        for name in names {
            assert!(text.contains(&format!("replay(\"{name}\", ")), "{name} in {file}");
        }
    }
}
