//! Empty variables, as container files and CI jobs set them. One test, because the environment is
//! read once and must be set before that.

use outboard_ibverbs::config::{Personality, config};

#[test]
fn empty_variables_are_as_good_as_none() {
    for name in ["PERSONALITY", "DEVICES", "CRC", "RECORD", "STATS"] {
        // SAFETY: no other thread is here.
        unsafe { std::env::set_var(format!("OUTBOARD_{name}"), "") };
    }
    let found = config();
    assert_eq!(found.personality, Personality::Iwarp);
    assert_eq!((found.devices.as_ref(), found.crc), (None, true));
    assert_eq!((found.record.as_ref(), found.stats), (None, false));
}
