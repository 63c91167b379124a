//! Casts that are not in lock-step: every transfer starts as soon as its sender holds the chunk
//! and its receiver has room, and takes as long as it likes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proptest::prelude::*;

use super::recompute::situations;
use super::*;

/// How long a transfer takes.
type Delay = Box<dyn FnMut(&Transfer) -> u64>;

/// A network of nodes with one sending and one receiving port each, and one port more for what
/// goes to leaves.
struct Network {
    schedule: Arc<Schedule>,
    outboxes: Vec<Outbox>,
    state: Ports,
    /// Times at which a transfer, an index into `begun`, leaves its ports or has arrived.
    ends: BinaryHeap<Reverse<(u64, usize, End)>>,
    begun: Vec<Transfer>,
    delay: Delay,
    /// From the end of a transfer until the receiver holds the chunk.
    latency: u64,
    /// Until when each receiver's link is taken, if a switch keeps what comes meanwhile; otherwise
    /// a sender waits until no other sends to the receiver.
    queues: Option<Vec<u64>>,
    now: u64,
    /// When each node received its last chunk.
    finished: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Sent,
    Arrived,
}

/// What decides whether a transfer may start.
struct Ports {
    holds: Vec<ChunkSet>,
    /// What each node still expects, in order.
    expected: Vec<Vec<(u32, u32)>>,
    /// A receiver takes only what is so near the beginning of its list.
    window: usize,
    sending: Vec<[bool; 2]>,
    receiving: Vec<bool>,
}

impl Ports {
    fn free(&self, transfer: &Transfer) -> bool {
        let to = transfer.to as usize;
        let mut next = self.expected[to].iter().take(self.window);
        !self.sending[transfer.from as usize][port(transfer)]
            && !self.receiving[to]
            && self.holds[transfer.from as usize].contains(transfer.chunk)
            && next.any(|expected| *expected == (transfer.chunk, transfer.from))
    }

    fn occupy(&mut self, transfer: &Transfer, busy: bool) {
        self.sending[transfer.from as usize][port(transfer)] = busy;
        self.receiving[transfer.to as usize] = busy;
    }
}

fn port(transfer: &Transfer) -> usize {
    usize::from(transfer.lane == SendLane::Leaf)
}

impl Network {
    fn new(schedule: &Arc<Schedule>, window: usize, delay: Delay) -> Self {
        let nodes = count(schedule);
        let list = |node| schedule.inbox(node).map(|t| (t.chunk, t.from)).collect();
        let state = Ports {
            holds: Lockstep::at(schedule).holds,
            expected: (0..nodes).map(list).collect(),
            window,
            sending: vec![[false; 2]; nodes as usize],
            receiving: vec![false; nodes as usize],
        };
        Self {
            schedule: Arc::clone(schedule),
            outboxes: (0..nodes).map(|node| schedule.outbox(node)).collect(),
            state,
            ends: BinaryHeap::new(),
            begun: Vec::new(),
            delay,
            latency: 0,
            queues: None,
            now: 0,
            finished: vec![0; nodes as usize],
        }
    }

    /// Starts what can start.
    fn start(&mut self) {
        for outbox in &mut self.outboxes {
            while let Some(transfer) = outbox.take(|transfer| self.state.free(transfer)) {
                self.state.occupy(&transfer, true);
                let expected = &mut self.state.expected[transfer.to as usize];
                expected.retain(|(chunk, _)| *chunk != transfer.chunk);
                let delay = (self.delay)(&transfer);
                let end = self.now + delay;
                let mut arrival = end;
                if let Some(queues) = &mut self.queues {
                    let busy = &mut queues[transfer.to as usize];
                    *busy = self.now.max(*busy) + delay;
                    arrival = *busy;
                    self.state.receiving[transfer.to as usize] = false;
                }
                let index = self.begun.len();
                self.ends.push(Reverse((end, index, End::Sent)));
                self.ends.push(Reverse((arrival + self.latency, index, End::Arrived)));
                self.begun.push(transfer);
            }
        }
    }

    fn end(&mut self, index: usize, end: End) {
        let transfer = self.begun[index];
        if end == End::Sent {
            return self.state.occupy(&transfer, false);
        }
        assert!(
            self.state.holds[transfer.to as usize].insert(transfer.chunk),
            "{transfer:?} twice"
        );
        self.finished[transfer.to as usize] = self.now;
    }

    /// Runs until nothing moves, or until `until`.
    fn run(&mut self, until: u64) {
        self.start();
        while let Some(time) = self.next().filter(|time| *time <= until) {
            self.now = time;
            while self.next() == Some(time) {
                let Some(Reverse((_, index, end))) = self.ends.pop() else { break };
                self.end(index, end);
            }
            self.start();
        }
    }

    fn next(&self) -> Option<u64> {
        self.ends.peek().map(|Reverse((time, ..))| *time)
    }

