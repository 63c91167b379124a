//! Why there is no layout: constraints that conflict, without any of which there would be one.
//!
//! Never names a constraint that it has not seen to be needed, unless it was stopped and says so.

use std::collections::BTreeSet;
use std::fmt;

use crate::problem::{DeviceIndex, Eligibility, LayoutConstraint, LayoutProblem, OffcodeIndex};
use crate::solve::is_possible;

/// One thing that a layout must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConflictPart {
    /// Which devices the offcode can run on.
    Needs(OffcodeIndex),
    /// The constraint at this place of [`LayoutProblem::constraints`].
    Constraint(usize),
    /// The device's memory.
    Memory(DeviceIndex),
    /// The number of offcodes that the device holds.
    Number(DeviceIndex),
    /// The device's processor time.
    Load(DeviceIndex),
}

/// Constraints that cannot all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutConflict {
    /// The constraints.
    pub parts: Vec<ConflictPart>,
    /// Each of them in words.
    pub words: Vec<String>,
    /// Whether there is a layout without any one of them. It is false only if the caller said stop.
    pub irreducible: bool,
}

impl fmt::Display for LayoutConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no layout obeys all of this; the caller must give up one: ")?;
        f.write_str(&self.words.join("; "))
    }
}

/// Leaves out one constraint after another, for good if it is still impossible without it.
/// Only constraints about suspects are looked at: among them alone there is no layout.
pub(crate) fn find_conflict(
    problem: &LayoutProblem,
    suspects: &BTreeSet<usize>,
    stop: &mut dyn FnMut() -> bool,
) -> LayoutConflict {
    let (left, beside): (Vec<_>, Vec<_>) =
        all_parts(problem).into_iter().partition(|part| concerns(problem, suspects, *part));
    let mut without: BTreeSet<ConflictPart> = beside.into_iter().collect();
    let mut irreducible = true;
    let mut parts = Vec::new();
    for part in left {
        without.insert(part);
        let possible = is_possible(problem, &without, stop);
        if possible != Some(false) {
            without.remove(&part);
            parts.push(part);
        }
        irreducible &= possible.is_some();
    }
    let words = parts.iter().map(|part| in_words(problem, *part)).collect();
    LayoutConflict { parts, words, irreducible }
}

/// Everything that may be left out. What says least about offcodes goes first, so that what is
/// left is about them.
pub(crate) fn all_parts(problem: &LayoutProblem) -> Vec<ConflictPart> {
    let mut parts = Vec::new();
    for (index, device) in problem.devices.iter().enumerate() {
        let id = DeviceIndex(index);
        parts.extend(device.load_per_mille.map(|_| ConflictPart::Load(id)));
        parts.extend(device.offcodes.map(|_| ConflictPart::Number(id)));
        parts.extend(device.memory_bytes.map(|_| ConflictPart::Memory(id)));
    }
    let constraints = problem.constraints.iter().enumerate();
    let binding = constraints.filter(|(_, one)| !matches!(one, LayoutConstraint::Link(..)));
    parts.extend(binding.map(|(index, _)| ConflictPart::Constraint(index)));
    let refused = |index: &usize| {
        problem.offcodes[*index].eligible.iter().any(|on| matches!(on, Eligibility::Refused(_)))
    };
    let needs = (0..problem.offcodes.len()).filter(refused);
    parts.extend(needs.map(|index| ConflictPart::Needs(OffcodeIndex(index))));
    parts
}

fn concerns(problem: &LayoutProblem, suspects: &BTreeSet<usize>, part: ConflictPart) -> bool {
    let is = |offcode: &OffcodeIndex| suspects.contains(&offcode.0);
    match part {
        ConflictPart::Needs(offcode) => is(&offcode),
        ConflictPart::Memory(_) | ConflictPart::Number(_) | ConflictPart::Load(_) => true,
        ConflictPart::Constraint(index) => match &problem.constraints[index] {
            LayoutConstraint::Link(..) => false,
            LayoutConstraint::Pull(a, _) | LayoutConstraint::GangIf(a, _) => is(a),
            LayoutConstraint::Pin(a, _) => is(a),
            LayoutConstraint::Gang(members) => members.first().is_some_and(is),
        },
    }
}

fn in_words(problem: &LayoutProblem, part: ConflictPart) -> String {
    let device = |id: DeviceIndex| &problem.devices[id.0];
    let amount = |found: Option<u64>| found.unwrap_or(0);
    match part {
        ConflictPart::Needs(offcode) => needs_in_words(problem, offcode),
        ConflictPart::Constraint(index) => constraint_in_words(problem, index),
        ConflictPart::Memory(id) => format!(
            "`{}` has {} bytes of memory for offcodes",
            device(id).name,
            amount(device(id).memory_bytes)
        ),
        ConflictPart::Number(id) => {
            format!("`{}` holds {} offcodes", device(id).name, amount(device(id).offcodes))
        }
        ConflictPart::Load(id) => format!(
            "`{}` has {} thousandths of a processor for offcodes",
            device(id).name,
            amount(device(id).load_per_mille)
        ),
    }
}

fn needs_in_words(problem: &LayoutProblem, id: OffcodeIndex) -> String {
    let offcode = &problem.offcodes[id.0];
    let mut runs = Vec::new();
    let mut refused = Vec::new();
    for (on, device) in offcode.eligible.iter().zip(&problem.devices) {
        match on {
            Eligibility::Runs { .. } => runs.push(format!("`{}`", device.name)),
            Eligibility::Refused(why) => refused.push(format!("not on `{}`: {why}", device.name)),
        }
    }
    let runs = if runs.is_empty() { "no device".to_owned() } else { runs.join(", ") };
    format!("`{}` can run on {runs} ({})", offcode.name, refused.join(", "))
}

/// A constraint in words.
fn constraint_in_words(problem: &LayoutProblem, index: usize) -> String {
    let name = |offcode: &OffcodeIndex| format!("`{}`", problem.offcode_name(*offcode));
    match &problem.constraints[index] {
        LayoutConstraint::Link(a, b) => format!("Link of {} and {}", name(a), name(b)),
        LayoutConstraint::Pull(a, b) => {
            format!("Pull: {} and {} are on the same device", name(a), name(b))
        }
        LayoutConstraint::GangIf(a, b) => {
            format!("Gang: if {} is offloaded, so is {}", name(a), name(b))
        }
        LayoutConstraint::Gang(members) => {
            let names: Vec<_> = members.iter().map(name).collect();
            format!("Gang: all of {} are offloaded or none", names.join(", "))
        }
        LayoutConstraint::Pin(offcode, device) => {
            format!("{} is pinned to `{}`", name(offcode), problem.device_name(*device))
        }
    }
}
