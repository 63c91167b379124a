//! Whole casts without a network: relays, their reports and the source's judgement, in steps of
//! simulated time, with nodes that die, hang or crawl, connections that break and such over which
//! nothing comes.

use super::*;
use crate::member::{MemberProgress, SendReach};
use crate::pause::pause;
use crate::relay::{Action, ChunkWant, Relay};
use crate::schedule::{NodeRole, Schedule, ScheduleKind, Situation};
use crate::source::silence::AnswerTimes;
use crate::source::slow::{NodeStanding, SlowWatch};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::num::NonZeroU32;

const TICK: Duration = Duration::from_millis(10);
/// How often the source looks at its nodes.
const LOOK: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_secs(10);
const PUBLISH: Duration = Duration::from_secs(120);
const FROZEN: Duration = Duration::from_secs(8);
const END: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
enum Event {
    Wanted { chunk: u32, want: ChunkWant },
    Dropped { slot: u32 },
    Arrived { chunk: u32, slot: u32 },
    Sent { to: u32, slot: u32 },
    Kept { chunk: u32, slot: u32 },
    Loaded { chunk: u32, slot: u32 },
}

/// What becomes of a node or a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Dies(u32),
    Hangs(u32),
    Crawls(u32),
    /// Its disk does not answer for a while.
    Freezes(u32),
    /// It does not run for a while; 0 is the source.
    Pauses(u32),
    Breaks(u32, u32),
    /// What the first sends to the second is lost without notice.
    Mutes(u32, u32),
}

struct Actor {
    relay: Relay,
    progress: MemberProgress,
    /// By sender; of itself: its disk.
    queues: BTreeMap<u32, VecDeque<Event>>,
    /// Ticks for an event.
    pace: u64,
    is_hung: bool,
    /// Until when its disk does not answer.
    frozen: Option<Instant>,
    /// Until when it does not run.
    paused: Option<Instant>,
    heard: Instant,
}

struct Simulation {
    kind: ScheduleKind,
    chunks: u32,
    actors: BTreeMap<u32, Actor>,
    muted: BTreeSet<(u32, u32)>,
    broken: BTreeSet<(u32, u32)>,
    watch: CastWatch,
    slow: SlowWatch,
    leaves: BTreeSet<u32>,
    now: Instant,
    ticks: u64,
    is_due: bool,
    nodes: u32,
    given_up: BTreeSet<u32>,
    /// When the source looked at its nodes last.
    looked: Instant,
    /// Nodes that were silent for too long, and when that was found.
    lost: BTreeMap<u32, Instant>,
}

impl Simulation {
    fn new(kind: ScheduleKind, nodes: u32, chunks: u32) -> Self {
        let schedule = Schedule::new(kind, Situation::fresh(nodes, chunks)).expect("a schedule");
        let now = Instant::now();
        let actor = |node| Actor {
            relay: Relay::new(node, &schedule, 6),
            progress: MemberProgress::default(),
            queues: BTreeMap::new(),
            pace: 1,
            is_hung: false,
            frozen: None,
            paused: None,
            heard: now,
        };
        Self {
            kind,
            chunks,
            actors: (0..nodes).map(|node| (node, actor(node))).collect(),
            muted: BTreeSet::new(),
            broken: BTreeSet::new(),
            watch: CastWatch::new(now, chunks, PUBLISH).of_kind(kind),
            slow: SlowWatch::new(chunks, 1 << 17),
            leaves: BTreeSet::new(),
            now,
            ticks: 0,
            is_due: false,
            nodes,
            given_up: BTreeSet::new(),
            looked: now,
            lost: BTreeMap::new(),
        }
    }

    fn befall(&mut self, fault: Fault) {
        match fault {
            Fault::Dies(node) => self.remove(node),
            Fault::Hangs(node) => self.with(node, |actor| actor.is_hung = true),
            Fault::Crawls(node) => self.with(node, |actor| actor.pace = 20),
            Fault::Freezes(node) => {
                // No longer than that: what does nothing for 10 s is given up.
                let (now, until) = (self.now, self.now + FROZEN);
                let is_frozen = |frozen: &Instant| now < *frozen;
                self.with(node, |actor| {
                    actor.frozen = actor.frozen.filter(is_frozen).or(Some(until))
                });
            }
            Fault::Pauses(node) => {
                let until = self.now + PAUSE;
                self.with(node, |actor| actor.paused = Some(until));
            }
            Fault::Mutes(from, to) => self.muted.extend([(from, to)]),
            Fault::Breaks(a, b) => {
                self.broken.extend([(a, b), (b, a)]);
                self.part(a, b);
                self.watch.complain(a, b);
                self.watch.complain(b, a);
            }
        }
    }

