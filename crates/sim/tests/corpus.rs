//! Every input that a fuzz target of this crate has kept, once.

use std::fs;
use std::path::Path;

use outboard_sim::{hostile, intruder, metadata_log, script};

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
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
