//! Arbitrary operations on a connected pair, held against a model of memory.
//! The meaning of the bytes and the checked properties: `outboard_sim::script::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::script::run(bytes));