    fn with(&mut self, node: u32, change: impl FnOnce(&mut Actor)) {
        if let Some(actor) = self.actors.get_mut(&node) {
            change(actor);
        }
    }

    /// Both ends notice that their connection is over.
    fn part(&mut self, a: u32, b: u32) {
        for (own, other) in [(a, b), (b, a)] {
            if let Some(actor) = self.actors.get_mut(&own) {
                actor.queues.remove(&other);
                actor.progress.lost(self.now, other);
                actor.relay.lost(other);
            }
        }
    }

    fn remove(&mut self, node: u32) {
        self.actors.remove(&node);
        let others: Vec<u32> = self.actors.keys().copied().collect();
        others.into_iter().for_each(|other| self.part(other, node));
        self.watch.forget(node);
        self.slow.forget(node);
        self.is_due = true;
    }

    fn act(&mut self, node: u32) {
        let Some(actor) = self.actors.get_mut(&node) else { return };
        let mut out = Vec::new();
        while let Some(action) = actor.relay.next_action() {
            match action {
                Action::Tell { to, chunk, want } => out.push((to, Event::Wanted { chunk, want })),
                // Nothing is demanded here.
                Action::Hurry { .. } => {}
                Action::Drop { to, slot } => out.push((to, Event::Dropped { slot })),
                Action::Keep { chunk, slot } => {
                    actor.progress.verified((chunk, slot));
                    out.push((node, Event::Kept { chunk, slot }));
                }
                Action::Load { chunk, slot } => out.push((node, Event::Loaded { chunk, slot })),
                Action::Send { to, chunk, from, into } => {
                    actor.progress.sends(self.now, (to, SendReach::SameSwitch), 1);
                    out.push((to, Event::Arrived { chunk, slot: into }));
                    out.push((node, Event::Sent { to, slot: from }));
                }
            }
        }
        for (to, event) in out {
            let is_lost = self.muted.contains(&(node, to)) || self.broken.contains(&(node, to));
            if let Some(other) = self.actors.get_mut(&to).filter(|_| !is_lost) {
                other.queues.entry(node).or_default().push_back(event);
            }
        }
    }

    /// One event of each queue of each node that is at work.
    fn tick(&mut self) {
        self.ticks += 1;
        self.now += TICK;
        let nodes: Vec<u32> = self.actors.keys().copied().collect();
        for node in nodes {
            if self.is_paused(node) {
                continue;
            }
            self.act(node);
            let ticks = self.ticks;
            let Some(actor) = self.actors.get_mut(&node) else { continue };
            if actor.is_hung || actor.is_paused(self.now) || !ticks.is_multiple_of(actor.pace) {
                continue;
            }
            let is_frozen = actor.frozen.is_some_and(|until| self.now < until);
            let queues = actor.queues.iter_mut().filter(|(from, _)| **from != node || !is_frozen);
            let next = queues.filter_map(|(from, queue)| Some((*from, queue.pop_front()?)));
            for (from, event) in next.collect::<Vec<_>>() {
                handle(self.now, actor, from, event);
            }
            self.act(node);
        }
        if self.now >= self.looked + LOOK && !self.is_paused(0) {
            self.look_after();
        }
    }

    fn is_paused(&self, node: u32) -> bool {
        self.actors.get(&node).is_some_and(|actor| actor.is_paused(self.now))
    }

    /// Takes a pause of the source out of all times, as the source does.
    fn excuse(&mut self) {
        let since = self.now - std::mem::replace(&mut self.looked, self.now);
        if let Some(late) = pause(since, LOOK) {
            let heard = self.actors.values_mut().map(|actor| &mut actor.heard);
            heard.for_each(|heard| excuse(heard, self.now, late));
            self.watch.held_up(self.now, late);
            self.slow.held_up(self.now, late);
        }
    }

