//! Schedules are executed here, in lock-step and as events, and held against their bounds.

mod events;
mod plans;
mod recompute;
mod sets;
mod steps;
mod topology;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::*;

/// Sizes of switches; what is beyond them is one more.
const SWITCHES: [u32; 5] = [3, 1, 8, 5, 6];

fn arity(arity: u32) -> NonZeroU32 {
    NonZeroU32::new(arity).unwrap()
}

fn kinds() -> Vec<ScheduleKind> {
    vec![
        ScheduleKind::BinomialPipeline,
        ScheduleKind::TwoTree,
        ScheduleKind::Chain,
        ScheduleKind::Tree { arity: arity(2) },
        ScheduleKind::Tree { arity: arity(3) },
        ScheduleKind::Tree { arity: arity(8) },
        ScheduleKind::PaperTree { arity: arity(2) },
        ScheduleKind::PaperTree { arity: arity(4) },
        ScheduleKind::Star,
        ScheduleKind::Switches,
    ]
}

fn fresh(kind: ScheduleKind, nodes: u32, chunks: u32) -> Arc<Schedule> {
    let mut situation = Situation::fresh(nodes, chunks);
    situation.switches = SWITCHES.to_vec();
    Schedule::new(kind, situation).unwrap()
}

fn ceil_log2(n: u32) -> u64 {
    u64::from(n.next_power_of_two().ilog2())
}

/// The depth of a heap of n nodes.
fn depth(n: u32, k: u32) -> u64 {
    let (mut depth, mut level, mut below) = (0, 1_u64, 1_u64);
    while below < u64::from(n) {
        level *= u64::from(k);
        below += level;
        depth += 1;
    }
    depth
}

fn switch_steps(n: u32) -> u64 {
    let mut left = n;
    let mut steps = 0;
    for size in SWITCHES.into_iter().chain([n]) {
        let size = size.min(left);
        left -= size;
        steps += if size == 0 { 0 } else { u64::from(size.ilog2()) + 1 };
    }
    steps
}

/// Steps that a kind may take: reference values for n nodes and m chunks.
fn bound(kind: ScheduleKind, n: u32, m: u32) -> u64 {
    if n < 2 || m == 0 {
        return 0;
    }
    let chunks = u64::from(m);
    match kind {
        ScheduleKind::BinomialPipeline => chunks - 1 + ceil_log2(n),
        ScheduleKind::TwoTree => chunks + 2 * ceil_log2(n),
        ScheduleKind::Chain => chunks + u64::from(n) - 2,
        ScheduleKind::Tree { arity } => {
            u64::from(arity.get()) * (chunks - 1 + depth(n, arity.get()))
        }
        ScheduleKind::PaperTree { arity } => {
            u64::from(arity.get()) * depth(n, arity.get()) * chunks
        }
        ScheduleKind::Star => chunks * u64::from(n - 1),
        ScheduleKind::Switches => chunks - 1 + switch_steps(n),
    }
}

/// All that a node sends, as if everything were ready.
fn all_sends(schedule: &Arc<Schedule>, node: u32) -> Vec<Transfer> {
    let mut outbox = schedule.outbox(node);
    let sends = std::iter::from_fn(|| outbox.take(|_| true)).collect();
    assert!(outbox.is_done());
    sends
}

/// The pipeline's transfers of all nodes by step, as their senders see them.
fn by_step(schedule: &Arc<Schedule>) -> BTreeMap<u64, Vec<Transfer>> {
    let mut steps: BTreeMap<u64, Vec<Transfer>> = BTreeMap::new();
    for node in 0..count(schedule) {
        let mut last = None;
        for transfer in all_sends(schedule, node) {
            assert_eq!(transfer.from, node);
            if let SendLane::Pipeline { step } = transfer.lane {
                assert!(last < Some(step), "{node} sends twice in or before step {step}");
                last = Some(step);
                steps.entry(step).or_default().push(transfer);
            }
        }
    }
    steps
}

fn count(schedule: &Schedule) -> u32 {
    u32::try_from(schedule.situation().nodes.len()).unwrap()
}

/// What the nodes hold while a schedule is executed step by step.
struct Lockstep {
    holds: Vec<ChunkSet>,
}

impl Lockstep {
    fn at(schedule: &Schedule) -> Self {
        let nodes = schedule.situation().nodes.iter();
        Self { holds: nodes.map(|node| node.holds.clone()).collect() }
    }

    fn deliver(&mut self, transfer: &Transfer) {
        let new = self.holds[transfer.to as usize].insert(transfer.chunk);
        assert!(new, "sent although it is there: {transfer:?}");
    }

    fn holder(&self, transfer: &Transfer) {
        let holds = self.holds[transfer.from as usize].contains(transfer.chunk);
        assert!(holds, "sent before it is there: {transfer:?}");
    }

    fn lane(&mut self, schedule: &Arc<Schedule>, lane: SendLane) {
        for node in 0..count(schedule) {
            for transfer in all_sends(schedule, node).iter().filter(|t| t.lane == lane) {
                self.holder(transfer);
                self.deliver(transfer);
            }
        }
    }

    /// Executes the steps before `end`.
    fn run(&mut self, schedule: &Arc<Schedule>, end: u64) {
        self.lane(schedule, SendLane::Gather);
        for (_, transfers) in by_step(schedule).range(..end) {
            let mut receivers: Vec<u32> = transfers.iter().map(|t| t.to).collect();
            receivers.sort_unstable();
            assert!(receivers.windows(2).all(|pair| pair[0] != pair[1]), "{transfers:?}");
            transfers.iter().for_each(|transfer| self.holder(transfer));
            transfers.iter().for_each(|transfer| self.deliver(transfer));
        }
    }

    fn run_all(&mut self, schedule: &Arc<Schedule>) {
        let last = by_step(schedule).keys().last().copied();
        assert!(last.is_none_or(|last| last < schedule.steps()));
        self.run(schedule, u64::MAX);
        self.lane(schedule, SendLane::Leaf);
        self.check_all(schedule);
    }

    /// Every live node holds every chunk that was not lost.
    fn check_all(&self, schedule: &Schedule) {
        let situation = schedule.situation();
        for (node, state) in situation.nodes.iter().enumerate() {
            let mut has = self.holds[node].clone();
            has.unite(schedule.lost());
            let whole = has == ChunkSet::below(situation.chunks);
            assert!(whole || state.role == NodeRole::Dead, "node {node} has {has:?} only");
        }
    }

    /// The situation when `dead` is.
    fn situation(&self, before: &Schedule, dead: u32) -> Situation {
        let mut situation = before.situation().clone();
        for (state, holds) in situation.nodes.iter_mut().zip(&self.holds) {
            state.holds = holds.clone();
        }
        situation.nodes[dead as usize].role = NodeRole::Dead;
        situation
    }
}
