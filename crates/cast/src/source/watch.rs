//! What nodes say of themselves, and which connections and nodes have therefore stopped: a value
//! without I/O that is given the time.
//!
//! A receiver that waits cannot know whether its sender has the chunk. The source can: it hears
//! what each node holds, what it waits for, and to which nodes it owes chunks. A connection over
//! which nothing comes although its sender has sent it, or sends nothing to anyone, is cut: the
//! next schedule does without it. When no node gains a chunk, those that lack any are fed by the
//! source alone, and at last given up.

use crate::pause::excuse;
use crate::protocol::{ChunkWait, NodeReport};
use crate::schedule::{ChunkSet, ScheduleKind};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A connection is not cut sooner.
const STUCK_MIN: Duration = Duration::from_secs(1);
/// Nor before this many chunks could have come: a sender has several receivers at a time.
const STUCK_CHUNKS: u32 = 16;
/// Nor before this many answers could have come: where these take long, so do chunks and dials.
const STUCK_ANSWERS: u32 = 8;
/// Nor sooner than this while it is not known how long a chunk takes.
const STUCK_UNKNOWN: Duration = Duration::from_secs(3);
/// When no node gains a chunk for this long, all that lack any are fed by the source.
const STALL_MIN: Duration = Duration::from_secs(5);
/// Nor before this many chunks could have come.
const STALL_CHUNKS: u32 = 64;
/// A node whose reports are farther apart did not run: that is no fault of its connections.
const REPORT_GAP: Duration = Duration::from_secs(1);
/// Connections that a node may have cut; one that wants more is fed by the source alone.
const CUTS_MAX: usize = 16;

/// What the source must do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchVerdict {
    /// Nothing.
    Fine,
    /// Make a plan with the connections that are cut now.
    Replan,
    /// Give these nodes up: they receive nothing.
    GiveUp(Vec<u32>),
    /// And these: they have everything, and do not publish it.
    Hang(Vec<u32>),
}

#[derive(Debug)]
struct WatchedNode {
    held: ChunkSet,
    /// The most chunks that it had: one that says less and more again gains nothing.
    held_most: u64,
    /// Chunks when it was first heard.
    held_first: u64,
    sent_chunks: u64,
    /// Steps of making the tree and of publishing that it had done.
    steps: u64,
    /// When this count was first reported.
    sent_at: Instant,
    owes: BTreeSet<u32>,
    /// Steps of publishing that it has done, and when it was seen that it has everything, or did
    /// one more.
    publishing: Option<(u64, Instant)>,
    has_published: bool,
    reported: Instant,
}

/// How far the node has come that has gained most.
#[derive(Debug, Clone, Copy)]
struct CastPace {
    first: (Instant, u64),
    latest: (Instant, u64),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct CastWatch {
    chunks: u32,
    /// How long one step of publishing may take.
    publish_step_max: Duration,
    nodes: BTreeMap<u32, WatchedNode>,
    /// By receiver and sender, since when nothing comes that the sender holds.
    stuck: BTreeMap<(u32, u32), Instant>,
    /// By the node that complained, of which others.
    cut: BTreeMap<u32, BTreeSet<u32>>,
    /// Those that only the source feeds.
    direct: BTreeSet<u32>,
    pace: Option<CastPace>,
    /// How long answers take.
    answers: Duration,
    /// When any node gained a chunk.
    gained: Instant,
    is_due: bool,
    /// Nodes send nothing before they have everything.
    sends_whole: bool,
}

impl CastWatch {
    pub(super) fn new(now: Instant, chunks: u32, publish_step_max: Duration) -> Self {
        Self {
            chunks,
            publish_step_max,
            nodes: BTreeMap::new(),
            stuck: BTreeMap::new(),
            cut: BTreeMap::new(),
            direct: BTreeSet::new(),
            pace: None,
            answers: Duration::ZERO,
            gained: now,
            is_due: false,
            sends_whole: false,
        }
    }

    /// As the watch of a cast by a schedule of this kind: in the paper's tree a relay that has not
    /// everything sends nothing.
    pub(super) fn of_kind(mut self, kind: ScheduleKind) -> Self {
        self.sends_whole = matches!(kind, ScheduleKind::PaperTree { .. });
        self
    }

    /// All connections that are cut, as [`Situation::cut`](crate::schedule::Situation) has them.
    pub(super) fn cut(&self) -> Vec<(u32, u32)> {
        let cut = self.cut.iter().flat_map(|(by, of)| of.iter().map(|of| (*by, *of)));
        cut.chain(self.direct.iter().map(|node| (*node, *node))).collect()
    }

