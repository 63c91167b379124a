//! Which node sends which chunk to which node, and in which order: pure values, the same on every
//! node that is given the same [`Situation`].
//!
//! A schedule is computed once, in time proportional to the number of nodes; a node's transfers
//! are then enumerated one by one, each in at most logarithmic time, and never stored. Nothing
//! here waits, sends, measures or reads a clock.
//!
//! How a relay is driven by it: it makes an [`Outbox`] for what it sends and an [`Inbox`] for
//! what it expects, asks the outbox for the next transfer whose chunk it holds and whose receiver
//! has room, and drops both when a new situation comes. Steps are those of lock-step execution;
//! executed as the network permits, the lists cannot deadlock, because each transfer waits for
//! transfers of earlier steps only. A receiver must have room for the first of what it still
//! expects; it should have room for any of the first 16, from several peers at once, or every
//! step, and not only every hop, takes a latency longer.
//!
//! Reading order: `kind`, `chunk_set`, `situation`, `overlay` and what implements it (`binomial`,
//! `two_tree`, `tree`, `switches`), `gathers`, `leaves`, `transfers`, `link`, `plan` and `choice`,
//! `topology`.

mod binomial;
mod choice;
mod chunk_set;
mod gathers;
mod kind;
mod leaves;
mod link;
mod overlay;
mod plan;
mod situation;
mod switches;
#[cfg(test)]
mod tests;
mod topology;
mod transfers;
mod tree;
mod two_tree;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use chunk_set::{ChunkRuns, ChunkSet};
pub use kind::{ScheduleKind, UnknownSchedule};
pub use link::LinkModel;
pub use plan::{CastPlan, PlanError, PlanRequest};
pub use situation::{NodeRole, NodeState, NodeSwitches, Situation};
pub use topology::{NodeOrder, Topology, TopologyError};
pub use transfers::{Inbox, Outbox, SendLane, Transfer};

use binomial::{Binomial, sorted};
use gathers::Gathers;
use leaves::LeafFeeders;
use overlay::Overlay;
use switches::SwitchChain;
use tree::ArityTree;
use two_tree::TwoTree;

/// Why there is no schedule for a situation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No node is left.
    #[error("none of the {nodes} nodes is alive: start the cast again with nodes that are")]
    NoneAlive {
        /// Nodes in the situation.
        nodes: usize,
    },
    /// A node claims chunks that are not of this cast.
    #[error(
        "node {node} says that it holds chunk {found}, but the cast has {chunks} chunks: it takes \
         part in another cast, or its state is damaged; leave it out"
    )]
    NoSuchChunk {
        /// The node that said so.
        node: u32,
        /// The highest chunk that it claims.
        found: u64,
        /// Chunks in the cast.
        chunks: u32,
    },
}

/// Which node sends which chunk to which, from one situation on.
#[derive(Debug)]
pub struct Schedule {
    kind: ScheduleKind,
    situation: Situation,
    overlay: Box<dyn Overlay>,
    /// Rank to node; rank 0 is the root.
    ranks: Vec<u32>,
    /// Node to rank, of relays.
    rank_of: Vec<Option<u32>>,
    /// Position in the pipeline to chunk.
    order: ChunkRuns,
    gathers: Gathers,
    lost: ChunkSet,
    /// Nodes that only receive.
    leaves: Vec<u32>,
    /// By leaf, the ranks that feed it in turn.
    feeders: Vec<Vec<u32>>,
    switches: NodeSwitches,
}

impl Schedule {
    /// The schedule from `situation` on: every live node ends with every chunk that a live node
    /// holds, and is sent none that it holds already.
    ///
    /// # Errors
    /// If all nodes are dead, or one claims chunks that there are not.
    pub fn new(kind: ScheduleKind, situation: Situation) -> Result<Arc<Self>, ScheduleError> {
        check(&situation)?;
        let nodes = situation.nodes.len();
        let root = root(&situation).ok_or(ScheduleError::NoneAlive { nodes })?;
        let (ranks, sizes) = ranks(&situation, root);
        let leaves: Vec<u32> = live(&situation, NodeRole::Leaf).filter(|n| *n != root).collect();
        let held = held(&situation, ranks.iter().chain(&leaves));
        let lost: ChunkSet = held.missing(situation.chunks).iter().collect();
        let gathers = Gathers::to_root(&situation, &ranks, &leaves, &lost);
        let order = order(&situation, &ranks, &lost);
        let size = u32::try_from(ranks.len()).unwrap_or(u32::MAX);
        let overlay = overlay(kind, size, order.len(), &sizes);
        let gathers = match kind {
            ScheduleKind::Switches => gathers.with_switches(&situation, &ranks, &sizes),
            _ => gathers,
        };
        let switches = NodeSwitches::new(nodes, &situation.switches);
        let feeders = LeafFeeders::new(&situation, &switches, &ranks);
        let feeders = feeders.feeders(&leaves, &overlay.feeders());
        let mut rank_of = vec![None; nodes];
        for (rank, node) in (0..).zip(&ranks) {
            rank_of[*node as usize] = Some(rank);
        }
        let schedule = Self {
            kind,
            situation,
            overlay,
            ranks,
            rank_of,
            order,
            gathers,
            lost,
            leaves,
            feeders,
            switches,
        };
        Ok(Arc::new(schedule))
    }

