//! What is asked: devices, offcodes, constraints, channels and the layout that runs now.
//!
//! Never decides anything; [`LayoutProblem::check`] refuses what is not a problem at all.

use std::collections::HashSet;
use std::fmt;

/// Devices of a problem at most.
pub(crate) const DEVICES_MAX: usize = 32;
/// Offcodes of a problem at most.
pub(crate) const OFFCODES_MAX: usize = 256;
/// Channels, and likewise constraints, of a problem at most.
pub(crate) const RELATIONS_MAX: usize = 1024;
/// All costs of a problem together at most, in ns/s: 280,000 processors.
pub(crate) const COST_NS_PER_S_MAX: u64 = 1 << 48;

/// A device, by its place in [`LayoutProblem::devices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceIndex(pub usize);

/// An offcode, by its place in [`LayoutProblem::offcodes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OffcodeIndex(pub usize);

/// A place where offcodes can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutDevice {
    /// Its name; no other device of the problem has it.
    pub name: String,
    /// What it is, such as `core` or `nic`; only shown.
    pub kind: String,
    /// Bytes of memory for offcodes; unlimited if absent.
    pub memory_bytes: Option<u64>,
    /// Offcodes that it holds at once; unlimited if absent.
    pub offcodes: Option<u64>,
    /// Processor time for offcodes, in thousandths of a processor; unlimited if absent.
    pub load_per_mille: Option<u64>,
}

/// Whether an offcode can run on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligibility {
    /// It can, for so much processor time of the whole machine.
    Runs {
        /// Nanoseconds of processor time in each second.
        cost_ns_per_s: u64,
    },
    /// It cannot, for this reason: a clause that follows the word "because".
    Refused(String),
}

/// Something to be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutOffcode {
    /// Its name; no other offcode of the problem has it.
    pub name: String,
    /// Its priority class: a higher one is offloaded first.
    pub class: u32,
    /// The host of its application: anywhere else it is offloaded.
    pub home: DeviceIndex,
    /// One entry for each device.
    pub eligible: Vec<Eligibility>,
    /// Bytes of memory that it takes of its device.
    pub memory_bytes: u64,
    /// Processor time that it takes of its device, in thousandths of a processor.
    pub load_per_mille: u64,
}

/// What a layout must obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutConstraint {
    /// The two know each other; they may be anywhere.
    Link(OffcodeIndex, OffcodeIndex),
    /// Both are on the same device.
    Pull(OffcodeIndex, OffcodeIndex),
    /// All of them are offloaded, or none.
    Gang(Vec<OffcodeIndex>),
    /// If the first is offloaded, so is the second.
    GangIf(OffcodeIndex, OffcodeIndex),
    /// The offcode is on this device.
    Pin(OffcodeIndex, DeviceIndex),
}

/// A channel between two offcodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayoutChannel {
    /// Its name; only shown.
    pub name: String,
    /// One end.
    pub a: OffcodeIndex,
    /// The other end.
    pub b: OffcodeIndex,
    /// Processor time of the whole machine, in nanoseconds each second, when `a` is on the device
    /// of the row and `b` on the device of the column.
    pub cost_ns_per_s: Vec<Vec<u64>>,
}

/// Everything that decides where offcodes run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayoutProblem {
    /// Where offcodes can run.
    pub devices: Vec<LayoutDevice>,
    /// What is to be placed.
    pub offcodes: Vec<LayoutOffcode>,
    /// What must hold.
    pub constraints: Vec<LayoutConstraint>,
    /// Who talks with whom, and what that costs.
    pub channels: Vec<LayoutChannel>,
    /// Where each offcode runs now, as far as it does; empty if nothing runs.
    pub current: Vec<Option<DeviceIndex>>,
}

/// What the caller gave is not a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemError {
    /// More of something than the solver takes.
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many the caller gave.
        found: usize,
        /// How many the solver takes.
        max: usize,
    },
    /// Two devices or two offcodes have the same name.
    SameName(String),
    /// Something names a device or an offcode that is not there.
    NoSuch {
        /// Who names it.
        by: String,
        /// What it names: `device` or `offcode`.
        what: &'static str,
        /// The number that it gives.
        found: usize,
    },
    /// A table has not one row and one column for each device.
    Table {
        /// Whose table it is.
        of: String,
        /// The number of devices.
        devices: usize,
    },
    /// All costs together are more than the solver can add up.
    Costs,
}

impl fmt::Display for ProblemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany { what, found, max } => write!(
                f,
                "the caller's problem has {found} {what}, at most {max} can be laid out: divide it"
            ),
            Self::SameName(name) => {
                write!(f, "the caller gave the name `{name}` twice: rename one of the two")
            }
            Self::NoSuch { by, what, found } => write!(
                f,
                "{by} of the caller's problem names {what} number {found}, which is not there"
            ),
            Self::Table { of, devices } => write!(
                f,
                "the caller's table of {of} must have an entry for each of the {devices} devices"
            ),
            Self::Costs => write!(
                f,
                "the caller's costs add up to more than {COST_NS_PER_S_MAX} ns/s: give them in ns \
                 of processor time for each second"
            ),
        }
    }
}

impl std::error::Error for ProblemError {}

