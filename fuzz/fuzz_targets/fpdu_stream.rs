//! A connection in full operation receives arbitrary bytes, with correct frames or without. The
//! meaning of the bytes and the checked properties: `outboard_sim::hostile::full_operation`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::full_operation(bytes));
