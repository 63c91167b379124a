//! A receiver reads arbitrary bytes as the header and the runs of a cast. The meaning of the bytes
//! and the checked properties: `crates/cast/tests/corpus/signed.rs`.

#![no_main]

#[path = "../../crates/cast/tests/corpus/signed.rs"]
mod signed;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| signed::check(bytes));