    fn find_silent(&mut self) {
        let nodes = self.actors.iter().filter(|(node, _)| **node > 0);
        let ages: Vec<_> = nodes.map(|(node, actor)| (*node, self.now - actor.heard)).collect();
        let times = AnswerTimes::new(ages.iter().map(|(_, age)| *age), self.watch.chunk_time());
        let times = if self.kind == ScheduleKind::Star { times.of_leaves() } else { times };
        self.watch.answers_take(times.usual());
        for (node, age) in ages {
            if times.is_silent(age, self.leaves.contains(&node)) {
                self.lost.insert(node, self.now);
                self.remove(node);
            }
        }
    }

    fn look_after(&mut self) {
        self.excuse();
        self.find_silent();
        let now = self.now;
        let runs = |(node, actor): &(&u32, &mut Actor)| {
            **node > 0 && !actor.is_hung && !actor.is_paused(now)
        };
        for (node, actor) in self.actors.iter_mut().filter(runs) {
            let report = actor.progress.report(self.now, 0, &actor.relay);
            self.watch.report(self.now, *node, &report);
            self.slow.report(self.now, *node, &report);
            actor.heard = self.now;
        }
        match self.watch.verdict(self.now) {
            WatchVerdict::Fine => {}
            WatchVerdict::Replan => self.is_due = true,
            WatchVerdict::Hang(nodes) | WatchVerdict::GiveUp(nodes) => {
                self.given_up.extend(&nodes);
                nodes.into_iter().for_each(|node| self.remove(node));
            }
        }
        self.find_slow();
        if std::mem::take(&mut self.is_due) {
            self.replan();
        }
    }

    fn find_slow(&mut self) {
        let standing = |number: u32| {
            let actor = self.actors.get(&number);
            let role = match (actor, self.leaves.contains(&number)) {
                (None, _) => NodeRole::Dead,
                (Some(_), true) => NodeRole::Leaf,
                (Some(_), false) => NodeRole::Relay,
            };
            NodeStanding { number, role, held: actor.map_or(0, |actor| actor.relay.held().len()) }
        };
        let nodes: Vec<NodeStanding> = (1..self.nodes).map(standing).collect();
        if let Some(finding) = self.slow.find(self.now, &nodes) {
            self.leaves.extend(finding.leaves);
            finding.relays.iter().for_each(|relay| {
                self.leaves.remove(relay);
            });
            self.is_due = true;
        }
    }

    fn replan(&mut self) {
        let mut situation = Situation::fresh(self.nodes, self.chunks);
        situation.cut = self.watch.cut();
        for (node, state) in (0..).zip(&mut situation.nodes) {
            match self.actors.get(&node) {
                Some(actor) => state.holds = actor.relay.held().clone(),
                None => state.role = NodeRole::Dead,
            }
            let is_leaf = self.leaves.contains(&node) && state.role == NodeRole::Relay;
            if self.watch.is_direct(node) || is_leaf {
                state.role = NodeRole::Leaf;
            }
        }
        situation.part_relays();
        for (a, b) in situation.cut.clone() {
            match a == b {
                true => (1..self.nodes).filter(|c| *c != a).for_each(|c| self.part(a, c)),
                false => self.part(a, b),
            }
        }
        let schedule = Schedule::new(self.kind, situation).expect("the source lives");
        self.slow.planned(&schedule);
        let nodes: Vec<u32> = self.actors.keys().copied().collect();
        for node in nodes {
            self.with(node, |actor| actor.relay.replan(&schedule));
            self.act(node);
        }
    }

    /// Until all that live have everything; how long that took.
    fn run(&mut self) -> Duration {
        let began = self.now;
        let is_over = |own: &Self| {
            own.actors.values().all(|actor| actor.relay.is_complete() && !actor.is_hung)
        };
        while !is_over(self) {
            self.tick();
            assert!(self.now < began + END, "it hangs: {:?}", self.watch);
        }
        self.now - began
    }
}

impl Actor {
    fn is_paused(&self, now: Instant) -> bool {
        self.paused.is_some_and(|until| now < until)
    }
}