impl LayoutProblem {
    /// Whether this is a problem that can be solved or be shown to be impossible.
    ///
    /// # Errors
    /// What the caller must put right, as [`ProblemError`] says.
    pub fn check(&self) -> Result<(), ProblemError> {
        self.check_sizes()?;
        check_names(self.devices.iter().map(|device| &device.name))?;
        check_names(self.offcodes.iter().map(|offcode| &offcode.name))?;
        for offcode in &self.offcodes {
            self.check_offcode(offcode)?;
        }
        for channel in &self.channels {
            self.check_channel(channel)?;
        }
        for (index, constraint) in self.constraints.iter().enumerate() {
            self.check_constraint(index, constraint)?;
        }
        self.check_current()?;
        self.check_costs()
    }

    /// The device's name.
    #[must_use]
    pub fn device_name(&self, device: DeviceIndex) -> &str {
        self.devices.get(device.0).map_or("?", |device| &device.name)
    }

    /// The offcode's name.
    #[must_use]
    pub fn offcode_name(&self, offcode: OffcodeIndex) -> &str {
        self.offcodes.get(offcode.0).map_or("?", |offcode| &offcode.name)
    }

    /// Where the offcode runs now.
    pub(crate) fn current_of(&self, offcode: usize) -> Option<DeviceIndex> {
        self.current.get(offcode).copied().flatten()
    }

    fn check_sizes(&self) -> Result<(), ProblemError> {
        let sizes = [
            ("devices", self.devices.len(), DEVICES_MAX),
            ("offcodes", self.offcodes.len(), OFFCODES_MAX),
            ("channels", self.channels.len(), RELATIONS_MAX),
            ("constraints", self.constraints.len(), RELATIONS_MAX),
        ];
        match sizes.into_iter().find(|(_, found, max)| found > max) {
            Some((what, found, max)) => Err(ProblemError::TooMany { what, found, max }),
            None => Ok(()),
        }
    }

    fn check_offcode(&self, offcode: &LayoutOffcode) -> Result<(), ProblemError> {
        let by = || format!("offcode `{}`", offcode.name);
        self.check_device(offcode.home, by)?;
        if offcode.eligible.len() == self.devices.len() {
            return Ok(());
        }
        Err(ProblemError::Table { of: by(), devices: self.devices.len() })
    }

    fn check_channel(&self, channel: &LayoutChannel) -> Result<(), ProblemError> {
        let by = || format!("channel `{}`", channel.name);
        self.check_member(channel.a, by)?;
        self.check_member(channel.b, by)?;
        let devices = self.devices.len();
        let table = &channel.cost_ns_per_s;
        if table.len() == devices && table.iter().all(|row| row.len() == devices) {
            return Ok(());
        }
        Err(ProblemError::Table { of: by(), devices })
    }

    fn check_constraint(&self, index: usize, of: &LayoutConstraint) -> Result<(), ProblemError> {
        let by = || format!("constraint number {index}");
        match of {
            LayoutConstraint::Link(a, b)
            | LayoutConstraint::Pull(a, b)
            | LayoutConstraint::GangIf(a, b) => {
                self.check_member(*a, by)?;
                self.check_member(*b, by)
            }
            LayoutConstraint::Gang(members) => {
                members.iter().try_for_each(|member| self.check_member(*member, by))
            }
            LayoutConstraint::Pin(offcode, device) => {
                self.check_member(*offcode, by)?;
                self.check_device(*device, by)
            }
        }
    }

    fn check_current(&self) -> Result<(), ProblemError> {
        let by = || "the running layout".to_owned();
        if self.current.len() > self.offcodes.len() {
            let found = self.current.len() - 1;
            return Err(ProblemError::NoSuch { by: by(), what: "offcode", found });
        }
        self.current.iter().flatten().try_for_each(|device| self.check_device(*device, by))
    }

    fn check_device(
        &self,
        device: DeviceIndex,
        by: impl Fn() -> String,
    ) -> Result<(), ProblemError> {
        if device.0 < self.devices.len() {
            return Ok(());
        }
        Err(ProblemError::NoSuch { by: by(), what: "device", found: device.0 })
    }

    fn check_member(
        &self,
        member: OffcodeIndex,
        by: impl Fn() -> String,
    ) -> Result<(), ProblemError> {
        if member.0 < self.offcodes.len() {
            return Ok(());
        }
        Err(ProblemError::NoSuch { by: by(), what: "offcode", found: member.0 })
    }

    fn check_costs(&self) -> Result<(), ProblemError> {
        let own = self.offcodes.iter().map(|offcode| {
            let costs = offcode.eligible.iter().map(|on| match on {
                Eligibility::Runs { cost_ns_per_s } => *cost_ns_per_s,
                Eligibility::Refused(_) => 0,
            });
            costs.max().unwrap_or(0)
        });
        let channels = self
            .channels
            .iter()
            .map(|channel| channel.cost_ns_per_s.iter().flatten().copied().max().unwrap_or(0));
        let sum = own.chain(channels).fold(0_u64, u64::saturating_add);
        if sum <= COST_NS_PER_S_MAX { Ok(()) } else { Err(ProblemError::Costs) }
    }
}

fn check_names<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), ProblemError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(ProblemError::SameName(name.clone()));
        }
    }
    Ok(())
}