    /// Whether only the source feeds a node.
    pub(super) fn is_direct(&self, node: u32) -> bool {
        self.direct.contains(&node)
    }

    /// A node takes no part any more; it may begin anew.
    pub(super) fn forget(&mut self, node: u32) {
        self.nodes.remove(&node);
        self.stuck.retain(|(to, from), _| *to != node && *from != node);
        self.cut.remove(&node);
        for of in self.cut.values_mut() {
            of.remove(&node);
        }
        self.direct.remove(&node);
    }

    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        let later = |at: &mut Instant| excuse(at, now, late);
        later(&mut self.gained);
        self.stuck.values_mut().for_each(later);
        if let Some(pace) = &mut self.pace {
            [&mut pace.first.0, &mut pace.latest.0].into_iter().for_each(later);
        }
        for node in self.nodes.values_mut() {
            [&mut node.sent_at, &mut node.reported].into_iter().for_each(later);
            node.publishing.iter_mut().for_each(|(_, since)| later(since));
        }
    }

    /// What comes is not to be expected sooner: the source has just signed what nodes waited for.
    pub(super) fn excuse(&mut self, now: Instant) {
        self.gained = now;
        self.stuck.values_mut().for_each(|since| *since = now);
        self.nodes.values_mut().for_each(|node| node.sent_at = now);
    }

    /// Whether a node has all chunks that are signed, so that it can gain none.
    pub(super) fn has_all_of(&self, signed: u32) -> bool {
        let most = self.nodes.values().map(|node| node.held.len()).max();
        signed < self.chunks && most.unwrap_or(0) >= u64::from(signed)
    }

    /// Nodes wait for the source, which is signing: no node is to blame.
    pub(super) fn wait_for_source(&mut self, now: Instant) {
        self.gained = now;
    }

    /// A node says that its connection with another has failed.
    pub(super) fn complain(&mut self, by: u32, of: u32) {
        let is_known = self.cut.get(&of).is_some_and(|known| known.contains(&by));
        let is_direct = [by, of].iter().any(|node| self.direct.contains(node));
        if by == of || of == 0 || is_known || is_direct {
            return;
        }
        let cut = self.cut.entry(by).or_default();
        self.is_due |= cut.insert(of);
        if cut.len() > CUTS_MAX {
            self.direct.insert(by);
        }
    }

    /// A report of a node, whose sets were checked.
    pub(super) fn report(&mut self, now: Instant, node: u32, report: &NodeReport) {
        let held = report.held.len();
        let known = self.nodes.entry(node).or_insert_with(|| WatchedNode {
            held: ChunkSet::empty(),
            held_most: 0,
            held_first: held,
            sent_chunks: 0,
            steps: 0,
            sent_at: now,
            owes: BTreeSet::new(),
            publishing: None,
            has_published: false,
            reported: now,
        });
        let gap = now.saturating_duration_since(std::mem::replace(&mut known.reported, now));
        if gap > REPORT_GAP.max(self.answers * 2) {
            let its = self.stuck.iter_mut().filter(|((to, from), _)| [*to, *from].contains(&node));
            its.for_each(|(_, since)| excuse(since, now, gap));
        }
        // While a node makes millions of files it keeps no chunk.
        if held > known.held_most || report.steps > known.steps {
            self.gained = now;
        }
        known.held_most = known.held_most.max(held);
        known.steps = known.steps.max(report.steps);
        if report.sent_chunks > known.sent_chunks {
            (known.sent_chunks, known.sent_at) = (report.sent_chunks, now);
        }
        known.held = report.held.clone();
        known.owes = report.owes.iter().copied().collect();
        let is_at = |(steps, _): &(u64, Instant)| *steps >= report.steps;
        if held == u64::from(self.chunks) && !known.publishing.as_ref().is_some_and(is_at) {
            known.publishing = Some((report.steps, now));
        }
        let gain = held.saturating_sub(known.held_first);
        self.note_pace(now, gain);
        self.note_waits(now, node, report);
    }

    fn note_pace(&mut self, now: Instant, gain: u64) {
        match &mut self.pace {
            None if gain > 0 => {
                self.pace = Some(CastPace { first: (now, gain), latest: (now, gain) });
            }
            Some(pace) if gain > pace.latest.1 => pace.latest = (now, gain),
            Some(_) | None => {}
        }
    }

