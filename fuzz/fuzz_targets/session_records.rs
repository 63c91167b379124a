//! A session is given arbitrary bytes, or its peer's records as changed by an attacker in between.
//! The meaning of the bytes and the checked properties: `outboard_sim::intruder::records`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::records(bytes));
