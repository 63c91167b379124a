//! What the source knows of each node.

use super::NodeOutcome;
use super::silence::AnswerTimes;
use super::slow::{NodeStanding, SlowFinding};
use crate::pause::excuse;
use crate::schedule::{ChunkSet, NodeRole, NodeState, Situation};
use outboard_cluster::hub::PeerId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// When a node that cannot be reached is dialled again; then after twice that, and so on.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A node that took part is waited for so long after it was lost: one that hung for a moment
/// can still get everything.
const COMEBACK: Duration = Duration::from_secs(3);

/// A node, from the first dial to its outcome.
#[derive(Debug)]
pub(super) struct CastNode {
    pub(super) host: String,
    /// Its index in the request's list.
    pub(super) place: usize,
    /// While it is connected.
    pub(super) peer: Option<PeerId>,
    pub(super) is_ready: bool,
    /// When it was lost last while it took part.
    lost: Option<Instant>,
    /// It came late, or is slow: no other node waits for it.
    pub(super) is_leaf: bool,
    /// While it reads from others because it came late, and is in no plan: when it has gained
    /// something last.
    pub(super) reads_since: Option<Instant>,
    /// Whether it knows which nodes it can read from.
    pub(super) knows_holders: bool,
    /// Chunks that it has read, as it said when it had published.
    pub(super) read_chunks: u64,
    /// What it said last that it holds.
    pub(super) held: ChunkSet,
    /// How many chunks it said last that it holds.
    pub(super) held_chunks: u64,
    /// Steps of making and publishing that it said last.
    pub(super) steps: u64,
    /// Whether it has done such steps since, and has kept no chunk.
    pub(super) is_making: bool,
    /// When it said something last.
    pub(super) heard: Option<Instant>,
    /// When it was connected last.
    connected: Option<Instant>,
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
            lost: None,
            is_leaf: false,
            reads_since: None,
            knows_holders: false,
            read_chunks: 0,
            held: ChunkSet::empty(),
            held_chunks: 0,
            steps: 0,
            is_making: false,
            heard: None,
            connected: None,
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

    /// With the source.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
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
            (node.peer, node.heard, node.connected) = (Some(peer), Some(now), Some(now));
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

    /// How soon nodes answer; `chunk` is how long a chunk takes to come.
    pub(super) fn answer_times(&self, now: Instant, chunk: Option<Duration>) -> AnswerTimes {
        AnswerTimes::new(self.iter().filter_map(|(_, node)| node.age(now)), chunk)
    }

    /// The nodes that are connected and have said nothing for too long, and for how long.
    pub(super) fn silent(&self, now: Instant, times: AnswerTimes) -> Vec<(u32, PeerId, Duration)> {
        let silent = |(number, node): (u32, &CastNode)| {
            let is_silent = |age: &Duration| times.is_silent(*age, node.is_leaf);
            Some((number, node.peer?, node.age(now).filter(is_silent)?))
        };
        self.iter().filter_map(silent).collect()
    }

    /// How many are neither ready nor have failed.
    pub(super) fn unsettled(&self) -> usize {
        self.iter().filter(|(_, node)| !node.is_ready && !node.is_out()).count()
    }

