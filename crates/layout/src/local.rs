//! A good placement, soon: descents by moving one variable, two at once and by exchanges, from
//! starts that are shaken by a generator with a fixed seed.
//!
//! Never proves anything, and never takes a step that breaks more constraints than it mends.

use crate::network::{FORBIDDEN, Labels, Network, labels, only};

/// What a forbidden pair counts, in thousandths of a resource that is wholly used twice.
const BROKEN: i64 = 1000;

/// How bad a choice is: constraints that it breaks, then its value.
pub(crate) type Badness = (i64, i64);

/// A choice of labels, and what each change of it would mean.
#[derive(Debug, Clone)]
pub(crate) struct Descent<'a> {
    network: &'a Network,
    tables: &'a Tables,
    choice: Vec<usize>,
    /// What each label of each variable would cost and break, the others being as they are.
    at: Vec<Badness>,
    used: Vec<u64>,
    /// Constraints that are broken now.
    broken: i64,
    /// The value now, of what is not forbidden.
    value: i64,
}

/// Changes of two variables.
type Change = [(usize, usize); 2];

/// What descents look up.
#[derive(Debug)]
pub(crate) struct Tables {
    /// For each label of each variable what it uses: resource, amount.
    uses: Vec<Vec<(usize, u64)>>,
    /// For each two variables the edge between them, or the number of edges.
    between: Vec<usize>,
}

impl Tables {
    /// Of a network.
    pub(crate) fn new(network: &Network) -> Self {
        let variables = network.variables();
        let mut uses = vec![Vec::new(); variables * network.width];
        for (index, resource) in network.resources.iter().enumerate() {
            for one in &resource.uses {
                for label in labels(one.on) {
                    uses[one.variable * network.width + label].push((index, one.amount));
                }
            }
        }
        let mut between = vec![network.edges.len(); variables * variables];
        for (index, edge) in network.edges.iter().enumerate() {
            between[edge.ends[0] * variables + edge.ends[1]] = index;
            between[edge.ends[1] * variables + edge.ends[0]] = index;
        }
        Self { uses, between }
    }
}

fn split(cost: i64) -> Badness {
    if cost >= FORBIDDEN { (BROKEN, 0) } else { (0, cost) }
}

fn plus(a: Badness, b: Badness) -> Badness {
    (a.0 + b.0, a.1 + b.1)
}

fn minus(a: Badness, b: Badness) -> Badness {
    (a.0 - b.0, a.1 - b.1)
}

impl<'a> Descent<'a> {
    /// From a choice.
    pub(crate) fn new(network: &'a Network, tables: &'a Tables, choice: Vec<usize>) -> Self {
        let width = network.width;
        let mut at: Vec<Badness> = network.unary.iter().map(|cost| (0, *cost)).collect();
        let mut sum = (0, 0);
        for edge in &network.edges {
            for side in [0, 1] {
                let (one, other) = (edge.ends[side], edge.ends[1 - side]);
                for label in 0..width {
                    let cost = split(edge.tables[side][label * width + choice[other]]);
                    at[one * width + label] = plus(at[one * width + label], cost);
                }
            }
            let [a, b] = edge.ends.map(|end| choice[end]);
            sum = plus(sum, split(edge.tables[0][a * width + b]));
        }
        for (variable, label) in choice.iter().enumerate() {
            sum.1 += network.unary[variable * width + label];
        }
        let used = network.resources.iter().map(|resource| resource.used(&choice)).collect();
        let mut new = Self { network, tables, choice, at, used, broken: sum.0, value: sum.1 };
        new.broken += (0..new.used.len()).map(|resource| new.over(resource)).sum::<i64>();
        new
    }

    fn now(&self, variable: usize) -> usize {
        self.choice[variable]
    }

    /// How much more of a resource is used than there is, in thousandths.
    fn over(&self, resource: usize) -> i64 {
        let capacity = self.network.resources[resource].capacity;
        let over = self.used[resource].saturating_sub(capacity);
        if over == 0 {
            return 0;
        }
        let thousandths = u128::from(over) * 1000 / u128::from(capacity.max(1)) + 1;
        i64::try_from(thousandths).unwrap_or(i64::MAX).min(1 << 32)
    }

