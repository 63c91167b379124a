//! Both roles of a handshake hear arbitrary octets, or each other through somebody in between.
//! What the octets mean and what is promised: `outboard_sim::intruder::handshake`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::intruder::handshake(bytes));
