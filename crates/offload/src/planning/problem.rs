//! The question to the solver: devices, offcodes, constraints and channels as numbers.

use super::costs::{ChannelCosts, MESSAGE_BYTES, MESSAGES_PER_S};
use super::machine::{Machine, MachineDevice};
use crate::describe::app::DevicePin;
use crate::describe::application::{Application, ApplicationEnd, ApplicationOffcode};
use crate::describe::offcode::{DeviceKind, ReferenceKind};
use crate::request::CarrierKind;
use outboard_layout::{
    DeviceIndex, Eligibility, LayoutChannel, LayoutConstraint, LayoutDevice, LayoutOffcode,
    LayoutProblem, OffcodeIndex,
};

/// The host, which is the first device.
const HOST: DeviceIndex = DeviceIndex(0);

/// The question, and what its channels and offcodes are beside the application's: the application
/// itself is the last offcode, and on the host.
pub(super) fn problem(
    application: &Application,
    machine: &Machine,
    costs: &ChannelCosts,
    current: &[Option<usize>],
) -> LayoutProblem {
    let mut offcodes: Vec<LayoutOffcode> =
        application.offcodes.iter().map(|offcode| asked(offcode, machine)).collect();
    let app = OffcodeIndex(offcodes.len());
    offcodes.push(itself(machine));
    let mut current: Vec<Option<DeviceIndex>> =
        current.iter().map(|device| device.map(DeviceIndex)).collect();
    if !current.is_empty() {
        current.push(Some(HOST));
    }
    LayoutProblem {
        devices: machine.devices.iter().map(device).collect(),
        offcodes,
        constraints: constraints(application, machine, app),
        channels: channels(application, machine, costs, app),
        current,
    }
}

fn device(device: &MachineDevice) -> LayoutDevice {
    LayoutDevice {
        name: device.name.clone(),
        kind: device.kind.as_str().to_owned(),
        memory_bytes: device.memory_bytes,
        offcodes: None,
        load_per_mille: device.load_per_mille,
    }
}

/// The application itself takes nothing of the host that it did not take before.
fn itself(machine: &Machine) -> LayoutOffcode {
    let elsewhere = || Eligibility::Refused("the application is where it was started".to_owned());
    let eligible = machine.devices.iter().enumerate().map(|(at, _)| match at {
        0 => Eligibility::Runs { cost_ns_per_s: 0 },
        _ => elsewhere(),
    });
    LayoutOffcode {
        name: crate::describe::app::APP_END.to_owned(),
        class: 0,
        home: HOST,
        eligible: eligible.collect(),
        memory_bytes: 0,
        load_per_mille: 0,
    }
}

fn asked(offcode: &ApplicationOffcode, machine: &Machine) -> LayoutOffcode {
    let needs = &offcode.package.file.needs;
    LayoutOffcode {
        name: offcode.name.to_string(),
        class: offcode.priority.into(),
        home: HOST,
        eligible: machine.devices.iter().map(|device| eligible(offcode, device)).collect(),
        memory_bytes: needs.memory_bytes,
        load_per_mille: needs.cpu_permille.into(),
    }
}

fn eligible(offcode: &ApplicationOffcode, device: &MachineDevice) -> Eligibility {
    if let Some(why) = &device.unusable {
        return Eligibility::Refused(why.clone());
    }
    let file = &offcode.package.file;
    if offcode.package.body(device.kind).is_none() {
        return Eligibility::Refused(match &file.needs.devices {
            Some(kinds) if !kinds.contains(&device.kind) => {
                format!("its description allows no {}", device.kind.as_str())
            }
            _ => format!("it has no body for a {}", device.kind.as_str()),
        });
    }
    match &offcode.on {
        Some(pin) if !is_meant(pin, device) => {
            Eligibility::Refused(format!("the layout file puts it on {pin}"))
        }
        _ => Eligibility::Runs { cost_ns_per_s: 0 },
    }
}

