//! A session is given arbitrary bytes, or its peer's records as changed by an attacker in between.
//! What the bytes mean and what is promised: `outboard_sim::intruder::records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::records(bytes));
