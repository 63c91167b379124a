//! Lays out random applications of 40 offcodes, 8 devices and 80 channels, and prints as JSON how
//! many of the layouts were proven to be the best within 50 ms of processor time.
//!
//! Never measures wall time: other programs may run beside it.
//!
//! `layouts [GRAPHS [FIRST_SEED [BUDGET_MS [KIND]]]]`, KIND being `measured` (costs are a channel's
//! messages by what a message costs between two kinds of devices), `random` (no two costs have
//! anything to do with each other) or `both`.

#[path = "../tests/layout/numbers.rs"]
mod numbers;

use std::time::Duration;

use numbers::Numbers;
use outboard_layout::{
    DeviceIndex, Eligibility, LayoutChannel, LayoutConstraint, LayoutDevice, LayoutOffcode,
    LayoutProblem, OffcodeIndex, solve,
};

const OFFCODES: usize = 40;
const DEVICES: usize = 8;
const CHANNELS: usize = 80;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap_or(default));
    let (graphs, first, budget_ms) = (number(1000), number(0), number(50));
    let kind = std::env::args().nth(4).unwrap_or_else(|| "both".to_owned());
    let budget = Duration::from_millis(budget_ms);
    let mut kinds = Vec::new();
    for (name, costs) in [("measured", Costs::Measured), ("random", Costs::Random)] {
        if kind == name || kind == "both" {
            let runs = (first..first + graphs).map(|seed| run(seed, costs, budget)).collect();
            kinds.push(format!("\"{name}\":{}", summary(runs)));
        }
    }
    println!("{{\"budget_ms\":{budget_ms},{}}}", kinds.join(","));
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Costs {
    Measured,
    Random,
}

struct Run {
    seed: u64,
    spent: Duration,
    /// Absent if no layout was found.
    gap_per_mille: Option<u64>,
    proven: bool,
}

fn run(seed: u64, costs: Costs, budget: Duration) -> Run {
    let problem = application(seed, costs);
    let start = thread_time();
    let result = solve(&problem, || thread_time() - start >= budget);
    let spent = thread_time() - start;
    match result {
        Ok(solution) => Run {
            seed,
            spent,
            gap_per_mille: Some(solution.gap_per_mille()),
            proven: solution.proven,
        },
        Err(error) => {
            eprintln!("seed {seed}: {error}");
            Run { seed, spent, gap_per_mille: None, proven: false }
        }
    }
}

