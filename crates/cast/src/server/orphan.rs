//! A cast whose source has left: its nodes go on among themselves.
//!
//! No node takes the source's place. Each node tells those that it is connected with what it holds,
//! and asks them for what it lacks; so that all are connected, each dials a few more, by numbers
//! alone. A node that has all publishes and stays until its neighbours need nothing more. One that
//! gains nothing ends, and what it has stays for the next cast of the same content.

use super::session::CastSession;
use crate::member::{CastHub, MemberError, MemberResult, send, short};
use crate::pause::excuse;
use crate::protocol::{CastMessage, NodeReport, publish_step_max};
use crate::schedule::ChunkSet;
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a node tells what it holds.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// A node ends when neither it nor a neighbour has gained a chunk for so long.
const STALL_MAX: Duration = Duration::from_secs(8);
/// A neighbour that says nothing for so long hangs.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// So long a node that needs nothing waits for others to notice that the source has left.
const LINGER: Duration = Duration::from_secs(1);
/// The same for a node that has no neighbours: they may have to dial it.
const LINGER_ALONE: Duration = Duration::from_secs(3);
/// Up to this many nodes, each is connected with each.
const MESH_MAX: u32 = 16;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct OrphanCast {
    since: Instant,
    /// When this node or a neighbour gained a chunk.
    gained: Instant,
    /// When neighbours were sent a report last.
    reported: Instant,
    /// How many chunks this node has, and steps done of making the tree and publishing.
    held: u64,
    steps: u64,
    /// By neighbour, when it was heard, and how many chunks it has.
    heard: BTreeMap<u32, (Instant, u64)>,
    /// By neighbour, the most that it had.
    most: BTreeMap<u32, u64>,
}

impl CastSession {
    /// The source has left. False if nothing can be done without it.
    pub(super) fn orphan(&mut self, hub: &mut CastHub, now: Instant) -> Result<bool, MemberError> {
        let is_alone = self.is_deceived || self.begin.nodes.len() <= 2;
        let Some(member) = self.member.as_mut().filter(|_| !is_alone) else { return Ok(false) };
        member.lost(hub, 0)?;
        member.leave_schedule(hub)?;
        let (held, heard) = (member.relay().held().len(), BTreeMap::new());
        let most = BTreeMap::new();
        let reported = now.checked_sub(TELL_EVERY).unwrap_or(now);
        self.orphan =
            Some(OrphanCast { since: now, gained: now, reported, held, steps: 0, heard, most });
        let (you, nodes) = (self.begin.you, u32::try_from(self.begin.nodes.len()).unwrap_or(0));
        for node in neighbours(you, nodes).into_iter().filter(|node| *node > you) {
            self.dial(hub, node);
        }
        Ok(true)
    }

    /// The source is here again, over another connection.
    pub(super) fn adopt(&mut self, hub: &mut CastHub, source: PeerId) -> MemberResult {
        if self.orphan.take().is_none()
            && let Some(member) = &mut self.member
        {
            member.lost(hub, 0)?;
            member.leave_schedule(hub)?;
        }
        self.set_source(source);
        if self.store.is_some() {
            send(hub, source, &CastMessage::Ready);
        }
        // The former connection may have ended before it said so.
        self.tell_done(hub);
        self.member.as_mut().map_or(Ok(()), |member| member.link(hub, 0, source))
    }

    pub(super) fn orphan_held_up(&mut self, now: Instant, late: Duration) {
        let Some(orphan) = &mut self.orphan else { return };
        let heard = orphan.heard.values_mut().map(|(heard, _)| heard);
        let times = heard.chain([&mut orphan.since, &mut orphan.gained]);
        times.for_each(|since| excuse(since, now, late));
    }

    /// Whether the source has left.
    pub(super) fn is_orphan(&self) -> bool {
        self.orphan.is_some()
    }

