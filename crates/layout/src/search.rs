//! The best choice of labels, exactly: depth first through the labels, without what the bound
//! says cannot be better; among equal ones the first in the order of names.
//!
//! Never forgets what it left out when it is stopped: the bound that it returns holds.

use crate::bound::{CostBound, NoChoice, Plan, SweepWay};
use crate::local::improve;
use crate::network::{Network, VALUE_MAX, labels, only};

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchGoal {
    /// The least value, by whichever choice.
    Least,
    /// The least value, by the first choice in the order of names.
    First,
}

/// How something is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SearchTask {
    /// What.
    pub(crate) goal: SearchGoal,
    /// What all values are multiples of.
    pub(crate) unit: i64,
    /// Once there is a choice, the search ends after so many nodes.
    pub(crate) nodes: usize,
}

/// What was found.
#[derive(Debug)]
pub(crate) struct SearchEnd {
    /// The best choice and its value.
    pub(crate) best: Option<(i64, Vec<usize>)>,
    /// No choice has a smaller value.
    pub(crate) at_least: i64,
    /// Whether nothing was left out.
    pub(crate) whole: bool,
}

/// Shakings of the start.
const FIRST_ROUNDS: usize = 8;
/// Shakings of what the first bound suggests.
const ROUNDS: usize = 24;
/// Nodes down to this depth get prices of their own.
const PRICED_DEPTH: usize = 3;
/// Steps of prices in such a node.
const NODE_STEPS: usize = 8;
/// How far prices go in a node's first steps, in parts of 1024 of what would close the gap.
const NODE_STEP: i64 = 256;
/// Sweeps before the first branch.
const ROOT_SWEEPS: usize = 200;
/// Sweeps there and back in a node at most.
const NODE_SWEEPS: usize = 2;

struct Searching<'a> {
    network: &'a Network,
    plan: Plan,
    task: SearchTask,
    nodes: usize,
    stop: &'a mut dyn FnMut() -> bool,
    best: Option<(i64, Vec<usize>)>,
    /// The smallest bound of what was left out.
    left_out: i64,
    stopped: bool,
    depths: Vec<CostBound>,
    choice: Vec<usize>,
}

/// Finds the best choice of a network, from a start that may
/// be forbidden.
pub(crate) fn search(
    network: &Network,
    task: SearchTask,
    start: Option<Vec<usize>>,
    stop: &mut dyn FnMut() -> bool,
) -> SearchEnd {
    let mut searching = Searching {
        network,
        plan: Plan::new(network),
        task,
        nodes: 0,
        stop,
        best: None,
        left_out: VALUE_MAX,
        stopped: false,
        depths: vec![CostBound::default(); network.variables() + 2],
        choice: vec![0; network.variables()],
    };
    if network.domains.iter().all(|domain| *domain != 0) {
        let started = searching.start(start);
        if started.is_ok() {
            searching.explore(0);
        }
    }
    let best = searching.best.as_ref().map_or(VALUE_MAX, |(value, _)| *value);
    SearchEnd {
        at_least: best.min(searching.left_out),
        whole: !searching.stopped,
        best: searching.best,
    }
}