fn summary(mut runs: Vec<Run>) -> String {
    let graphs = runs.len();
    let proven = runs.iter().filter(|run| run.proven).count();
    let none = runs.iter().filter(|run| run.gap_per_mille.is_none()).count();
    let worst = runs.iter().filter_map(|run| run.gap_per_mille).max().unwrap_or(0);
    let open: Vec<_> = runs.iter().filter(|run| !run.proven).take(20).collect();
    let open: Vec<_> = open.iter().map(|run| run.seed.to_string()).collect();
    let open = open.join(",");
    runs.sort_by_key(|run| run.spent);
    let at = |per_mille: usize| {
        let index = (runs.len().saturating_sub(1)) * per_mille / 1000;
        runs.get(index).map_or(0, |run| run.spent.as_micros())
    };
    format!(
        "{{\"graphs\":{graphs},\"proven\":{proven},\"without_layout\":{none},\
         \"worst_gap_per_mille\":{worst},\"cpu_p50_us\":{},\"cpu_p90_us\":{},\"cpu_p99_us\":{},\
         \"cpu_max_us\":{},\"open_seeds\":[{open}]}}",
        at(500),
        at(900),
        at(990),
        at(1000)
    )
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Numbers {
    fn between(&mut self, low: usize, high: usize) -> u64 {
        (low + self.below(high - low + 1)) as u64
    }
}

/// One host, two cores, three nodes, two network interfaces.
const KINDS: [&str; DEVICES] = ["host", "core", "core", "node", "node", "node", "nic", "nic"];

/// Nanoseconds of processor time for a message between two kinds of devices, both ends together.
fn message_ns(a: usize, b: usize) -> u64 {
    if a == b {
        return 40;
    }
    match (KINDS[a].min(KINDS[b]), KINDS[a].max(KINDS[b])) {
        ("core", "host") => 250,
        ("core", "core") => 200,
        ("core" | "host", "nic") | ("nic", "nic") => 600,
        ("core" | "host", "node") => 1500,
        ("nic", "node") => 1800,
        _ => 2000,
    }
}

fn application(seed: u64, costs: Costs) -> LayoutProblem {
    let numbers = &mut Numbers(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut problem = LayoutProblem::default();
    for (index, kind) in KINDS.iter().enumerate() {
        problem.devices.push(device(numbers, index, kind));
    }
    for index in 0..OFFCODES {
        problem.offcodes.push(offcode(numbers, index));
    }
    for index in 0..CHANNELS {
        problem.channels.push(channel(numbers, index, costs));
    }
    for _ in 0..3 {
        let mut one = || OffcodeIndex(numbers.below(OFFCODES));
        let (a, b, c) = (one(), one(), one());
        problem.constraints.push(LayoutConstraint::GangIf(a, b));
        problem.constraints.push(LayoutConstraint::Gang(vec![b, c]));
    }
    pull_some(numbers, &mut problem);
    problem
}

/// Pulls pairs that can be on the same device.
fn pull_some(numbers: &mut Numbers, problem: &mut LayoutProblem) {
    for _ in 0..2 {
        let (a, b) = (numbers.below(OFFCODES), numbers.below(OFFCODES));
        let runs = |one: usize, device: usize| {
            matches!(problem.offcodes[one].eligible[device], Eligibility::Runs { .. })
        };
        if (0..DEVICES).filter(|device| runs(a, *device) && runs(b, *device)).count() > 2 {
            problem.constraints.push(LayoutConstraint::Pull(OffcodeIndex(a), OffcodeIndex(b)));
        }
    }
}

fn device(numbers: &mut Numbers, index: usize, kind: &str) -> LayoutDevice {
    let limited = kind != "host";
    LayoutDevice {
        name: format!("{kind}{index}"),
        kind: kind.to_owned(),
        memory_bytes: limited.then(|| numbers.between(48, 128) << 20),
        offcodes: limited.then(|| numbers.between(6, 16)),
        load_per_mille: limited.then(|| numbers.between(800, 3000)),
    }
}

fn offcode(numbers: &mut Numbers, index: usize) -> LayoutOffcode {
    // A body for the network interface is rare, one for the host is always there.
    let share = |kind: &str| match kind {
        "host" => 100,
        "nic" => 25,
        _ => 50,
    };
    let factor = numbers.between(1, 40);
    let eligible = KINDS.iter().map(|kind| {
        if numbers.below(100) >= share(kind) {
            return Eligibility::Refused("it has no body for it".to_owned());
        }
        Eligibility::Runs { cost_ns_per_s: factor * numbers.between(100_000, 2_000_000) }
    });
    let eligible = eligible.collect();
    LayoutOffcode {
        name: format!("offcode{index:02}"),
        class: u32::try_from(numbers.below(3)).unwrap_or(0),
        home: DeviceIndex(0),
        eligible,
        memory_bytes: numbers.between(1, 12) << 20,
        load_per_mille: numbers.between(20, 300),
    }
}

fn channel(numbers: &mut Numbers, index: usize, costs: Costs) -> LayoutChannel {
    let a = if index < OFFCODES - 1 { index + 1 } else { numbers.below(OFFCODES) };
    let b = if index < OFFCODES - 1 { numbers.below(a) } else { numbers.below(OFFCODES) };
    let messages_per_s = numbers.between(100, 50_000);
    let cost = |numbers: &mut Numbers, x: usize, y: usize| match costs {
        // No two measurements give the same: three per cent of noise.
        Costs::Measured => messages_per_s * message_ns(x, y) * numbers.between(970, 1030) / 1000,
        Costs::Random => numbers.between(0, 50_000_000),
    };
    let cost_ns_per_s =
        (0..DEVICES).map(|x| (0..DEVICES).map(|y| cost(numbers, x, y)).collect()).collect();
    LayoutChannel {
        name: format!("channel{index}"),
        a: OffcodeIndex(a),
        b: OffcodeIndex(b),
        cost_ns_per_s,
    }
}