    /// A neighbour says what it holds.
    pub(super) fn neighbour_holds(
        &mut self,
        hub: &mut CastHub,
        node: u32,
        holds: ChunkSet,
    ) -> Result<(), ServiceError> {
        if holds.end() > u64::from(self.chunks()) {
            return Err("it says that it holds chunks that there are not".into());
        }
        let (now, count) = (Instant::now(), holds.len());
        let (Some(orphan), Some(member)) = (&mut self.orphan, &mut self.member) else {
            // It has noticed sooner that the source has left, and says so again.
            return Ok(());
        };
        let known = orphan.heard.insert(node, (now, count)).map_or(0, |(_, count)| count);
        let most = orphan.most.entry(node).or_insert(known);
        if count > *most {
            (orphan.gained, *most) = (now, count);
        }
        Ok(member.peer_holds(hub, node, holds)?)
    }

    /// Tells neighbours what this node holds, at times. Returns why the cast is over here, if so.
    pub(super) fn tell_neighbours(
        &mut self,
        hub: &mut CastHub,
        now: Instant,
    ) -> Result<Option<&'static str>, MemberError> {
        let steps = self.steps();
        let (Some(orphan), Some(member)) = (&mut self.orphan, &mut self.member) else {
            return Ok(None);
        };
        if now < orphan.reported + TELL_EVERY {
            return Ok(None);
        }
        orphan.reported = now;
        let held = member.relay().held();
        if held.len() > orphan.held {
            (orphan.held, orphan.gained) = (held.len(), now);
        }
        if steps > orphan.steps {
            (orphan.steps, orphan.gained) = (steps, now);
        }
        let report =
            CastMessage::Held(Box::new(NodeReport { held: short(held), ..NodeReport::default() }));
        let links: Vec<(u32, PeerId)> = member.links().iter().map(|(n, p)| (*n, *p)).collect();
        orphan.heard.retain(|node, _| member.links().contains_key(node));
        for &(node, peer) in &links {
            let (heard, _) = *orphan.heard.entry(node).or_insert((now, 0));
            if now > heard + SILENCE_MAX {
                self.ends.push((peer, "it has said nothing since the source left: it hangs"));
                member.lost(hub, node)?;
            } else {
                send(hub, peer, &report);
            }
        }
        Ok(self.why_over(now))
    }

    fn why_over(&self, now: Instant) -> Option<&'static str> {
        let orphan = self.orphan.as_ref()?;
        let all = u64::from(self.chunks());
        let lingers = if orphan.heard.is_empty() { LINGER_ALONE } else { LINGER };
        let all_have_it = orphan.heard.values().all(|(_, count)| *count == all);
        if self.has_published() && all_have_it && now > orphan.since + lingers {
            return Some("the source has left, and all that can be reached have everything");
        }
        let stall = match self.is_busy_publishing() {
            true => publish_step_max(self.begin.flush, self.shape().stream_len()),
            // It gains nothing unless another one dials it.
            false if orphan.heard.is_empty() => LINGER_ALONE,
            false => STALL_MAX,
        };
        let is_stalled = now > orphan.gained + stall;
        is_stalled.then_some("the source has left, and no node here has what is lacking")
    }

    /// When to tell neighbours again.
    pub(super) fn orphan_deadline(&self) -> Option<Instant> {
        self.orphan.as_ref().map(|orphan| orphan.reported + TELL_EVERY)
    }
}

/// The nodes with which a node is connected when the source has left: all of a few; of many, those
/// whose numbers differ by a power of two around the circle of nodes.
fn neighbours(you: u32, nodes: u32) -> Vec<u32> {
    let others = nodes.saturating_sub(1);
    let is_near = |node: &u32| {
        let apart = node.abs_diff(you);
        let around = others.saturating_sub(apart);
        *node != you && (nodes <= MESH_MAX || apart.is_power_of_two() || around.is_power_of_two())
    };
    (1..nodes).filter(is_near).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_few_and_connect_all() {
        for nodes in [2, 3, 16, 17, 50, 2048] {
            let all: Vec<Vec<u32>> = (0..nodes).map(|node| neighbours(node, nodes)).collect();
            let mut reached = vec![1];
            let mut at = 0;
            while let Some(node) = reached.get(at).copied() {
                for near in &all[node as usize] {
                    assert!(all[*near as usize].contains(&node), "{node} and {near} of {nodes}");
                    if !reached.contains(near) {
                        reached.push(*near);
                    }
                }
                at += 1;
            }
            assert_eq!(reached.len(), nodes as usize - 1);
            assert!(all[1..].iter().all(|near| near.len() <= 22), "{nodes}");
        }
    }
}
