//! Chains in which chunks flow, simulated: links and disks that are slow, at one end or both, in a
//! network that is otherwise even, and machines on which nothing is.

use super::super::{NodeStanding, SlowFinding, SlowWatch};
use super::*;
use crate::schedule::{ChunkSet, NodeRole, NodeState, Schedule, ScheduleKind, Situation};
use proptest::prelude::*;

const CHUNK_LEN: u32 = 1 << 17;
const STEP: Duration = Duration::from_millis(100);
/// What a link of the usual rate carries in a step, in thousandths of a chunk.
const USUAL: u64 = 9_500;

/// Nodes of a chain, 0 the source, by thousandths of chunks that they have received and sent.
struct Flow {
    watch: SlowWatch,
    now: Instant,
    chunks: u32,
    received: Vec<u64>,
    sent: Vec<u64>,
    roles: Vec<NodeRole>,
    findings: Vec<(u32, SlowFinding)>,
    steps: u32,
}

impl Flow {
    fn new(nodes: usize, chunks: u32) -> Self {
        let mut received = vec![0; nodes];
        received[0] = u64::from(chunks) * 1_000;
        let mut flow = Self {
            watch: SlowWatch::new(chunks, CHUNK_LEN),
            now: Instant::now(),
            chunks,
            received,
            sent: vec![0; nodes],
            roles: vec![NodeRole::Relay; nodes],
            findings: Vec::new(),
            steps: 0,
        };
        flow.plan();
        flow
    }

    fn plan(&mut self) {
        let mut situation = Situation::fresh(0, self.chunks);
        let state = |role: &NodeRole| NodeState { role: *role, holds: ChunkSet::empty() };
        situation.nodes = self.roles.iter().map(state).collect();
        situation.nodes[0].holds = ChunkSet::below(self.chunks);
        let schedule = Schedule::new(ScheduleKind::Chain, situation).expect("a schedule");
        self.watch.planned(&schedule);
    }

    /// Relays, then leaves.
    fn order(&self) -> Vec<usize> {
        let of = |role| (0..self.roles.len()).filter(move |node| self.roles[*node] == role);
        of(NodeRole::Relay).chain(of(NodeRole::Leaf)).collect()
    }

    /// Each link carries its chunks; no node reports a rate, as all keep up.
    fn step(&mut self, carries: impl Fn(usize, usize) -> u64) {
        self.now += STEP;
        self.steps += 1;
        for pair in self.order().windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let moved =
                carries(from, to).min(self.received[from].saturating_sub(self.received[to]));
            self.received[to] += moved;
            self.sent[from] += moved;
        }
        for (number, received) in (0..).zip(self.received.clone()) {
            let whole = u32::try_from(received / 1_000).expect("few");
            let report = NodeReport {
                held: ChunkSet::below(whole),
                arrived_chunks: if number == 0 { 0 } else { u64::from(whole) },
                sent_chunks: self.sent[number as usize] / 1_000,
                ..NodeReport::default()
            };
            self.watch.report(self.now, number, &report);
        }
        self.find();
    }

    fn find(&mut self) {
        let standing = |number: usize| NodeStanding {
            number: u32::try_from(number).expect("few"),
            role: self.roles[number],
            held: self.received[number] / 1_000,
        };
        let nodes: Vec<NodeStanding> = (1..self.roles.len()).map(standing).collect();
        if let Some(finding) = self.watch.find(self.now, &nodes) {
            finding.leaves.iter().for_each(|leaf| self.roles[*leaf as usize] = NodeRole::Leaf);
            finding.relays.iter().for_each(|relay| self.roles[*relay as usize] = NodeRole::Relay);
            self.findings.push((self.steps, finding));
            self.plan();
        }
    }

    fn leaves(&self) -> Vec<usize> {
        (0..self.roles.len()).filter(|node| self.roles[*node] == NodeRole::Leaf).collect()
    }

    /// Steps until all relays have everything.
    fn run(&mut self, carries: impl Fn(usize, usize) -> u64) -> u32 {
        let all = u64::from(self.chunks) * 1_000;
        let is_done = |flow: &Self| {
            let relays = flow.order().into_iter().filter(|n| flow.roles[*n] == NodeRole::Relay);
            relays.into_iter().all(|node| flow.received[node] >= all)
        };
        while !is_done(self) && self.steps < 10_000 {
            self.step(&carries);
        }
        self.steps
    }
}

