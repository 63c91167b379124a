//! Both roles of a handshake are given arbitrary bytes, or each other's as changed by an attacker
//! in between. What the bytes mean and what is promised: `outboard_sim::intruder::handshake`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::handshake(bytes));