fn handle(now: Instant, actor: &mut Actor, from: u32, event: Event) {
    match event {
        Event::Wanted { chunk, want } => actor.relay.wanted(from, chunk, want).expect("a peer"),
        // What was under way when a connection was cut.
        Event::Dropped { slot } => actor.relay.dropped(from, slot).unwrap_or(()),
        Event::Arrived { chunk, slot } => {
            actor.progress.arrived(now, from);
            actor.relay.arrived(from, chunk, slot).unwrap_or(());
        }
        Event::Sent { to, slot } => {
            actor.progress.sent(now, to, 1);
            actor.relay.sent(to, slot);
        }
        Event::Kept { chunk, slot } => {
            actor.progress.kept((chunk, slot));
            actor.relay.kept(chunk, slot, true);
        }
        Event::Loaded { chunk, slot } => actor.relay.loaded(chunk, slot),
    }
}

fn kinds() -> impl Strategy<Value = ScheduleKind> {
    let arity = NonZeroU32::new(2).expect("two");
    prop_oneof![
        Just(ScheduleKind::BinomialPipeline),
        Just(ScheduleKind::TwoTree),
        Just(ScheduleKind::Chain),
        Just(ScheduleKind::Tree { arity }),
        Just(ScheduleKind::PaperTree { arity }),
        Just(ScheduleKind::Star),
    ]
}

fn faults() -> impl Strategy<Value = Fault> {
    let node = || 1_u32..12;
    prop_oneof![
        node().prop_map(Fault::Dies),
        node().prop_map(Fault::Hangs),
        node().prop_map(Fault::Crawls),
        node().prop_map(Fault::Freezes),
        node().prop_map(Fault::Pauses),
        (node(), node()).prop_map(|(a, b)| Fault::Breaks(a, b)),
        (node(), node()).prop_map(|(a, b)| Fault::Mutes(a, b)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn every_cast_ends_and_all_that_live_have_everything(
        kind in kinds(), nodes in 3_u32..12, chunks in 1_u32..60,
        faults in prop::collection::vec((faults(), 0_u32..300), 1..6),
    ) {
        let mut cast = Simulation::new(kind, nodes, chunks);
        for (fault, ticks) in faults {
            (0..ticks).for_each(|_| cast.tick());
            let is_there = |node: u32| node < nodes;
            let (a, b) = match fault {
                Fault::Dies(a)
                | Fault::Hangs(a)
                | Fault::Crawls(a)
                | Fault::Freezes(a)
                | Fault::Pauses(a) => (a, 0),
                Fault::Breaks(a, b) | Fault::Mutes(a, b) => (a, b),
            };
            if is_there(a) && is_there(b) && a != b {
                cast.befall(fault);
            }
        }
        cast.run();
        prop_assert_eq!(cast.given_up.len(), 0, "the source reaches all");
    }
}

#[test]
fn a_node_that_the_source_cannot_reach_is_given_up_by_name() {
    for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, ScheduleKind::Star] {
        let mut cast = Simulation::new(kind, 6, 30);
        (0..6).filter(|node| *node != 4).for_each(|node| cast.befall(Fault::Mutes(node, 4)));
        cast.run();
        assert_eq!(cast.given_up, [4].into());
    }
}

#[test]
fn a_connection_over_which_nothing_comes_costs_seconds_and_no_node() {
    let undisturbed = Simulation::new(ScheduleKind::Chain, 8, 100).run();
    let mut cast = Simulation::new(ScheduleKind::Chain, 8, 100);
    (0..100).for_each(|_| cast.tick());
    cast.befall(Fault::Mutes(3, 4));
    let took = cast.run() + TICK * 100;
    assert!(took < undisturbed + Duration::from_secs(3), "{took:?}, {undisturbed:?} undisturbed");
    assert_eq!(cast.watch.cut(), [(4, 3)]);
}

#[test]
fn a_pause_of_one_node_is_found_soon_and_costs_no_other_node_anything() {
    for kind in [ScheduleKind::Chain, ScheduleKind::BinomialPipeline, ScheduleKind::TwoTree] {
        for (node, ticks) in [(1, 30), (3, 30), (3, 60), (7, 50)] {
            let mut cast = Simulation::new(kind, 8, 100);
            (0..ticks).for_each(|_| cast.tick());
            cast.befall(Fault::Pauses(node));
            let began = cast.now;
            cast.run();
            let lost: Vec<_> = cast.lost.iter().map(|(node, at)| (*node, *at - began)).collect();
            let [(found, after)] = lost[..] else { panic!("{kind}, node {node}: {lost:?}") };
            assert!(found == node && after < Duration::from_millis(1_400), "{kind}: {lost:?}");
            assert_eq!(cast.watch.cut(), [], "{kind}, node {node}");
            assert_eq!(cast.given_up, BTreeSet::new(), "{kind}, node {node}");
        }
    }
}

#[test]
fn a_pause_of_the_source_or_of_the_whole_machine_costs_no_node_anything() {
    let star = ScheduleKind::Star;
    let kinds = [ScheduleKind::Chain, ScheduleKind::BinomialPipeline, ScheduleKind::TwoTree, star];
    for (kind, all_pause) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        for ticks in [5, 30, 63, 90] {
            let mut cast = Simulation::new(kind, 8, 100);
            (0..ticks).for_each(|_| cast.tick());
            match all_pause {
                true => cast.now += PAUSE,
                false => cast.befall(Fault::Pauses(0)),
            }
            cast.run();
            assert_eq!(cast.lost, BTreeMap::new(), "{kind}, {ticks}");
            assert_eq!(cast.watch.cut(), [], "{kind}, {ticks}");
            assert_eq!((&cast.leaves, &cast.given_up), (&BTreeSet::new(), &BTreeSet::new()));
        }
    }
}

