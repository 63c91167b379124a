//! A receiver reads arbitrary bytes as the manifest of a cast. The checked properties:
//! `crates/cast/tests/corpus/manifest.rs`.

#![no_main]

#[path = "../../crates/cast/tests/corpus/manifest.rs"]
mod manifest;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| manifest::check(bytes));
