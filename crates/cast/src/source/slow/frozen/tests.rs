//! Disks that stop: of one node, for a moment, of all.

use super::*;
use crate::schedule::ChunkSet;
use crate::source::slow::SlowWatch;

const MS: Duration = Duration::from_millis(1);
const CHUNKS: u32 = 1_000;

/// Nodes, 0 the source, that report every 100 ms.
struct Disks {
    watch: SlowWatch,
    now: Instant,
    held: Vec<u32>,
    roles: Vec<NodeRole>,
    /// When nodes were made leaves, in milliseconds from the beginning, and which.
    found: Vec<(u32, Vec<u32>)>,
    steps: u32,
}

impl Disks {
    fn new(nodes: usize) -> Self {
        Self {
            watch: SlowWatch::new(CHUNKS, 1 << 17),
            now: Instant::now(),
            held: vec![0; nodes],
            roles: vec![NodeRole::Relay; nodes],
            found: Vec::new(),
            steps: 0,
        }
    }

    /// All write but those whose disks are frozen; these have chunks to write.
    fn step(&mut self, is_frozen: impl Fn(usize) -> bool) {
        self.step_of_some(is_frozen, |_| true);
    }

    fn step_of_some(&mut self, is_frozen: impl Fn(usize) -> bool, runs: impl Fn(usize) -> bool) {
        (self.now, self.steps) = (self.now + 100 * MS, self.steps + 1);
        for node in (1..self.held.len()).filter(|node| runs(*node)) {
            self.held[node] += u32::from(!is_frozen(node));
            let report = NodeReport {
                held: ChunkSet::below(self.held[node]),
                unwritten_chunks: 3,
                ..NodeReport::default()
            };
            self.watch.report(self.now, u32::try_from(node).expect("few"), &report);
        }
        let standing = |node: usize| NodeStanding {
            number: u32::try_from(node).expect("few"),
            role: self.roles[node],
            held: self.held[node].into(),
        };
        let nodes: Vec<NodeStanding> = (1..self.held.len()).map(standing).collect();
        if let Some(finding) = self.watch.find(self.now, &nodes) {
            finding.leaves.iter().for_each(|leaf| self.roles[*leaf as usize] = NodeRole::Leaf);
            finding.relays.iter().for_each(|relay| self.roles[*relay as usize] = NodeRole::Relay);
            self.found.push((self.steps * 100, finding.leaves));
        }
    }
}

#[test]
fn a_disk_that_stops_makes_its_node_a_leaf_with_one_plan_however_many_nodes_there_are() {
    for nodes in [3, 64, 500, 2_000] {
        let mut disks = Disks::new(nodes);
        (0..60).for_each(|step| disks.step(|node| node == 2 && step >= 10));
        assert_eq!(disks.found, [(3_000, vec![2])], "{nodes} nodes");
    }
}

#[test]
fn a_disk_that_stops_for_a_moment_is_left_alone() {
    let mut disks = Disks::new(16);
    (0..200).for_each(|step| disks.step(|node| node == 2 && step % 20 != 0));
    assert_eq!(disks.found, []);
}

#[test]
fn where_most_disks_stop_no_node_is_found_though_some_stop_a_little_later() {
    let mut disks = Disks::new(16);
    (0..100).for_each(|step| disks.step(|node| step >= 10 + node % 9));
    assert_eq!(disks.found, []);
}

#[test]
fn a_pause_of_a_node_counts_against_no_disk() {
    let mut disks = Disks::new(16);
    let is_frozen = |node| node == 2;
    (0..10).for_each(|_| disks.step(is_frozen));
    (0..100).for_each(|_| disks.step_of_some(is_frozen, |node| node != 2));
    (0..5).for_each(|_| disks.step(is_frozen));
    assert_eq!(disks.found, [], "it has reported for 1.5 s");
    (0..10).for_each(|_| disks.step(is_frozen));
    assert_eq!(disks.found.len(), 1, "its disk still does not answer");
}

#[test]
fn a_pause_of_the_source_counts_against_no_disk() {
    let mut disks = Disks::new(16);
    (0..20).for_each(|step| disks.step(|node| node == 2 && step >= 10));
    disks.now += 10_000 * MS;
    disks.watch.held_up(disks.now, 10_000 * MS);
    disks.step(|node| node == 2);
    assert_eq!(disks.found, []);
    (0..20).for_each(|_| disks.step(|node| node == 2));
    assert_eq!(disks.found.len(), 1, "its disk still does not answer");
}
