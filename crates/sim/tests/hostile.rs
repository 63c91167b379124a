//! Arbitrary bytes from a peer; see [`outboard_sim::hostile`]. The fuzzer goes further.

use outboard_sim::hostile;
use proptest::prelude::*;

/// Start-up frames with one byte or more changed.
fn nearly_a_frame() -> impl Strategy<Value = Vec<u8>> {
    let change = (0..24usize, any::<u8>());
    (any::<[u8; 2]>(), any::<bool>(), prop::collection::vec(change, 0..3), 0..40usize).prop_map(
        |(head, request, changes, len)| {
            let mut frame = head.to_vec();
            frame.extend_from_slice(if request {
                b"MPA ID Req Frame"
            } else {
                b"MPA ID Rep Frame"
            });
            frame.extend_from_slice(&[0x50, 2, 0, 4, 0x80, 4, 0x80, 4]);
            for (at, value) in changes {
                frame[at + 2] = value;
            }
            frame.truncate(len + 2);
            frame
        },
    )
}

/// A ULPDU whose header is nearly right.
fn record() -> impl Strategy<Value = Vec<u8>> {
    let tagged = (
        prop::sample::select(vec![0xc140u16, 0xc142, 0x8140, 0x8142]),
        prop::sample::select(vec![0xaa00_0000u32, 0xaa00_0001, 0xaa00_0002, 0xaa00_0004, 1, 2, 9]),
        prop::sample::select(vec![0u64, 1, 100, 250, 256, u64::MAX - 256, u64::MAX - 3]),
        0..300usize,
    )
        .prop_map(|(control, stag, offset, len)| {
            let mut bytes = control.to_be_bytes().to_vec();
            bytes.extend_from_slice(&stag.to_be_bytes());
            bytes.extend_from_slice(&offset.to_be_bytes());
            bytes.resize(bytes.len() + len, 0x5a);
            bytes
        });
    let untagged =
        (0x4141u16..0x414c, 0u32..4, 0u32..4, 0u32..3, prop::collection::vec(any::<u8>(), 0..60))
            .prop_map(|(control, queue, msn, offset, payload)| {
                let mut bytes = control.to_be_bytes().to_vec();
                for word in [0xaa00_0000, queue, msn, offset] {
                    bytes.extend_from_slice(&word.to_be_bytes());
                }
                bytes.extend_from_slice(&payload);
                bytes
            });
    prop_oneof![tagged, untagged].prop_map(|ulpdu| {
        let len = u16::try_from(ulpdu.len()).expect("short");
        [&len.to_be_bytes()[..], &ulpdu].concat()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn start_ups_stand_anything(bytes in prop_oneof![
        nearly_a_frame(),
        prop::collection::vec(any::<u8>(), 0..80),
    ]) {
        hostile::start_up(&bytes);
    }

    #[test]
    fn connections_stand_anything(
        head in any::<[u8; 3]>(),
        records in prop::collection::vec(record(), 0..6),
    ) {
        hostile::full_operation(&[&head[..], &records.concat()].concat());
    }

    #[test]
    fn connections_stand_noise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        hostile::full_operation(&bytes);
    }
}
