//! Layouts against a search through all of them, and what must hold for every layout.
//!
//! A sample of the problems, or all with `OUTBOARD_FULL` set.

mod brute;
mod figures;
mod graphs;
mod numbers;
mod oracle;

use graphs::{SMALL, Size, problem};
use outboard_layout::{
    ConflictPart, DeviceIndex, Eligibility, LayoutError, LayoutProblem, LayoutSolution,
    OffcodeIndex, solve,
};

fn cases(sample: u64, full: u64) -> u64 {
    if std::env::var_os("OUTBOARD_FULL").is_some() { full } else { sample }
}

/// The best layout, if there is any: nobody says stop.
fn solved(problem: &LayoutProblem) -> Option<LayoutSolution> {
    match solve(problem, || false) {
        Ok(solution) => Some(solution),
        Err(LayoutError::Impossible(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn solver_finds_what_a_search_through_everything_finds() {
    let mut possible = 0;
    for seed in 0..cases(1000, 10_000) {
        let problem = problem(seed, SMALL);
        let expected = brute::best(&problem);
        let found = solved(&problem);
        let found = found.as_ref().map(|solution| (solution, &solution.placement));
        let Some((rank, placement)) = expected else {
            assert_eq!(found, None, "seed {seed}");
            continue;
        };
        possible += 1;
        let (solution, found) = found.unwrap_or_else(|| panic!("seed {seed} has a layout"));
        assert_eq!(brute::rank(&problem, found), rank, "seed {seed}");
        assert_eq!(*found, placement, "seed {seed}");
        assert!(solution.proven, "seed {seed}");
        assert_eq!(solution.cost_ns_per_s, rank.1, "seed {seed}");
        assert_eq!(solution.cost_at_least_ns_per_s, rank.1, "seed {seed}");
        assert_eq!(solution.moves, rank.2, "seed {seed}");
    }
    assert!(possible > cases(1000, 10_000) / 2, "only {possible} problems were possible");
}

#[test]
fn the_same_problem_has_the_same_answer_and_a_running_layout_stays() {
    for seed in 0..cases(80, 1000) {
        let mut problem = problem(seed, SMALL);
        let Some(first) = solved(&problem) else { continue };
        assert_eq!(solved(&problem).as_ref(), Some(&first), "seed {seed}");
        problem.current = first.placement.iter().copied().map(Some).collect();
        let again = solved(&problem).unwrap_or_else(|| panic!("seed {seed} had a layout"));
        assert_eq!(again.placement, first.placement, "seed {seed}");
        assert_eq!(again.moves, 0, "seed {seed}");
    }
}

#[test]
fn an_offcode_of_a_higher_class_does_not_come_home() {
    for seed in 0..cases(80, 1000) {
        let mut problem = problem(seed, SMALL);
        let Some(first) = solved(&problem) else { continue };
        let out = |solution: &LayoutSolution, one: usize| {
            solution.placement[one] != problem.offcodes[one].home
        };
        let raised = usize::try_from(seed).unwrap_or(0) % problem.offcodes.len();
        if !out(&first, raised) {
            continue;
        }
        problem.offcodes[raised].class = 3;
        let then = solved(&problem).unwrap_or_else(|| panic!("seed {seed} had a layout"));
        let out = then.placement[raised] != problem.offcodes[raised].home;
        assert!(out, "seed {seed}: offcode {raised} came home");
    }
}

#[test]
fn more_room_never_makes_a_layout_worse() {
    for seed in 0..cases(80, 1000) {
        let mut problem = problem(seed, SMALL);
        let Some(first) = solved(&problem) else { continue };
        let before = brute::rank(&problem, &first.placement);
        let widened = usize::try_from(seed).unwrap_or(0) % problem.devices.len();
        problem.devices[widened].memory_bytes = None;
        problem.devices[widened].offcodes = None;
        let then = solved(&problem).unwrap_or_else(|| panic!("seed {seed} had a layout"));
        assert!(brute::rank(&problem, &then.placement) <= before, "seed {seed}");
    }
}

#[test]
fn a_search_that_is_stopped_says_a_bound_that_holds() {
    let large = Size { offcodes_max: 20, devices_max: 6, limited: 70, ..SMALL };
    let mut open = 0;
    for seed in 0..cases(25, 100) {
        let problem = problem(seed, large);
        let Some(best) = solved(&problem) else { continue };
        for asked in [1, 3, 10] {
            let mut left = asked;
            let stop = || {
                left = u32::saturating_sub(left, 1);
                left == 0
            };
            let Ok(stopped) = solve(&problem, stop) else { continue };
            assert!(brute::obeys(&problem, &stopped.placement), "seed {seed}");
            let counts = |solution: &LayoutSolution| -> Vec<u64> {
                solution.classes.iter().map(|class| class.offloaded).collect()
            };
            if stopped.proven {
                assert_eq!(stopped.placement, best.placement, "seed {seed}");
            }
            open += u32::from(!stopped.proven);
            assert!(counts(&stopped) <= counts(&best), "seed {seed}");
            if counts(&stopped) == counts(&best) {
                let bound = stopped.cost_at_least_ns_per_s;
                assert!(bound <= best.cost_ns_per_s, "seed {seed} after {asked}");
                assert!(best.cost_ns_per_s <= stopped.cost_ns_per_s, "seed {seed} after {asked}");
            }
        }
    }
    assert!(open > 0, "no search was stopped before its end");
}

#[test]
fn conflicts_are_irreducible() {
    let hard = Size { limited: 60, refused: 50, constraints_max: 8, ..SMALL };
    let mut impossible = 0;
    for seed in 0..cases(120, 2000) {
        let problem = problem(seed, hard);
        let Err(LayoutError::Impossible(conflict)) = solve(&problem, || false) else { continue };
        impossible += 1;
        assert!(conflict.irreducible);
        assert_eq!(conflict.words.len(), conflict.parts.len());
        let reduced = only(&problem, &conflict.parts);
        assert!(!brute::exists(&reduced), "seed {seed}: {conflict}");
        for part in &conflict.parts {
            let others: Vec<_> =
                conflict.parts.iter().filter(|one| *one != part).copied().collect();
            let possible = brute::exists(&only(&problem, &others));
            assert!(possible, "seed {seed}: {part:?} is not needed in: {conflict}");
        }
    }
    assert!(impossible > 20, "only {impossible} problems were impossible");
}

/// The problem with these constraints alone.
fn only(problem: &LayoutProblem, parts: &[ConflictPart]) -> LayoutProblem {
    let mut reduced = problem.clone();
    for (index, device) in reduced.devices.iter_mut().enumerate() {
        let keep = |part| parts.contains(&part);
        let id = DeviceIndex(index);
        device.memory_bytes = device.memory_bytes.filter(|_| keep(ConflictPart::Memory(id)));
        device.offcodes = device.offcodes.filter(|_| keep(ConflictPart::Number(id)));
        device.load_per_mille = device.load_per_mille.filter(|_| keep(ConflictPart::Load(id)));
    }
    for (index, offcode) in reduced.offcodes.iter_mut().enumerate() {
        if !parts.contains(&ConflictPart::Needs(OffcodeIndex(index))) {
            offcode.eligible.fill(Eligibility::Runs { cost_ns_per_s: 0 });
        }
    }
    let mut index = 0;
    reduced.constraints.retain(|_| {
        index += 1;
        parts.contains(&ConflictPart::Constraint(index - 1))
    });
    reduced
}
