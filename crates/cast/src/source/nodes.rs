//! What the source knows of each node.

use super::NodeOutcome;
use crate::schedule::{ChunkSet, NodeRole, NodeState, Situation};
use outboard_cluster::hub::PeerId;
use std::time::{Duration, Instant};

/// A node, from the first dial to its outcome.
#[derive(Debug)]
pub(super) struct CastNode {
    pub(super) host: String,
    /// Its index in the request's list.
    pub(super) place: usize,
    /// While it is connected.
    pub(super) peer: Option<PeerId>,
    pub(super) is_ready: bool,
    pub(super) role: NodeRole,
    /// What it said that it holds, for the plan that is being made.
    pub(super) held: Option<ChunkSet>,
    /// How many chunks it said last that it holds.
    pub(super) held_chunks: u64,
    /// When it said something last.
    pub(super) heard: Option<Instant>,
    /// How it ended; it may pass chunks on when it has published.
    pub(super) result: Option<Result<u32, String>>,
    /// When it ended.
    pub(super) ended: Option<Instant>,
}

/// All of them, by number; number 0 is the source itself.
#[derive(Debug)]
pub(super) struct CastNodes(Vec<CastNode>);

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
            role: NodeRole::Relay,
            held: None,
            held_chunks: 0,
            heard: None,
            result: None,
            ended: None,
        };
        Self(hosts.iter().zip(places).map(node).collect())
    }

    pub(super) fn get(&mut self, node: u32) -> Option<&mut CastNode> {
        self.0.get_mut(node as usize).filter(|_| node > 0)
    }

    /// All but the source.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &CastNode)> {
        (0..).zip(&self.0).skip(1)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut CastNode)> {
        (0..).zip(&mut self.0).skip(1)
    }

    pub(super) fn number(&self, peer: PeerId) -> Option<u32> {
        self.iter().find(|(_, node)| node.peer == Some(peer)).map(|(number, _)| number)
    }

    /// Those that are connected and ready.
    pub(super) fn live(&self) -> Vec<(u32, PeerId)> {
        let live = self.iter().filter(|(_, node)| node.is_ready);
        live.filter_map(|(number, node)| Some((number, node.peer?))).collect()
    }

    /// Those that are connected, ready or not.
    pub(super) fn connected(&self) -> Vec<PeerId> {
        self.iter().filter_map(|(_, node)| node.peer).collect()
    }

    /// The nodes that are connected and have said nothing for so long.
    pub(super) fn silent(&self, now: Instant, limit: Duration) -> Vec<(u32, PeerId)> {
        let is_silent = |node: &CastNode| node.heard.is_some_and(|heard| now > heard + limit);
        let silent = self.iter().filter(|(_, node)| is_silent(node));
        silent.filter_map(|(number, node)| Some((number, node.peer?))).collect()
    }

    /// Whether each is ready or has failed.
    pub(super) fn are_settled(&self) -> bool {
        self.iter().all(|(_, node)| node.is_ready || node.result.is_some())
    }

    /// A node takes no part any more. Says whether that is new.
    pub(super) fn fail(&mut self, number: u32, why: &str) -> bool {
        let Some(node) = self.get(number) else { return false };
        let was_alive = node.role != NodeRole::Dead;
        (node.role, node.peer, node.is_ready) = (NodeRole::Dead, None, false);
        if node.result.is_none() {
            (node.result, node.ended) = (Some(Err(why.to_owned())), Some(Instant::now()));
        }
        was_alive
    }

    /// The situation, once every live node has said what it holds.
    pub(super) fn situation(&self, chunks: u32) -> Option<Situation> {
        let mut situation = Situation::fresh(0, chunks);
        let own = NodeState { role: NodeRole::Relay, holds: ChunkSet::below(chunks) };
        situation.nodes.push(own);
        for (_, node) in self.iter() {
            let holds = match node.role {
                NodeRole::Dead => ChunkSet::empty(),
                NodeRole::Relay | NodeRole::Leaf => node.held.clone()?,
            };
            situation.nodes.push(NodeState { role: node.role, holds });
        }
        Some(situation)
    }

    /// How all ended, once all have, in the list's order.
    pub(super) fn outcomes(&self, began: Instant, chunks: u32) -> Option<Vec<NodeOutcome>> {
        let outcome = |(_, node): (u32, &CastNode)| {
            let result = node.result.clone()?;
            let held_chunks = if result.is_ok() { u64::from(chunks) } else { node.held_chunks };
            let took = node.ended.unwrap_or(began).saturating_duration_since(began);
            Some((node.place, NodeOutcome { host: node.host.clone(), result, held_chunks, took }))
        };
        let mut outcomes: Vec<_> = self.iter().map(outcome).collect::<Option<_>>()?;
        outcomes.sort_unstable_by_key(|(place, _)| *place);
        Some(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
    }
}
