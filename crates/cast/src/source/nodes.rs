//! What the source knows of each node.

use super::NodeOutcome;
use crate::protocol::SentRate;
use crate::schedule::{ChunkSet, NodeRole, NodeState, Situation};
use outboard_cluster::hub::PeerId;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// When a node that cannot be reached is dialled again; then after twice that, and so on.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A node that has said nothing for so long, and for so many times what half of the others have
/// said nothing for, is given up. It is dialled again: one that was merely slow to answer takes
/// part again.
const SILENCE_MIN: Duration = Duration::from_millis(500);
const SILENCE_TIMES: u32 = 6;
/// A leaf, for which nobody waits, a node that is the only one, and any node after so long.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// A question and its answer each may wait behind as many chunks as are under way to one node.
const SILENCE_CHUNKS: u32 = 2;

/// Rates of a node, of which the best one counts: a moment's rate says little.
const RATES: usize = 4;

/// A node, from the first dial to its outcome.
#[derive(Debug)]
pub(super) struct CastNode {
    pub(super) host: String,
    /// Its index in the request's list.
    pub(super) place: usize,
    /// While it is connected.
    pub(super) peer: Option<PeerId>,
    pub(super) is_ready: bool,
    /// It came late, or is slow: nobody waits for it.
    pub(super) is_leaf: bool,
    /// While it reads from others because it came late, and is in no plan: when it has gained
    /// something last.
    pub(super) reads_since: Option<Instant>,
    /// Whether it was told whom it can read from.
    pub(super) knows_holders: bool,
    /// Chunks that it has read, as it said when it had published.
    pub(super) read_chunks: u64,
    /// What it said last that it holds.
    pub(super) held: ChunkSet,
    /// How many chunks it said last that it holds.
    pub(super) held_chunks: u64,
    /// How fast it said that it sends, the latest few times, in bytes a second.
    rates: VecDeque<u64>,
    /// How fast the nodes were that sent to it alone, likewise.
    fed: VecDeque<u64>,
    /// When it said something last.
    pub(super) heard: Option<Instant>,
    /// When it published, or failed last.
    pub(super) ended: Option<Instant>,
    /// How many names it has published; it passes chunks on after that, too.
    pub(super) published: Option<u32>,
    /// Why it took no part any more, the last time that this was so.
    failed: Option<String>,
    /// When it is dialled again, and how long after that.
    retry: Option<(Instant, Duration)>,
}

/// Whether a node that has failed may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeReturn {
    /// It cannot be reached, or its connection has ended.
    Possible,
    /// It said that it takes no part, or breaks the rules.
    Never,
}

/// All of them, by number; number 0 is the source itself.
#[derive(Debug)]
pub(super) struct CastNodes {
    nodes: Vec<CastNode>,
    numbers: HashMap<PeerId, u32>,
}

impl CastNodes {
    /// Nodes by number, and their places in the request's list.
    pub(super) fn new(hosts: &[String], places: &[usize]) -> Self {
        // The source is in no list.
        let places = std::iter::once(&0).chain(places);
        let node = |(host, place): (&String, &usize)| CastNode {
            host: host.clone(),
            place: *place,
            peer: None,
            is_ready: false,
            is_leaf: false,
            reads_since: None,
            knows_holders: false,
            read_chunks: 0,
            held: ChunkSet::empty(),
            held_chunks: 0,
            rates: VecDeque::new(),
            fed: VecDeque::new(),
            heard: None,
            ended: None,
            published: None,
            failed: None,
            retry: None,
        };
        Self { nodes: hosts.iter().zip(places).map(node).collect(), numbers: HashMap::new() }
    }

    pub(super) fn get(&mut self, node: u32) -> Option<&mut CastNode> {
        self.nodes.get_mut(node as usize).filter(|_| node > 0)
    }

