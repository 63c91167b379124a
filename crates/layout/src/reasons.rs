//! Why an offcode is where it is, and what keeps it from every other device.
//!
//! Never supposes that more than one Pull class moves: a reason says what would be if all others
//! stayed where they are.

use std::fmt;

use crate::problem::{
    DeviceIndex, Eligibility, LayoutConstraint, LayoutOffcode, LayoutProblem, OffcodeIndex,
};
use crate::solve::{cost_of, moves_of};

/// What a device can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapacityKind {
    /// Bytes of memory.
    Memory,
    /// Offcodes at once.
    Number,
    /// Thousandths of a processor.
    Load,
}

/// What keeps an offcode from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot run there, for the caller's reason.
    NotEligible(String),
    /// It is pinned to another device.
    Pinned(DeviceIndex),
    /// The device has not so much, even when it is empty.
    TooLarge {
        /// Of what.
        of: CapacityKind,
        /// How much the offcode takes.
        needs: u64,
        /// How much the device has.
        has: u64,
    },
    /// Another offcode must be on the same device, and this keeps the two from there.
    Pull {
        /// The other one.
        with: OffcodeIndex,
        /// What keeps them.
        because: Box<Self>,
    },
    /// A Gang with the other one would be broken.
    Gang {
        /// The other one.
        with: OffcodeIndex,
    },
    /// Others take what it would need.
    Full {
        /// Of what.
        of: CapacityKind,
        /// How much the offcode, with those that it pulls, takes.
        needs: u64,
        /// How much is free.
        free: u64,
        /// Who takes the rest.
        by: Vec<OffcodeIndex>,
    },
    /// Fewer offcodes of this priority class would be offloaded.
    OffloadsFewer {
        /// The class.
        class: u32,
    },
    /// The layout would cost more.
    CostsMore {
        /// Processor time in ns each second.
        by_ns_per_s: u64,
    },
    /// More offcodes would move.
    MovesMore,
    /// It would be as good, but comes later in the order of names.
    LaterName,
    /// It would be better: the search was stopped before it came there.
    NotReached,
}

/// What put an offcode on its device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyThere {
    /// It is pinned there.
    Pinned,
    /// It must be where this one is.
    Pulled(OffcodeIndex),
    /// It can run nowhere else.
    OnlyDevice,
    /// Constraints keep it from all other devices.
    OnlyAllowed,
    /// It costs less there than anywhere else.
    Cheapest {
        /// How much less, in ns each second.
        by_ns_per_s: u64,
        /// Than on the second best device.
        than: DeviceIndex,
    },
    /// Elsewhere fewer offcodes of its class would be offloaded.
    Offloaded,
    /// It runs there now.
    Stays,
    /// The device's name comes first.
    FirstName,
    /// The search was stopped before better places were looked at.
    SoFar,
}

/// Why one offcode is where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The offcode.
    pub offcode: OffcodeIndex,
    /// Its device.
    pub device: DeviceIndex,
    /// What put it there.
    pub why: WhyThere,
    /// What keeps it from every other device.
    pub refused: Vec<(DeviceIndex, Refusal)>,
}

impl fmt::Display for CapacityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "bytes of memory",
            Self::Number => "offcodes",
            Self::Load => "thousandths of a processor",
        })
    }
}

impl Explanation {
    /// Why it is there, as a sentence.
    #[must_use]
    pub fn sentence(&self, problem: &LayoutProblem) -> String {
        let why = match &self.why {
            WhyThere::Pinned => "it is pinned there".to_owned(),
            WhyThere::Pulled(with) => {
                format!("`{}` pulls it there", problem.offcode_name(*with))
            }
            WhyThere::OnlyDevice => "it can run nowhere else".to_owned(),
            WhyThere::OnlyAllowed => "constraints keep it from all other devices".to_owned(),
            WhyThere::Cheapest { by_ns_per_s, than } => format!(
                "it costs {by_ns_per_s} ns/s less there than on `{}`, the second best",
                problem.device_name(*than)
            ),
            WhyThere::Offloaded => "at home, fewer of its class would be offloaded".to_owned(),
            WhyThere::Stays => "it runs there now, and nowhere else is better".to_owned(),
            WhyThere::FirstName => {
                "other devices are as good, but this one's name comes first".to_owned()
            }
            WhyThere::SoFar => "the search was stopped there".to_owned(),
        };
        let (offcode, device) =
            (problem.offcode_name(self.offcode), problem.device_name(self.device));
        format!("`{offcode}` is on `{device}`: {why}")
    }

