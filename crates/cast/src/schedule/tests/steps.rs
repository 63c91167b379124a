//! Undisturbed casts: everything arrives, within the bound, one send and one receive a step.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn check(kind: ScheduleKind, n: u32, m: u32) {
    let schedule = fresh(kind, n, m);
    let (steps, bound) = (schedule.steps(), bound(kind, n, m));
    assert!(steps <= bound, "{kind} of {n} nodes, {m} chunks: {steps} steps, bound {bound}");
    Lockstep::at(&schedule).run_all(&schedule);
    lists_agree(&schedule);
    peers_are_those_of_transfers(&schedule);
}

/// What is sent is what is received, and receivers expect it in the order of steps.
fn lists_agree(schedule: &Arc<Schedule>) {
    let key = |t: &Transfer| (t.to, t.chunk, t.from);
    let nodes = || 0..count(schedule);
    let sent: BTreeSet<_> =
        nodes().flat_map(|node| all_sends(schedule, node)).map(|t| key(&t)).collect();
    let mut received = BTreeSet::new();
    for node in nodes() {
        let list: Vec<Transfer> = schedule.inbox(node).collect();
        assert!(list.iter().all(|transfer| transfer.to == node));
        assert!(list.windows(2).all(|pair| pair[0].lane <= pair[1].lane), "{list:?}");
        received.extend(list.iter().map(key));
    }
    assert_eq!(sent, received);
}

fn peers_are_those_of_transfers(schedule: &Arc<Schedule>) {
    for node in 0..count(schedule) {
        let to = all_sends(schedule, node).into_iter().map(|t| t.to);
        let met: BTreeSet<u32> = to.chain(schedule.inbox(node).map(|t| t.from)).collect();
        let known: BTreeSet<u32> = schedule.peers(node).into_iter().collect();
        assert_eq!(met, known, "{} node {node} of {}", schedule.kind(), count(schedule));
    }
}

#[test]
fn every_kind_meets_its_bound_for_all_small_numbers() {
    for kind in kinds() {
        for n in 1..=36 {
            for m in [0, 1, 2, 3, 5, 8, 17] {
                check(kind, n, m);
            }
        }
    }
}

#[test]
fn the_binomial_pipeline_takes_exactly_the_lower_bound() {
    for n in 2..=200 {
        for m in 1..=9 {
            let steps = fresh(ScheduleKind::BinomialPipeline, n, m).steps();
            assert_eq!(steps, u64::from(m) - 1 + ceil_log2(n), "{n} nodes, {m} chunks");
        }
    }
}

/// What a step costs does not grow with the nodes that there are: 10,000 nodes, 100,000 chunks.
#[test]
fn a_large_cast_is_enumerated_from_any_node_without_being_stored() {
    for kind in kinds() {
        let schedule = fresh(kind, 10_000, 100_000);
        assert!(schedule.steps() <= bound(kind, 10_000, 100_000), "{kind}");
        for node in [0, 1, 4_999, 9_999] {
            let mut outbox = schedule.outbox(node);
            let sends = std::iter::from_fn(|| outbox.take(|_| true)).take(1_000).count();
            let receives = schedule.inbox(node).take(1_000).count();
            assert!(sends + receives >= 1_000, "{kind} node {node}");
        }
    }
}

#[test]
fn two_trees_keep_to_six_connections_and_the_hypercube_to_two_a_dimension() {
    for n in [2, 3, 7, 64, 100, 1_000, 1_023, 1_025] {
        let trees = fresh(ScheduleKind::TwoTree, n, 50);
        let hypercube = fresh(ScheduleKind::BinomialPipeline, n, 50);
        for node in 0..n {
            assert!(trees.peers(node).len() <= 6);
            let dimensions = n.ilog2() as usize;
            assert!(hypercube.peers(node).len() <= 2 * dimensions + 1, "{n} nodes, node {node}");
        }
    }
}

/// No node sends what it received long before, so that relays send from memory.
#[test]
fn what_is_sent_was_received_within_the_window() {
    for kind in kinds() {
        for n in [2, 3, 8, 13, 31, 32] {
            let schedule = fresh(kind, n, 60);
            for node in 1..n {
                let received: Vec<Transfer> = schedule.inbox(node).collect();
                for sent in all_sends(&schedule, node) {
                    let later = received.iter().filter(|other| other.lane < sent.lane);
                    let after = later.skip_while(|other| other.chunk != sent.chunk).count();
                    let window = schedule.window_chunks() as usize;
                    assert!(after <= window, "{kind} of {n}, node {node}: {sent:?} after {after}");
                }
            }
        }
    }
}

#[test]
fn the_same_situation_gives_every_node_the_same_schedule() {
    for kind in kinds() {
        let schedule = fresh(kind, 23, 30);
        let bytes = postcard::to_allocvec(schedule.situation()).unwrap();
        let again = Schedule::new(kind, postcard::from_bytes(&bytes).unwrap()).unwrap();
        for node in 0..23 {
            assert_eq!(all_sends(&schedule, node), all_sends(&again, node));
        }
    }
}

#[test]
fn a_schedule_is_called_by_its_name() {
    for kind in kinds() {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    for name in ["", "tree", "tree:0", "tree:x", "paper:-1", "ring:2"] {
        assert!(name.parse::<ScheduleKind>().unwrap_err().to_string().contains("two-tree"));
    }
}

proptest! {
    #[test]
    fn every_kind_meets_its_bound(n in 1_u32..150, m in 0_u32..60, kind in 0_usize..10) {
        check(kinds()[kind], n, m);
    }
}
