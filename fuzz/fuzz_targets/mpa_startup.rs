//! Both roles of an MPA start-up receive arbitrary bytes in arbitrary pieces. The meaning of the
//! bytes and the checked properties: `outboard_sim::hostile::start_up`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::start_up(bytes));
