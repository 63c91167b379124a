//! A problem as a network: each Pull class one variable, devices as labels in the order of their
//! names, constraints as forbidden pairs, capacities as resources.
//!
//! Never weighs one level of the objective against another: the value of a placement is a number
//! of two digits, its cost and its moves, of which the second cannot overflow into the first.

use std::collections::BTreeSet;

use crate::conflict::ConflictPart;
use crate::network::{FORBIDDEN, Labels, Network, Resource, Union, Use, labels, only};
use crate::problem::{DeviceIndex, Eligibility, LayoutConstraint, LayoutOffcode, LayoutProblem};

/// A problem as a network.
#[derive(Debug)]
pub(crate) struct Contracted {
    /// Costs and constraints of levels 1, 3 and 4.
    pub(crate) network: Network,
    /// The offcodes of each variable, in the order of their names.
    pub(crate) members: Vec<Vec<usize>>,
    /// Each offcode's variable.
    pub(crate) variable_of: Vec<usize>,
    /// Each label's device.
    pub(crate) device_of: Vec<usize>,
    /// Each device's label.
    pub(crate) label_of: Vec<usize>,
    /// The priority classes, the highest first, with who is at home where.
    pub(crate) classes: Vec<(u32, Vec<Use>)>,
    /// The value of a cost of 1 ns/s.
    pub(crate) cost_unit: i64,
    /// What all values are multiples of.
    pub(crate) value_unit: i64,
}

/// The values' unit at most: what is finer than a cost, for bounds that divide costs.
const VALUE_UNIT_MAX: i64 = 1 << 12;
/// All values together at most.
const VALUES_MAX: i64 = 1 << 57;

impl Contracted {
    /// The network of a checked problem with those of its constraints that are not left out.
    pub(crate) fn new(problem: &LayoutProblem, without: &BTreeSet<ConflictPart>) -> Self {
        let mut device_of: Vec<usize> = (0..problem.devices.len()).collect();
        device_of.sort_by_key(|device| &problem.devices[*device].name);
        let mut label_of = vec![0; device_of.len()];
        for (label, device) in device_of.iter().enumerate() {
            label_of[*device] = label;
        }
        let members = pull_classes(problem, without);
        let mut variable_of = vec![0; problem.offcodes.len()];
        for (variable, members) in members.iter().enumerate() {
            members.iter().for_each(|member| variable_of[*member] = variable);
        }
        let (cost_unit, value_unit) = units(problem);
        let network = Network::new(device_of.len(), vec![0; members.len()]);
        let mut new = Self {
            network,
            members,
            variable_of,
            device_of,
            label_of,
            classes: Vec::new(),
            cost_unit,
            value_unit,
        };
        new.add_domains(problem, without);
        new.add_own_costs(problem);
        new.add_channels(problem);
        new.add_constraints(problem, without);
        new.add_capacities(problem, without);
        new.add_classes(problem);
        new.network.drop_plenty();
        new
    }

    /// The label that stands for a device.
    fn label(&self, device: DeviceIndex) -> usize {
        self.label_of[device.0]
    }

    /// Where each offcode is when the variables have these labels.
    pub(crate) fn placement(&self, choice: &[usize]) -> Vec<DeviceIndex> {
        self.variable_of
            .iter()
            .map(|variable| DeviceIndex(self.device_of[choice[*variable]]))
            .collect()
    }

    fn add_domains(&mut self, problem: &LayoutProblem, without: &BTreeSet<ConflictPart>) {
        for (variable, members) in self.members.iter().enumerate() {
            let mut domain = all(self.network.width);
            for member in members {
                if !without.contains(&ConflictPart::Needs(crate::OffcodeIndex(*member))) {
                    domain &= eligible(&problem.offcodes[*member], &self.device_of);
                }
            }
            self.network.domains[variable] = domain;
        }
    }

    fn add_own_costs(&mut self, problem: &LayoutProblem) {
        for (variable, members) in self.members.iter().enumerate() {
            for (label, device) in self.device_of.iter().enumerate() {
                let values = members.iter().map(|member| {
                    let moved = problem.current_of(*member).is_some_and(|at| at.0 != *device);
                    let own = own_cost(&problem.offcodes[*member], *device);
                    signed(own) * self.cost_unit + i64::from(moved) * self.value_unit
                });
                self.network.unary[variable * self.network.width + label] = values.sum();
            }
        }
    }

    fn add_channels(&mut self, problem: &LayoutProblem) {
        for channel in &problem.channels {
            let cost = |x: usize, y: usize| {
                let (x, y) = (self.device_of[x], self.device_of[y]);
                signed(channel.cost_ns_per_s[x][y]) * self.cost_unit
            };
            let (a, b) = (self.variable_of[channel.a.0], self.variable_of[channel.b.0]);
            if a == b {
                for label in 0..self.network.width {
                    self.network.unary[a * self.network.width + label] += cost(label, label);
                }
            } else {
                self.network.add_table(a, b, cost);
            }
        }
    }

    fn add_constraints(&mut self, problem: &LayoutProblem, without: &BTreeSet<ConflictPart>) {
        for (index, constraint) in problem.constraints.iter().enumerate() {
            if without.contains(&ConflictPart::Constraint(index)) {
                continue;
            }
            match constraint {
                LayoutConstraint::Link(..) | LayoutConstraint::Pull(..) => {}
                LayoutConstraint::GangIf(a, b) => self.add_implication(problem, a.0, b.0),
                LayoutConstraint::Gang(gang) => {
                    let next = gang.iter().cycle().skip(1);
                    for (a, b) in gang.iter().zip(next) {
                        self.add_implication(problem, a.0, b.0);
                    }
                }
                LayoutConstraint::Pin(offcode, device) => {
                    let label = self.label(*device);
                    self.network.domains[self.variable_of[offcode.0]] &= only(label);
                }
            }
        }
    }