/// Node 2 waits for a chunk of node 1; each reports every 100 ms while it runs. After how many of
/// these steps the connection is cut.
fn cut_after(runs: impl Fn(u32, u32) -> bool) -> u32 {
    let began = Instant::now();
    let mut watch = CastWatch::new(began, 100, PUBLISH);
    watch.answers_take(LOOK);
    let wait = ChunkWait { of: 1, chunk: 7, is_taken_back: false };
    let cut = (0..300).find(|step| {
        let now = began + LOOK * *step;
        let held = ChunkSet::below(10 + step);
        let sender = NodeReport { held: held.clone(), ..NodeReport::default() };
        let waiting =
            NodeReport { held: ChunkSet::below(5), waits: vec![wait], ..NodeReport::default() };
        for (node, report) in [(1, sender), (2, waiting)] {
            if runs(node, *step) {
                watch.report(now, node, &report);
            }
        }
        watch.verdict(now);
        !watch.cut().is_empty()
    });
    cut.expect("nothing ever comes")
}

#[test]
fn only_while_both_ends_run_does_a_connection_seem_to_be_stuck() {
    let usual = cut_after(|_, _| true);
    for paused in [1, 2] {
        let cut = cut_after(|node, step| node != paused || !(5..35).contains(&step));
        assert!((usual + 28..=usual + 32).contains(&cut), "node {paused}: {cut}, not {usual}");
    }
}

#[test]
fn a_disk_that_does_not_answer_costs_the_others_seconds_and_its_node_nothing() {
    let kinds = [ScheduleKind::Chain, ScheduleKind::BinomialPipeline, ScheduleKind::TwoTree];
    for kind in kinds {
        let undisturbed = Simulation::new(kind, 8, 100).run();
        let mut cast = Simulation::new(kind, 8, 100);
        (0..50).for_each(|_| cast.tick());
        cast.befall(Fault::Freezes(3));
        let others_have_all = |cast: &Simulation| {
            cast.actors.iter().all(|(node, actor)| *node == 3 || actor.relay.is_complete())
        };
        let began = cast.now;
        while !others_have_all(&cast) {
            cast.tick();
            assert!(cast.now < began + FROZEN, "{kind}: the others wait for it");
        }
        let took = cast.now - began;
        assert!(took < undisturbed + Duration::from_secs(3), "{kind}: {took:?}, {undisturbed:?}");
        cast.run();
        assert_eq!(cast.given_up, BTreeSet::new(), "{kind}");
    }
}

#[test]
fn a_healthy_cast_has_no_connection_cut_however_slow_it_is() {
    for pace in [1, 20, 100] {
        let paper = ScheduleKind::PaperTree { arity: NonZeroU32::new(2).expect("two") };
        let star = ScheduleKind::Star;
        for kind in [ScheduleKind::BinomialPipeline, ScheduleKind::Chain, star, paper] {
            let mut cast = Simulation::new(kind, 9, 40);
            cast.actors.values_mut().for_each(|actor| actor.pace = pace);
            cast.run();
            assert_eq!(cast.watch.cut(), [], "{kind}, {pace}");
        }
    }
}