#[test]
fn behind_a_slow_node_all_others_end_at_the_full_rate() {
    for slow in [5, 9, 16] {
        let mut flow = Flow::new(17, 800);
        let steps = flow.run(|from, to| if [from, to].contains(&slow) { USUAL / 2 } else { USUAL });
        assert_eq!(flow.leaves(), [slow]);
        assert_eq!(flow.findings.len(), 1, "{:?}", flow.findings);
        // 84 for what all carry; without a finding it takes twice that.
        assert!(steps <= 84 + 10, "{slow}: {steps}");
    }
}

#[test]
fn a_node_that_only_receives_slowly_or_has_a_slow_disk_is_found() {
    let mut flow = Flow::new(17, 2_000);
    flow.run(|_, to| if to == 9 { USUAL / 2 } else { USUAL });
    assert_eq!(flow.leaves(), [9]);
}

#[test]
fn a_node_that_only_sends_slowly_is_found_and_its_receiver_is_a_relay_again() {
    let mut flow = Flow::new(17, 4_000);
    flow.run(|from, _| if from == 9 { USUAL / 2 } else { USUAL });
    assert_eq!(flow.leaves(), [9], "{:?}", flow.findings);
    assert_eq!(flow.findings.len(), 2, "{:?}", flow.findings);
}

#[test]
fn of_two_slow_nodes_both_are_found() {
    let mut flow = Flow::new(17, 2_000);
    let is_slow = |node| node == 7 || node == 12;
    let steps = flow.run(|from, to| if is_slow(from) || is_slow(to) { USUAL / 2 } else { USUAL });
    assert_eq!(flow.leaves(), [7, 12]);
    assert!(steps < 211 + 40, "{steps}");
}

#[test]
fn one_of_the_first_is_tried_as_a_leaf_once() {
    for (slow, chunks) in [(2, 2_000), (4, 2_000), (1, 8_000)] {
        let mut flow = Flow::new(17, chunks);
        let steps = flow.run(|from, to| if [from, to].contains(&slow) { USUAL / 2 } else { USUAL });
        assert_eq!(flow.leaves(), [slow]);
        assert_eq!(flow.findings.len(), 1, "{:?}", flow.findings);
        let full = chunks * 10 / 95;
        assert!(steps <= full + 20, "{slow}: {steps}, {full}");
    }
    // All links behind the second node carry less.
    let mut flow = Flow::new(17, 4_000);
    flow.run(|_, to| if to > 2 { USUAL / 2 } else { USUAL });
    assert_eq!(flow.findings.len(), 1, "{:?}", flow.findings);
}

#[test]
fn where_all_are_as_slow_or_many_lag_no_node_is_found() {
    let mut even = Flow::new(17, 800);
    even.run(|_, _| USUAL / 2);
    assert_eq!(even.findings, []);
    // Each a little slower than the one before.
    let mut uneven = Flow::new(17, 800);
    uneven.run(|_, to| (0..to).fold(USUAL, |rate, _| rate * 93 / 100));
    assert_eq!(uneven.findings, []);
}

#[test]
fn one_that_receives_nothing_is_not_slow() {
    let mut flow = Flow::new(17, 800);
    for step in 0..40 {
        flow.step(|_, to| if to == 9 && step > 15 { 0 } else { USUAL });
    }
    assert_eq!(flow.findings, []);
}

#[test]
fn a_moment_is_not_enough() {
    let mut flow = Flow::new(17, 2_000);
    for step in 0..150 {
        flow.step(|_, to| if to == 9 && step % 20 < 4 { USUAL / 3 } else { USUAL });
    }
    assert_eq!(flow.findings, []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However links waver by up to a tenth, the slow one is found, and no other.
    #[test]
    fn the_slow_one_is_found_and_no_other(
        slow in 6_usize..=20,
        part in 30_u64..=60,
        wavers in prop::collection::vec(0_u64..10, 400),
    ) {
        let mut flow = Flow::new(21, 2_000);
        for step in 0..60 {
            flow.step(|from, to| {
                let part = if to == slow { part } else { 100 };
                let waver = wavers[(step * 7 + from) % wavers.len()];
                USUAL * part * (100 - waver) / 10_000
            });
        }
        prop_assert_eq!(flow.leaves(), vec![slow]);
        prop_assert_eq!(flow.findings.len(), 1);
    }

    #[test]
    fn in_an_even_network_no_node_is_slow(
        nodes in 3_usize..=40,
        rate in 5_u32..=300,
        wavers in prop::collection::vec(0_u64..20, 400),
    ) {
        // In a long cast the first one is tried.
        let mut flow = Flow::new(nodes, (rate * 6).max(50));
        for step in 0..60 {
            flow.step(|from, _| {
                let waver = wavers[(step * 11 + from) % wavers.len()];
                u64::from(rate) * (100 - waver)
            });
        }
        prop_assert_eq!(flow.findings.len(), 0);
    }
}
