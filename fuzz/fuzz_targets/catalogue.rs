//! A server hears arbitrary octets as a client's catalogue, in right frames or not at all.
//! What the octets mean and what is promised: `outboard_sim::catalogue::replay`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::catalogue::replay(bytes));