    /// What keeps it from each other device, as sentences.
    #[must_use]
    pub fn refusals(&self, problem: &LayoutProblem) -> Vec<String> {
        let sentence = |(device, refusal): &(DeviceIndex, Refusal)| {
            let device = problem.device_name(*device);
            format!("not on `{device}`: {}", refusal.clause(problem))
        };
        self.refused.iter().map(sentence).collect()
    }
}

impl Refusal {
    /// The reason, as a clause.
    #[must_use]
    pub fn clause(&self, problem: &LayoutProblem) -> String {
        let name = |offcode: &OffcodeIndex| format!("`{}`", problem.offcode_name(*offcode));
        match self {
            Self::NotEligible(why) => why.clone(),
            Self::Pinned(to) => format!("it is pinned to `{}`", problem.device_name(*to)),
            Self::TooLarge { of, needs, has } => {
                format!("it takes {needs} {of}, the device has {has}")
            }
            Self::Pull { with, because } => {
                format!(
                    "{} must be on the same device, but {}",
                    name(with),
                    because.clause(problem)
                )
            }
            Self::Gang { with } => format!("its Gang with {} would be broken", name(with)),
            Self::Full { of, needs, free, by } => {
                let by: Vec<_> = by.iter().map(name).collect();
                format!("it takes {needs} {of}, {} leave {free}", by.join(", "))
            }
            Self::OffloadsFewer { class } => {
                format!("fewer offcodes of priority class {class} would be offloaded")
            }
            Self::CostsMore { by_ns_per_s } => format!("it would cost {by_ns_per_s} ns/s more"),
            Self::MovesMore => "more offcodes would have to move".to_owned(),
            Self::LaterName => "it would be as good, but its name comes later".to_owned(),
            Self::NotReached => "it would be better, but the search was stopped".to_owned(),
        }
    }
}

/// Explains a whole placement.
pub(crate) fn explain(problem: &LayoutProblem, placement: &[DeviceIndex]) -> Vec<Explanation> {
    let explaining = Explaining::new(problem, placement);
    (0..problem.offcodes.len()).map(|offcode| explaining.offcode(offcode)).collect()
}

struct Explaining<'a> {
    problem: &'a LayoutProblem,
    placement: &'a [DeviceIndex],
    /// The members of each offcode's Pull class, in the order of the problem.
    pulled: Vec<Vec<usize>>,
}

/// A kind of capacity: how much a device has, and how much an offcode takes.
struct Capacity {
    kind: CapacityKind,
    has: Option<u64>,
    amount: fn(&LayoutOffcode) -> u64,
}

impl<'a> Explaining<'a> {
    fn new(problem: &'a LayoutProblem, placement: &'a [DeviceIndex]) -> Self {
        let mut sets = crate::network::Union::new(problem.offcodes.len());
        for constraint in &problem.constraints {
            if let LayoutConstraint::Pull(a, b) = constraint {
                sets.join(a.0, b.0);
            }
        }
        let mut pulled = vec![Vec::new(); problem.offcodes.len()];
        for class in sets.classes() {
            class.iter().for_each(|member| pulled[*member].clone_from(&class));
        }
        Self { problem, placement, pulled }
    }

    fn offcode(&self, offcode: usize) -> Explanation {
        let at = self.placement[offcode];
        let others = (0..self.problem.devices.len()).map(DeviceIndex).filter(|one| *one != at);
        let refused: Vec<_> =
            others.map(|device| (device, self.refusal(offcode, device))).collect();
        let why = self.why(offcode, &refused);
        Explanation { offcode: OffcodeIndex(offcode), device: at, why, refused }
    }

    fn pinned(&self, offcode: usize) -> Option<DeviceIndex> {
        self.problem.constraints.iter().find_map(|constraint| match constraint {
            LayoutConstraint::Pin(pinned, device) if pinned.0 == offcode => Some(*device),
            _ => None,
        })
    }

    fn capacities(&self, device: DeviceIndex) -> [Capacity; 3] {
        let device = &self.problem.devices[device.0];
        [
            Capacity {
                kind: CapacityKind::Memory,
                has: device.memory_bytes,
                amount: |one| one.memory_bytes,
            },
            Capacity { kind: CapacityKind::Number, has: device.offcodes, amount: |_| 1 },
            Capacity {
                kind: CapacityKind::Load,
                has: device.load_per_mille,
                amount: |one| one.load_per_mille,
            },
        ]
    }