    fn run_all(&mut self) {
        self.run(u64::MAX);
        assert!(self.outboxes.iter().all(Outbox::is_done), "{} hangs", self.schedule.kind());
        Lockstep { holds: self.state.holds.clone() }.check_all(&self.schedule);
    }
}

/// Delays from 1 to `most`, from a seed (Knuth's constants).
fn random(seed: u64, most: u64) -> Delay {
    let mut state = seed;
    Box::new(move |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most + 1
    })
}

#[test]
fn if_every_transfer_takes_one_step_the_steps_are_enough() {
    for kind in kinds() {
        for n in 1..40 {
            let schedule = fresh(kind, n, 25);
            let mut network = Network::new(&schedule, 1, Box::new(|_| 1));
            network.run_all();
            assert!(network.now <= schedule.steps(), "{kind} of {n}: {}", network.now);
        }
    }
}

/// One of 16 nodes at half the rate: as a leaf it holds up no other node, and takes its own time.
#[test]
fn no_node_waits_for_a_leaf() {
    for kind in kinds() {
        let mut situation = Situation::fresh(16, 100);
        situation.nodes[6].role = NodeRole::Leaf;
        let schedule = Schedule::new(kind, situation).unwrap();
        let delay = |transfer: &Transfer| if transfer.to == 6 { 2 } else { 1 };
        let mut network = Network::new(&schedule, 1, Box::new(delay));
        network.run_all();
        let leaf = network.finished.remove(6);
        let others = network.finished.iter().max().copied();
        assert!(others <= Some(schedule.steps()), "{kind}: {others:?} steps");
        assert!(leaf <= (schedule.steps() + 2).max(210) + 200, "{kind}: the leaf took {leaf}");
        if kind == ScheduleKind::BinomialPipeline {
            assert!(leaf <= 210, "{leaf}");
        }
    }
}

/// By how much latencies of `latency` lengthen a binomial pipeline, a step taking 10.
fn lengthened(n: u32, m: u32, latency: u64) -> u64 {
    let schedule = fresh(ScheduleKind::BinomialPipeline, n, m);
    let mut network = Network::new(&schedule, 16, Box::new(|_| 10));
    network.latency = latency;
    network.queues = Some(vec![0; n as usize]);
    network.run_all();
    network.now.saturating_sub(10 * schedule.steps())
}

/// Receivers that take a few chunks out of order pay a latency a hop, not one a step.
#[test]
fn latency_is_not_paid_in_every_step() {
    for n in [8, 16, 21, 31, 64, 100] {
        for latency in [3, 10] {
            let [short, long] = [40, 160].map(|m| lengthened(n, m, latency));
            assert!(long <= short + 40, "{n} nodes, latency {latency}: {short}, then {long}");
            let hops = u64::from(fresh(ScheduleKind::BinomialPipeline, n, 1).overlay.hops());
            assert!(long <= 2 * hops * (latency + 5), "{n} nodes, latency {latency}: {long}");
        }
    }
}

proptest! {
    #[test]
    fn in_whatever_time_transfers_are_made_they_all_are(
        kind in 0_usize..10, n in 1_u32..40, m in 0_u32..30, seed in any::<u64>(),
        window in prop_oneof![Just(1_usize), Just(2), Just(7), Just(1_000)], most in 1_u64..30,
    ) {
        let schedule = fresh(kinds()[kind], n, m);
        Network::new(&schedule, window, random(seed, most)).run_all();
    }

    #[test]
    fn no_situation_makes_a_schedule_hang(
        kind in 0_usize..10, situation in situations(), seed in any::<u64>(),
        window in prop_oneof![Just(1_usize), Just(3), Just(1_000)],
    ) {
        if let Ok(schedule) = Schedule::new(kinds()[kind], situation) {
            Network::new(&schedule, window, random(seed, 20)).run_all();
        }
    }

    /// The others go on for a while, or until they are stuck, before the death is known.
    #[test]
    fn after_a_death_that_is_noticed_late_the_others_end(
        kind in 0_usize..10, n in 2_u32..30, m in 1_u32..40, seed in any::<u64>(),
        victim in any::<u32>(), until in 0_u64..400,
    ) {
        let kind = kinds()[kind];
        let schedule = fresh(kind, n, m);
        let victim = victim % (n - 1) + 1;
        let mut jitter = random(seed, 20);
        let dead = move |t: &Transfer| if t.from == victim { 1 << 40 } else { jitter(t) };
        let mut network = Network::new(&schedule, 7, Box::new(dead));
        network.run(until + 4_000 * (seed % 2));
        let run = Lockstep { holds: network.state.holds };
        let after = Schedule::new(kind, run.situation(&schedule, victim)).unwrap();
        prop_assert!(after.lost().is_empty());
        Network::new(&after, 7, random(seed, 20)).run_all();
    }
}
