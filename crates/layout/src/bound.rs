//! What no placement can beat: a lower bound by moving costs between tables and variables (soft
//! arc consistency, in the order of sequential message passing), with prices for resources.
//!
//! Never changes what a placement costs: costs move, their sum for any choice of labels does not;
//! prices lower it only for choices that a resource allows.

use crate::network::{FORBIDDEN_ABOVE, Labels, MESSAGE_MAX, Network, VALUE_MAX, labels, only};

/// No placement is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoChoice;

/// Which way a sweep goes through the variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SweepWay {
    /// In their order.
    Forth,
    /// Against it.
    Back,
}

/// Costs as they have been moved, and the labels that are left.
#[derive(Debug, Default)]
pub(crate) struct CostBound {
    /// The labels that are left of each variable.
    pub(crate) domains: Vec<Labels>,
    /// What each label of each variable costs beyond `constant`; never negative.
    pub(crate) unary: Vec<i64>,
    /// What has been taken from each end of each edge: edge, side, label.
    taken: Vec<i64>,
    /// The price of all of each resource.
    prices: Vec<i64>,
    /// No placement costs less.
    pub(crate) constant: i64,
    /// A placement that costs more than this is of no use.
    pub(crate) limit: i64,
}

impl Clone for CostBound {
    fn clone(&self) -> Self {
        let mut new = Self::default();
        new.clone_from(self);
        new
    }

    fn clone_from(&mut self, from: &Self) {
        self.domains.clone_from(&from.domains);
        self.unary.clone_from(&from.unary);
        self.taken.clone_from(&from.taken);
        self.prices.clone_from(&from.prices);
        self.constant = from.constant;
        self.limit = from.limit;
    }
}

/// How a network is gone through.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The variables in the order of sweeps.
    order: Vec<usize>,
    /// Each variable's place in `order`.
    place: Vec<usize>,
    /// The larger number of edges, those to earlier or those to later variables.
    share: Vec<i64>,
}

impl Plan {
    /// Neighbours come close to each other in the order, the first variable has the most edges.
    pub(crate) fn new(network: &Network) -> Self {
        let variables = network.variables();
        let mut order: Vec<usize> = Vec::with_capacity(variables);
        let mut place = vec![usize::MAX; variables];
        while order.len() < variables {
            let reached = |variable: &usize| {
                let edges = &network.incident[*variable];
                let known = edges.iter().filter(|(edge, side)| {
                    place[network.edges[*edge].ends[1 - side]] != usize::MAX
                });
                (known.count(), edges.len())
            };
            let left = (0..variables).filter(|variable| place[*variable] == usize::MAX);
            let Some(next) = left.rev().max_by_key(reached) else { break };
            place[next] = order.len();
            order.push(next);
        }
        let share = (0..variables).map(|one| share_of(network, &place, one)).collect();
        Self { order, place, share }
    }

    /// Whether the edge leads the way that the sweep goes.
    fn leads_on(&self, network: &Network, at: usize, edge: (usize, usize), way: SweepWay) -> bool {
        let other = network.edges[edge.0].ends[1 - edge.1];
        (self.place[other] > self.place[at]) == (way == SweepWay::Forth)
    }
}

fn share_of(network: &Network, place: &[usize], variable: usize) -> i64 {
    let edges = &network.incident[variable];
    let later = edges
        .iter()
        .filter(|(edge, side)| place[network.edges[*edge].ends[1 - side]] > place[variable]);
    let later = later.count();
    i64::try_from(later.max(edges.len() - later).max(1)).unwrap_or(1)
}

/// The part of a price that an amount pays, rounded down: all who fit pay the price at most.
fn part_of(price: i64, amount: u64, capacity: u64) -> i64 {
    if price == 0 || capacity == 0 {
        return 0;
    }
    let part = i128::from(price) * i128::from(amount) / i128::from(capacity);
    i64::try_from(part).unwrap_or(VALUE_MAX).min(VALUE_MAX)
}

