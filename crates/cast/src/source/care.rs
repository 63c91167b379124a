//! How the source looks after its nodes: plans, signs of life, and what is done about those that
//! have stopped.

use super::nodes::NodeReturn;
use super::service::{ASK_EVERY, READY_LIMIT, SourceService};
use super::watch::WatchVerdict;
use crate::member::{
    CastHub, CastMember, LinkPurpose, MemberSetup, PlanParts, WINDOW_BYTES, send,
};
use crate::protocol::CastMessage;
use crate::schedule::{NodeRole, Schedule, Situation};
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A node that says nothing for so long is given up. It is dialled again, so that one that was
/// merely slow to answer takes part again.
const SILENCE_LIMIT: Duration = Duration::from_secs(2);

impl SourceService {
    /// A node is gone, or failed.
    pub(super) fn lost(
        &mut self,
        hub: &mut CastHub,
        number: u32,
        why: &str,
        may: NodeReturn,
    ) -> Result<(), ServiceError> {
        let is_reader = self.nodes.readers().iter().any(|(reader, _)| *reader == number);
        if self.nodes.fail(number, why, Instant::now(), may).is_none() || is_reader {
            return Ok(());
        }
        self.watch.forget(number);
        if let Some(member) = &mut self.member {
            member.lost(hub, number)?;
            self.is_plan_due = true;
        }
        Ok(())
    }

    /// A node is given up: its session ends.
    fn give_up(
        &mut self,
        hub: &mut CastHub,
        (number, peer): (u32, PeerId),
        why: String,
        may: NodeReturn,
    ) -> Result<(), ServiceError> {
        self.lost(hub, number, &why, may)?;
        self.ends.push((peer, why.into()));
        Ok(())
    }

    /// Asks all nodes what they hold, if a plan is due and none is being made; sends one when
    /// everything for it is known.
    pub(super) fn plan(&mut self, hub: &mut CastHub) -> Result<(), ServiceError> {
        if self.member.is_none() {
            return if self.nodes.are_settled() { self.first_plan(hub) } else { Ok(()) };
        }
        if self.planning.is_none() && std::mem::take(&mut self.is_plan_due) {
            self.version += 1;
            self.planning = Some(self.version);
            self.nodes.iter_mut().for_each(|(_, node)| node.held = None);
            for (_, peer) in self.nodes.live() {
                send(hub, peer, &CastMessage::Report { version: self.version });
            }
        }
        // The source of nobody has nothing to plan.
        let situation = self.planning.and_then(|_| self.situation());
        let Some(situation) = situation else { return Ok(()) };
        self.planning = None;
        let schedule = self.send_plan(hub, situation)?;
        if let Some(member) = &mut self.member {
            for (number, peer) in self.nodes.live() {
                if !member.links().contains_key(&number) {
                    member.link(hub, number, peer)?;
                }
            }
            member.replan(hub, &schedule)?;
        }
        Ok(())
    }

    fn first_plan(&mut self, hub: &mut CastHub) -> Result<(), ServiceError> {
        let live = self.nodes.live();
        let needed = self.min_nodes.map_or(1, |min| min.max(1) as usize);
        if live.len() < needed {
            let (found, all) = (live.len(), self.begin.nodes.len() - 1);
            let why = format!(
                "the cast did not begin: {found} of {all} nodes could be reached, {needed} must"
            );
            return live
                .into_iter()
                .try_for_each(|node| self.give_up(hub, node, why.clone(), NodeReturn::Never));
        }
        let Some(situation) = self.situation() else { return Ok(()) };
        let schedule = self.send_plan(hub, situation)?;
        let setup = MemberSetup {
            cast: self.header.cast,
            node: 0,
            shape: self.header.shape,
            window: WINDOW_BYTES,
            rate: self.begin.rate,
            store: Arc::clone(&self.store) as _,
            threads: self.reach.threads.clone(),
        };
        let member = self.member.insert(CastMember::new(setup, &schedule)?);
        live.iter().try_for_each(|(number, peer)| member.link(hub, *number, *peer))?;
        self.watch.excuse(Instant::now());
        Ok(())
    }

