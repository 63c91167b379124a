//! Rates of nodes, and who is found slow: links that are slow at one end or both, and machines on
//! which all rates waver.

use super::*;
use crate::protocol::SentRate;
use crate::schedule::{ScheduleKind, Situation};

const MS: Duration = Duration::from_millis(1);
const CHUNK_LEN: u32 = 1 << 17;
const CHUNKS: u32 = 8_000;
const FULL: u64 = 12_000_000;

/// Nodes of a chain (0 is the source) that send at rates, in steps of 100 ms.
struct Rates {
    watch: SlowWatch,
    now: Instant,
    began: Instant,
    roles: BTreeMap<u32, NodeRole>,
    held: u64,
    /// Which node each sends to.
    links: Vec<(u32, u32)>,
    findings: Vec<(Duration, SlowFinding)>,
}

impl Rates {
    fn chain(nodes: u32) -> Self {
        let now = Instant::now();
        let mut watch = SlowWatch::new(CHUNKS, CHUNK_LEN);
        (0..nodes).for_each(|node| watch.report(now, node, &NodeReport::default()));
        Self {
            watch,
            now,
            began: now,
            roles: (1..nodes).map(|node| (node, NodeRole::Relay)).collect(),
            held: 1_000,
            links: (1..nodes).map(|node| (node - 1, node)).collect(),
            findings: Vec::new(),
        }
    }

    /// Each link's rate, or none while it sends nothing; all have a backlog.
    fn step(&mut self, rate: impl Fn(u32, u32) -> Option<u64>) {
        self.now += 100 * MS;
        for &(from, to) in &self.links {
            let Some(bytes_per_second) = rate(from, to) else { continue };
            let sent = |to| SentRate { to, bytes_per_second, is_at_most: false };
            // What goes to another switch is in no node's own rate.
            let own = (!self.watch.switches.are_apart(from, to)).then(|| sent(None));
            let rates = own.into_iter().chain([sent(Some(to))]).collect();
            let owes = self.links.iter().filter(|link| link.0 == from).map(|link| link.1).collect();
            let report = NodeReport { rates, owes, ..NodeReport::default() };
            self.watch.report(self.now, from, &report);
        }
        let standing = |(number, role): (&u32, &NodeRole)| NodeStanding {
            number: *number,
            role: *role,
            held: self.held,
        };
        let nodes: Vec<NodeStanding> = self.roles.iter().map(standing).collect();
        if let Some(finding) = self.watch.find(self.now, &nodes) {
            for leaf in &finding.leaves {
                self.roles.insert(*leaf, NodeRole::Leaf);
            }
            for relay in &finding.relays {
                self.roles.insert(*relay, NodeRole::Relay);
            }
            self.findings.push((self.now - self.began, finding));
        }
    }

    fn leaves(&self) -> Vec<u32> {
        self.roles.iter().filter(|(_, role)| **role == NodeRole::Leaf).map(|(n, _)| *n).collect()
    }
}

/// About the full rate, a little different for each.
fn wavering(node: u32, step: u32) -> u64 {
    FULL - 200_000 * u64::from((node * 7 + step * 3) % 4)
}

#[test]
fn a_node_with_a_slow_link_becomes_a_leaf_within_a_second_and_no_other() {
    for slow in [1, 4, 15] {
        let mut rates = Rates::chain(16);
        for step in 0..60 {
            let is_slow = |from, to| from == slow || to == slow;
            rates.step(|from, to| {
                Some(if is_slow(from, to) { FULL / 2 } else { wavering(from, step) })
            });
        }
        assert_eq!(rates.leaves(), [slow]);
        let (after, _) = rates.findings[0];
        assert!(after <= 1_000 * MS, "{after:?}");
        assert_eq!(rates.findings.len(), 1);
    }
}

#[test]
fn a_node_that_only_receives_slowly_becomes_a_leaf() {
    let mut rates = Rates::chain(16);
    for step in 0..60 {
        rates.step(|from, to| Some(if to == 5 { FULL / 2 } else { wavering(from, step) }));
    }
    assert_eq!(rates.leaves(), [5]);
}

#[test]
fn a_node_that_only_sends_slowly_becomes_a_leaf_and_the_one_blamed_before_a_relay() {
    let mut rates = Rates::chain(16);
    for step in 0..80 {
        if rates.leaves() == [5] {
            // The schedule without it.
            rates.links.retain(|link| *link != (4, 5) && *link != (5, 6));
            rates.links.push((4, 6));
        }
        rates.step(|from, _| Some(if from == 4 { FULL / 2 } else { wavering(from, step) }));
    }
    assert_eq!(rates.leaves(), [4]);
    assert_eq!(rates.findings.len(), 2, "{:?}", rates.findings);
}

#[test]
fn a_crawl_is_found_although_the_others_send_nothing_any_more() {
    let mut rates = Rates::chain(16);
    (0..30).for_each(|step| rates.step(|from, _| Some(wavering(from, step))));
    assert_eq!(rates.findings.len(), 0);
    for _ in 0..20 {
        rates.step(|from, to| match (from, to) {
            (1, 2) => Some(60_000),
            _ => None,
        });
    }
    assert_eq!(rates.leaves(), [2]);
    let (after, _) = rates.findings[0];
    assert!(after <= 4_400 * MS, "{after:?}");
}

