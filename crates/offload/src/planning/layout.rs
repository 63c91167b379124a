//! The layout of an application: the solver's answer in words, in pictures, and as the runtime
//! takes it.

use super::costs::ChannelCosts;
use super::machine::Machine;
use super::problem::problem;
use crate::describe::application::{
    Application, ApplicationEnd, ApplicationOffcode, OffcodeOrigin,
};
use crate::describe::offcode::{AttributeSet, DeviceKind, LinkPlace, OffcodeBody};
use crate::describe::package::{CodeFile, OffcodePackage, PackageBody};
use crate::describe::quantity::format_time;
use crate::describe::skeleton::SkeletonLanguage;
use crate::request::{BodyNeeds, InterfaceId};
use crate::runtime::{
    PlannedChannel, PlannedCode, PlannedEnd, PlannedOffcode, RuntimePlan, WhenDeviceLost,
};
use outboard_interface::generate::{c_guest, rust_guest};
use outboard_interface::{Guid, Interface};
use outboard_layout::{
    Eligibility, LayoutError, LayoutProblem, LayoutSolution, draw_svg, draw_text, solve,
};
use outboard_offcode::inspect::ModuleLimits;
use outboard_offcode::resident::{OffcodeLibrary, merge};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the solver searches.
const SEARCH: Duration = Duration::from_millis(500);