    /// What the next plan is made from, once every live node has said what it holds.
    fn situation(&self) -> Option<Situation> {
        let mut situation = self.nodes.situation(self.header.shape.chunks())?;
        situation.switches.clone_from(&self.switches);
        situation.cut = self.watch.cut();
        for (number, state) in (0..).zip(&mut situation.nodes) {
            if state.role == NodeRole::Relay && self.watch.is_direct(number) {
                state.role = NodeRole::Leaf;
            }
        }
        situation.part_relays();
        Some(situation)
    }

    fn send_plan(
        &mut self,
        hub: &mut CastHub,
        situation: Situation,
    ) -> Result<Arc<Schedule>, ServiceError> {
        let messages = PlanParts::split(self.version, situation.clone());
        for (_, peer) in self.nodes.live() {
            messages.iter().for_each(|message| send(hub, peer, message));
        }
        Ok(Schedule::new(self.begin.kind, situation)?)
    }

    /// Asks all nodes how they are doing, and does something about those that have stopped.
    pub(super) fn look_after(
        &mut self,
        hub: &mut CastHub,
        now: Instant,
    ) -> Result<(), ServiceError> {
        let since = now.saturating_duration_since(self.asked);
        if since < ASK_EVERY {
            return Ok(());
        }
        self.asked = now;
        if since > 2 * ASK_EVERY {
            // This process itself was held up: that says nothing of the nodes.
            self.nodes.iter_mut().for_each(|(_, node)| node.heard = Some(now));
            self.watch.excuse(now);
        }
        self.give_up_on_late(hub, now)?;
        for node in self.nodes.silent(now, SILENCE_LIMIT) {
            let seconds = SILENCE_LIMIT.as_secs_f32();
            let why = format!("it has said nothing for {seconds} s: it hangs");
            self.give_up(hub, node, why, NodeReturn::Possible)?;
        }
        if self.member.is_some() {
            self.judge(hub, now)?;
            let own = self.member.as_mut().and_then(CastMember::take_rate);
            own.into_iter().for_each(|rate| self.nodes.note_rate(0, rate));
            self.is_plan_due |= self.nodes.find_slow();
            for (number, host) in self.nodes.due_again(now) {
                let again = (number, LinkPurpose::Relay);
                self.reach.begin(hub, self.header.cast, again, &host);
            }
            self.feed_stalled(now);
            self.name_holders(hub);
        }
        self.tell_progress(now);
        for peer in self.nodes.connected() {
            send(hub, peer, &CastMessage::Report { version: self.version });
        }
        Ok(())
    }

    fn judge(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        match self.watch.verdict(now) {
            WatchVerdict::Fine => {}
            WatchVerdict::Replan => self.is_plan_due = true,
            WatchVerdict::GiveUp(stalled) => {
                let live = self.nodes.live();
                for node in live.into_iter().filter(|(number, _)| stalled.contains(number)) {
                    let why = "it receives nothing, although the source has sent it what it \
                               lacks: see to its network and its disk";
                    self.give_up(hub, node, why.to_owned(), NodeReturn::Never)?;
                }
            }
        }
        Ok(())
    }

    fn give_up_on_late(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        if self.member.is_some() || now < self.ready_until {
            return Ok(());
        }
        let late = self.nodes.iter().filter(|(_, node)| !node.is_ready && !node.is_out());
        let late: Vec<(u32, Option<PeerId>)> = late.map(|(n, node)| (n, node.peer)).collect();
        for (number, peer) in late {
            let why = format!("it was not ready within {} s", READY_LIMIT.as_secs());
            self.ends.extend(peer.map(|peer| (peer, why.clone().into())));
            self.lost(hub, number, &why, NodeReturn::Possible)?;
        }
        Ok(())
    }
}