#[test]
fn a_moment_is_not_enough_nor_is_what_is_left_too_little() {
    let mut rates = Rates::chain(16);
    for step in 0..60 {
        let is_moment = step % 10 < 5;
        rates.step(|from, to| {
            Some(if to == 5 && is_moment { FULL / 3 } else { wavering(from, step) })
        });
    }
    assert_eq!(rates.leaves(), [0_u32; 0]);
    let mut rates = Rates { held: 7_970, ..Rates::chain(16) };
    for step in 0..60 {
        rates.step(|from, to| Some(if to == 5 { FULL / 2 } else { wavering(from, step) }));
    }
    assert_eq!(rates.leaves(), [0_u32; 0], "30 chunks are not worth a plan");
}

/// 64 nodes that share two processors: each is given its turn at random.
#[test]
fn where_all_rates_waver_nobody_is_slow() {
    let mut state = 1_u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut found = 0;
    for _ in 0..5 {
        let mut rates = Rates::chain(65);
        // Some are at a disadvantage for a while.
        let mut weight: Vec<u64> = (0..65).map(|_| 40 + random() % 60).collect();
        for step in 0..300 {
            if step % 20 == 0 {
                weight = (0..65).map(|_| 40 + random() % 60).collect();
            }
            let now: Vec<u64> = (0..65)
                .map(|node| FULL / 100 * weight[node] * (20 + random() % 80) / 100)
                .collect();
            rates.step(|from, _| Some(now[from as usize]));
        }
        found += rates.findings.len();
    }
    assert!(found <= 3, "{found} findings in 150 s of five casts");
}

#[test]
fn findings_are_few_whatever_nodes_say() {
    let mut rates = Rates::chain(33);
    for step in 0..600_u32 {
        // Another third of them is slow every three seconds.
        let third = step / 30 % 3;
        rates.step(|from, to| Some(if to % 3 == third { FULL / 10 } else { wavering(from, step) }));
    }
    assert!(rates.findings.len() <= 6, "{:?}", rates.findings);
    assert!(rates.leaves().len() <= 8, "{:?}", rates.leaves());
}

#[test]
fn a_node_that_keeps_up_as_a_leaf_is_a_relay_again_once() {
    let mut rates = Rates::chain(16);
    let mut roles = Vec::new();
    for step in 0..400_u32 {
        // Two are slow for three seconds, twice.
        let is_slow = (20..50).contains(&step) || (200..230).contains(&step);
        rates.step(|from, to| {
            let is_its = to == 5 || to == 9;
            Some(if is_its && is_slow { FULL / 3 } else { wavering(from, step) })
        });
        if roles.last() != Some(&rates.leaves()) {
            roles.push(rates.leaves());
        }
    }
    assert_eq!(roles, [vec![], vec![5, 9], vec![], vec![5, 9]]);
}

/// Two switches, below which each node is fed by several; one of the first ones feeds node 9, the
/// first of the second ones.
fn two_switches() -> Rates {
    let mut rates = Rates::chain(16);
    let mut situation = Situation::fresh(16, CHUNKS);
    situation.switches = vec![9, 7];
    let schedule = Schedule::new(ScheduleKind::Switches, situation).expect("a schedule");
    rates.watch.planned(&schedule);
    rates.links.retain(|link| *link != (8, 9));
    rates.links.push((2, 9));
    rates.links.extend((2..16).filter(|to| !(9..11).contains(to)).map(|to| (to - 2, to)));
    rates.links.extend([(13, 10), (5, 1)]);
    rates
}

#[test]
fn a_slow_link_between_switches_makes_no_node_slow() {
    let mut rates = two_switches();
    for step in 0..100 {
        let is_far = |from, to| from < 9 && to >= 9;
        rates.step(|from, to| Some(if is_far(from, to) { FULL / 5 } else { wavering(from, step) }));
    }
    assert_eq!(rates.findings, []);
}

#[test]
fn a_slow_node_that_sends_to_another_switch_is_found() {
    for slow in [2, 9] {
        let mut rates = two_switches();
        for step in 0..60 {
            let is_slow = |from, to| from == slow || to == slow;
            let is_far = |from, to| from < 9 && to >= 9;
            rates.step(|from, to| match (is_far(from, to), is_slow(from, to)) {
                (true, _) => Some(FULL / 5),
                (false, true) => Some(FULL / 2),
                (false, false) => Some(wavering(from, step)),
            });
        }
        assert!(rates.leaves() == [slow], "{slow}: {:?}", rates.findings);
    }
}

#[test]
fn a_relay_that_another_switch_feeds_does_not_lag_for_that() {
    let mut situation = Situation::fresh(16, CHUNKS);
    situation.switches = vec![9, 7];
    let schedule = Schedule::new(ScheduleKind::Chain, situation).expect("a schedule");
    let mut watch = SlowWatch::new(CHUNKS, CHUNK_LEN);
    watch.planned(&schedule);
    assert_eq!((watch.lags.feeder(9), watch.lags.feeder(10)), (None, Some(9)));
}