#[test]
fn a_node_that_complains_without_end_costs_few_plans_and_no_other_node() {
    let mut watch = CastWatch::new(Instant::now(), 10, PUBLISH);
    let now = Instant::now();
    let plans = (0..10_000_u32).filter(|at| {
        watch.complain(7, at % 2_000);
        watch.verdict(now) == WatchVerdict::Replan
    });
    assert!(plans.count() <= CUTS_MAX + 1);
    let mut situation = Situation::fresh(2_000, 10);
    situation.cut = watch.cut();
    situation.part_relays();
    let leaves = (0..2_000).filter(|node| situation.nodes[*node].role == NodeRole::Leaf);
    assert_eq!(leaves.collect::<Vec<_>>(), [7]);
}

#[test]
fn a_node_that_publishes_slowly_is_left_alone_and_one_that_hangs_at_it_is_given_up() {
    let began = Instant::now();
    let mut watch = CastWatch::new(began, 10, PUBLISH);
    let all = |steps| NodeReport { held: ChunkSet::below(10), steps, ..NodeReport::default() };
    for seconds in 0..=600_u64 {
        let now = began + Duration::from_secs(seconds);
        // A step in a hundred seconds; one step, and nothing after it; published, and nothing more.
        watch.report(now, 1, &all(seconds / 100));
        watch.report(now, 2, &all(seconds.min(1)));
        watch.report(now, 3, &all(7));
        watch.published(3);
        let hangs = WatchVerdict::Hang(vec![2]);
        let expected = if seconds > 121 { hangs } else { WatchVerdict::Fine };
        assert_eq!(watch.verdict(now), expected, "after {seconds} s");
    }
    watch.forget(2);
    assert_eq!(watch.verdict(began + Duration::from_secs(601)), WatchVerdict::Fine);
}

#[test]
fn a_node_that_makes_many_files_is_left_alone_and_one_that_stops_at_it_is_given_up() {
    let began = Instant::now();
    let mut watch = CastWatch::new(began, 10, PUBLISH);
    let making = |steps| NodeReport { held: ChunkSet::below(2), steps, ..NodeReport::default() };
    let mut given_up = None;
    for seconds in 0..=100_u64 {
        let now = began + Duration::from_secs(seconds);
        watch.report(now, 1, &making(seconds.min(60) * 1_000));
        match watch.verdict(now) {
            WatchVerdict::GiveUp(nodes) => given_up = given_up.or(Some((seconds, nodes))),
            verdict => assert!(seconds > 60 || verdict == WatchVerdict::Fine, "{seconds} s"),
        }
    }
    let (seconds, nodes) = given_up.expect("it has stopped");
    assert!((61..90).contains(&seconds) && nodes == [1], "after {seconds} s");
}

#[test]
fn nodes_that_have_all_that_is_signed_are_not_given_up_while_the_source_signs() {
    let given_up = |signed: u32| {
        let began = Instant::now();
        let mut watch = CastWatch::new(began, 2_000, PUBLISH);
        let held = ChunkSet::below(1_024);
        (0..=100).find(|seconds| {
            let now = began + Duration::from_secs(*seconds);
            watch.report(now, 1, &NodeReport { held: held.clone(), ..NodeReport::default() });
            if watch.has_all_of(signed) {
                watch.wait_for_source(now);
            }
            matches!(watch.verdict(now), WatchVerdict::GiveUp(_))
        })
    };
    assert_eq!(given_up(1_024), None);
    // It could gain something, and does not.
    assert!(given_up(2_000).is_some_and(|seconds| seconds < 30));
    assert!(given_up(1_500).is_some());
}

#[test]
fn a_node_that_takes_back_what_it_said_gains_nothing() {
    let began = Instant::now();
    let mut watch = CastWatch::new(began, 10, PUBLISH);
    let given_up = (0..=100_u64).find(|seconds| {
        let now = began + Duration::from_secs(*seconds);
        let (held, steps) = (ChunkSet::below(4 + u32::from(seconds % 2 == 1)), 7 - seconds % 2);
        watch.report(now, 1, &NodeReport { held: held.clone(), steps, ..NodeReport::default() });
        let all = NodeReport { held: ChunkSet::below(10), steps, ..NodeReport::default() };
        watch.report(now, 2, &all);
        matches!(watch.verdict(now), WatchVerdict::GiveUp(_))
    });
    assert!(given_up.is_some_and(|seconds| seconds < 60), "{given_up:?}");
}