    /// If `a` is offloaded, so is `b`.
    fn add_implication(&mut self, problem: &LayoutProblem, a: usize, b: usize) {
        let home_of = |offcode: usize| self.label(problem.offcodes[offcode].home);
        let (home_a, home_b) = (home_of(a), home_of(b));
        let refuses = |x: usize, y: usize| x != home_a && y == home_b;
        let (a, b) = (self.variable_of[a], self.variable_of[b]);
        if a != b {
            self.network.add_table(a, b, |x, y| if refuses(x, y) { FORBIDDEN } else { 0 });
            return;
        }
        for label in (0..self.network.width).filter(|label| refuses(*label, *label)) {
            self.network.domains[a] &= !only(label);
        }
    }

    fn add_capacities(&mut self, problem: &LayoutProblem, without: &BTreeSet<ConflictPart>) {
        for (label, device) in self.device_of.iter().enumerate() {
            let id = DeviceIndex(*device);
            let device = &problem.devices[*device];
            let capacities: [(ConflictPart, _, Amount); 3] = [
                (ConflictPart::Memory(id), device.memory_bytes, |one| one.memory_bytes),
                (ConflictPart::Number(id), device.offcodes, |_| 1),
                (ConflictPart::Load(id), device.load_per_mille, |one| one.load_per_mille),
            ];
            for (part, capacity, amount) in capacities {
                let Some(capacity) = capacity.filter(|_| !without.contains(&part)) else {
                    continue;
                };
                let uses = self.members.iter().enumerate().map(|(variable, members)| {
                    let amounts = members.iter().map(|member| amount(&problem.offcodes[*member]));
                    let amount = amounts.fold(0, u64::saturating_add);
                    Use { variable, on: only(label), amount }
                });
                let uses = uses.filter(|one| one.amount > 0).collect();
                self.network.resources.push(Resource { capacity, uses });
            }
        }
    }

    fn add_classes(&mut self, problem: &LayoutProblem) {
        let classes: BTreeSet<u32> = problem.offcodes.iter().map(|one| one.class).collect();
        for class in classes.into_iter().rev() {
            let mut uses = Vec::new();
            for (variable, members) in self.members.iter().enumerate() {
                for label in 0..self.network.width {
                    let home = DeviceIndex(self.device_of[label]);
                    let at_home = members.iter().filter(|member| {
                        let offcode = &problem.offcodes[**member];
                        offcode.class == class && offcode.home == home
                    });
                    let amount = at_home.count() as u64;
                    if amount > 0 {
                        uses.push(Use { variable, on: only(label), amount });
                    }
                }
            }
            self.classes.push((class, uses));
        }
    }
}

/// How much of something an offcode takes.
type Amount = fn(&LayoutOffcode) -> u64;

/// All labels.
pub(crate) fn all(width: usize) -> Labels {
    (0..width).fold(0, |set, label| set | only(label))
}

/// What an offcode costs on a device itself.
pub(crate) fn own_cost(offcode: &LayoutOffcode, device: usize) -> u64 {
    match offcode.eligible.get(device) {
        Some(Eligibility::Runs { cost_ns_per_s }) => *cost_ns_per_s,
        _ => 0,
    }
}

fn eligible(offcode: &LayoutOffcode, device_of: &[usize]) -> Labels {
    let runs = |label: &usize| {
        matches!(offcode.eligible.get(device_of[*label]), Some(Eligibility::Runs { .. }))
    };
    labels(all(device_of.len())).filter(runs).fold(0, |set, label| set | only(label))
}

/// The Pull classes: offcodes in the order of names, classes in the order of their first offcodes.
fn pull_classes(problem: &LayoutProblem, without: &BTreeSet<ConflictPart>) -> Vec<Vec<usize>> {
    let mut by_name: Vec<usize> = (0..problem.offcodes.len()).collect();
    by_name.sort_by_key(|offcode| &problem.offcodes[*offcode].name);
    let mut place = vec![0; by_name.len()];
    for (at, offcode) in by_name.iter().enumerate() {
        place[*offcode] = at;
    }
    let mut sets = Union::new(by_name.len());
    for (index, constraint) in problem.constraints.iter().enumerate() {
        if let LayoutConstraint::Pull(a, b) = constraint
            && !without.contains(&ConflictPart::Constraint(index))
        {
            sets.join(place[a.0], place[b.0]);
        }
    }
    let classes = sets.classes().into_iter();
    classes.map(|class| class.into_iter().map(|at| by_name[at]).collect()).collect()
}

/// The value of 1 ns/s, and what all values are multiples of: the second digit counts moves, of
/// which there are at most as many as offcodes.
fn units(problem: &LayoutProblem) -> (i64, i64) {
    let has_moves = problem.current.iter().any(Option::is_some);
    let radix = if has_moves { signed(problem.offcodes.len() as u64) + 1 } else { 1 };
    let own = problem.offcodes.iter().map(|offcode| {
        (0..problem.devices.len()).map(|device| own_cost(offcode, device)).max().unwrap_or(0)
    });
    let tables = problem.channels.iter();
    let channels = tables.map(|one| one.cost_ns_per_s.iter().flatten().copied().max().unwrap_or(0));
    let most = (signed(own.chain(channels).sum()) + 1) * radix;
    let mut unit = 1;
    while unit < VALUE_UNIT_MAX && most.saturating_mul(unit * 2) < VALUES_MAX {
        unit *= 2;
    }
    (radix * unit, unit)
}

/// A cost of a checked problem, all of which are below 2^48.
fn signed(cost: u64) -> i64 {
    i64::try_from(cost).unwrap_or(FORBIDDEN)
}
