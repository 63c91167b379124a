//! One level of the objective after another, each part of the problem apart.
//!
//! Never says `proven` of a layout that it was stopped on its way to.

use std::collections::BTreeSet;
use std::fmt;

use crate::conflict::{LayoutConflict, find_conflict};
use crate::contract::Contracted;
use crate::network::{Network, Resource, Use, only};
use crate::problem::{DeviceIndex, LayoutProblem, OffcodeIndex, ProblemError};
use crate::reasons::{Explanation, explain};
use crate::search::{SearchEnd, SearchGoal, SearchTask, search};

/// How many offcodes of a priority class are offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCount {
    /// The class.
    pub class: u32,
    /// How many of its offcodes are not at home.
    pub offloaded: u64,
    /// How many are not at home in any layout that does as well in all higher classes, at most.
    pub at_most: u64,
    /// How many there are.
    pub of: u64,
}

/// A layout, how good it is, and why it is this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutSolution {
    /// Each offcode's device.
    pub placement: Vec<DeviceIndex>,
    /// The priority classes, the highest first.
    pub classes: Vec<ClassCount>,
    /// Processor time of the whole machine for channels and offcodes, in ns each second.
    pub cost_ns_per_s: u64,
    /// No layout that offloads as many of every class costs less.
    pub cost_at_least_ns_per_s: u64,
    /// Offcodes that do not stay where they run now.
    pub moves: usize,
    /// Whether it is the best layout at every level.
    pub proven: bool,
    /// Why each offcode is where it is, and not elsewhere.
    pub explanations: Vec<Explanation>,
}

impl LayoutSolution {
    /// The offcode's device.
    #[must_use]
    pub fn device_of(&self, offcode: OffcodeIndex) -> Option<DeviceIndex> {
        self.placement.get(offcode.0).copied()
    }

    /// How much less the best layout costs at most, in thousandths of this one's cost, rounded up.
    #[must_use]
    pub fn gap_per_mille(&self) -> u64 {
        let gap = self.cost_ns_per_s.saturating_sub(self.cost_at_least_ns_per_s);
        match self.cost_ns_per_s {
            0 => 0,
            cost => gap.saturating_mul(1000).div_ceil(cost),
        }
    }
}

/// Why there is no layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutError {
    /// The caller's problem is none.
    Problem(ProblemError),
    /// No layout obeys all constraints.
    Impossible(LayoutConflict),
    /// The caller said stop before any layout was found.
    Stopped,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(error) => error.fmt(f),
            Self::Impossible(conflict) => conflict.fmt(f),
            Self::Stopped => write!(
                f,
                "the caller stopped the search before it found a layout that obeys all \
                 constraints: give it more time"
            ),
        }
    }
}

impl std::error::Error for LayoutError {}

impl From<ProblemError> for LayoutError {
    fn from(error: ProblemError) -> Self {
        Self::Problem(error)
    }
}

/// Finds the best layout, or the best that is found before `stop` says so. It is asked
/// often: every few hundred microseconds for usual problems.
///
/// # Errors
/// [`LayoutError::Problem`] if the caller's problem is none, [`LayoutError::Impossible`] with the
/// constraints that conflict, [`LayoutError::Stopped`] if no layout was found in time.
pub fn solve(
    problem: &LayoutProblem,
    stop: impl FnMut() -> bool,
) -> Result<LayoutSolution, LayoutError> {
    problem.check()?;
    let mut stop = seldom(problem, stop);
    let contracted = Contracted::new(problem, &BTreeSet::new());
    let mut whole = Whole::new(&contracted);
    for variables in contracted.network.components() {
        match solve_part(&contracted, &variables, &mut stop) {
            Ok(part) => whole.add(&variables, &part),
            Err(NoPart::Stopped) => return Err(LayoutError::Stopped),
            Err(NoPart::Impossible) => {
                let offcodes = variables.iter().flat_map(|one| &contracted.members[*one]);
                let suspects = offcodes.copied().collect();
                let conflict = find_conflict(problem, &suspects, &mut stop);
                return Err(LayoutError::Impossible(conflict));
            }
        }
    }
    Ok(whole.solution(problem, &contracted))
}

/// What is done between two questions to the caller, in labels of variables that are looked at.
const WORK_PER_QUESTION: usize = 4096;