impl CostBound {
    /// The bound before any sweep.
    pub(crate) fn new(network: &Network, limit: i64) -> Self {
        Self {
            domains: network.domains.clone(),
            unary: network.unary.clone(),
            taken: vec![0; network.edges.len() * 2 * network.width],
            prices: vec![0; network.resources.len()],
            constant: 0,
            limit,
        }
    }

    /// The only label of a variable that has one left.
    pub(crate) fn fixed(&self, variable: usize) -> Option<usize> {
        let domain = self.domains[variable];
        domain.is_power_of_two().then(|| domain.trailing_zeros() as usize)
    }

    /// Removes labels with which resources run out.
    pub(crate) fn propagate(&mut self, network: &Network) -> Result<(), NoChoice> {
        loop {
            let mut removed = false;
            for resource in &network.resources {
                let surely = |one: &&crate::network::Use| self.domains[one.variable] & !one.on == 0;
                let used = resource.uses.iter().filter(surely);
                let used = used.fold(0_u64, |sum, one| sum.saturating_add(one.amount));
                let Some(free) = resource.capacity.checked_sub(used) else { return Err(NoChoice) };
                for one in resource.uses.iter().filter(|one| one.amount > free) {
                    let domain = &mut self.domains[one.variable];
                    if *domain & one.on != 0 && *domain & !one.on != 0 {
                        *domain &= !one.on;
                        removed = true;
                    }
                }
            }
            if !removed {
                return Ok(());
            }
        }
    }

    /// Moves costs through the network once; says the label that each variable would choose.
    pub(crate) fn sweep(
        &mut self,
        network: &Network,
        plan: &Plan,
        way: SweepWay,
        choice: &mut [usize],
    ) -> Result<(), NoChoice> {
        for step in 0..plan.order.len() {
            let place = if way == SweepWay::Forth { step } else { plan.order.len() - 1 - step };
            let variable = plan.order[place];
            for &(edge, side) in &network.incident[variable] {
                self.collect(network, variable, edge, side);
            }
            choice[variable] = self.settle(network.width, variable)?;
            if self.domains[variable].is_power_of_two() {
                continue;
            }
            for &edge in &network.incident[variable] {
                if plan.leads_on(network, variable, edge, way) {
                    self.distribute(network.width, variable, edge, plan.share[variable]);
                }
            }
        }
        self.propagate(network)
    }

    /// Moves from an edge to a variable what each of its labels costs there at least.
    fn collect(&mut self, network: &Network, variable: usize, edge: usize, side: usize) {
        let width = network.width;
        let other = self.domains[network.edges[edge].ends[1 - side]];
        let table = &network.edges[edge].tables[side];
        let taken = edge * 2 * width;
        let (own_at, other_at) = (taken + side * width, taken + (1 - side) * width);
        for label in labels(self.domains[variable]) {
            let row = &table[label * width..(label + 1) * width];
            let there = &self.taken[other_at..other_at + width];
            let mut least = i64::MAX;
            for across in labels(other) {
                least = least.min(row[across] - there[across]);
            }
            let least = least - self.taken[own_at + label];
            if least >= FORBIDDEN_ABOVE {
                self.domains[variable] &= !only(label);
            } else if self.taken[own_at + label] + least <= MESSAGE_MAX {
                self.taken[own_at + label] += least;
                self.unary[variable * width + label] += least;
            }
        }
    }

    /// Moves from a variable to the constant what all of its labels cost, and removes those that
    /// cost too much.
    fn settle(&mut self, width: usize, variable: usize) -> Result<usize, NoChoice> {
        let unary = &mut self.unary[variable * width..(variable + 1) * width];
        let domain = &mut self.domains[variable];
        let Some(best) = labels(*domain).min_by_key(|label| unary[*label]) else {
            return Err(NoChoice);
        };
        let least = unary[best];
        self.constant += least;
        if self.constant > self.limit {
            return Err(NoChoice);
        }
        for label in labels(*domain) {
            unary[label] -= least;
            if self.constant + unary[label] > self.limit {
                *domain &= !only(label);
            }
        }
        Ok(best)
    }

