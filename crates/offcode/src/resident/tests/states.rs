//! Residents that go on elsewhere.

use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// The same module in two engines: two processes.
static MODULES: LazyLock<[ResidentModule; 2]> =
    LazyLock::new(|| [STATEFUL, STATEFUL].map(|text| compile(text).expect("compiled")));

fn new_one() -> Resident<HostRecorder> {
    Resident::new(&MODULES[0], HostRecorder::default(), limits()).expect("made")
}

/// Goes on from a state's bytes, in the other engine.
fn moved(one: &mut Resident<HostRecorder>) -> Resident<HostRecorder> {
    let bytes = one.snapshot().expect("a state").into_bytes();
    let state = ResidentState::parse(bytes).expect("well-formed");
    Resident::from_state(&MODULES[1], &state, HostRecorder::default(), limits()).expect("made")
}

fn operations() -> impl Strategy<Value = Vec<(u32, Vec<u8>)>> {
    let params = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 300..2000),
    ];
    prop::collection::vec((0..5_u32, params), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn going_on_elsewhere_is_as_going_on(all in operations(), at in any::<prop::sample::Index>()) {
        let mut straight = new_one();
        let mut other = new_one();
        let at = at.index(all.len());
        for (index, (method, params)) in all.iter().enumerate() {
            if index == at {
                asked(&mut straight);
                other = moved(&mut other);
            }
            prop_assert_eq!(straight.call((0, *method), 1, params), Ok(Some(())));
            prop_assert_eq!(other.call((0, *method), 1, params), Ok(Some(())));
        }
        prop_assert_eq!(asked(&mut straight), asked(&mut other));
        prop_assert_eq!(straight.snapshot(), other.snapshot());
    }

    #[test]
    fn hostile_states_are_refused_or_harmless(
        calls in operations(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in prop::option::of(any::<prop::sample::Index>()),
        is_in_head in any::<bool>(),
    ) {
        let mut one = new_one();
        for (method, params) in &calls {
            prop_assert_eq!(one.call((0, *method), 1, params), Ok(Some(())));
        }
        let mut bytes = one.snapshot().expect("a state").into_bytes();
        let reach = if is_in_head { 140 } else { bytes.len() };
        for (at, byte) in changes {
            bytes[at.index(reach)] = byte;
        }
        if let Some(end) = end {
            bytes.truncate(end.index(bytes.len()));
        }
        let Ok(state) = ResidentState::parse(bytes) else { return Ok(()) };
        let made = Resident::from_state(&MODULES[1], &state, HostRecorder::default(), short());
        if let Ok(mut one) = made {
            prop_assert!(one.memory_bytes() as u64 <= all_rules().memory_bytes);
            // The guest may trap on what it finds; nothing else may happen.
            let _ended = one.call((0, 1), 1, b"abc");
        }
    }
}

#[test]
fn a_start_function_runs_once_in_a_life() {
    let mut one = new_one();
    assert_eq!(asked(&mut one), ["hold 1"]);
    let mut one = moved(&mut one);
    assert_eq!(asked(&mut one), [""; 0]);
}

#[test]
fn data_that_were_cleared_stay_so() {
    let mut one = new_one();
    assert_eq!(one.call((0, 3), 1, b""), Ok(Some(())));
    let mut one = moved(&mut one);
    asked(&mut one);
    assert_eq!(one.call((0, 0), 1, b""), Ok(Some(())));
    let last = asked(&mut one).pop().expect("an answer");
    assert!(last.ends_with("0, 0, 0, 0, 0, 0, 0, 0]"), "{last}");
}

#[test]
fn a_state_has_only_what_is_not_zero() {
    let mut one = new_one();
    let state = one.snapshot().expect("a state");
    assert_eq!((state.memory_bytes(), state.module()), (2 << 16, MODULES[0].hash()));
    // Two blocks have data; head, globals and numbers of blocks take less than half of one.
    assert!((2 * 4096..2 * 4096 + 2048).contains(&state.as_bytes().len()));
    assert_eq!(&state.as_bytes()[..8], b"OBRS\x01\0\x06\0");
}

#[test]
fn a_state_goes_on_only_in_its_module() {
    let state = new_one().snapshot().expect("a state");
    let module = compile(ALL).expect("compiled");
    let made = Resident::from_state(&module, &state, HostRecorder::default(), limits()).map(drop);
    let (expected, found) = (module.hash(), MODULES[0].hash());
    let refused = StateError::OtherModule { expected, found };
    assert_eq!(made, Err(ResidentError::State(refused)));
}

#[test]
fn a_state_fits_the_memory_that_is_allowed_there() {
    let mut one = new_one();
    assert_eq!(one.call((0, 2), 1, b""), Ok(Some(())));
    let state = one.snapshot().expect("a state");
    let rules = ResidentRules { memory_bytes: 2 << 16, ..all_rules() };
    let bytes = wat::parse_str(STATEFUL).expect("WAT");
    let module = ResidentModule::compile(&engine(), &bytes, &rules).expect("compiled");
    let made = Resident::from_state(&module, &state, HostRecorder::default(), limits()).map(drop);
    let refused = StateError::Memory { found: 3 << 16, limit: 2 << 16 };
    assert_eq!(made, Err(ResidentError::State(refused)));
}

#[test]
fn a_state_of_a_later_release_is_refused() {
    let mut bytes = new_one().snapshot().expect("a state").into_bytes();
    bytes[4] = 2;
    assert_eq!(ResidentState::parse(bytes), Err(StateError::Version { found: 2 }));
    assert!(matches!(ResidentState::parse(Vec::new()), Err(StateError::Malformed(_))));
}

#[test]
fn a_module_that_changes_its_table_cannot_be_moved() {
    let module = compile(
        r#"(module (memory (export "memory") 1) (table 1 funcref) (elem $some func $one) (func $one)
            (func (export "oc_stop")
                (table.init $some (i32.const 0) (i32.const 0) (i32.const 1))))"#,
    );
    let module = module.expect("compiled");
    assert!(!module.is_movable());
    let mut one = Resident::new(&module, HostRecorder::default(), limits()).expect("made");
    assert_eq!(one.snapshot(), Err(StateError::Immovable));
}
