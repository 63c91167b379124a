//! Arbitrary operations on a connected pair, held against a model of memory.
//! What the bytes mean and what is promised: `outboard_sim::script::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::script::run(bytes));
