//! The best layout by looking at all of them: slow, and too simple to be wrong.
//!
//! Never shares code with the solver.

use outboard_layout::{DeviceIndex, Eligibility, LayoutConstraint, LayoutProblem, OffcodeIndex};

/// How good a layout is, the smaller the better: offcodes at home by class, cost, moves, names.
pub(crate) type Rank = (Vec<usize>, u64, usize, Vec<usize>);

/// The best layout and its rank, if there is any.
pub(crate) fn best(problem: &LayoutProblem) -> Option<(Rank, Vec<DeviceIndex>)> {
    let mut brute = Brute { problem, devices: device_ranks(problem), best: None };
    brute.place(&mut Vec::new());
    brute.best
}

/// Whether there is any layout.
pub(crate) fn exists(problem: &LayoutProblem) -> bool {
    fn from(problem: &LayoutProblem, placement: &mut Vec<DeviceIndex>) -> bool {
        if placement.len() == problem.offcodes.len() {
            return true;
        }
        (0..problem.devices.len()).any(|device| {
            placement.push(DeviceIndex(device));
            let found = fits(problem, placement) && from(problem, placement);
            placement.pop();
            found
        })
    }
    from(problem, &mut Vec::new())
}

/// How good a layout is.
pub(crate) fn rank(problem: &LayoutProblem, placement: &[DeviceIndex]) -> Rank {
    Brute { problem, devices: device_ranks(problem), best: None }.rank(placement)
}

/// Whether a layout obeys everything.
pub(crate) fn obeys(problem: &LayoutProblem, placement: &[DeviceIndex]) -> bool {
    (1..=placement.len()).all(|placed| fits(problem, &placement[..placed]))
        && placement.len() == problem.offcodes.len()
}

struct Brute<'a> {
    problem: &'a LayoutProblem,
    devices: Vec<usize>,
    best: Option<(Rank, Vec<DeviceIndex>)>,
}

fn device_ranks(problem: &LayoutProblem) -> Vec<usize> {
    let devices = &problem.devices;
    let before = |name: &String| devices.iter().filter(|other| other.name < *name).count();
    devices.iter().map(|device| before(&device.name)).collect()
}

impl Brute<'_> {
    fn place(&mut self, placement: &mut Vec<DeviceIndex>) {
        if placement.len() == self.problem.offcodes.len() {
            let rank = self.rank(placement);
            if self.best.as_ref().is_none_or(|(best, _)| rank < *best) {
                self.best = Some((rank, placement.clone()));
            }
            return;
        }
        for device in 0..self.problem.devices.len() {
            placement.push(DeviceIndex(device));
            if fits(self.problem, placement) {
                self.place(placement);
            }
            placement.pop();
        }
    }

    fn rank(&self, placement: &[DeviceIndex]) -> Rank {
        let problem = self.problem;
        let mut at_home = vec![0; 4];
        let (mut cost, mut moves) = (0, 0);
        for (index, (offcode, device)) in problem.offcodes.iter().zip(placement).enumerate() {
            at_home[3 - offcode.class as usize] += usize::from(*device == offcode.home);
            if let Eligibility::Runs { cost_ns_per_s } = offcode.eligible[device.0] {
                cost += cost_ns_per_s;
            }
            let now = problem.current.get(index).copied().flatten();
            moves += usize::from(now.is_some_and(|now| now != *device));
        }
        for channel in &problem.channels {
            cost += channel.cost_ns_per_s[placement[channel.a.0].0][placement[channel.b.0].0];
        }
        let mut names: Vec<_> = problem.offcodes.iter().zip(placement).collect();
        names.sort_by_key(|(offcode, _)| &offcode.name);
        let names = names.iter().map(|(_, device)| self.devices[device.0]).collect();
        (at_home, cost, moves, names)
    }
}

/// Whether what has been placed obeys everything, given that all but the last did.
fn fits(problem: &LayoutProblem, placement: &[DeviceIndex]) -> bool {
    let Some((device, _)) = placement.split_last() else { return true };
    let last = placement.len() - 1;
    if matches!(problem.offcodes[last].eligible[device.0], Eligibility::Refused(_)) {
        return false;
    }
    let limits = &problem.devices[device.0];
    let there = || problem.offcodes.iter().zip(placement).filter(|(_, at)| *at == device);
    let memory: u64 = there().map(|(offcode, _)| offcode.memory_bytes).sum();
    let load: u64 = there().map(|(offcode, _)| offcode.load_per_mille).sum();
    let over = |limit: Option<u64>, used: u64| limit.is_some_and(|limit| used > limit);
    if over(limits.memory_bytes, memory)
        || over(limits.load_per_mille, load)
        || over(limits.offcodes, there().count() as u64)
    {
        return false;
    }
    problem.constraints.iter().all(|constraint| holds(problem, placement, constraint))
}

/// Whether a constraint holds as far as its offcodes have been placed.
fn holds(
    problem: &LayoutProblem,
    placement: &[DeviceIndex],
    constraint: &LayoutConstraint,
) -> bool {
    let at = |offcode: OffcodeIndex| placement.get(offcode.0);
    let out = |offcode: OffcodeIndex| {
        at(offcode).map(|device| *device != problem.offcodes[offcode.0].home)
    };
    match constraint {
        LayoutConstraint::Link(..) => true,
        LayoutConstraint::Pull(a, b) => match (at(*a), at(*b)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        },
        LayoutConstraint::GangIf(a, b) => out(*a) != Some(true) || out(*b) != Some(false),
        LayoutConstraint::Gang(gang) => {
            let any = |which: bool| gang.iter().any(|one| out(*one) == Some(which));
            !(any(true) && any(false))
        }
        LayoutConstraint::Pin(offcode, device) => at(*offcode).is_none_or(|at| at == device),
    }
}