    /// Lets a variable use what it uses with one label instead of another; what that strains.
    fn reuse(&mut self, variable: usize, from: usize, to: usize) -> i64 {
        let tables = self.tables;
        let width = self.network.width;
        let mut strain = 0;
        for &(resource, amount) in &tables.uses[variable * width + from] {
            strain -= self.over(resource);
            self.used[resource] = self.used[resource].saturating_sub(amount);
            strain += self.over(resource);
        }
        for &(resource, amount) in &tables.uses[variable * width + to] {
            strain -= self.over(resource);
            self.used[resource] = self.used[resource].saturating_add(amount);
            strain += self.over(resource);
        }
        strain
    }

    /// What changes mean for the resources.
    fn strain(&mut self, changes: &[(usize, usize)]) -> i64 {
        if self.used.is_empty() {
            return 0;
        }
        let mut strain = 0;
        for &(variable, label) in changes {
            strain += self.reuse(variable, self.now(variable), label);
        }
        for &(variable, label) in changes {
            self.reuse(variable, label, self.now(variable));
        }
        strain
    }

    fn cost_of(&self, variable: usize, label: usize) -> Badness {
        let width = self.network.width;
        minus(self.at[variable * width + label], self.at[variable * width + self.now(variable)])
    }

    /// Whether a change that means so much, beside resources, may be for the better.
    fn may_help(&self, cost: Badness) -> bool {
        cost < (0, 0) || self.broken > 0
    }

    /// Whether two changes are for the better.
    fn helps(&mut self, [(a, x), (b, y)]: Change) -> bool {
        let cost = plus(self.cost_of(a, x), self.cost_of(b, y));
        let cost = plus(cost, self.together((a, x), (b, y)));
        self.may_help(cost) && plus(cost, (self.strain(&[(a, x), (b, y)]), 0)) < (0, 0)
    }

    /// What two changes at both ends of an edge mean beyond each alone.
    fn together(&self, (a, x): (usize, usize), (b, y): (usize, usize)) -> Badness {
        let network = self.network;
        let between = self.tables.between[a * network.variables() + b];
        let Some(edge) = network.edges.get(between) else { return (0, 0) };
        let table = &edge.tables[usize::from(edge.ends[0] != a)];
        let cost = |x: usize, y: usize| split(table[x * network.width + y]);
        let (was_x, was_y) = (self.now(a), self.now(b));
        minus(plus(cost(x, y), cost(was_x, was_y)), plus(cost(x, was_y), cost(was_x, y)))
    }

    /// Gives a variable a label.
    pub(crate) fn change(&mut self, variable: usize, label: usize) {
        let was = self.now(variable);
        let width = self.network.width;
        let cost = self.cost_of(variable, label);
        self.broken += cost.0 + self.reuse(variable, was, label);
        self.value += cost.1;
        for &(edge, side) in &self.network.incident[variable] {
            let other = self.network.edges[edge].ends[1 - side];
            let table = &self.network.edges[edge].tables[side];
            for across in 0..width {
                let change =
                    minus(split(table[label * width + across]), split(table[was * width + across]));
                let at = &mut self.at[other * width + across];
                *at = plus(*at, change);
            }
        }
        self.choice[variable] = label;
    }

    fn others(&self, variable: usize) -> impl Iterator<Item = usize> + use<> {
        labels(self.network.domains[variable] & !only(self.now(variable)))
    }

    /// The best change of one variable.
    fn best_single(&mut self) -> Option<(usize, usize)> {
        let mut best = ((0, 0), None);
        for variable in 0..self.choice.len() {
            for label in self.others(variable) {
                let cost = self.cost_of(variable, label);
                if cost >= best.0 && self.broken == 0 {
                    continue;
                }
                let gain = plus(cost, (self.strain(&[(variable, label)]), 0));
                if gain < best.0 {
                    best = (gain, Some((variable, label)));
                }
            }
        }
        best.1
    }

    /// The first change of two variables that is for the better.
    fn some_double(&mut self) -> Option<Change> {
        self.some_exchange().or_else(|| self.some_pair()).or_else(|| self.some_ejection())
    }

