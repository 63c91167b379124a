//! Random problems, the same for the same seed.
//!
//! Never larger than what a search through everything can do.

use outboard_layout::{
    DeviceIndex, Eligibility, LayoutChannel, LayoutConstraint, LayoutDevice, LayoutOffcode,
    LayoutProblem, OffcodeIndex,
};

use crate::numbers::Numbers;

impl Numbers {
    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, share: usize) -> bool {
        self.below(100) < share
    }

    fn some(&mut self, share: usize, end: usize) -> Option<u64> {
        let number = self.below(end) as u64;
        self.percent(share).then_some(number)
    }
}

/// How large a problem may be, and how hard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) offcodes_max: usize,
    pub(crate) devices_max: usize,
    /// Chance of a limit of each kind on each device, in per cent.
    pub(crate) limited: usize,
    /// Chance that an offcode is refused by a device, in per cent.
    pub(crate) refused: usize,
    pub(crate) constraints_max: usize,
}

pub(crate) const SMALL: Size =
    Size { offcodes_max: 8, devices_max: 4, limited: 25, refused: 25, constraints_max: 5 };

/// A random problem.
pub(crate) fn problem(seed: u64, size: Size) -> LayoutProblem {
    let numbers = &mut Numbers(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let devices = 1 + numbers.below(size.devices_max);
    let offcodes = 1 + numbers.below(size.offcodes_max);
    // A small range has ties at every level.
    let range = [3, 20, 1_000_000][numbers.below(3)];
    let mut problem = LayoutProblem {
        devices: (0..devices).map(|index| device(numbers, index, size)).collect(),
        ..LayoutProblem::default()
    };
    for index in 0..offcodes {
        problem.offcodes.push(offcode(numbers, index, devices, range, size));
    }
    for index in 0..numbers.below(2 * offcodes) {
        let (a, b) = (OffcodeIndex(numbers.below(offcodes)), OffcodeIndex(numbers.below(offcodes)));
        problem.channels.push(channel(numbers, index, [a, b], devices, range));
    }
    for _ in 0..numbers.below(size.constraints_max + 1) {
        problem.constraints.push(constraint(numbers, offcodes, devices));
    }
    if numbers.percent(50) {
        let share = numbers.below(101);
        problem.current = (0..offcodes)
            .map(|_| numbers.percent(share).then(|| DeviceIndex(numbers.below(devices))))
            .collect();
    }
    problem
}

fn device(numbers: &mut Numbers, index: usize, size: Size) -> LayoutDevice {
    LayoutDevice {
        // Names in another order than numbers.
        name: format!("d{}", (index * 5 + 3) % 7),
        kind: "any".to_owned(),
        memory_bytes: numbers.some(size.limited, 40),
        offcodes: numbers.some(size.limited, size.offcodes_max),
        load_per_mille: numbers.some(size.limited, 2000),
    }
}

fn offcode(
    numbers: &mut Numbers,
    index: usize,
    devices: usize,
    range: usize,
    size: Size,
) -> LayoutOffcode {
    let home = if numbers.percent(80) { 0 } else { numbers.below(devices) };
    let eligible = (0..devices).map(|_| {
        if numbers.percent(size.refused) {
            Eligibility::Refused("it has no body for it".to_owned())
        } else {
            Eligibility::Runs { cost_ns_per_s: numbers.below(range) as u64 }
        }
    });
    let eligible = eligible.collect();
    LayoutOffcode {
        name: format!("o{:02}", (index * 7 + 2) % 53),
        class: u32::try_from(numbers.below(3)).unwrap_or(0),
        home: DeviceIndex(home),
        eligible,
        memory_bytes: numbers.below(15) as u64,
        load_per_mille: numbers.below(700) as u64,
    }
}

fn channel(
    numbers: &mut Numbers,
    index: usize,
    ends: [OffcodeIndex; 2],
    devices: usize,
    range: usize,
) -> LayoutChannel {
    let cost_ns_per_s =
        (0..devices).map(|_| (0..devices).map(|_| numbers.below(range) as u64).collect()).collect();
    LayoutChannel { name: format!("c{index}"), a: ends[0], b: ends[1], cost_ns_per_s }
}

fn constraint(numbers: &mut Numbers, offcodes: usize, devices: usize) -> LayoutConstraint {
    let (a, b) = (OffcodeIndex(numbers.below(offcodes)), OffcodeIndex(numbers.below(offcodes)));
    match numbers.below(10) {
        0..=2 => LayoutConstraint::Pull(a, b),
        3 | 4 => LayoutConstraint::GangIf(a, b),
        5 | 6 => LayoutConstraint::Gang(vec![a, b, OffcodeIndex(numbers.below(offcodes))]),
        7 => LayoutConstraint::Pin(a, DeviceIndex(numbers.below(devices))),
        _ => LayoutConstraint::Link(a, b),
    }
}