    /// What keeps the offcode from the device.
    fn refusal(&self, offcode: usize, device: DeviceIndex) -> Refusal {
        self.refusal_alone(offcode, device)
            .or_else(|| self.refusal_pulled(offcode, device))
            .or_else(|| self.refusal_gang(offcode, device))
            .or_else(|| self.refusal_full(offcode, device))
            .unwrap_or_else(|| self.refusal_worse(offcode, device))
    }

    /// What would keep it from there if nothing else were there.
    fn refusal_alone(&self, offcode: usize, device: DeviceIndex) -> Option<Refusal> {
        let this = &self.problem.offcodes[offcode];
        if let Some(Eligibility::Refused(why)) = this.eligible.get(device.0) {
            return Some(Refusal::NotEligible(why.clone()));
        }
        if let Some(to) = self.pinned(offcode).filter(|to| *to != device) {
            return Some(Refusal::Pinned(to));
        }
        self.capacities(device).into_iter().find_map(|capacity| {
            let (needs, has) = ((capacity.amount)(this), capacity.has?);
            (needs > has).then_some(Refusal::TooLarge { of: capacity.kind, needs, has })
        })
    }

    fn refusal_pulled(&self, offcode: usize, device: DeviceIndex) -> Option<Refusal> {
        let with = |other: &usize| {
            let because = Box::new(self.refusal_alone(*other, device)?);
            Some(Refusal::Pull { with: OffcodeIndex(*other), because })
        };
        let others = self.pulled[offcode].iter().filter(|other| **other != offcode);
        others.clone().find_map(with).or_else(|| self.refusal_together(offcode, device))
    }

    /// The device is too small for the whole Pull class.
    fn refusal_together(&self, offcode: usize, device: DeviceIndex) -> Option<Refusal> {
        let with = OffcodeIndex(*self.pulled[offcode].iter().find(|other| **other != offcode)?);
        self.capacities(device).into_iter().find_map(|capacity| {
            let (needs, has) = (self.needs(offcode, &capacity), capacity.has?);
            let because = Box::new(Refusal::TooLarge { of: capacity.kind, needs, has });
            (needs > has).then_some(Refusal::Pull { with, because })
        })
    }

    fn needs(&self, offcode: usize, capacity: &Capacity) -> u64 {
        let amounts = self.pulled[offcode].iter();
        let amounts = amounts.map(|member| (capacity.amount)(&self.problem.offcodes[*member]));
        amounts.fold(0, u64::saturating_add)
    }

    /// The placement with the offcode's Pull class on the device.
    fn moved(&self, offcode: usize, device: DeviceIndex) -> Vec<DeviceIndex> {
        let mut placement = self.placement.to_vec();
        self.pulled[offcode].iter().for_each(|member| placement[*member] = device);
        placement
    }

    fn refusal_gang(&self, offcode: usize, device: DeviceIndex) -> Option<Refusal> {
        let moved = self.moved(offcode, device);
        let out = |one: OffcodeIndex| moved[one.0] != self.problem.offcodes[one.0].home;
        let breaks = |a: OffcodeIndex, b: OffcodeIndex| {
            let other = if self.pulled[offcode].contains(&a.0) { b } else { a };
            (out(a) && !out(b)).then_some(Refusal::Gang { with: other })
        };
        self.problem.constraints.iter().find_map(|constraint| match constraint {
            LayoutConstraint::GangIf(a, b) => breaks(*a, *b),
            LayoutConstraint::Gang(gang) => {
                let next = gang.iter().cycle().skip(1);
                gang.iter().zip(next).find_map(|(a, b)| breaks(*a, *b))
            }
            _ => None,
        })
    }

    fn refusal_full(&self, offcode: usize, device: DeviceIndex) -> Option<Refusal> {
        let there = |capacity: &Capacity| -> Vec<OffcodeIndex> {
            let others = (0..self.placement.len()).filter(|other| {
                self.placement[*other] == device
                    && !self.pulled[offcode].contains(other)
                    && (capacity.amount)(&self.problem.offcodes[*other]) > 0
            });
            others.map(OffcodeIndex).collect()
        };
        self.capacities(device).into_iter().find_map(|capacity| {
            let (needs, has) = (self.needs(offcode, &capacity), capacity.has?);
            let by = there(&capacity);
            let used = by.iter().map(|one| (capacity.amount)(&self.problem.offcodes[one.0]));
            let free = has.saturating_sub(used.fold(0, u64::saturating_add));
            (needs > free).then_some(Refusal::Full { of: capacity.kind, needs, free, by })
        })
    }

