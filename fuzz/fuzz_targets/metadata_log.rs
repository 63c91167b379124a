//! A server reads arbitrary bytes as a client's metadata log, with correct frames or without. The
//! meaning of the bytes and the checked properties: `outboard_sim::metadata_log::replay`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::metadata_log::replay(bytes));
