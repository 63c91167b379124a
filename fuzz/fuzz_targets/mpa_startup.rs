//! Both roles of an MPA start-up hear arbitrary octets in arbitrary pieces.
//! The octets' meaning and the promises that are checked: `outboard_sim::hostile::start_up` in crates/sim.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::start_up(bytes));
