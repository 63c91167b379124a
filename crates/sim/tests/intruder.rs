//! An attacker between two ends; see [`outboard_sim::intruder`]. The fuzzer goes further.

use outboard_sim::intruder;
use proptest::prelude::*;

/// Whether there are edits, pieces, and up to four edits or bytes.
fn script() -> impl Strategy<Value = Vec<u8>> {
    let head = (0u8..3, any::<u8>());
    let edit = (any::<u8>(), 0u8..130, any::<u8>());
    (head, prop::collection::vec(edit, 0..5)).prop_map(|((how, cut), edits)| {
        let bytes = edits.into_iter().flat_map(|(kind, at, value)| [kind, at, value]);
        [how, cut].into_iter().chain(bytes).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn handshakes_stand_an_intruder(script in script()) {
        intruder::handshake(&script);
    }

    #[test]
    fn sessions_stand_an_intruder(script in script()) {
        intruder::records(&script);
    }

    #[test]
    fn both_stand_noise(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        intruder::handshake(&[&[0, 0], &noise[..]].concat());
        intruder::handshake(&[&b"\0\0OUTB\x01\x01\0\x36"[..], &noise].concat());
        intruder::records(&[&[0, 0], &noise[..]].concat());
        intruder::records(&[&[0, 0, 0, 20], &noise[..]].concat());
    }
}
