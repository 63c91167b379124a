//! Objects of authors, and bytes of nobody.

use proptest::prelude::*;

use super::*;
use crate::templates::{COUNT, FILTER, SAMPLE};

#[test]
fn shipped_bodies_are_what_they_say() {
    let filter = BpfBody::parse(FILTER).unwrap();
    assert_eq!((filter.program(), filter.kind()), ("filter", ProgramKind::Xdp));
    let names = ["lost", "packets", "bytes", "matched", "dropped", "sent"];
    assert_eq!(filter.counters(), names);
    assert!(filter.takes_configuration() && filter.sends_records());
    assert_eq!(filter.state_words(), 1);

    let count = BpfBody::parse(COUNT).unwrap();
    assert_eq!(count.counters().len(), 49);
    assert_eq!(count.counters()[48], "port_15.bytes");
    assert!(!count.sends_records());
    assert_eq!(BpfBody::parse(SAMPLE).unwrap().program(), "sample");
}

#[test]
fn what_is_no_object_is_said_to_be_none() {
    let error = |bytes: &[u8]| BpfBody::parse(bytes).unwrap_err();
    assert!(matches!(error(b""), NicError::NotBpf { .. }));
    assert!(matches!(error(b"\x7fELF"), NicError::NotBpf { .. }));
    let own = std::fs::read("/proc/self/exe").unwrap();
    assert!(matches!(error(&own[..own.len().min(1 << 19)]), NicError::NotBpf { .. }));
    let long = vec![0; OBJECT_BYTES_MAX + 1];
    assert!(matches!(error(&long), NicError::ObjectTooLong { .. }));
    let cut = error(&FILTER[..FILTER.len() - 700]);
    assert!(matches!(cut, NicError::Malformed { .. } | NicError::NotBpf { .. }), "{cut}");
}

/// The object with one name in place of another of the same length, wherever it stands.
fn renamed(object: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut object = object.to_vec();
    let found = (0..object.len() - from.len())
        .filter(|at| object[*at..].starts_with(from.as_bytes()))
        .collect::<Vec<_>>();
    assert!(!found.is_empty());
    for at in found {
        object[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    object
}

#[test]
fn a_program_of_another_kind_is_refused() {
    let object = renamed(COUNT, "xdp.frags", "sk_lookup");
    assert!(matches!(BpfBody::parse(&object), Err(NicError::NoProgram)));
}

#[test]
fn maps_keep_to_the_convention() {
    // A map of state where the configuration is meant.
    let object = renamed(&renamed(FILTER, "oc_config", "oc_cXnfig"), "oc_state\0", "oc_config");
    let error = BpfBody::parse(&object);
    assert!(matches!(error, Err(NicError::Map { .. } | NicError::Malformed { .. })), "{error:?}");
    let object = renamed(FILTER, "lost\0packets", "last\0packets");
    let error = BpfBody::parse(&object).unwrap_err().to_string();
    assert_eq!(error, "map oc_counters: counter 0 is \"lost\", the first name must be that");
}

proptest! {
    #[test]
    fn damaged_objects_are_refused_or_read(
        damage in proptest::collection::vec((0..24_000_usize, any::<u8>()), 1..16),
    ) {
        let mut object = FILTER.to_vec();
        for (at, byte) in damage {
            let at = at % object.len();
            object[at] = byte;
        }
        let _ = BpfBody::parse(&object);
    }

    #[test]
    fn damaged_headers_are_refused_or_read(
        damage in proptest::collection::vec((0..1900_usize, any::<u8>()), 1..4),
    ) {
        // The table of sections is at the end.
        let mut object = COUNT.to_vec();
        let end = object.len();
        for (at, byte) in damage {
            object[end - 1 - at] = byte;
        }
        let _ = BpfBody::parse(&object);
    }
}