    /// Two variables that take each other's labels.
    fn some_exchange(&mut self) -> Option<Change> {
        for a in 0..self.choice.len() {
            for b in a + 1..self.choice.len() {
                let (x, y) = (self.now(a), self.now(b));
                let domains = &self.network.domains;
                if x == y || domains[a] & only(y) == 0 || domains[b] & only(x) == 0 {
                    continue;
                }
                if self.helps([(a, y), (b, x)]) {
                    return Some([(a, y), (b, x)]);
                }
            }
        }
        None
    }

    /// Two variables with an edge between them that move at once.
    fn some_pair(&mut self) -> Option<Change> {
        let network = self.network;
        for edge in &network.edges {
            let [a, b] = edge.ends;
            for x in self.others(a) {
                let found = self.others(b).find(|y| self.helps([(a, x), (b, *y)]));
                if let Some(y) = found {
                    return Some([(a, x), (b, y)]);
                }
            }
        }
        None
    }

    /// A variable that moves where there is no room, and another that leaves from there.
    fn some_ejection(&mut self) -> Option<Change> {
        for a in 0..self.choice.len() {
            for x in self.others(a) {
                if self.cost_of(a, x) >= (0, 0) {
                    continue;
                }
                for b in 0..self.choice.len() {
                    if b == a || self.now(b) != x {
                        continue;
                    }
                    let found = self.others(b).find(|y| self.helps([(a, x), (b, *y)]));
                    if let Some(y) = found {
                        return Some([(a, x), (b, y)]);
                    }
                }
            }
        }
        None
    }

    /// Goes down until no change of one or two variables is for the better; at most so many steps.
    pub(crate) fn descend(&mut self, steps: usize, stop: &mut dyn FnMut() -> bool) {
        for _ in 0..steps {
            if stop() {
                return;
            }
            if let Some((variable, label)) = self.best_single() {
                self.change(variable, label);
            } else if let Some(change) = self.some_double() {
                change.iter().for_each(|(variable, label)| self.change(*variable, *label));
            } else {
                return;
            }
        }
    }

    /// How bad the choice is.
    pub(crate) fn badness(&self) -> Badness {
        (self.broken, self.value)
    }
}

/// A generator of numbers without a pattern (splitmix64), always the same ones.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// From a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let below = mixed % u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(below).unwrap_or(0)
    }

    /// One of a set of labels.
    fn one_of(&mut self, set: Labels) -> Option<usize> {
        labels(set).nth(self.below(set.count_ones() as usize))
    }
}

/// Shakes the choice and goes down again, so many times or until nothing is broken and the value
/// is `enough`; the best that was found.
pub(crate) fn improve(
    network: &Network,
    start: Vec<usize>,
    (rounds, enough): (usize, i64),
    stop: &mut dyn FnMut() -> bool,
) -> Vec<usize> {
    let tables = Tables::new(network);
    let steps = 20 * network.variables() + 20;
    let mut here = Descent::new(network, &tables, start);
    here.descend(steps, stop);
    let mut dice = Dice::new(network.variables() as u64);
    let mut next = here.clone();
    for round in 0..rounds {
        if here.badness() <= (0, enough) || stop() {
            break;
        }
        next.clone_from(&here);
        shake(&mut next, &mut dice, 2 + round % 4);
        next.descend(steps, stop);
        if next.badness() <= here.badness() {
            std::mem::swap(&mut here, &mut next);
        }
    }
    here.choice
}

/// Gives some variables that are near each other labels at random.
fn shake(descent: &mut Descent<'_>, dice: &mut Dice, times: usize) {
    let network = descent.network;
    let mut variable = dice.below(network.variables());
    for _ in 0..times {
        if let Some(label) = dice.one_of(network.domains[variable]) {
            descent.change(variable, label);
        }
        let edges = &network.incident[variable];
        variable = match edges.get(dice.below(edges.len() + 1)) {
            Some((edge, side)) => network.edges[*edge].ends[1 - side],
            None => dice.below(network.variables()),
        };
    }
}