    /// The device is allowed: why is it not as good?
    fn refusal_worse(&self, offcode: usize, device: DeviceIndex) -> Refusal {
        let moved = self.moved(offcode, device);
        let (here, there) = (self.offloaded(self.placement), self.offloaded(&moved));
        if let Some(((class, _), _)) = here.iter().zip(&there).find(|(here, there)| here > there) {
            return Refusal::OffloadsFewer { class: *class };
        }
        let costs = [self.placement, &moved].map(|placement| cost_of(self.problem, placement));
        let moves = [self.placement, &moved].map(|placement| moves_of(self.problem, placement));
        let names = [self.placement, &moved].map(|placement| self.names(placement));
        if here != there || (costs[1], moves[1], &names[1]) < (costs[0], moves[0], &names[0]) {
            Refusal::NotReached
        } else if costs[1] > costs[0] {
            Refusal::CostsMore { by_ns_per_s: costs[1] - costs[0] }
        } else if moves[1] > moves[0] {
            Refusal::MovesMore
        } else {
            Refusal::LaterName
        }
    }

    /// The names of devices in the order of the names of offcodes.
    fn names(&self, placement: &[DeviceIndex]) -> Vec<&str> {
        let mut offcodes: Vec<usize> = (0..placement.len()).collect();
        offcodes.sort_by_key(|offcode| &self.problem.offcodes[*offcode].name);
        offcodes.iter().map(|offcode| self.problem.device_name(placement[*offcode])).collect()
    }

    /// How many of each class are offloaded, the highest class first.
    fn offloaded(&self, placement: &[DeviceIndex]) -> Vec<(u32, usize)> {
        let mut classes = std::collections::BTreeMap::new();
        for (offcode, device) in self.problem.offcodes.iter().zip(placement) {
            *classes.entry(offcode.class).or_insert(0) += usize::from(*device != offcode.home);
        }
        classes.into_iter().rev().collect()
    }

    fn why(&self, offcode: usize, refused: &[(DeviceIndex, Refusal)]) -> WhyThere {
        if self.pinned(offcode).is_some() {
            return WhyThere::Pinned;
        }
        if let Some(with) = self.pulled[offcode].iter().find(|one| self.pinned(**one).is_some()) {
            return WhyThere::Pulled(OffcodeIndex(*with));
        }
        let any = |which: fn(&Refusal) -> bool| refused.iter().any(|(_, one)| which(one));
        if !any(|one| !matches!(one, Refusal::NotEligible(_) | Refusal::TooLarge { .. })) {
            return WhyThere::OnlyDevice;
        }
        if any(|one| matches!(one, Refusal::NotReached)) {
            return WhyThere::SoFar;
        }
        if let Some(cheapest) = cheapest(refused) {
            return cheapest;
        }
        if any(|one| matches!(one, Refusal::OffloadsFewer { .. })) {
            WhyThere::Offloaded
        } else if any(|one| matches!(one, Refusal::MovesMore)) {
            WhyThere::Stays
        } else if any(|one| matches!(one, Refusal::LaterName)) {
            WhyThere::FirstName
        } else {
            pulled_by(refused).unwrap_or(WhyThere::OnlyAllowed)
        }
    }
}

/// It is the cheapest, unless another is as cheap.
fn cheapest(refused: &[(DeviceIndex, Refusal)]) -> Option<WhyThere> {
    if refused.iter().any(|(_, one)| matches!(one, Refusal::MovesMore | Refusal::LaterName)) {
        return None;
    }
    let more = refused.iter().filter_map(|(device, refusal)| match refusal {
        Refusal::CostsMore { by_ns_per_s } => Some((*by_ns_per_s, *device)),
        _ => None,
    });
    more.min().map(|(by_ns_per_s, than)| WhyThere::Cheapest { by_ns_per_s, than })
}

fn pulled_by(refused: &[(DeviceIndex, Refusal)]) -> Option<WhyThere> {
    refused.iter().find_map(|(_, refusal)| match refusal {
        Refusal::Pull { with, .. } => Some(WhyThere::Pulled(*with)),
        _ => None,
    })
}
