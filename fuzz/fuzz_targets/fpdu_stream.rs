//! A connection in full operation hears arbitrary bytes, framed by us or not at all.
//! What the bytes mean and what is promised: `outboard_sim::hostile::full_operation`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| outboard_sim::hostile::full_operation(bytes));