/// Why an application has no layout, or cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum LayoutFault {
    /// The application's constraints, or this machine.
    #[error("{0}")]
    Layout(LayoutError),
    /// A description of the application.
    #[error("offcode {offcode}: {what}")]
    Offcode {
        /// Which.
        offcode: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// See this file's first lines.
#[derive(Clone, Debug)]
pub struct AppLayout {
    /// The application.
    pub application: Application,
    /// The devices.
    pub machine: Machine,
    /// What the solver was asked.
    pub problem: LayoutProblem,
    /// What it said.
    pub solution: LayoutSolution,
    /// What channels cost.
    pub costs: ChannelCosts,
}

impl AppLayout {
    /// Lays an application out. `current` is where its offcodes are now, by the indices of the
    /// machine's devices; empty if none of them runs.
    ///
    /// # Errors
    /// [`LayoutFault`]: no layout obeys the constraints.
    pub fn of(
        application: Application,
        machine: Machine,
        costs: ChannelCosts,
        current: &[Option<usize>],
    ) -> Result<Self, LayoutFault> {
        let problem = problem(&application, &machine, &costs, current);
        let began = Instant::now();
        let solution = solve(&problem, || began.elapsed() > SEARCH).map_err(LayoutFault::Layout)?;
        Ok(Self { application, machine, problem, solution, costs })
    }

    /// The index of an offcode's device.
    #[must_use]
    pub fn device(&self, offcode: usize) -> usize {
        self.solution.placement[offcode].0
    }

    /// The devices that are used, by their indices; the host always is.
    #[must_use]
    pub fn used(&self) -> Vec<usize> {
        let mut used: Vec<usize> = self.solution.placement.iter().map(|device| device.0).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Every offcode with its device and the reason, a line each; then the cost.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let width = self.application.offcodes.iter().map(|offcode| offcode.name.as_str().len());
        let width = width.max().unwrap_or(0);
        for (at, offcode) in self.application.offcodes.iter().enumerate() {
            let device = &self.machine.devices[self.device(at)].name;
            let why = self.solution.explanations[at].sentence(&self.problem);
            let _ = writeln!(text, "{:width$}  {device:12}  {why}", offcode.name.as_str());
        }
        text.push_str(&self.quality());
        text
    }

    /// How good the layout is, in a line.
    fn quality(&self) -> String {
        let cost = self.solution.cost_ns_per_s as f64 / 1e6;
        let costs = if self.costs.is_guess { "guessed" } else { "measured" };
        let proven = match self.solution.proven {
            true => "no layout is better".to_owned(),
            false => format!(
                "a better one may cost up to {:.1} % less",
                self.solution.gap_per_mille() as f64 / 10.0
            ),
        };
        format!(
            "channels cost {cost:.2} ms of processor time a second ({costs}; 1,000 messages of \
             1 KiB a second each); {proven}\n"
        )
    }

    /// Why an offcode is where it is, and what keeps it from every other device.
    #[must_use]
    pub fn explanation(&self, offcode: usize) -> String {
        let explanation = &self.solution.explanations[offcode];
        let device = &self.machine.devices[self.device(offcode)].name;
        let name = &self.application.offcodes[offcode].name;
        let mut text = format!("{name} on {device}\n");
        let _ = writeln!(text, "  {}", explanation.sentence(&self.problem));
        for refusal in explanation.refusals(&self.problem) {
            let _ = writeln!(text, "  {refusal}");
        }
        text
    }

    /// The layout drawn with characters.
    #[must_use]
    pub fn drawn(&self) -> String {
        draw_text(&self.problem, &self.solution.placement)
    }

    /// The layout as an SVG picture.
    #[must_use]
    pub fn svg(&self) -> String {
        draw_svg(&self.problem, &self.solution.placement)
    }

    /// The layout for programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let offcodes = self.application.offcodes.iter().enumerate().map(|(at, offcode)| {
            let explanation = &self.solution.explanations[at];
            json!({
                "name": offcode.name.as_str(),
                "device": self.machine.devices[self.device(at)].name,
                "priority": offcode.priority,
                "why": explanation.sentence(&self.problem),
                "refused": explanation.refusals(&self.problem),
            })
        });
        let devices = self.machine.devices.iter().map(|device| {
            json!({
                "name": device.name,
                "kind": device.kind.as_str(),
                "unusable": device.unusable,
            })
        });
        json!({
            "application": self.application.name.as_str(),
            "devices": devices.collect::<Vec<_>>(),
            "offcodes": offcodes.collect::<Vec<_>>(),
            "cost_ns_per_s": self.solution.cost_ns_per_s,
            "costs_are_guesses": self.costs.is_guess,
            "proven": self.solution.proven,
            "gap_per_mille": self.solution.gap_per_mille(),
            "moves": self.solution.moves,
        })
    }

    /// What the runtime carries out. `opened` are the devices that it is given, by their indices in
    /// the machine, in its order: all that are [used](Self::used), and others to which offcodes may
    /// be moved.
    ///
    /// # Errors
    /// [`LayoutFault::Offcode`]: a body or an interface cannot be used as the description says.
    pub fn runtime_plan(&self, opened: &[usize]) -> Result<RuntimePlan, LayoutFault> {
        let number = |device: usize| opened.iter().position(|one| *one == device);
        let mut offcodes = Vec::new();
        for at in self.order() {
            offcodes.push(self.planned(at, &number)?);
        }
        Ok(RuntimePlan {
            name: self.application.name.to_string(),
            offcodes,
            channels: self
                .application
                .channels
                .iter()
                .map(|channel| {
                    let settings = &channel.settings;
                    PlannedChannel {
                        from: self.end(&channel.from),
                        to: channel.to.iter().map(|end| self.end(end)).collect(),
                        is_reliable: settings.reliable,
                        depth: settings.depth,
                        message_max: settings.message_bytes_max,
                    }
                })
                .collect(),
        })
    }

    /// The offcodes in the order of their start: who is called comes before who calls it.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut seen = vec![false; self.application.offcodes.len()];
        for at in 0..seen.len() {
            self.visit(at, &mut seen, &mut order);
        }
        order
    }

    fn visit(&self, first: usize, seen: &mut [bool], order: &mut Vec<usize>) {
        // Pairs of an offcode and whether those that it calls are in the order already.
        let mut open = vec![(first, false)];
        while let Some((at, is_left)) = open.pop() {
            if is_left {
                order.push(at);
                continue;
            }
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            open.push((at, true));
            let called = self.application.references.iter().filter(|one| one.from == at);
            open.extend(called.map(|one| (one.to, false)));
        }
    }

    fn planned(
        &self,
        at: usize,
        number: &dyn Fn(usize) -> Option<usize>,
    ) -> Result<PlannedOffcode, LayoutFault> {
        let offcode = &self.application.offcodes[at];
        let file = &offcode.package.file;
        let wrong = |what: String| LayoutFault::Offcode { offcode: offcode.name.to_string(), what };
        let kind = self.machine.devices[self.device(at)].kind;
        let body = offcode.package.body(kind);
        let body = body.ok_or_else(|| wrong(format!("it has no body for a {}", kind.as_str())))?;
        Ok(PlannedOffcode {
            name: offcode.name.to_string(),
            guid: *file.guid.as_bytes(),
            code: code_of(body).map_err(wrong)?,
            needs: needs(offcode),
            interfaces: file.interfaces.iter().map(|name| guid(name.as_str())).collect(),
            ports: u16::try_from(file.ports.len()).unwrap_or(u16::MAX),
            imports: self.imports(at),
            attributes: attributes(&offcode.attributes),
            device: number(self.device(at))
                .ok_or_else(|| wrong("its device is not open".to_owned()))?,
            parent: parent(&self.application, offcode),
            obsolete: offcode.attributes.obsolete_time,
            when_lost: self.when_lost(at, number),
        })
    }

    /// Each import's interface, as whoever serves it has it, and who that is.
    fn imports(&self, at: usize) -> Vec<(InterfaceId, Option<String>)> {
        let references = &self.application.references;
        let file = &self.application.offcodes[at].package.file;
        let import = |(import, wanted): (usize, &crate::describe::offcode::OffcodeImport)| {
            let bound = references.iter().find(|one| one.from == at && one.import == import);
            match bound {
                Some(bound) => {
                    let server = &self.application.offcodes[bound.to];
                    let interface = &server.package.file.interfaces[bound.interface];
                    (guid(interface.as_str()), Some(server.name.to_string()))
                }
                None => (guid(wanted.interface.as_str()), None),
            }
        };
        file.imports.iter().enumerate().map(import).collect()
    }

    /// Where an offcode goes when its device is lost: the other open devices that may run it.
    fn when_lost(&self, at: usize, number: &dyn Fn(usize) -> Option<usize>) -> WhenDeviceLost {
        use crate::describe::app::WhenLost;
        if self.application.offcodes[at].when_lost == WhenLost::End {
            return WhenDeviceLost::End;
        }
        let (own, devices) = (self.device(at), 0..self.machine.devices.len());
        let others = devices.filter(|device| *device != own && self.runs_on(at, *device));
        WhenDeviceLost::Move(others.filter_map(number).collect())
    }

    /// Whether an offcode may run on a device with the code that it has where it is.
    #[must_use]
    pub fn runs_on(&self, offcode: usize, device: usize) -> bool {
        let kinds = [self.device(offcode), device].map(|at| self.machine.devices[at].kind);
        let eligible = &self.problem.offcodes[offcode].eligible[device];
        matches!(eligible, Eligibility::Runs { .. })
            && same_body(&self.application.offcodes[offcode], kinds)
    }

    fn end(&self, end: &ApplicationEnd) -> PlannedEnd {
        match end {
            ApplicationEnd::App(name) => {
                PlannedEnd::Application(name.as_ref().map_or_else(String::new, ToString::to_string))
            }
            ApplicationEnd::Port { offcode, port } => {
                let name = self.application.offcodes[*offcode].name.to_string();
                PlannedEnd::Offcode(name, u16::try_from(*port).unwrap_or(u16::MAX))
            }
        }
    }

    /// The index of an offcode of that name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<usize> {
        let named = |offcode: &ApplicationOffcode| offcode.name.as_str() == name;
        self.application.offcodes.iter().position(named)
    }

    /// What keeps an offcode from every other device: each begins with the device's name.
    #[must_use]
    pub fn refusals(&self, offcode: usize) -> Vec<String> {
        self.solution.explanations[offcode].refusals(&self.problem)
    }

    /// The interfaces of an offcode, as its package's WIT files describe them.
    ///
    /// # Errors
    /// In words: a file cannot be read, or an interface is in none of them.
    pub fn interfaces(&self, offcode: usize) -> Result<Vec<Interface>, String> {
        interfaces_of(&self.application.offcodes[offcode].package)
    }
}

