//! A connection in full operation hears arbitrary octets, framed by us or not at all.
//! The octets' meaning and the promises that are checked: `outboard_sim::hostile::full_operation` in crates/sim.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::full_operation(bytes));
