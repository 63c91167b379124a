//! Both roles of a handshake are given arbitrary bytes, or each other's as changed by an attacker
//! in between. The meaning of the bytes and the checked properties:
//! `outboard_sim::intruder::handshake`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::handshake(bytes));
