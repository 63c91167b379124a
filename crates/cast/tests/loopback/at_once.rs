//! Short casts, which are one message to each node: what they share with longer ones.

use super::{Lab, ROOT};
use outboard_cast::receive::PublishMode;
use outboard_cast::schedule::ScheduleKind;
use outboard_cast::source::{CastLimits, CastOutcome, CastRequest, cast};
use std::fs;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::Ordering;

/// Nodes for a tree of 20 kB.
fn lab(nodes: usize) -> Lab {
    let lab = Lab::new(nodes);
    lab.fill(20_000);
    lab
}

/// Its cast, by what suits it.
fn request(lab: &Lab) -> CastRequest {
    let request = lab.request(ScheduleKind::Star, Path::new(ROOT));
    CastRequest { kind: None, chunk_len: None, ..request }
}

fn succeeded(outcome: &CastOutcome) -> usize {
    outcome.nodes.iter().filter(|node| node.result == Ok(1)).count()
}

#[test]
fn a_short_tree_is_sent_to_each_node_by_the_source() {
    let lab = lab(5);
    for publish in [PublishMode::New, PublishMode::Replace, PublishMode::Merge] {
        let outcome = cast(CastRequest { publish, ..request(&lab) }).expect("a cast");
        assert_eq!(succeeded(&outcome), 5, "{outcome:?}");
        assert_eq!((outcome.kind, outcome.chunks, outcome.sent_chunks), (ScheduleKind::Star, 1, 5));
        assert!(outcome.has_succeeded());
        (0..5).for_each(|node| lab.check(node));
    }
}

#[test]
fn a_node_that_takes_no_part_costs_the_others_nothing() {
    let mut lab = lab(4);
    lab.nodes[0].stop();
    lab.nodes[1].hang.store(true, Ordering::SeqCst);
    fs::create_dir(lab.nodes[2].root.path().join("tree")).expect("made");
    let outcome = cast(request(&lab)).expect("a cast");
    let why = |node: usize| outcome.nodes[node].result.clone().expect_err("it cannot");
    assert!(why(1).contains("hangs"), "{outcome:?}");
    assert!(why(2).contains("tree"), "{outcome:?}");
    assert!(outcome.nodes[0].result.is_err() && !outcome.has_succeeded(), "{outcome:?}");
    assert_eq!(succeeded(&outcome), 1);
    lab.check(3);
}

#[test]
fn nothing_begins_with_fewer_nodes_than_must_be_reached() {
    let mut lab = lab(3);
    lab.nodes[1].stop();
    let limits = |min| CastLimits { min_nodes: Some(min), rate: None };
    let outcome = cast(CastRequest { limits: limits(3), ..request(&lab) }).expect("a cast");
    assert_eq!(succeeded(&outcome), 0, "{outcome:?}");
    assert!([0, 2].iter().all(|node| !lab.nodes[*node].root.path().join("tree").exists()));
    for min in [1, 2] {
        let publish = PublishMode::Replace;
        let request = CastRequest { limits: limits(min), publish, ..request(&lab) };
        let outcome = cast(request).expect("a cast");
        assert_eq!((succeeded(&outcome), outcome.has_succeeded()), (2, true), "{outcome:?}");
    }
}

#[test]
fn what_needs_relays_or_a_rate_goes_by_chunks() {
    let lab = lab(3);
    let chain = CastRequest { kind: Some(ScheduleKind::Chain), ..request(&lab) };
    let outcome = cast(chain).expect("a cast");
    assert_eq!((succeeded(&outcome), outcome.sent_chunks), (3, 1), "{outcome:?}");
    let limits = CastLimits { rate: NonZeroU64::new(100_000), ..CastLimits::default() };
    let publish = PublishMode::Replace;
    let outcome = cast(CastRequest { limits, publish, ..request(&lab) }).expect("a cast");
    assert_eq!(succeeded(&outcome), 3);
    assert!(outcome.took.as_secs_f64() > 0.1, "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
}
