//! What is refused, and what is said of it.

use outboard_nic::templates::{COUNT, FILTER};
use outboard_nic::{BodyStart, BpfBody, LoadedBody, NetInterface, NicError, Unusable, devices};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::lab::{Lab, compiled, loaded};

fn error_of<T>(result: Result<T, NicError>) -> NicError {
    result.err().unwrap()
}

#[test]
fn the_verifier_says_what_is_wrong_and_where() {
    const SOURCE: &str = r#"
#include "offcode_bpf.h"
OC_LICENSE("GPL");
OC_XDP int beyond(struct xdp_md *context) {
    return *(volatile int *)(long)context->data; /* nobody has looked at data_end */
}"#;
    if Lab::new().is_none() {
        return;
    }
    let body = BpfBody::parse(&compiled(SOURCE)).unwrap();
    let NicError::Refused(refusal) = error_of(LoadedBody::load(&body, BodyStart::default())) else {
        panic!("refused by its verifier")
    };
    assert_eq!(refusal.program, "beyond");
    assert!(refusal.reason.contains("outside of the packet"), "{refusal}");
    assert!(refusal.instruction.as_deref().is_some_and(|i| i.contains("*(u32 *)")), "{refusal}");
    assert!(refusal.source_line.as_deref().is_some_and(|l| l.contains("nobody")), "{refusal}");
    assert!(refusal.log_tail.len() <= 4096);
}

#[test]
fn an_endless_program_is_refused_with_a_bounded_log() {
    const SOURCE: &str = r#"
        #include "offcode_bpf.h"
        OC_LICENSE("GPL");
        OC_XDP int endless(struct xdp_md *context) {
            volatile __u32 i = 0;
            while (i < 1u << 30) i = i + 1;
            return XDP_PASS;
        }"#;
    if Lab::new().is_none() {
        return;
    }
    let body = BpfBody::parse(&compiled(SOURCE)).unwrap();
    let error = error_of(LoadedBody::load(&body, BodyStart::default()));
    assert!(matches!(error, NicError::Refused(_)), "{error}");
    assert!(error.to_string().len() < 8192);
}

#[test]
fn bodies_that_would_cost_or_outlive_too_much_are_refused() {
    if Lab::new().is_none() {
        return;
    }
    let with = |map: &str| {
        let source = format!(
            r#"#include "offcode_bpf.h"
            OC_LICENSE("GPL");
            struct {{ {map} }} own SEC(".maps");
            OC_XDP int body(struct xdp_md *context) {{ __u32 zero = 0;
                return bpf_map_lookup_elem(&own, &zero) ? XDP_PASS : XDP_DROP; }}"#
        );
        error_of(BpfBody::parse(&compiled(&source))).to_string()
    };
    let array = "__uint(type, OC_MAP_ARRAY); __type(key, __u32); __type(value, __u64);";
    let large = with(&format!("{array} __uint(max_entries, 1 << 30);"));
    assert!(large.contains("at most 67108864 are allowed"), "{large}");
    let pinned = with(&format!("{array} __uint(max_entries, 1); __uint(pinning, 1);"));
    assert!(pinned.contains("would outlive the body"), "{pinned}");
    let devices = with(
        "__uint(type, 14); __uint(max_entries, 1); __type(key, __u32); \
                        __type(value, __u32);",
    );
    assert!(devices.contains("type 14 is not for bodies"), "{devices}");
}

#[test]
fn a_second_program_loopback_and_nothing_are_refused() {
    let Some(lab) = Lab::new() else { return };
    let wire = lab.wire();
    let first = lab.here(|| loaded(COUNT, &[]).attach(&wire).unwrap());
    let second = || lab.here(|| loaded(FILTER, &[]).attach(&wire));
    let NicError::Occupied { name, program } = error_of(second()) else { panic!("occupied") };
    assert_eq!((name.as_str(), program), ("wire0", Some(first.program())));
    let listed = lab.here(|| devices().unwrap());
    let listed = listed.iter().find(|device| device.interface.name == "wire0").unwrap();
    assert_eq!(listed.unusable, Some(Unusable::Occupied { program: first.program() }));
    assert_eq!((listed.addresses, listed.interface.driver.as_str()), (1, "veth"));
    drop(first);
    drop(second().unwrap());

    let loopback = lab.here(|| loaded(COUNT, &[]).attach(&NetInterface::named("lo").unwrap()));
    assert!(matches!(error_of(loopback), NicError::Loopback { .. }));
    let mut nowhere = wire.clone();
    nowhere.index = 1 << 30;
    let nowhere = lab.here(|| loaded(COUNT, &[]).attach(&nowhere));
    assert!(matches!(error_of(nowhere), NicError::NoSuchInterface { .. }));
}

#[test]
fn what_does_not_fit_the_body_is_refused() {
    if Lab::new().is_none() {
        return;
    }
    let filter = BpfBody::parse(FILTER).unwrap();
    let load = |configuration, state| {
        error_of(LoadedBody::load(&filter, BodyStart { configuration, state })).to_string()
    };
    let text = load(&[0; 1025], &[]);
    assert_eq!(text, "the configuration has 1025 bytes, the body takes 1024");
    assert_eq!(load(&[], &[1, 2]), "the state has 2 words, the body takes 1");
    let count = BpfBody::parse(COUNT).unwrap();
    let start = BodyStart { state: &[1], ..BodyStart::default() };
    let text = error_of(LoadedBody::load(&count, start)).to_string();
    assert_eq!(text, "the body has no map oc_state, so state cannot be set");
}

#[test]
fn without_capabilities_it_is_said_which_are_missing() {
    let Some(lab) = Lab::new() else { return };
    lab.here(|| {
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        // Of this thread alone, which ends with this test.
        set_capabilities(None, none).unwrap();
        let body = BpfBody::parse(COUNT).unwrap();
        let error = error_of(LoadedBody::load(&body, BodyStart::default())).to_string();
        assert!(error.contains("needs CAP_BPF and CAP_NET_ADMIN"), "{error}");
        let listed = devices().unwrap();
        let wire = listed.iter().find(|device| device.interface.name == "wire0").unwrap();
        let missing = "CAP_BPF and CAP_NET_ADMIN".to_owned();
        assert_eq!(wire.unusable, Some(Unusable::Capability { missing }));
    });
}
