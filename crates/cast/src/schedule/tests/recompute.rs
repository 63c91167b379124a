//! Deaths, slow nodes and what is held already: the schedule is made again, and the others end.

use proptest::prelude::*;

use super::*;

/// By how many steps a death may lengthen a cast of n nodes: the pipeline is emptied and filled
/// once more, which a death of the paper's tree does with the whole file.
fn slack(kind: ScheduleKind, n: u32, m: u32) -> u64 {
    match kind {
        ScheduleKind::BinomialPipeline => 2 * ceil_log2(n) + 3,
        ScheduleKind::TwoTree => 2 * ceil_log2(n) + 2,
        ScheduleKind::Chain => u64::from(n),
        ScheduleKind::Tree { arity } => u64::from(arity.get()) * (depth(n, arity.get()) + 2),
        ScheduleKind::Switches => switch_steps(n) + 3 * SWITCHES.len() as u64,
        ScheduleKind::PaperTree { .. } => bound(kind, n, m),
        ScheduleKind::Star => 2 * u64::from(n),
    }
}

/// Kills `victim` before step `at`; returns the schedule from then on.
fn after_death(kind: ScheduleKind, n: u32, m: u32, victim: u32, at: u64) -> Arc<Schedule> {
    let before = fresh(kind, n, m);
    let mut run = Lockstep::at(&before);
    run.run(&before, at);
    let after = Schedule::new(kind, run.situation(&before, victim)).unwrap();
    Lockstep::at(&after).run_all(&after);
    after
}

fn check_death(kind: ScheduleKind, n: u32, m: u32, victim: u32, at: u64) {
    let after = after_death(kind, n, m, victim, at);
    assert!(after.lost().is_empty());
    let steps = at + after.steps();
    let most = bound(kind, n, m).max(at) + slack(kind, n, m);
    assert!(steps <= most, "{kind} of {n}, {m} chunks, {victim} dead at {at}: {steps} > {most}");
}

#[test]
fn a_relay_may_die_in_any_step() {
    for kind in kinds() {
        for n in [2, 3, 5, 8, 13] {
            for victim in 1..n {
                for at in 0..=bound(kind, n, 9) {
                    check_death(kind, n, 9, victim, at);
                }
            }
        }
    }
}

#[test]
fn the_source_may_leave_when_every_chunk_is_held_by_somebody() {
    for kind in kinds() {
        let whole = fresh(kind, 13, 20);
        for at in 0..whole.steps() {
            let after = after_death(kind, 13, 20, 0, at);
            assert_ne!(after.root(), 0);
            let held = (1..13).map(|node| &after.situation().nodes[node].holds);
            let mut union = ChunkSet::empty();
            held.for_each(|holds| union.unite(holds));
            assert_eq!(20 - union.len(), after.lost().len(), "{kind} at {at}");
        }
        let late = after_death(kind, 13, 20, 0, whole.steps() - 1);
        assert!(late.lost().is_empty(), "{kind}");
    }
}

#[test]
fn deaths_may_follow_each_other() {
    for kind in kinds() {
        let mut schedule = fresh(kind, 20, 40);
        for victim in [3, 0, 19, 7, 1, 2] {
            let mut run = Lockstep::at(&schedule);
            run.run(&schedule, 45);
            schedule = Schedule::new(kind, run.situation(&schedule, victim)).unwrap();
        }
        Lockstep::at(&schedule).run_all(&schedule);
    }
}

#[test]
fn without_anybody_alive_there_is_no_schedule() {
    let mut situation = Situation::fresh(3, 4);
    situation.nodes.iter_mut().for_each(|node| node.role = NodeRole::Dead);
    let error = Schedule::new(ScheduleKind::Chain, situation).unwrap_err();
    assert_eq!(error, ScheduleError::NoneAlive { nodes: 3 });
    let none = Schedule::new(ScheduleKind::Chain, Situation::fresh(0, 4)).unwrap_err();
    assert_eq!(none, ScheduleError::NoneAlive { nodes: 0 });
}

#[test]
fn a_node_that_claims_chunks_of_another_cast_is_named() {
    let mut situation = Situation::fresh(3, 4);
    situation.nodes[2].holds.insert(77);
    let error = Schedule::new(ScheduleKind::Chain, situation).unwrap_err();
    assert_eq!(error, ScheduleError::NoSuchChunk { node: 2, found: 77, chunks: 4 });
}

/// However many nodes there are, a leaf is connected with few.
#[test]
fn a_leaf_has_few_feeders() {
    for kind in kinds() {
        let mut situation = Situation::fresh(1_000, 50);
        for leaf in [5, 600, 999] {
            situation.nodes[leaf].role = NodeRole::Leaf;
        }
        let schedule = Schedule::new(kind, situation).unwrap();
        Lockstep::at(&schedule).run_all(&schedule);
        for leaf in [5, 600, 999] {
            assert!(schedule.peers(leaf).len() <= 20, "{kind}");
        }
    }
}

#[test]
fn leaves_send_nothing() {
    for kind in kinds() {
        let mut situation = Situation::fresh(12, 30);
        for leaf in [2, 7, 8] {
            situation.nodes[leaf].role = NodeRole::Leaf;
        }
        let schedule = Schedule::new(kind, situation).unwrap();
        Lockstep::at(&schedule).run_all(&schedule);
        assert_eq!(schedule.steps(), {
            let mut relays = Situation::fresh(9, 30);
            relays.switches = Vec::new();
            Schedule::new(kind, relays).unwrap().steps()
        });
        assert!([2, 7, 8].into_iter().all(|leaf| schedule.outbox(leaf).is_done()));
    }
}