    fn note_waits(&mut self, now: Instant, node: u32, report: &NodeReport) {
        let is_due = |wait: &&ChunkWait| {
            let sender = self.nodes.get(&wait.of).filter(|_| wait.of != node);
            sender.is_some_and(|sender| {
                let sends = !self.sends_whole || sender.held.contains_all(self.chunks);
                wait.is_taken_back || sends && sender.held.contains(wait.chunk)
            })
        };
        let waits: BTreeSet<u32> = report.waits.iter().filter(is_due).map(|wait| wait.of).collect();
        self.stuck.retain(|(to, from), _| *to != node || waits.contains(from));
        for of in waits {
            self.stuck.entry((node, of)).or_insert(now);
        }
    }

    /// How long a chunk takes to come, if that is known.
    pub(super) fn chunk_time(&self) -> Option<Duration> {
        let CastPace { first, latest } = self.pace?;
        let chunks = u32::try_from(latest.1 - first.1).ok().filter(|chunks| *chunks > 0)?;
        Some(latest.0.saturating_duration_since(first.0) / chunks)
    }

    /// How long nodes take to answer now.
    pub(super) fn answers_take(&mut self, answers: Duration) {
        self.answers = answers;
    }

    fn stuck_limit(&self) -> Duration {
        let known = self.chunk_time().map(|each| STUCK_MIN.max(each * STUCK_CHUNKS));
        known.unwrap_or(STUCK_UNKNOWN).max(self.answers * STUCK_ANSWERS)
    }

    fn stall_limit(&self) -> Duration {
        let known = self.chunk_time().map_or(STALL_MIN, |each| STALL_MIN.max(each * STALL_CHUNKS));
        known.max(self.answers * STUCK_ANSWERS * 2)
    }

    /// What to do about all that.
    pub(super) fn verdict(&mut self, now: Instant) -> WatchVerdict {
        let limit = self.stuck_limit();
        let stuck: Vec<(u32, u32)> = self
            .stuck
            .iter()
            .filter(|((to, from), since)| {
                self.both_ran(now, *from, *to) > self.excused(*from, *to, **since) + limit
            })
            .map(|(pair, _)| *pair)
            .collect();
        for (to, from) in stuck {
            self.stuck.remove(&(to, from));
            self.complain(to, from);
        }
        let hanging = self.hanging(now);
        if !hanging.is_empty() {
            return WatchVerdict::Hang(hanging);
        }
        if now > self.gained + self.stall_limit() {
            return self.stalled(now);
        }
        if std::mem::take(&mut self.is_due) { WatchVerdict::Replan } else { WatchVerdict::Fine }
    }

    /// Until when both ends of a connection are known to have run: one that did not has reported
    /// nothing since.
    fn both_ran(&self, now: Instant, from: u32, to: u32) -> Instant {
        let reported = [from, to].into_iter().filter_map(|node| self.nodes.get(&node));
        let ran = reported.map(|node| node.reported + self.answers);
        ran.min().map_or(now, |ran| ran.min(now))
    }

    /// Since when nothing should have come: a sender that has other things to send first, and sends
    /// them, is not to blame.
    fn excused(&self, from: u32, to: u32, since: Instant) -> Instant {
        let sender = self.nodes.get(&from).filter(|sender| sender.owes.contains(&to));
        sender.map_or(since, |sender| since.max(sender.sent_at))
    }

    /// A node has published.
    pub(super) fn published(&mut self, node: u32) {
        self.nodes.entry(node).and_modify(|known| known.has_published = true);
    }

    /// Nodes that have everything, and have done nothing about it for too long.
    fn hanging(&self, now: Instant) -> Vec<u32> {
        let hangs = |(_, node): &(&u32, &WatchedNode)| {
            let since = node.publishing.filter(|_| !node.has_published);
            since.is_some_and(|(_, since)| now > since + self.publish_step_max)
        };
        self.nodes.iter().filter(hangs).map(|(number, _)| *number).collect()
    }

    fn stalled(&mut self, now: Instant) -> WatchVerdict {
        self.gained = now;
        let lacks = |node: &WatchedNode| node.held.len() < u64::from(self.chunks);
        let lacking = self.nodes.iter().filter(|(_, node)| lacks(node));
        let lacking: Vec<u32> = lacking.map(|(node, _)| *node).collect();
        if lacking.is_empty() {
            return WatchVerdict::Fine;
        }
        if lacking.iter().all(|node| self.direct.contains(node)) {
            return WatchVerdict::GiveUp(lacking);
        }
        self.direct.extend(lacking);
        self.is_due = false;
        WatchVerdict::Replan
    }
}

#[cfg(test)]
mod tests;
