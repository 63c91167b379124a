//! The model against the reference's table, and what it chooses.

use super::*;

/// 100 MB in chunks of 1 MB to 100 receivers at 10 Gbit/s, and nothing costs but bytes.
fn reference() -> PlanRequest {
    let link = LinkModel {
        chunk_overhead_s: 0.0,
        hop_latency_s: 0.0,
        turns_stretch: 1.0,
        ..LinkModel::gigabits(10.0)
    };
    let chunk_bytes = NonZeroU32::new(1_000_000).unwrap();
    PlanRequest { nodes: 101, bytes: 100_000_000, chunk_bytes, link, switches: vec![] }
}

fn milliseconds(kind: ScheduleKind) -> f64 {
    reference().plan(kind).unwrap().predicted_s * 1e3
}

#[test]
fn the_model_gives_the_times_of_the_published_formulas() {
    let near = |kind, expected: f64| {
        let found = milliseconds(kind);
        assert!((found / expected - 1.0).abs() < 0.015, "{kind}: {found} ms, not {expected}");
    };
    near(ScheduleKind::BinomialPipeline, 84.8);
    near(ScheduleKind::Chain, 159.2);
    near(ScheduleKind::Tree { arity: arity(2) }, 167.0);
    near(ScheduleKind::Tree { arity: arity(4) }, 326.0);
    near(ScheduleKind::Tree { arity: arity(8) }, 646.0);
    near(ScheduleKind::Star, 8000.0);
    let paper = milliseconds(ScheduleKind::PaperTree { arity: arity(2) });
    assert!((800.0..=960.0).contains(&paper), "{paper}");
    let two_tree = milliseconds(ScheduleKind::TwoTree);
    assert!((80.0..=91.2).contains(&two_tree), "{two_tree}");
}

#[test]
fn the_bound_counts_chunks_of_a_mebibyte() {
    let request = PlanRequest { nodes: 8, bytes: 100 << 20, ..reference() };
    let seconds = f64::from(100 << 20) / 1.25e9;
    assert!((request.bound_s() / (seconds * 102.0 / 100.0) - 1.0).abs() < 1e-9);
    assert_eq!(PlanRequest { nodes: 1, ..request.clone() }.bound_s(), 0.0);
    let nothing = PlanRequest { bytes: 0, ..request };
    assert_eq!(nothing.plan(ScheduleKind::BinomialPipeline).unwrap().ratio, 0.0);
}

/// No chunk size of those that could be proposed is better than the one that is.
#[test]
fn the_best_chunk_is_the_best() {
    for kind in kinds() {
        let link = LinkModel { chunk_overhead_s: 50e-6, ..LinkModel::gigabits(1.0) };
        let request = PlanRequest { nodes: 64, bytes: 1 << 30, link, ..reference() };
        let time = |chunk_bytes| {
            let chunk_bytes = NonZeroU32::new(chunk_bytes).unwrap();
            PlanRequest { chunk_bytes, ..request.clone() }.plan(kind).unwrap().predicted_s
        };
        let best = u32::try_from(request.best_chunk_bytes(kind)).unwrap();
        let sizes = (16..=24).map(|bits| 1_u32 << bits);
        for other in sizes {
            assert!(time(best) <= time(other) * 1.002, "{kind}: {best} worse than {other}");
        }
    }
}

#[test]
fn a_plan_of_ten_thousand_nodes_is_near_the_bound() {
    for (nodes, gigabits) in [(1_000, 10.0), (1_000, 100.0), (10_000, 10.0), (10_000, 100.0)] {
        let link = LinkModel::gigabits(gigabits);
        let request = PlanRequest { nodes, bytes: 10 << 30, link, ..reference() };
        let plan = request.plan(ScheduleKind::BinomialPipeline).unwrap();
        assert!(plan.ratio < 1.3 * link.turns_stretch, "{plan}");
        assert!(u64::from(plan.connections) <= 2 * ceil_log2(nodes));
        assert!(request.plan(ScheduleKind::TwoTree).unwrap().connections <= 6);
    }
}

#[test]
fn what_cannot_be_planned_is_said() {
    let none = PlanRequest { nodes: 0, ..reference() };
    assert_eq!(none.plan(ScheduleKind::Chain), Err(PlanError::NoNode));
    let huge = PlanRequest { bytes: 1 << 60, chunk_bytes: NonZeroU32::MIN, ..reference() };
    let least = (1_u64 << 60).div_ceil(u64::from(u32::MAX));
    let error = PlanError::TooManyChunks { bytes: 1 << 60, chunk_bytes: 1, least };
    assert_eq!(huge.plan(ScheduleKind::Chain), Err(error));
}

#[test]
fn a_plan_is_printed_and_serialized() {
    let plan = reference().plan(ScheduleKind::BinomialPipeline).unwrap();
    let text = plan.to_string();
    assert!(text.starts_with("binomial: 100000000 bytes to 100 receivers in 100 chunks"), "{text}");
    assert!(text.contains("106 steps, 0.0848 s predicted"), "{text}");
    let bytes = postcard::to_allocvec(&plan).unwrap();
    assert!(bytes.starts_with(b"\x08binomial"));
}
