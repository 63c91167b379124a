//! How the source looks after its nodes: plans, signs of life, and what is done about those that
//! have stopped.

use super::nodes::NodeReturn;
use super::service::{READY_LIMIT, SourceService};
use super::silence::AnswerTimes;
use super::watch::WatchVerdict;
use crate::member::{
    CastHub, CastMember, LinkPurpose, MemberSetup, PlanParts, SessionId, WINDOW_BYTES, send,
};
use crate::pause::pause;
use crate::protocol::CastMessage;
use crate::schedule::{NodeRole, Schedule, ScheduleKind, Situation};
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A plan is made no sooner than this after the one before: what several nodes tell of one fault
/// goes into one plan.
const PLAN_PAUSE: Duration = Duration::from_millis(50);
/// Nodes are asked how they are doing no more often than this,
const ASK_MIN: Duration = Duration::from_millis(100);
/// and no more rarely;
const ASK_MAX: Duration = Duration::from_millis(500);
/// between these, each node adds this.
const ASK_FOR_EACH: Duration = Duration::from_millis(4);
/// The first chunks of a star may take this long, each behind those of all others.
const FIRST_CHUNK_MAX: Duration = Duration::from_secs(3);

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
        tracing::info!(host = self.begin.nodes.get(number as usize), why, "a node takes no part");
        self.watch.forget(number);
        self.slow.forget(number);
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

    /// Makes and sends a plan, if one is due, from what the nodes have said last: it needs no
    /// answer, least of all of those that no longer give one. What a node has received since, it
    /// says to the sender that the plan names.
    pub(super) fn plan(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        if self.begin.only.is_some() {
            return Ok(());
        }
        if self.member.is_none() {
            return if self.may_begin(now) { self.first_plan(hub) } else { Ok(()) };
        }
        if !self.is_plan_due || now < self.planned + PLAN_PAUSE {
            return Ok(());
        }
        (self.is_plan_due, self.planned) = (false, now);
        self.version += 1;
        let situation = self.situation();
        let dead = situation.nodes.iter().filter(|node| node.role == NodeRole::Dead).count();
        tracing::info!(version = self.version, dead, cut = ?situation.cut, "a new plan");
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

    /// Whether the cast begins now, though some nodes may not be ready.
    fn may_begin(&mut self, now: Instant) -> bool {
        let (ready, missing) = (self.nodes.live().len(), self.nodes.unsettled());
        self.start.is_over(now, ready, missing) && (missing == 0 || ready >= self.needed())
    }

    /// Nodes without which no cast begins.
    fn needed(&self) -> usize {
        self.min_nodes.map_or(1, |min| min.max(1) as usize)
    }

    fn first_plan(&mut self, hub: &mut CastHub) -> Result<(), ServiceError> {
        let live = self.nodes.live();
        let needed = self.needed();
        if live.len() < needed {
            let (found, all) = (live.len(), self.begin.nodes.len() - 1);
            let why = format!(
                "the cast did not begin: {found} of {all} nodes could be reached, {needed} must"
            );
            return live
                .into_iter()
                .try_for_each(|node| self.give_up(hub, node, why.clone(), NodeReturn::Never));
        }
        let situation = self.situation();
        tracing::info!(kind = ?self.begin.kind, nodes = live.len(), "the first plan");
        let schedule = self.send_plan(hub, situation)?;
        let setup = MemberSetup {
            session: SessionId::default(),
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

    /// What the next plan is made from.
    fn situation(&self) -> Situation {
        let mut situation = self.nodes.situation(self.header.shape.chunks());
        situation.switches.clone_from(&self.switches);
        situation.cut = self.watch.cut();
        for (number, state) in (0..).zip(&mut situation.nodes) {
            if state.role == NodeRole::Relay && self.watch.is_direct(number) {
                state.role = NodeRole::Leaf;
            }
        }
        situation.part_relays();
        situation
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
        let schedule = Schedule::new(self.begin.kind, situation)?;
        self.slow.planned(&schedule);
        Ok(schedule)
    }

    /// Asks all nodes how they are doing, and does something about those that have stopped.
    pub(super) fn look_after(
        &mut self,
        hub: &mut CastHub,
        now: Instant,
    ) -> Result<(), ServiceError> {
        let (since, every) = (now.saturating_duration_since(self.asked), self.ask_every());
        if since < every {
            return Ok(());
        }
        self.asked = now;
        if let Some(late) = pause(since, every) {
            self.absence.note(now, since, late);
            self.nodes.iter_mut().for_each(|(_, node)| node.excuse(now, late));
            self.start.held_up(now, late);
            self.signs.held_up(now, late);
            self.watch.held_up(now, late);
            self.slow.held_up(now, late);
        }
        self.give_up_on_late(hub, now)?;
        let times = self.answer_times(now);
        self.watch.answers_take(times.usual());
        for (node, peer, silent) in self.nodes.silent(now, times) {
            let why = format!("it has said nothing for {:.1} s: it hangs", silent.as_secs_f32());
            self.give_up(hub, (node, peer), why, NodeReturn::Possible)?;
        }
        if self.member.is_some() {
            self.excuse_while_signing(now)?;
            self.judge(hub, now)?;
            self.find_slow(now);
        }
        if self.member.is_some() || self.begin.only.is_some() {
            for (number, host) in self.nodes.due_again(now) {
                let again = (number, LinkPurpose::Relay);
                self.reach.begin(hub, SessionId::default(), again, &host);
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

    /// How soon nodes answer. In a star every question waits behind the chunks of all, and no node
    /// waits for another.
    fn answer_times(&self, now: Instant) -> AnswerTimes {
        let is_star = self.begin.kind == ScheduleKind::Star;
        let so_far = now.saturating_duration_since(self.planned).min(FIRST_CHUNK_MAX);
        let is_sending = is_star && self.member.is_some();
        let so_far = || is_sending.then_some(so_far);
        let times = self.nodes.answer_times(now, self.watch.chunk_time().or_else(so_far));
        if is_star { times.of_leaves() } else { times }
    }

    /// How often nodes are asked how they are doing: the more there are, the less often.
    pub(super) fn ask_every(&self) -> Duration {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        ASK_FOR_EACH.saturating_mul(nodes).clamp(ASK_MIN, ASK_MAX)
    }

    /// When a plan can be made that is due.
    pub(super) fn plan_at(&self) -> Option<Instant> {
        let is_waiting = self.is_plan_due && self.member.is_some();
        is_waiting.then_some(self.planned + PLAN_PAUSE)
    }

    /// Makes leaves of slow nodes.
    fn find_slow(&mut self, now: Instant) {
        if let Some(member) = &mut self.member {
            self.slow.report(now, 0, &member.report(self.version));
        }
        if let Some(finding) = self.slow.find(now, &self.nodes.standings()) {
            self.nodes.assign(&finding);
            self.is_plan_due = true;
        }
    }

    /// Nodes that have all that is signed wait for this machine.
    fn excuse_while_signing(&mut self, now: Instant) -> Result<(), ServiceError> {
        let shape = &self.header.shape;
        let runs = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        let signed = if runs < shape.runs() { shape.chunks_of(runs).start } else { shape.chunks() };
        if !self.watch.has_all_of(signed) {
            return Ok(());
        }
        if !self.signs.is_going_on(now) {
            return Err(self.signs.complaint().into());
        }
        self.watch.wait_for_source(now);
        Ok(())
    }

    fn judge(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        match self.watch.verdict(now) {
            WatchVerdict::Fine => {}
            WatchVerdict::Replan => self.is_plan_due = true,
            WatchVerdict::GiveUp(stalled) => {
                let why = "it receives nothing, although the source has sent it what it lacks: \
                           see to its network and its disk";
                self.give_up_all(hub, &stalled, why)?;
            }
            WatchVerdict::Hang(hanging) => {
                let why = "it has everything, and its disk does not answer while that is \
                           published: see to its file system at the destination";
                self.give_up_all(hub, &hanging, why)?;
            }
        }
        Ok(())
    }

    fn give_up_all(
        &mut self,
        hub: &mut CastHub,
        nodes: &[u32],
        why: &str,
    ) -> Result<(), ServiceError> {
        let live = self.nodes.live();
        let mut given_up = live.into_iter().filter(|(number, _)| nodes.contains(number));
        given_up.try_for_each(|node| self.give_up(hub, node, why.to_owned(), NodeReturn::Never))
    }

    /// Gives up nodes that are connected and do not get ready.
    fn give_up_on_late(&mut self, hub: &mut CastHub, now: Instant) -> Result<(), ServiceError> {
        for (number, peer) in self.nodes.overdue(now, READY_LIMIT) {
            let why = format!("it was not ready within {} s", READY_LIMIT.as_secs());
            // The next attempt would take as long.
            self.give_up(hub, (number, peer), why, NodeReturn::Never)?;
        }
        Ok(())
    }
}
