//! Both roles of an MPA start-up hear arbitrary bytes in arbitrary pieces.
//! What the bytes mean and what is promised: `outboard_sim::hostile::start_up`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::start_up(bytes));