/// The interfaces of a package, in its description's order.
///
/// # Errors
/// In words: a WIT file cannot be read, or an interface is in none of them.
pub fn interfaces_of(package: &OffcodePackage) -> Result<Vec<Interface>, String> {
    described(package, package.file.interfaces.iter().map(|name| name.as_str()))
}

/// Code for a package's source: the types, calls and answers of its interfaces and imports.
///
/// # Errors
/// In words: a WIT file cannot be read, an interface is in none of them, or there is too much.
pub fn guest_code(package: &OffcodePackage, language: SkeletonLanguage) -> Result<String, String> {
    let exports = interfaces_of(package)?;
    let imports = package.file.imports.iter().map(|import| import.interface.as_str());
    let imports = described(package, imports)?;
    let made = match language {
        SkeletonLanguage::C => c_guest(&exports, &imports),
        SkeletonLanguage::Rust => rust_guest(&exports, &imports),
    };
    made.map_err(|error| error.to_string())
}

/// Interfaces by their names, from the WIT files of a package.
fn described<'a>(
    package: &OffcodePackage,
    names: impl Iterator<Item = &'a str>,
) -> Result<Vec<Interface>, String> {
    let mut described = Vec::new();
    for wit in &package.wit {
        let file = wit.path.display().to_string();
        described
            .extend(Interface::parse_wit(&file, &wit.text).map_err(|error| error.to_string())?);
    }
    let find = |name: &str| described.iter().find(|one| one.name.to_string() == name).cloned();
    let missing = |name: &str| format!("no WIT file of the package has interface {name}");
    names.map(|name| find(name).ok_or_else(|| missing(name))).collect()
}