/// Asks less often than once each step: a clock takes as long as a small problem's step.
fn seldom(problem: &LayoutProblem, mut stop: impl FnMut() -> bool) -> impl FnMut() -> bool {
    let step = problem.offcodes.len() * problem.devices.len();
    let (mut work, mut stopped) = (WORK_PER_QUESTION, false);
    move || {
        work += step;
        if !stopped && work > WORK_PER_QUESTION {
            work = 0;
            stopped = stop();
        }
        stopped
    }
}

/// Whether a problem has any layout at all; `None` if `stop` said so first.
pub(crate) fn is_possible(
    problem: &LayoutProblem,
    without: &BTreeSet<crate::ConflictPart>,
    stop: &mut dyn FnMut() -> bool,
) -> Option<bool> {
    let contracted = Contracted::new(problem, without);
    let hard = contracted.network.without_costs();
    for variables in hard.components() {
        let part = hard.component(&variables);
        let task = SearchTask { goal: SearchGoal::Least, unit: 1, nodes: usize::MAX };
        let found = search(&part, task, None, stop);
        match (found.best, found.whole) {
            (Some(_), _) => {}
            (None, true) => return Some(false),
            (None, false) => return None,
        }
    }
    Some(true)
}

/// The best choice of a part of the network.
struct Part {
    choice: Vec<usize>,
    /// For each class how many are at home.
    reached: Vec<u64>,
    /// For each class how many must be at home.
    at_home: Vec<u64>,
    at_least: i64,
    value: i64,
    whole: bool,
}

impl Part {
    /// How good it is, the smaller the better.
    fn rank(&self) -> (&[u64], i64, &[usize]) {
        (&self.reached, self.value, &self.choice)
    }
}

enum NoPart {
    Impossible,
    Stopped,
}

impl NoPart {
    const fn of(found: &SearchEnd) -> Self {
        if found.whole { Self::Impossible } else { Self::Stopped }
    }
}

/// What one offcode at home counts while classes are offloaded: bounds divide it.
const HOME_UNIT: i64 = 1 << 20;

/// Nodes of the search for each class before costs are looked at.
const CLASS_NODES: usize = 250;

/// Solves a part: first with little effort for what cannot be shown quickly about classes, then
/// with more and more, until it is proven or the caller says stop.
fn solve_part(
    contracted: &Contracted,
    variables: &[usize],
    stop: &mut dyn FnMut() -> bool,
) -> Result<Part, NoPart> {
    let mut nodes = CLASS_NODES;
    let mut part = solve_levels(contracted, variables, (None, nodes), stop)?;
    while !part.whole && !stop() {
        nodes = nodes.saturating_mul(8);
        let start = Some(part.choice.clone());
        let next = solve_levels(contracted, variables, (start, nodes), stop)?;
        if next.whole || next.rank() <= part.rank() {
            part = next;
        }
    }
    Ok(part)
}

fn solve_levels(
    contracted: &Contracted,
    variables: &[usize],
    (mut choice, nodes): (Option<Vec<usize>>, usize),
    stop: &mut dyn FnMut() -> bool,
) -> Result<Part, NoPart> {
    let mut network = contracted.network.component(variables);
    let mut whole = true;
    let (mut reached, mut at_home) = (Vec::new(), Vec::new());
    for (_, uses) in &contracted.classes {
        let uses = uses_within(uses, variables, &network);
        let found = offload(&network, &uses, (choice.take(), nodes), stop);
        let Some((_, best)) = &found.best else { return Err(NoPart::of(&found)) };
        let resource = Resource { capacity: 0, uses };
        let capacity = resource.used(best);
        reached.push(capacity);
        at_home.push(ceil(found.at_least, HOME_UNIT));
        whole &= found.whole;
        keep_offloaded(&mut network, Resource { capacity, ..resource });
        choice = found.best.map(|(_, best)| best);
    }
    let task =
        SearchTask { goal: SearchGoal::First, unit: contracted.value_unit, nodes: usize::MAX };
    let found = search(&network, task, choice, stop);
    let Some((value, choice)) = found.best else { return Err(NoPart::of(&found)) };
    let at_least = found.at_least.min(value);
    Ok(Part { choice, reached, at_home, at_least, value, whole: whole && found.whole })
}