fn is_meant(pin: &DevicePin, device: &MachineDevice) -> bool {
    match (pin, &device.pin) {
        (DevicePin::Any(kind), _) => *kind == device.kind,
        (DevicePin::Node(named), DevicePin::Node(node)) => {
            named == node || named.as_str() == node.host()
        }
        (pin, own) => pin == own,
    }
}

fn constraints(
    application: &Application,
    machine: &Machine,
    app: OffcodeIndex,
) -> Vec<LayoutConstraint> {
    let of_files = application.constraints.iter().map(|constraint| {
        let offcodes: Vec<usize> = constraint.offcodes.clone();
        (constraint.kind, offcodes)
    });
    let of_references = application
        .references
        .iter()
        .map(|reference| (reference.kind, vec![reference.from, reference.to]));
    let asked =
        of_files.chain(of_references).flat_map(|(kind, offcodes)| constraint(kind, &offcodes));
    let pin = machine.devices.first().map(|_| LayoutConstraint::Pin(app, HOST));
    asked.chain(pin).collect()
}

/// A constraint among several offcodes, in pairs where the solver takes pairs.
fn constraint(kind: ReferenceKind, offcodes: &[usize]) -> Vec<LayoutConstraint> {
    let pairs = || offcodes.windows(2).map(|two| (OffcodeIndex(two[0]), OffcodeIndex(two[1])));
    match kind {
        ReferenceKind::Link => pairs().map(|(a, b)| LayoutConstraint::Link(a, b)).collect(),
        ReferenceKind::Pull => pairs().map(|(a, b)| LayoutConstraint::Pull(a, b)).collect(),
        ReferenceKind::GangIf => pairs().map(|(a, b)| LayoutConstraint::GangIf(a, b)).collect(),
        ReferenceKind::Gang => {
            vec![LayoutConstraint::Gang(offcodes.iter().map(|at| OffcodeIndex(*at)).collect())]
        }
    }
}

/// Channels of the file, and references, over which Calls go.
fn channels(
    application: &Application,
    machine: &Machine,
    costs: &ChannelCosts,
    app: OffcodeIndex,
) -> Vec<LayoutChannel> {
    let table = cost_table(machine, costs);
    let index = |end: &ApplicationEnd| match end {
        ApplicationEnd::App(_) => app,
        ApplicationEnd::Port { offcode, .. } => OffcodeIndex(*offcode),
    };
    let of_files = application.channels.iter().flat_map(|channel| {
        channel
            .to
            .iter()
            .map(|to| (format!("line {}", channel.line), index(&channel.from), index(to)))
    });
    let of_references = application.references.iter().map(|reference| {
        let import = &application.offcodes[reference.from].package.file.imports[reference.import];
        let name = format!("import {}", import.name);
        (name, OffcodeIndex(reference.from), OffcodeIndex(reference.to))
    });
    of_files
        .chain(of_references)
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| LayoutChannel { name, a, b, cost_ns_per_s: table.clone() })
        .collect()
}

/// What a channel costs each second, between each two devices.
fn cost_table(machine: &Machine, costs: &ChannelCosts) -> Vec<Vec<u64>> {
    let cost = |a: usize, b: usize| {
        let carrier = costs.carrier(carrier(&machine.devices[a], &machine.devices[b], a == b));
        carrier.cpu_ns(MESSAGE_BYTES).saturating_mul(MESSAGES_PER_S)
    };
    let devices = machine.devices.len();
    (0..devices).map(|a| (0..devices).map(|b| cost(a, b)).collect()).collect()
}

/// What carries a channel between two devices.
fn carrier(a: &MachineDevice, b: &MachineDevice, is_same: bool) -> CarrierKind {
    let shares = |kind: DeviceKind| matches!(kind, DeviceKind::Host | DeviceKind::Core);
    match is_same {
        true => CarrierKind::Inside,
        false if shares(a.kind) && shares(b.kind) => CarrierKind::Ring,
        false => CarrierKind::Session,
    }
}