fn guid(interface: &str) -> InterfaceId {
    *Guid::of_name(interface).as_bytes()
}

/// The same code runs on devices of both kinds.
fn same_body(offcode: &ApplicationOffcode, kinds: [DeviceKind; 2]) -> bool {
    let [one, other] = kinds.map(|kind| offcode.package.body(kind));
    matches!((one, other), (Some(one), Some(other)) if one.body == other.body)
}

/// An offcode that another one required goes when that one does.
fn parent(application: &Application, offcode: &ApplicationOffcode) -> Option<String> {
    match offcode.origin {
        OffcodeOrigin::Listed { .. } => None,
        OffcodeOrigin::Required { by, .. } => Some(application.offcodes[by].name.to_string()),
    }
}

fn needs(offcode: &ApplicationOffcode) -> BodyNeeds {
    let needs = &offcode.package.file.needs;
    let watchdog = offcode.attributes.watchdog_time.unwrap_or_default().as_millis();
    BodyNeeds {
        memory_bytes: needs.memory_bytes,
        clock: needs.clock,
        timers: needs.timers,
        watchdog_ms: u32::try_from(watchdog).unwrap_or(u32::MAX),
    }
}

fn attributes(set: &AttributeSet) -> BTreeMap<String, String> {
    let own = set.own.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let time =
        |name: &str, time: Option<Duration>| time.map(|time| (name.to_owned(), format_time(time)));
    let priority = set.offload_priority;
    let priority = priority.map(|number| ("OFFLOAD_PRIORITY".to_owned(), number.to_string()));
    own.chain(time("OBSOLETE_TIME", set.obsolete_time))
        .chain(time("WATCHDOG_TIME", set.watchdog_time))
        .chain(priority)
        .collect()
}

/// The code of a body for the runtime, with its libraries linked into it.
///
/// # Errors
/// In words: it has none, or cannot be linked.
pub fn code_of(body: &PackageBody) -> Result<PlannedCode, String> {
    match (&body.body, &body.code) {
        (OffcodeBody::Builtin { name }, _) => Ok(PlannedCode::Builtin(name.to_string())),
        (OffcodeBody::Wasm { link: LinkPlace::Device, .. }, Some(code))
            if !body.libraries.is_empty() =>
        {
            Ok(parts(code, &body.libraries))
        }
        (OffcodeBody::Wasm { .. }, Some(code)) => {
            linked(code.bytes.to_vec(), body).map(|bytes| PlannedCode::Wasm(Arc::new(bytes)))
        }
        (OffcodeBody::Bpf { program, .. }, Some(code)) => {
            Ok(PlannedCode::Bpf(Arc::new(code.bytes.to_vec()), program.clone()))
        }
        _ => Err("its body has no code".to_owned()),
    }
}

/// Modules that the device links.
fn parts(main: &CodeFile, libraries: &[CodeFile]) -> PlannedCode {
    let part = |file: &CodeFile| (library(file).name.to_owned(), Arc::new(file.bytes.to_vec()));
    PlannedCode::Linked([main].into_iter().chain(libraries).map(part).collect())
}

/// A module with its libraries linked into it.
fn linked(main: Vec<u8>, body: &PackageBody) -> Result<Vec<u8>, String> {
    if body.libraries.is_empty() {
        return Ok(main);
    }
    let libraries: Vec<OffcodeLibrary<'_>> = body.libraries.iter().map(library).collect();
    merge(&main, &libraries, &ModuleLimits::default()).map_err(|error| error.to_string())
}

/// A library is imported by its file's name without the ending.
fn library(file: &CodeFile) -> OffcodeLibrary<'_> {
    let name = Path::new(file.path.as_str()).file_stem().and_then(|stem| stem.to_str());
    OffcodeLibrary { name: name.unwrap_or_default(), bytes: &file.bytes }
}