#[test]
fn a_source_alone_serves_leaves_and_leaves_alone_serve_each_other() {
    let mut situation = Situation::fresh(4, 5);
    situation.nodes[1..].iter_mut().for_each(|node| node.role = NodeRole::Leaf);
    let schedule = Schedule::new(ScheduleKind::TwoTree, situation.clone()).unwrap();
    Lockstep::at(&schedule).run_all(&schedule);
    situation.nodes[0].role = NodeRole::Dead;
    situation.nodes[2].holds = ChunkSet::below(3);
    situation.nodes[3].holds = [4].into_iter().collect();
    let schedule = Schedule::new(ScheduleKind::TwoTree, situation).unwrap();
    assert_eq!((schedule.root(), schedule.lost().len()), (2, 1));
    Lockstep::at(&schedule).run_all(&schedule);
}

fn role(number: u8) -> NodeRole {
    match number {
        0..6 => NodeRole::Relay,
        6..8 => NodeRole::Leaf,
        _ => NodeRole::Dead,
    }
}

prop_compose! {
    /// Any node holds anything and may be slow or dead.
    pub(super) fn situations()(
        nodes in proptest::collection::vec((0_u8..10, any::<u128>(), 0_u32..100), 1..40),
        chunks in 1_u32..100,
        switches in proptest::collection::vec(0_u32..9, 0..9),
    ) -> Situation {
        let state = |(number, bits, below): (u8, u128, u32)| {
            let mut holds: ChunkSet = (0..chunks).filter(|c| bits >> c & 1 == 1).collect();
            holds.unite(&ChunkSet::below(below.min(chunks)));
            NodeState { role: role(number), holds }
        };
        let nodes = nodes.into_iter().map(state).collect();
        Situation { chunks, nodes, switches, cut: Vec::new() }
    }
}

proptest! {
    #[test]
    fn any_relay_may_die_in_any_step(
        kind in 0_usize..10, n in 2_u32..50, m in 1_u32..60,
        victim in any::<u32>(), at in any::<u64>(),
    ) {
        let kind = kinds()[kind];
        check_death(kind, n, m, victim % (n - 1) + 1, at % (bound(kind, n, m) + 1));
    }

    #[test]
    fn from_any_situation_all_live_nodes_get_what_is_left(
        kind in 0_usize..10, situation in situations(),
    ) {
        let alive = situation.nodes.iter().any(|node| node.role != NodeRole::Dead);
        let schedule = Schedule::new(kinds()[kind], situation);
        prop_assert_eq!(schedule.is_ok(), alive);
        if let Ok(schedule) = schedule {
            Lockstep::at(&schedule).run_all(&schedule);
        }
    }
}

proptest! {
    #[test]
    fn nothing_goes_over_a_connection_that_is_cut(
        kind in 0_usize..10, situation in situations(),
        cut in proptest::collection::vec((1_u32..40, 1_u32..40), 0..12),
    ) {
        let mut situation = Situation { cut, ..situation };
        situation.nodes[0].role = NodeRole::Relay;
        situation.nodes[0].holds = ChunkSet::below(situation.chunks);
        situation.part_relays();
        let nodes = 0..u32::try_from(situation.nodes.len()).expect("few");
        let cut = situation.cut.clone();
        let schedule = Schedule::new(kinds()[kind], situation).expect("the source lives");
        for transfer in nodes.flat_map(|node| schedule.inbox(node)) {
            let (from, to) = (transfer.from, transfer.to);
            prop_assert!(!cut.contains(&(from, to)) && !cut.contains(&(to, from)) || from == to);
        }
        Lockstep::at(&schedule).run_all(&schedule);
    }
}

#[test]
fn a_node_that_slanders_becomes_the_leaf() {
    let mut situation = Situation::fresh(6, 9);
    situation.cut = vec![(4, 1), (4, 2), (4, 3), (5, 1)];
    situation.part_relays();
    let leaves = (0..6).filter(|node| situation.nodes[*node].role == NodeRole::Leaf);
    assert_eq!(leaves.collect::<Vec<_>>(), [4, 5]);
    // Where two complain about one, that one alone becomes a leaf.
    let mut situation = Situation::fresh(6, 9);
    situation.cut = vec![(4, 1), (2, 1), (0, 3)];
    situation.part_relays();
    let leaves = (0..6).filter(|node| situation.nodes[*node].role == NodeRole::Leaf);
    assert_eq!(leaves.collect::<Vec<_>>(), [1]);
}

#[test]
fn a_set_from_elsewhere_has_the_one_form() {
    let odd: ChunkSet = postcard::from_bytes(
        &postcard::to_stdvec(&(0_u32, vec![u64::MAX, 1, 0, 0])).expect("plain"),
    )
    .expect("a set");
    assert_eq!(odd, ChunkSet::below(65));
    let mut ragged: ChunkSet = (0..200).chain([300, 9000]).collect();
    ragged.keep_front(2);
    assert_eq!(ragged, (0..200).chain([300]).collect());
}