    /// The nodes that have been connected for longer than the limit and are not ready.
    pub(super) fn overdue(&self, now: Instant, limit: Duration) -> Vec<(u32, PeerId)> {
        let overdue = |(number, node): (u32, &CastNode)| {
            let since = node.connected.filter(|_| !node.is_ready && node.published.is_none())?;
            let is_overdue = now.saturating_duration_since(since) >= limit;
            Some((number, node.peer.filter(|_| is_overdue)?))
        };
        self.iter().filter_map(overdue).collect()
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
        node.lost = if node.is_ready { Some(now) } else { node.lost };
        (node.is_ready, node.held) = (false, ChunkSet::empty());
        node.reads_since = None;
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

    /// All nodes but the source, as they stand.
    pub(super) fn standings(&self) -> Vec<NodeStanding> {
        let standing = |(number, node): (u32, &CastNode)| NodeStanding {
            number,
            role: node.role(),
            held: node.held.len(),
        };
        self.iter().map(standing).collect()
    }

    /// Makes leaves of slow nodes, and relays of others.
    pub(super) fn assign(&mut self, finding: &SlowFinding) {
        for (number, node) in self.iter_mut() {
            let is_slow = finding.leaves.contains(&number);
            if is_slow || finding.relays.contains(&number) {
                tracing::info!(
                    host = node.host,
                    is_slow,
                    "slow nodes become leaves, others relays again"
                );
                node.is_leaf = is_slow;
            }
        }
    }

    /// The situation, by what the nodes have said last.
    pub(super) fn situation(&self, chunks: u32) -> Situation {
        let mut situation = Situation::fresh(1, chunks);
        for (_, node) in self.iter() {
            let role = node.role();
            let holds = match role {
                NodeRole::Dead => ChunkSet::empty(),
                NodeRole::Relay | NodeRole::Leaf => node.held.clone(),
            };
            situation.nodes.push(NodeState { role, holds });
        }
        situation
    }

    /// How all ended, once all have, in the list's order: a node that takes part again is waited
    /// for.
    pub(super) fn outcomes(
        &self,
        now: Instant,
        began: Instant,
        chunks: u32,
    ) -> Option<Vec<NodeOutcome>> {
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
        // Asked at every turn: the first that is not over decides.
        if self.iter().any(|(_, node)| node.published.is_none() && !node.is_given_up(now)) {
            return None;
        }
        let mut outcomes: Vec<_> = self.iter().map(outcome).collect::<Option<_>>()?;
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        Some(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}

impl CastNode {
    fn role(&self) -> NodeRole {
        match (self.takes_part(), self.is_leaf) {
            (false, _) => NodeRole::Dead,
            (true, true) => NodeRole::Leaf,
            (true, false) => NodeRole::Relay,
        }
    }

    /// Whether it is ready, and in the plan.
    pub(super) fn takes_part(&self) -> bool {
        self.is_ready && self.reads_since.is_none()
    }

    /// How long ago it was heard, while it is connected.
    fn age(&self, now: Instant) -> Option<Duration> {
        let heard = self.heard.filter(|_| self.peer.is_some());
        heard.map(|at| now.saturating_duration_since(at))
    }

    /// Takes a pause of the source out of all times.
    pub(super) fn excuse(&mut self, now: Instant, late: Duration) {
        let times = [&mut self.heard, &mut self.connected, &mut self.lost, &mut self.reads_since];
        times.into_iter().flatten().for_each(|since| excuse(since, now, late));
    }

    /// Whether it has failed, and is not about to come back.
    fn is_given_up(&self, now: Instant) -> bool {
        let lost = self.lost.filter(|_| self.retry.is_some());
        let is_back_soon = |at| now.saturating_duration_since(at) < COMEBACK;
        self.is_out() && !lost.is_some_and(is_back_soon)
    }

    /// Whether it has failed, and takes no part.
    pub(super) fn is_out(&self) -> bool {
        self.failed.is_some() && self.peer.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_source_leaves_a_lost_node_its_time_to_come_back() {
        let (began, s) = (Instant::now(), Duration::from_secs);
        let mut nodes = CastNodes::new(&["here".into(), "n1".into()], &[0]);
        nodes.get(1).expect("there").is_ready = true;
        nodes.fail(1, "its connection has ended", began, NodeReturn::Possible);
        let is_over = |nodes: &CastNodes, now| nodes.outcomes(now, began, 1).is_some();
        assert!(!is_over(&nodes, began + s(2)));
        // From then on the source does not run for ten seconds.
        nodes.iter_mut().for_each(|(_, node)| node.excuse(began + s(12), s(10)));
        assert!(!is_over(&nodes, began + s(12)), "it had two seconds");
        assert!(is_over(&nodes, began + s(14)));
    }
}