    /// The kind that this is.
    #[must_use]
    pub fn kind(&self) -> ScheduleKind {
        self.kind
    }

    /// The situation from which it was made.
    #[must_use]
    pub fn situation(&self) -> &Situation {
        &self.situation
    }

    /// The switch of each node.
    #[must_use]
    pub fn switches(&self) -> &NodeSwitches {
        &self.switches
    }

    /// The node from which chunks start: the source, or the relay that holds most if it is dead.
    #[must_use]
    pub fn root(&self) -> u32 {
        self.ranks[0]
    }

    /// Steps of lock-step execution until every relay has everything, if the root does.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.overlay.steps()
    }

    /// The chunks that no live node holds.
    #[must_use]
    pub fn lost(&self) -> &ChunkSet {
        &self.lost
    }

    /// Of how many chunks, the last that it received, a relay in lock-step with the others has to
    /// have the bytes; what comes and goes out of order comes on top of it.
    #[must_use]
    pub fn window_chunks(&self) -> u32 {
        self.overlay.window()
    }

    /// The nodes with which `node` is connected, ascending.
    #[must_use]
    pub fn peers(&self, node: u32) -> Vec<u32> {
        let mut peers = Vec::new();
        if let Some(rank) = self.rank(node) {
            let overlay =
                self.overlay.receivers(rank).into_iter().chain(self.overlay.senders(rank));
            peers.extend(overlay.map(|rank| self.ranks[rank as usize]));
            let fed = |leaf: &usize| !self.feeder_turns(*leaf, rank).is_empty();
            peers.extend((0..self.leaves.len()).filter(fed).map(|leaf| self.leaves[leaf]));
        }
        if let Some(leaf) = self.leaf_index(node) {
            peers.extend(self.feeders[leaf].iter().map(|rank| self.ranks[*rank as usize]));
        }
        peers.extend(self.gathers.peers(node));
        sorted(peers.into_iter())
    }

    /// The node with which `node` is connected and that is nearer to the root than itself: what is
    /// waited for is asked of it. `None` for the root and the dead.
    #[must_use]
    pub fn upstream(&self, node: u32) -> Option<u32> {
        let rank = match (self.rank(node), self.leaf_index(node)) {
            (Some(0), _) | (None, None) => return None,
            (Some(rank), _) => {
                let senders = self.overlay.senders(rank).into_iter();
                senders.filter(|sender| *sender < rank).min().unwrap_or(0)
            }
            (None, Some(leaf)) => self.feeders[leaf].iter().copied().min().unwrap_or(0),
        };
        Some(self.ranks[rank as usize])
    }

    /// By relay, the node that alone feeds it all the time; none where a kind has several, or has
    /// them wait for each other.
    #[must_use]
    pub fn single_feeders(&self) -> BTreeMap<u32, u32> {
        let is_steady = matches!(self.kind, ScheduleKind::Chain | ScheduleKind::Tree { .. });
        let ranks = (1..).zip(&self.ranks[1..]).filter(|_| is_steady);
        let feeder = |(rank, node): (u32, &u32)| match self.overlay.senders(rank)[..] {
            [sender] => Some((*node, self.ranks[sender as usize])),
            _ => None,
        };
        ranks.filter_map(feeder).collect()
    }

    fn rank(&self, node: u32) -> Option<u32> {
        *self.rank_of.get(node as usize)?
    }

    fn holds(&self, node: u32, chunk: u32) -> bool {
        self.situation.nodes[node as usize].holds.contains(chunk)
    }

    fn leaf_index(&self, node: u32) -> Option<usize> {
        self.leaves.binary_search(&node).ok()
    }

    fn feeder_turns(&self, leaf: usize, rank: u32) -> Vec<usize> {
        let feeders = self.feeders[leaf].iter().enumerate();
        feeders.filter(|(_, feeder)| **feeder == rank).map(|(turn, _)| turn).collect()
    }
}