/// Uses of these variables, numbered as in the part.
fn uses_within(uses: &[Use], variables: &[usize], part: &Network) -> Vec<Use> {
    let mut within = Vec::new();
    for one in uses {
        if let Ok(variable) = variables.binary_search(&one.variable)
            && part.domains[variable] & one.on != 0
        {
            within.push(Use { variable, ..*one });
        }
    }
    within
}

/// The fewest at home.
fn offload(
    network: &Network,
    uses: &[Use],
    (start, nodes): (Option<Vec<usize>>, usize),
    stop: &mut dyn FnMut() -> bool,
) -> SearchEnd {
    let mut hard = network.without_costs();
    for one in uses {
        for label in (0..hard.width).filter(|label| one.on & only(*label) != 0) {
            let amount = i64::try_from(one.amount).unwrap_or(0);
            hard.unary[one.variable * hard.width + label] += amount * HOME_UNIT;
        }
    }
    search(&hard, SearchTask { goal: SearchGoal::Least, unit: HOME_UNIT, nodes }, start, stop)
}

/// From now on as many are offloaded: where all are, being at home is no choice any more.
fn keep_offloaded(network: &mut Network, at_home: Resource) {
    if at_home.capacity > 0 {
        network.resources.push(at_home);
        network.drop_plenty();
        return;
    }
    for one in at_home.uses {
        network.domains[one.variable] &= !one.on;
    }
}

fn ceil(value: i64, unit: i64) -> u64 {
    let value = u64::try_from(value).unwrap_or(0);
    value.div_ceil(u64::try_from(unit).unwrap_or(1))
}

/// The parts together.
struct Whole {
    choice: Vec<usize>,
    at_home: Vec<u64>,
    at_least: u64,
    proven: bool,
}

impl Whole {
    fn new(contracted: &Contracted) -> Self {
        Self {
            choice: vec![0; contracted.network.variables()],
            at_home: vec![0; contracted.classes.len()],
            at_least: 0,
            proven: true,
        }
    }

    fn add(&mut self, variables: &[usize], part: &Part) {
        for (variable, label) in variables.iter().zip(&part.choice) {
            self.choice[*variable] = *label;
        }
        for (sum, at_home) in self.at_home.iter_mut().zip(&part.at_home) {
            *sum += at_home;
        }
        self.proven &= part.whole;
        let at_least = if part.whole { part.value } else { part.at_least };
        self.at_least += u64::try_from(at_least).unwrap_or(0);
    }

    fn solution(self, problem: &LayoutProblem, contracted: &Contracted) -> LayoutSolution {
        let placement = contracted.placement(&self.choice);
        let classes = contracted.classes.iter().zip(&self.at_home);
        let classes = classes.map(|((class, uses), at_home)| {
            let of = problem.offcodes.iter().filter(|one| one.class == *class).count() as u64;
            let used = Resource { capacity: 0, uses: uses.clone() }.used(&self.choice);
            ClassCount { class: *class, offloaded: of - used, at_most: of - at_home, of }
        });
        let cost_unit = u64::try_from(contracted.cost_unit).unwrap_or(1);
        let cost = cost_of(problem, &placement);
        LayoutSolution {
            classes: classes.collect(),
            cost_ns_per_s: cost,
            cost_at_least_ns_per_s: (self.at_least / cost_unit).min(cost),
            moves: moves_of(problem, &placement),
            proven: self.proven,
            explanations: explain(problem, &placement),
            placement,
        }
    }
}

/// What a placement costs.
pub(crate) fn cost_of(problem: &LayoutProblem, placement: &[DeviceIndex]) -> u64 {
    let own = problem.offcodes.iter().zip(placement);
    let own = own.map(|(offcode, device)| crate::contract::own_cost(offcode, device.0));
    let channels = problem
        .channels
        .iter()
        .map(|channel| channel.cost_ns_per_s[placement[channel.a.0].0][placement[channel.b.0].0]);
    own.chain(channels).sum()
}

/// Offcodes that a placement moves.
pub(crate) fn moves_of(problem: &LayoutProblem, placement: &[DeviceIndex]) -> usize {
    let moved = |(offcode, device): (usize, &DeviceIndex)| {
        problem.current_of(offcode).is_some_and(|at| at != *device)
    };
    placement.iter().enumerate().filter(|one| moved(*one)).count()
}
