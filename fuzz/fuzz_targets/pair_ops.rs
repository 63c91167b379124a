//! Arbitrary operations on a connected pair, held against a model of memory.
//! The octets' meaning and the promises that are checked: `outboard_sim::script::run` in crates/sim.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::script::run(bytes));
