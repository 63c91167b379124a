//! The source's plans at a node: whom it is connected with from then on.

use super::session::CastSession;
use super::source_fault::SourceFault;
use crate::member::{CastHub, CastMember, LinkPurpose, MemberResult, MemberSetup, send};
use crate::protocol::{CastMessage, PlanPart};
use crate::schedule::{NodeRole, Schedule};
use std::collections::BTreeSet;
use std::sync::Arc;

impl CastSession {
    /// A part of a plan has come; with the last, the node does as it says.
    pub(super) fn plan_part(
        &mut self,
        hub: &mut CastHub,
        part: PlanPart,
    ) -> Result<(), SourceFault> {
        let Some(situation) = self.parts.add(part)? else { return Ok(()) };
        let (chunks, nodes) = (situation.chunks, situation.nodes.len());
        let own = self.hashes.header().shape.chunks();
        // A cast that came with its first message names no nodes, and has no plan.
        if chunks != own || nodes != self.begin.nodes.len() || nodes == 0 {
            return Err(SourceFault::Plan { chunks, nodes });
        }
        let mut cut = situation.cut.iter().flat_map(|(a, b)| [*a, *b]);
        if let Some(node) = cut.find(|node| *node as usize >= nodes) {
            return Err(SourceFault::Cut { node, nodes });
        }
        let schedule = Schedule::new(self.begin.kind, situation)?;
        self.end_links(hub, &schedule)?;
        self.end_reading("this node is in the source's plan now");
        match &mut self.member {
            None => self.start(hub, &schedule)?,
            Some(member) => member.replan(hub, &schedule)?,
        }
        self.dial_peers(hub, &schedule);
        Ok(())
    }

    /// Ends what this node has with those that are given up, or that nothing comes from.
    fn end_links(&mut self, hub: &mut CastHub, schedule: &Schedule) -> MemberResult {
        let Some(member) = &mut self.member else { return Ok(()) };
        let (you, why) = (self.begin.you, "the source has given up its connection with this node");
        let cut = schedule.situation().cut.iter();
        let is_alone = cut.clone().any(|cut| *cut == (you, you));
        let of_cut = cut.filter_map(|&(a, b)| match (a == you, b == you) {
            (true, false) => Some(b),
            (false, true) => Some(a),
            _ => None,
        });
        let all = member.links().keys().copied().filter(|_| is_alone);
        let over: BTreeSet<u32> = dead(schedule).chain(of_cut).chain(all).collect();
        for node in over.into_iter().filter(|node| *node != 0) {
            self.ends.extend(member.links().get(&node).map(|peer| (*peer, why)));
            self.dialled.remove(&node);
            member.lost(hub, node)?;
        }
        Ok(())
    }

    pub(super) fn start(
        &mut self,
        hub: &mut CastHub,
        schedule: &Arc<Schedule>,
    ) -> Result<(), SourceFault> {
        let store = self.store.clone().ok_or(SourceFault::Early)?;
        let setup = MemberSetup {
            session: self.id,
            node: self.begin.you,
            shape: self.hashes.header().shape,
            window: self.window,
            rate: self.begin.rate,
            store,
            threads: self.reach.threads.clone(),
        };
        let member = self.member.insert(CastMember::new(setup, schedule)?);
        member.link(hub, 0, self.source)?;
        for (node, peer) in std::mem::take(&mut self.joined) {
            send(hub, peer, &CastMessage::Joined);
            member.link(hub, node, peer)?;
        }
        Ok(())
    }

    /// Dials the relays with higher numbers that the schedule connects with this one.
    fn dial_peers(&mut self, hub: &CastHub, schedule: &Schedule) {
        let you = self.begin.you;
        schedule.peers(you).into_iter().filter(|node| *node > you).for_each(|n| self.dial(hub, n));
    }

    /// Dials a relay, unless it was dialled already.
    pub(super) fn dial(&mut self, hub: &CastHub, node: u32) {
        let is_linked = self.member.as_ref().is_some_and(|m| m.links().contains_key(&node));
        if !is_linked && self.dialled.insert(node) {
            let host = &self.begin.nodes[node as usize];
            self.reach.begin(hub, self.id, (node, LinkPurpose::Relay), host);
        }
    }
}

fn dead(schedule: &Schedule) -> impl Iterator<Item = u32> + '_ {
    let nodes = (0..).zip(&schedule.situation().nodes);
    nodes.filter(|(_, state)| state.role == NodeRole::Dead).map(|(node, _)| node)
}
