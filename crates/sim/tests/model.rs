//! Random operations against a model of memory; see [`outboard_sim::script`].

use outboard_sim::script;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_sides_memory_and_completions_follow_the_model(
        script in prop::collection::vec(any::<u8>(), 12..400)
    ) {
        script::run(&script);
    }
}