impl Searching<'_> {
    /// The root's bound and a good choice to begin with.
    fn start(&mut self, start: Option<Vec<usize>>) -> Result<(), NoChoice> {
        let mut root = CostBound::new(self.network, VALUE_MAX);
        root.propagate(self.network)?;
        let first = start.unwrap_or_else(|| self.cheapest(&root));
        self.climb(first, FIRST_ROUNDS);
        root.limit = self.limit();
        root.tighten(self.network, &self.plan, (ROOT_SWEEPS, 1024), &mut self.choice, self.stop)?;
        // What the variables chose before the last costs moved is a good start again.
        self.climb(self.choice.clone(), ROUNDS);
        root.limit = self.limit();
        let result = root.tighten(
            self.network,
            &self.plan,
            (ROOT_SWEEPS / 4, 1024),
            &mut self.choice,
            self.stop,
        );
        self.depths[0] = root;
        result
    }

    /// The label of each variable that costs least alone.
    fn cheapest(&self, bound: &CostBound) -> Vec<usize> {
        let width = self.network.width;
        let best = |(variable, domain): (usize, &u32)| {
            labels(*domain).min_by_key(|label| self.network.unary[variable * width + label])
        };
        bound.domains.iter().enumerate().map(|one| best(one).unwrap_or(0)).collect()
    }

    /// Improves a choice, and keeps what is allowed and better than all before.
    fn climb(&mut self, from: Vec<usize>, rounds: usize) {
        let enough = self.enough();
        let choice = improve(self.network, from, (rounds, enough), self.stop);
        self.offer(&choice);
    }

    /// The cheapest label of each variable, if that could be.
    fn enough(&self) -> i64 {
        let width = self.network.width;
        let least = |(variable, domain): (usize, &u32)| {
            labels(*domain).map(|label| self.network.unary[variable * width + label]).min()
        };
        self.network.domains.iter().enumerate().filter_map(least).sum()
    }

    fn offer(&mut self, choice: &[usize]) {
        let Some(value) = self.network.value(choice) else { return };
        let better = match &self.best {
            None => true,
            Some((least, known)) => {
                let earlier = self.task.goal == SearchGoal::First && choice < known.as_slice();
                value < *least || value == *least && earlier
            }
        };
        if better {
            self.best = Some((value, choice.to_vec()));
        }
    }

    /// Bounds above this are of no use.
    fn limit(&self) -> i64 {
        match (&self.best, self.task.goal) {
            (None, _) => VALUE_MAX,
            (Some((value, _)), SearchGoal::First) => *value,
            (Some((value, _)), SearchGoal::Least) => value - self.task.unit,
        }
    }

    /// Whether only equal choices can be left, of which the first in the order of names counts.
    fn tied(&self, bound: &CostBound) -> bool {
        let least = self.best.as_ref().map_or(VALUE_MAX, |(value, _)| *value);
        bound.constant > least - self.task.unit
    }

    /// Whether a choice that is left may come before the best one in the order of names.
    fn may_come_first(&self, bound: &CostBound) -> bool {
        let Some((_, best)) = &self.best else { return true };
        for (domain, known) in bound.domains.iter().zip(best) {
            let first = domain.trailing_zeros() as usize;
            if first != *known {
                return first < *known;
            }
        }
        false
    }

    fn explore(&mut self, depth: usize) {
        self.depths[depth].limit = self.limit();
        let node = &self.depths[depth];
        if node.constant > node.limit || self.tied(node) && !self.may_come_first(node) {
            return;
        }
        let Some(variable) = self.branch(node) else {
            let choice: Vec<usize> = (0..self.network.variables())
                .map(|variable| node.fixed(variable).unwrap_or(0))
                .collect();
            self.offer(&choice);
            if self.task.goal == SearchGoal::First {
                self.climb(choice, 0);
            }
            return;
        };
        for (cost, label) in self.children(depth, variable) {
            let bound = self.depths[depth].constant + cost;
            if bound > self.limit() {
                continue;
            }
            self.nodes += 1;
            let enough = self.best.is_some() && self.nodes > self.task.nodes;
            self.stopped = self.stopped || enough || (self.stop)();
            if self.stopped {
                self.left_out = self.left_out.min(bound);
            } else if self.descend(depth, variable, label).is_ok() {
                self.explore(depth + 1);
            }
        }
    }

    /// The labels of a variable, the most promising first.
    fn children(&self, depth: usize, variable: usize) -> Vec<(i64, usize)> {
        let node = &self.depths[depth];
        let at = variable * self.network.width;
        let mut children: Vec<_> =
            labels(node.domains[variable]).map(|label| (node.unary[at + label], label)).collect();
        if !self.tied(node) {
            children.sort_unstable();
        }
        children
    }

    /// The node below, in which the variable has the label.
    fn descend(&mut self, depth: usize, variable: usize, label: usize) -> Result<(), NoChoice> {
        let limit = self.limit();
        let (above, below) = self.depths.split_at_mut(depth + 1);
        let child = &mut below[0];
        child.clone_from(&above[depth]);
        child.limit = limit;
        child.domains[variable] = only(label);
        child.propagate(self.network)?;
        for _ in 0..NODE_SWEEPS {
            let before = child.constant;
            child.sweep(self.network, &self.plan, SweepWay::Forth, &mut self.choice)?;
            child.sweep(self.network, &self.plan, SweepWay::Back, &mut self.choice)?;
            if (child.constant - before) * 16 < limit - child.constant {
                break;
            }
        }
        if depth < PRICED_DEPTH {
            child.tighten(
                self.network,
                &self.plan,
                (NODE_STEPS, NODE_STEP),
                &mut self.choice,
                self.stop,
            )?;
        }
        Ok(())
    }

    /// The variable to branch on, with many edges and few labels; none if all are fixed.
    fn branch(&self, node: &CostBound) -> Option<usize> {
        let mut open = (0..self.network.variables())
            .filter(|variable| !node.domains[*variable].is_power_of_two());
        if self.tied(node) {
            return open.next();
        }
        open.max_by_key(|variable| {
            let edges = 1000 * self.network.incident[*variable].len();
            let labels = node.domains[*variable].count_ones() as usize;
            (edges / labels, self.weight(node, *variable), std::cmp::Reverse(*variable))
        })
    }

    /// How much worse the second best label of a variable is, for each label.
    fn weight(&self, node: &CostBound, variable: usize) -> i64 {
        let at = variable * self.network.width;
        let domain = node.domains[variable];
        let mut least = [i64::MAX; 2];
        for label in labels(domain) {
            let cost = node.unary[at + label];
            least = [least[0].min(cost), least[0].max(cost).min(least[1])];
        }
        (least[1] - least[0]) / i64::from(domain.count_ones())
    }
}