/// The schedule of a kind over ranks and positions; `switches` are numbers of ranks.
fn overlay(kind: ScheduleKind, ranks: u32, chunks: u32, switches: &[u32]) -> Box<dyn Overlay> {
    match kind {
        ScheduleKind::BinomialPipeline => Box::new(Binomial::new(ranks, chunks)),
        ScheduleKind::TwoTree => Box::new(TwoTree::new(ranks, chunks)),
        ScheduleKind::Chain => Box::new(ArityTree::pipelined(1, ranks, chunks)),
        ScheduleKind::Tree { arity } => Box::new(ArityTree::pipelined(arity.get(), ranks, chunks)),
        ScheduleKind::PaperTree { arity } => {
            Box::new(ArityTree::whole_file(arity.get(), ranks, chunks))
        }
        ScheduleKind::Star => Box::new(ArityTree::pipelined(ranks, ranks, chunks)),
        ScheduleKind::Switches => Box::new(SwitchChain::new(switches, chunks)),
    }
}

fn check(situation: &Situation) -> Result<(), ScheduleError> {
    for (node, state) in (0..).zip(&situation.nodes) {
        let end = state.holds.end();
        if end > u64::from(situation.chunks) {
            let chunks = situation.chunks;
            return Err(ScheduleError::NoSuchChunk { node, found: end - 1, chunks });
        }
    }
    Ok(())
}

fn live(situation: &Situation, role: NodeRole) -> impl Iterator<Item = u32> + '_ {
    (0..).zip(&situation.nodes).filter(move |(_, state)| state.role == role).map(|(node, _)| node)
}

/// The source while it lives, then the relay that holds most, then such a leaf.
fn root(situation: &Situation) -> Option<u32> {
    let most = |role| {
        let held = |node: &u32| situation.nodes[*node as usize].holds.len();
        live(situation, role).max_by_key(|node| (held(node), std::cmp::Reverse(*node)))
    };
    match situation.nodes.first()?.role {
        NodeRole::Relay | NodeRole::Leaf => Some(0),
        NodeRole::Dead => most(NodeRole::Relay).or_else(|| most(NodeRole::Leaf)),
    }
}

/// Relays by rank, and the number of them below each switch: the root and its switch come first.
fn ranks(situation: &Situation, root: u32) -> (Vec<u32>, Vec<u32>) {
    let mut switches: Vec<Vec<u32>> = Vec::new();
    let mut begin = 0_u32;
    let nodes = u32::try_from(situation.nodes.len()).unwrap_or(u32::MAX);
    for size in situation.switches.iter().copied().chain([nodes]) {
        let end = nodes.min(begin.saturating_add(size));
        let relay = |node: &u32| situation.nodes[*node as usize].role == NodeRole::Relay;
        switches.push((begin..end).filter(|node| *node == root || relay(node)).collect());
        begin = end;
    }
    switches.retain(|switch| !switch.is_empty());
    if let Some(first) = switches.iter().position(|switch| switch.contains(&root)) {
        switches.rotate_left(first);
    }
    if let Some(first) = switches.first_mut() {
        first.retain(|node| *node != root);
        first.insert(0, root);
    }
    let sizes = switches.iter().map(|switch| u32::try_from(switch.len()).unwrap_or(u32::MAX));
    (switches.concat(), sizes.collect())
}

fn held<'a>(situation: &Situation, nodes: impl Iterator<Item = &'a u32>) -> ChunkSet {
    let mut held = ChunkSet::empty();
    for node in nodes {
        held.unite(&situation.nodes[*node as usize].holds);
    }
    held
}

/// What the pipeline carries: every chunk that a relay lacks, first what the root has.
fn order(situation: &Situation, ranks: &[u32], lost: &ChunkSet) -> ChunkRuns {
    let holds = |node: u32| &situation.nodes[node as usize].holds;
    let mut everywhere = ChunkSet::below(situation.chunks);
    for node in &ranks[1..] {
        everywhere.intersect(holds(*node));
    }
    everywhere.unite(lost);
    let missing = everywhere.missing(situation.chunks);
    let mut order = ChunkRuns::default();
    for there in [true, false] {
        for chunk in missing.iter().filter(|c| holds(ranks[0]).contains(*c) == there) {
            order.push(chunk);
        }
    }
    order
}
