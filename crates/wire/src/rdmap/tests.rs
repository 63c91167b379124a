//! Layouts, every truncation, and the atomics against RFC 7306's pseudocode.

use super::*;
use proptest::prelude::*;

/// The Read Request that rping's server sent through Linux's siw.
const SIW_READ_REQUEST: [u8; 28] = [
    0xa2, 0xdd, 0xac, 0x00, 0x00, 0x00, 0x55, 0x87, 0xc8, 0xb6, 0x9c, 0x90, 0x00, 0x00, 0x10, 0x00,
    0x61, 0xee, 0xc4, 0x00, 0x00, 0x00, 0x56, 0x31, 0x65, 0x7b, 0x84, 0xc0,
];

fn bytes_of(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

fn atomic(op: AtomicOp) -> AtomicRequest {
    AtomicRequest {
        op,
        request_id: 0x0101_0102,
        stag: Stag(0x0202_0203),
        offset: 0x0303_0303_0303_0304,
        add_swap: 0x0404_0404_0404_0405,
        add_swap_mask: 0x0505_0505_0505_0506,
        compare: 0x0606_0606_0606_0607,
        compare_mask: 0x0707_0707_0707_0708,
    }
}

#[test]
fn opcodes_have_their_codes_and_queues() {
    for (code, opcode) in (0..).zip(Opcode::ALL) {
        assert_eq!(opcode.code(), code);
        assert_eq!(Opcode::from_code(code), Some(opcode));
        assert_eq!(opcode.queue().is_none(), opcode.is_tagged());
    }
    assert_eq!((12..=255).find_map(Opcode::from_code), None);
    let queues: Vec<_> = Opcode::ALL.iter().filter_map(|opcode| opcode.queue()).collect();
    assert_eq!(queues, [1, 0, 0, 0, 0, 2, 0, 0, 1, 3]);
}

#[test]
fn opcodes_know_their_extras() {
    let which = |is: fn(Opcode) -> bool| {
        Opcode::ALL.iter().filter(|opcode| is(**opcode)).map(|o| o.code()).collect::<Vec<_>>()
    };
    assert_eq!(which(Opcode::invalidates), [4, 6]);
    assert_eq!(which(Opcode::is_solicited), [5, 6, 9]);
    assert_eq!(which(Opcode::is_tagged), [0, 2]);
}

#[test]
fn a_siw_read_request_is_read_and_written() {
    let request = ReadRequest {
        sink_stag: Stag(0xa2dd_ac00),
        sink_offset: 0x5587_c8b6_9c90,
        size: 4096,
        source_stag: Stag(0x61ee_c400),
        source_offset: 0x5631_657b_84c0,
    };
    assert_eq!(ReadRequest::parse(&SIW_READ_REQUEST), Ok(request));
    assert_eq!(bytes_of(|out| request.emit(out)), SIW_READ_REQUEST);
}

#[test]
fn an_atomic_request_has_the_rfcs_layout() {
    let bytes = bytes_of(|out| atomic(AtomicOp::CompareSwap).emit(out));
    let mut expected = vec![0, 0, 0, 2, 1, 1, 1, 2, 2, 2, 2, 3];
    for (byte, last) in [(3, 4), (4, 5), (5, 6), (6, 7), (7, 8)] {
        expected.extend_from_slice(&[byte, byte, byte, byte, byte, byte, byte, last]);
    }
    assert_eq!(bytes, expected);
    assert_eq!(AtomicRequest::parse(&bytes), Ok(atomic(AtomicOp::CompareSwap)));
}

#[test]
fn a_fetch_add_has_no_compare_fields() {
    let mut bytes = bytes_of(|out| atomic(AtomicOp::FetchAdd).emit(out));
    assert_eq!(bytes[..4], [0, 0, 0, 0]);
    assert_eq!(bytes[36..], [[0; 8], [0xff; 8]].concat());
    bytes[36..].fill(0x5a);
    let expected = AtomicRequest { compare: 0, compare_mask: !0, ..atomic(AtomicOp::FetchAdd) };
    assert_eq!(AtomicRequest::parse(&bytes), Ok(expected));
}

#[test]
fn an_atomic_response_has_the_rfcs_layout() {
    let response = AtomicResponse { request_id: 0x0102_0304, original: 0x0506_0708_090a_0b0c };
    let bytes = bytes_of(|out| response.emit(out));
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(AtomicResponse::parse(&bytes), Ok(response));
}

#[test]
fn unknown_atomic_operations_are_refused_and_reserved_bits_are_not() {
    for code in 0..=255u8 {
        let mut bytes = bytes_of(|out| atomic(AtomicOp::CompareSwap).emit(out));
        bytes[..4].copy_from_slice(&[0xff, 0xff, 0xff, code]);
        match (code & 15, AtomicRequest::parse(&bytes)) {
            (0, Ok(request)) => assert_eq!(request.op, AtomicOp::FetchAdd),
            (2, Ok(request)) => assert_eq!(request.op, AtomicOp::CompareSwap),
            (found, result) => assert_eq!(result, Err(HeaderError::AtomicOp { found })),
        }
    }
}

#[test]
fn every_cut_is_too_short() {
    let bytes = [0; 52];
    for found in 0..52 {
        let cut = &bytes[..found];
        let error = |expected| HeaderError::TooShort { expected, found };
        assert_eq!(AtomicRequest::parse(cut), Err(error(52)));
        assert_eq!(ReadRequest::parse(cut).err(), (found < 28).then(|| error(28)));
        assert_eq!(AtomicResponse::parse(cut).err(), (found < 12).then(|| error(12)));
    }
}

/// RFC 7306 §5.1.1, word for word.
fn fetch_add_by_rfc(original: u64, add_data: u64, add_mask: u64) -> u64 {
    let (mut bit_location, mut carry, mut value) = (1, 0, 0);
    for bit in 0..64 {
        if bit != 0 {
            bit_location <<= 1;
        }
        let val1 = (original & bit_location) >> bit;
        let val2 = (add_data & bit_location) >> bit;
        let mut sum = carry + val1 + val2;
        carry = (sum & 2) >> 1;
        sum &= 1;
        if sum != 0 {
            value |= bit_location;
        }
        carry = u64::from(carry != 0 && add_mask & bit_location == 0);
    }
    value
}

/// RFC 7306 §5.1.2, bit by bit.
fn compare_swap_by_rfc(original: u64, request: &AtomicRequest) -> u64 {
    let bit = |word: u64, n: u32| word >> n & 1;
    let differs = |n: &u32| {
        bit(request.compare_mask, *n) == 1 && bit(request.compare, *n) != bit(original, *n)
    };
    if (0..64).any(|n| differs(&n)) {
        return original;
    }
    (0..64).fold(0, |value, n| match bit(request.add_swap_mask, n) {
        0 => value | bit(original, n) << n,
        _ => value | bit(request.add_swap, n) << n,
    })
}

#[test]
fn plain_atomics_are_ordinary_64_bit_operations() {
    let add = AtomicRequest { add_swap: 3, add_swap_mask: 0, ..atomic(AtomicOp::FetchAdd) };
    assert_eq!(add.apply(39), 42);
    assert_eq!(add.apply(u64::MAX), 2);
    let swap = AtomicRequest {
        add_swap: 7,
        add_swap_mask: !0,
        compare: 5,
        compare_mask: !0,
        ..atomic(AtomicOp::CompareSwap)
    };
    assert_eq!((swap.apply(5), swap.apply(6)), (7, 6));
}

#[test]
fn a_masked_add_keeps_carries_in_their_fields() {
    let add = AtomicRequest {
        add_swap: 0x0000_0001_0000_0001,
        add_swap_mask: 0x8000_0000_8000_0000,
        ..atomic(AtomicOp::FetchAdd)
    };
    assert_eq!(add.apply(0x0000_0005_ffff_ffff), 0x0000_0006_0000_0000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn fetch_add_is_the_rfcs(original: u64, add_swap: u64, mask: u64, sparse: u64) {
        for add_swap_mask in [mask, mask & sparse, 0, !0, 1 << 63] {
            let request = AtomicRequest { add_swap, add_swap_mask, ..atomic(AtomicOp::FetchAdd) };
            let expected = fetch_add_by_rfc(original, add_swap, add_swap_mask);
            prop_assert_eq!(request.apply(original), expected);
        }
    }

    #[test]
    fn compare_swap_is_the_rfcs(
        original: u64,
        (add_swap, add_swap_mask, compare_mask) in any::<(u64, u64, u64)>(),
        differing in prop_oneof![Just(0), (0..64u32).prop_map(|bit| 1u64 << bit), any::<u64>()],
    ) {
        let compare = original ^ differing;
        let op = AtomicOp::CompareSwap;
        let request =
            AtomicRequest { add_swap, add_swap_mask, compare, compare_mask, ..atomic(op) };
        prop_assert_eq!(request.apply(original), compare_swap_by_rfc(original, &request));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn read_requests_go_through(
        (sink, sink_offset, size) in any::<(u32, u64, u32)>(),
        (source, source_offset) in any::<(u32, u64)>(),
    ) {
        let (sink_stag, source_stag) = (Stag(sink), Stag(source));
        let request = ReadRequest { sink_stag, sink_offset, size, source_stag, source_offset };
        prop_assert_eq!(ReadRequest::parse(&bytes_of(|out| request.emit(out))), Ok(request));
    }

    #[test]
    fn atomic_requests_go_through(
        swap: bool,
        (request_id, stag, offset) in any::<(u32, u32, u64)>(),
        (add_swap, add_swap_mask) in any::<(u64, u64)>(),
        (compare, compare_mask) in any::<(u64, u64)>(),
    ) {
        let (op, compare, compare_mask) = match swap {
            true => (AtomicOp::CompareSwap, compare, compare_mask),
            false => (AtomicOp::FetchAdd, 0, !0),
        };
        let stag = Stag(stag);
        let request = AtomicRequest {
            op, request_id, stag, offset, add_swap, add_swap_mask, compare, compare_mask,
        };
        prop_assert_eq!(AtomicRequest::parse(&bytes_of(|out| request.emit(out))), Ok(request));
    }

    #[test]
    fn atomic_responses_go_through(request_id: u32, original: u64, more: Vec<u8>) {
        let response = AtomicResponse { request_id, original };
        let bytes = [bytes_of(|out| response.emit(out)), more].concat();
        prop_assert_eq!(AtomicResponse::parse(&bytes), Ok(response));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..70)) {
        let _ = ReadRequest::parse(&bytes);
        let _ = AtomicRequest::parse(&bytes);
        let _ = AtomicResponse::parse(&bytes);
    }
}
