//! A session hears arbitrary octets, or its peer's records through somebody in between.
//! What the octets mean and what is promised: `outboard_sim::intruder::records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::records(bytes));
