//! A server hears arbitrary bytes as a client's metadata log, in right frames or not at all.
//! What the bytes mean and what is promised: `outboard_sim::metadata_log::replay`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::metadata_log::replay(bytes));