    /// All but the source.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &CastNode)> {
        (0..).zip(&self.nodes).skip(1)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut CastNode)> {
        (0..).zip(&mut self.nodes).skip(1)
    }

    pub(super) fn number(&self, peer: PeerId) -> Option<u32> {
        self.numbers.get(&peer).copied()
    }

    /// A node is connected.
    pub(super) fn connect(&mut self, number: u32, peer: PeerId, now: Instant) {
        if let Some(node) = self.get(number) {
            (node.peer, node.heard) = (Some(peer), Some(now));
            self.numbers.insert(peer, number);
        }
    }

    /// Those that are connected, ready and in the plan.
    pub(super) fn live(&self) -> Vec<(u32, PeerId)> {
        let live = self.iter().filter(|(_, node)| node.takes_part());
        live.filter_map(|(number, node)| Some((number, node.peer?))).collect()
    }

    /// Those that are connected, ready or not.
    pub(super) fn connected(&self) -> Vec<PeerId> {
        self.iter().filter_map(|(_, node)| node.peer).collect()
    }

    /// The nodes that are connected and have said nothing for too long, and for how long.
    ///
    /// All are asked at the same time, and half of the others having answered says how long that
    /// takes now, on these machines. So one that hangs is found soon where answers come at once,
    /// and none is blamed where everything is slow. `chunk` is how long a chunk takes to come:
    /// questions and answers wait behind chunks.
    pub(super) fn silent(
        &self,
        now: Instant,
        chunk: Option<Duration>,
    ) -> Vec<(u32, PeerId, Duration)> {
        let age = |node: &CastNode| {
            node.heard.filter(|_| node.peer.is_some()).map(|at| now.saturating_duration_since(at))
        };
        let mut ages: Vec<Duration> = self.iter().filter_map(|(_, node)| age(node)).collect();
        ages.sort_unstable();
        // One that is silent is behind all others: among two it is the second.
        let usual = ages.len().checked_sub(2).map(|last| ages[last.min(ages.len() / 2)]);
        let behind = chunk.unwrap_or_default() * SILENCE_CHUNKS;
        let limit =
            usual.map_or(SILENCE_MAX, |usual| SILENCE_MAX.min(SILENCE_MIN + usual * SILENCE_TIMES));
        let silent = |(number, node): (u32, &CastNode)| {
            // Nobody waits for a leaf.
            let limit = if node.is_leaf { SILENCE_MAX } else { limit } + behind;
            Some((number, node.peer?, age(node).filter(|age| *age > limit)?))
        };
        self.iter().filter_map(silent).collect()
    }

    /// Whether each is ready or has failed.
    pub(super) fn are_settled(&self) -> bool {
        self.iter().all(|(_, node)| node.is_ready || node.is_out())
    }

    /// A node takes no part any more. Says whether it did.
    pub(super) fn fail(
        &mut self,
        number: u32,
        why: &str,
        now: Instant,
        may: NodeReturn,
    ) -> Option<PeerId> {
        let node = self.get(number)?;
        if node.published.is_none() {
            let after = node.retry.map_or(RETRY_FIRST, |(_, after)| RETRY_MAX.min(after * 2));
            let again = node.failed.is_none() || node.peer.is_some() || may == NodeReturn::Possible;
            if again {
                (node.failed, node.ended) = (Some(why.to_owned()), Some(now));
            }
            node.retry = (may == NodeReturn::Possible).then_some((now + after, after));
        }
        (node.is_ready, node.held) = (false, ChunkSet::empty());
        node.reads_since = None;
        node.rates.clear();
        node.fed.clear();
        let peer = node.peer.take()?;
        self.numbers.remove(&peer);
        Some(peer)
    }

    /// The nodes that are to be dialled once more now.
    pub(super) fn due_again(&mut self, now: Instant) -> Vec<(u32, String)> {
        let due = |node: &CastNode| node.retry.is_some_and(|(at, _)| now >= at);
        let nodes = self.iter_mut().filter(|(_, node)| node.peer.is_none() && due(node));
        let begin = |(number, node): (u32, &mut CastNode)| {
            // Until the attempt has ended, which sets it again.
            let after = node.retry.map_or(RETRY_FIRST, |(_, after)| after);
            node.retry = Some((now + RETRY_MAX, after));
            (number, node.host.clone())
        };
        nodes.map(begin).collect()
    }

    /// A node, or the source, has said how fast it sends.
    pub(super) fn note_rate(&mut self, from: u32, rate: SentRate) {
        if let Some(node) = self.get(from) {
            note(&mut node.rates, rate.bytes_per_second);
        }
        if let Some(node) = rate.only_to.and_then(|to| self.get(to)) {
            note(&mut node.fed, rate.bytes_per_second);
        }
    }

    /// Makes leaves of the nodes that send slowly, for others would wait for them. Says whether
    /// there are new ones.
    pub(super) fn find_slow(&mut self) -> bool {
        let role = |node: &CastNode| match (node.takes_part(), node.is_leaf) {
            (false, _) => NodeRole::Dead,
            (true, true) => NodeRole::Leaf,
            (true, false) => NodeRole::Relay,
        };
        let state = |node: &CastNode| NodeState { role: role(node), holds: ChunkSet::empty() };
        let mut situation = Situation::fresh(0, 0);
        situation.nodes = self.nodes.iter().map(state).collect();
        let rates: Vec<Option<u64>> = self.nodes.iter().map(CastNode::rate).collect();
        situation.assign_leaves(&rates);
        let mut is_any = false;
        for (node, state) in self.nodes.iter_mut().zip(&situation.nodes) {
            if state.role == NodeRole::Leaf && !node.is_leaf {
                tracing::info!(host = node.host, "a slow node: nobody waits for it");
                (node.is_leaf, is_any) = (true, true);
            }
        }
        is_any
    }

    /// The situation, by what the nodes have said last.
    pub(super) fn situation(&self, chunks: u32) -> Situation {
        let mut situation = Situation::fresh(1, chunks);
        for (_, node) in self.iter() {
            let (role, holds) = match (node.takes_part(), node.is_leaf) {
                (false, _) => (NodeRole::Dead, ChunkSet::empty()),
                (true, true) => (NodeRole::Leaf, node.held.clone()),
                (true, false) => (NodeRole::Relay, node.held.clone()),
            };
            situation.nodes.push(NodeState { role, holds });
        }
        situation
    }

    /// How all ended, once all have, in the list's order: a node that takes part again is waited
    /// for.
    pub(super) fn outcomes(&self, began: Instant, chunks: u32) -> Option<Vec<NodeOutcome>> {
        let outcome = |(_, node): (u32, &CastNode)| {
            let result = match (node.published, &node.failed) {
                (Some(names), _) => Ok(names),
                (None, Some(why)) if node.peer.is_none() => Err(why.clone()),
                (None, _) => return None,
            };
            let held_chunks = if result.is_ok() { u64::from(chunks) } else { node.held_chunks };
            let took = node.ended.unwrap_or(began).saturating_duration_since(began);
            let (host, read_chunks) = (node.host.clone(), node.read_chunks);
            Some((node.place, NodeOutcome { host, result, held_chunks, read_chunks, took }))
        };
        let mut outcomes: Vec<_> = self.iter().map(outcome).collect::<Option<_>>()?;
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        Some(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}

impl CastNode {
    /// The best of the latest rates, when there are enough of them. One that sends slowly but is
    /// fed fast sends to a slow node, and one that never sends is as slow as it is fed.
    fn rate(&self) -> Option<u64> {
        let best = |rates: &VecDeque<u64>| {
            rates.iter().max().copied().filter(|_| self.is_ready && rates.len() == RATES)
        };
        best(&self.rates).max(best(&self.fed))
    }

    /// Whether it is ready, and in the plan.
    pub(super) fn takes_part(&self) -> bool {
        self.is_ready && self.reads_since.is_none()
    }

    /// It could not be heard for so long.
    pub(super) fn excuse(&mut self, now: Instant, late: Duration) {
        self.heard = self.heard.map(|heard| now.min(heard + late));
    }

    /// Whether it has failed, and does not take part again.
    pub(super) fn is_out(&self) -> bool {
        self.failed.is_some() && self.peer.is_none()
    }
}

/// Keeps the latest rates.
fn note(rates: &mut VecDeque<u64>, rate: u64) {
    rates.push_back(rate);
    if rates.len() > RATES {
        rates.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_keeps_sending_slowly_becomes_a_leaf_and_no_other() {
        let hosts: Vec<String> = (0..17).map(|node| format!("n{node}")).collect();
        let places: Vec<usize> = (0..16).collect();
        let mut nodes = CastNodes::new(&hosts, &places);
        nodes.iter_mut().for_each(|(_, node)| node.is_ready = true);
        for round in 0..4_u64 {
            assert!(!nodes.find_slow(), "round {round}");
            for number in 1..=16 {
                // All waver; one is at half rate, one is so only for a moment.
                let bytes_per_second = match (number, round) {
                    (5, _) | (6, 1) => 6_250_000,
                    (number, round) => 12_500_000 - 500_000 * ((u64::from(number) + round) % 4),
                };
                nodes.note_rate(number, SentRate { bytes_per_second, only_to: None });
            }
        }
        assert!(nodes.find_slow());
        let leaves = nodes.iter().filter(|(_, node)| node.is_leaf).map(|(number, _)| number);
        assert_eq!(leaves.collect::<Vec<_>>(), [5]);
        assert!(!nodes.find_slow(), "it is one already");
    }

    /// Of a chain: the source sends to 1, that to 2, and so on.
    #[test]
    fn a_slow_node_of_a_chain_costs_neither_neighbour_its_part() {
        for slow in [1, 4, 8] {
            let hosts: Vec<String> = (0..9).map(|node| format!("n{node}")).collect();
            let places: Vec<usize> = (0..8).collect();
            let mut nodes = CastNodes::new(&hosts, &places);
            nodes.iter_mut().for_each(|(_, node)| node.is_ready = true);
            for from in (0..8).cycle().take(RATES * 8) {
                let is_slow = from == slow || from + 1 == slow;
                let bytes_per_second = if is_slow { 5_000_000 } else { 12_000_000 };
                nodes.note_rate(from, SentRate { bytes_per_second, only_to: Some(from + 1) });
            }
            assert!(nodes.find_slow());
            let leaves = nodes.iter().filter(|(_, node)| node.is_leaf).map(|(number, _)| number);
            assert_eq!(leaves.collect::<Vec<_>>(), [slow]);
        }
    }
}
