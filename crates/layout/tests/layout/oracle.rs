//! Layouts of 12 offcodes against a mixed-integer program, with `OUTBOARD_FULL` only.
//!
//! Never compares which layout: of equally good ones the program may find any.

use good_lp::{
    Expression, Solution as _, SolverModel as _, Variable, constraint, microlp, variable, variables,
};
use outboard_layout::{Eligibility, LayoutConstraint, LayoutProblem, OffcodeIndex};

use crate::graphs::{Size, problem};

const OF_12: Size =
    Size { offcodes_max: 12, devices_max: 4, limited: 25, refused: 30, constraints_max: 5 };

#[test]
fn solver_finds_what_a_mixed_integer_program_finds() {
    for seed in 0..crate::cases(3, 200) {
        let problem = problem(1_000_000 + seed, OF_12);
        let found = crate::solved(&problem);
        let mut limits: Vec<(u32, u64)> = Vec::new();
        let Some(solution) = found else {
            assert_eq!(least(&problem, None, &limits), None, "seed {seed}");
            continue;
        };
        for class in &solution.classes {
            let at_home = least(&problem, Some(class.class), &limits);
            assert_eq!(at_home, Some(class.of - class.offloaded), "seed {seed}");
            limits.push((class.class, class.of - class.offloaded));
        }
        let cost = least(&problem, None, &limits);
        assert_eq!(cost, Some(solution.cost_ns_per_s), "seed {seed}");
    }
}

/// The least number of offcodes of a class at home, or the least cost without one, given how many
/// of some classes may be at home; `None` if there is no layout.
fn least(problem: &LayoutProblem, class: Option<u32>, limits: &[(u32, u64)]) -> Option<u64> {
    let mut vars = variables!();
    let devices = problem.devices.len();
    let on: Vec<Vec<Variable>> = (0..problem.offcodes.len())
        .map(|_| (0..devices).map(|_| vars.add(variable().binary())).collect())
        .collect();
    let both: Vec<Vec<Vec<Variable>>> = (0..problem.channels.len())
        .map(|_| (0..devices).map(|_| vars.add_vector(variable().min(0), devices)).collect())
        .collect();
    let at_home = |class: u32| -> Expression {
        let offcodes = problem.offcodes.iter().zip(&on).filter(|(one, _)| one.class == class);
        offcodes.map(|(offcode, on)| on[offcode.home.0]).sum()
    };
    let cost = cost(problem, &on, &both);
    let objective = class.map_or(cost, at_home);
    let mut model = vars.minimise(objective.clone()).using(microlp);
    for row in &on {
        model.add_constraint(constraint!(row.iter().sum::<Expression>() == 1));
    }
    for limit in rows_of(problem, &on) {
        model.add_constraint(limit);
    }
    for (class, limit) in limits {
        model.add_constraint(constraint!(at_home(*class) <= number(*limit)));
    }
    for (channel, both) in problem.channels.iter().zip(&both) {
        for device in 0..devices {
            let row: Expression = both[device].iter().sum();
            let column: Expression = both.iter().map(|row| row[device]).sum();
            model.add_constraint(constraint!(row == on[channel.a.0][device]));
            model.add_constraint(constraint!(column == on[channel.b.0][device]));
            if channel.a == channel.b {
                model.add_constraint(constraint!(both[device][device] == on[channel.a.0][device]));
            }
        }
    }
    let solution = model.solve().ok()?;
    let value = solution.eval(objective).round();
    // The numbers are small; the program counts in floating point.
    format!("{value:.0}").trim_start_matches('-').parse().ok()
}

fn number(value: u64) -> f64 {
    f64::from(u32::try_from(value).unwrap_or(u32::MAX))
}

fn cost(problem: &LayoutProblem, on: &[Vec<Variable>], both: &[Vec<Vec<Variable>>]) -> Expression {
    let mut cost = Expression::from(0.0);
    for (offcode, row) in problem.offcodes.iter().zip(on) {
        for (eligible, on) in offcode.eligible.iter().zip(row) {
            if let Eligibility::Runs { cost_ns_per_s } = eligible {
                cost += number(*cost_ns_per_s) * *on;
            }
        }
    }
    for (channel, both) in problem.channels.iter().zip(both) {
        for (costs, row) in channel.cost_ns_per_s.iter().zip(both) {
            for (one, both) in costs.iter().zip(row) {
                cost += number(*one) * *both;
            }
        }
    }
    cost
}

/// Who may be where, capacities and constraints.
fn rows_of(problem: &LayoutProblem, on: &[Vec<Variable>]) -> Vec<good_lp::Constraint> {
    let mut rows = Vec::new();
    for (offcode, row) in problem.offcodes.iter().zip(on) {
        for (eligible, on) in offcode.eligible.iter().zip(row) {
            if matches!(eligible, Eligibility::Refused(_)) {
                rows.push(constraint!(*on <= 0));
            }
        }
    }
    for (index, device) in problem.devices.iter().enumerate() {
        let used = |amount: fn(&outboard_layout::LayoutOffcode) -> u64| -> Expression {
            let offcodes = problem.offcodes.iter().zip(on);
            offcodes.map(|(offcode, row)| number(amount(offcode)) * row[index]).sum()
        };
        let mut limit = |limit: Option<u64>, used: Expression| {
            rows.extend(limit.map(|limit| constraint!(used <= number(limit))));
        };
        limit(device.memory_bytes, used(|one| one.memory_bytes));
        limit(device.offcodes, used(|_| 1));
        limit(device.load_per_mille, used(|one| one.load_per_mille));
    }
    let home = |one: OffcodeIndex| on[one.0][problem.offcodes[one.0].home.0];
    for one in &problem.constraints {
        match one {
            LayoutConstraint::Link(..) => {}
            LayoutConstraint::Pull(a, b) => {
                let pairs = on[a.0].iter().zip(&on[b.0]);
                rows.extend(pairs.map(|(a, b)| constraint!(*a == *b)));
            }
            LayoutConstraint::GangIf(a, b) => rows.push(constraint!(home(*b) <= home(*a))),
            LayoutConstraint::Gang(gang) => {
                let pairs = gang.windows(2);
                rows.extend(pairs.map(|two| constraint!(home(two[0]) == home(two[1]))));
            }
            LayoutConstraint::Pin(offcode, device) => {
                rows.push(constraint!(on[offcode.0][device.0] == 1));
            }
        }
    }
    rows
}