    /// Moves a share of what the labels cost into an edge.
    fn distribute(&mut self, width: usize, variable: usize, edge: (usize, usize), share: i64) {
        let taken = (edge.0 * 2 + edge.1) * width;
        for label in labels(self.domains[variable]) {
            let part = self.unary[variable * width + label] / share;
            if self.taken[taken + label] - part >= -MESSAGE_MAX {
                self.taken[taken + label] -= part;
                self.unary[variable * width + label] -= part;
            }
        }
    }

    /// Changes the prices of resources.
    fn set_prices(&mut self, network: &Network, prices: Vec<i64>) {
        let old = std::mem::replace(&mut self.prices, prices);
        for (resource, (old, new)) in network.resources.iter().zip(old.iter().zip(&self.prices)) {
            self.constant -= new - old;
            for one in &resource.uses {
                let change = part_of(*new, one.amount, resource.capacity)
                    - part_of(*old, one.amount, resource.capacity);
                for label in labels(one.on) {
                    self.unary[one.variable * network.width + label] += change;
                }
            }
        }
        for (variable, domain) in self.domains.iter().enumerate() {
            let unary = &mut self.unary[variable * network.width..][..network.width];
            let least = labels(*domain).map(|label| unary[label]).min().unwrap_or(0);
            self.constant += least;
            unary.iter_mut().for_each(|cost| *cost -= least);
        }
    }

    /// The best bound of so many sweeps there and back, with prices that follow what runs out:
    /// first by `step` thousandths (of 1024) of what would close the gap.
    pub(crate) fn tighten(
        &mut self,
        network: &Network,
        plan: &Plan,
        (sweeps, mut step): (usize, i64),
        choice: &mut [usize],
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), NoChoice> {
        let mut best = self.clone();
        let mut idle = 0;
        for _ in 0..sweeps {
            self.sweep(network, plan, SweepWay::Forth, choice)?;
            self.sweep(network, plan, SweepWay::Back, choice)?;
            let gained = self.constant - best.constant;
            if gained > 0 {
                best.clone_from(self);
            }
            idle = if gained > (self.limit - self.constant) / 256 { 0 } else { idle + 1 };
            if idle >= 8 {
                (step, idle) = (step / 2, 0);
            }
            let Some(prices) = self.follow(network, choice, step).filter(|_| !stop()) else {
                break;
            };
            self.set_prices(network, prices);
        }
        let domains = std::mem::take(&mut self.domains);
        self.clone_from(&best);
        for (domain, left) in self.domains.iter_mut().zip(domains) {
            *domain &= left;
        }
        self.propagate(network)
    }

    /// Prices a step on: higher where the choice uses too much, lower where it does not use all.
    fn follow(&self, network: &Network, choice: &[usize], step: i64) -> Option<Vec<i64>> {
        if step == 0 {
            return None;
        }
        let excess = |(index, resource): (usize, &crate::network::Resource)| {
            let capacity = i128::from(resource.capacity).max(1);
            let over = (i128::from(resource.used(choice)) - capacity) * 1024 / capacity;
            let idle = over < 0 && self.prices[index] == 0;
            if idle { 0 } else { over.min(1 << 20) }
        };
        let excesses: Vec<i128> = network.resources.iter().enumerate().map(excess).collect();
        let square: i128 = excesses.iter().map(|over| over * over).sum();
        let gap = i128::from((self.limit - self.constant).max(1));
        let next = |(price, over): (&i64, &i128)| {
            // Polyak's step: the gap over the square of the excess, of which `step` says how much.
            let change = if square == 0 { 0 } else { gap * over * i128::from(step) / square };
            let price = (i128::from(*price) + change).clamp(0, i128::from(VALUE_MAX >> 4));
            i64::try_from(price).unwrap_or(0)
        };
        Some(self.prices.iter().zip(&excesses).map(next).collect())
    }
}
