//! Starts an application on its layout: opens its devices, and gives them to the runtime.
//!
//! A device that the layout uses and that cannot be opened is an error; one that is only allowed is
//! left out, with a warning.

use crate::describe::OffcodePackage;
use crate::describe::app::DevicePin;
use crate::device::{DeviceLimits, WasmCodes, builtin, link_modules, resident_rules};
use crate::devices::{CoreDevice, CoreSpec, DeviceLink, HostDevice, NicLink, NodeDevice, SERVICE};
use crate::planning::layout::code_of;
use crate::planning::{AppLayout, LayoutFault, MachineDevice};
use crate::request::BodyNeeds;
use crate::runtime::{PlannedCode, Running, Runtime, RuntimeError, RuntimeOptions, RuntimePlan};
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::{Host, HostList, HostsError};
use outboard_offcode::resident::{ResidentEngine, ResidentModule};
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long a node may take to answer.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// How devices are opened.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// A program that runs a core when it is called with `core_args`, the processor's number and
    /// the directory of compiled code.
    pub program: PathBuf,
    /// The first of its arguments.
    pub core_args: Vec<OsString>,
    /// Where compiled code is kept; nowhere if it is `None`.
    pub cache: Option<PathBuf>,
    /// The runtime's limits.
    pub runtime: RuntimeOptions,
}

/// Why an application was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchFault {
    /// A device of the layout cannot be opened.
    #[error("device {device}: {why}")]
    Device {
        /// Which.
        device: String,
        /// Why not.
        why: String,
    },
    /// The layout cannot be carried out.
    #[error(transparent)]
    Plan(#[from] LayoutFault),
    /// The runtime could not start it.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// An application that runs, and its devices in the runtime's order.
#[derive(Debug)]
pub struct Launched {
    /// The running application.
    pub running: Running,
    /// Its devices by their indices in the layout's machine.
    pub opened: Vec<usize>,
}

/// Whether this machine can compile the modules of a plan, as its devices would.
///
/// # Errors
/// In words: which offcode's cannot be, and why.
pub fn check_codes(plan: &RuntimePlan) -> Result<(), String> {
    let engine = ResidentEngine::new(None).map_err(|error| error.to_string())?;
    for offcode in &plan.offcodes {
        check_code(&engine, &offcode.code, &offcode.needs)
            .map_err(|error| format!("offcode {}: {error}", offcode.name))?;
    }
    Ok(())
}

/// Whether this machine can compile the modules of a package.
///
/// # Errors
/// As [`check_codes`].
pub fn check_package(package: &OffcodePackage) -> Result<(), String> {
    let engine = ResidentEngine::new(None).map_err(|error| error.to_string())?;
    let needs = &package.file.needs;
    let needs = BodyNeeds {
        memory_bytes: needs.memory_bytes,
        clock: needs.clock,
        timers: needs.timers,
        watchdog_ms: 0,
    };
    for body in &package.bodies {
        check_code(&engine, &code_of(body)?, &needs)?;
    }
    Ok(())
}

fn check_module(engine: &ResidentEngine, bytes: &[u8], needs: &BodyNeeds) -> Result<(), String> {
    let compiled = ResidentModule::compile(engine, bytes, &resident_rules(needs));
    compiled.map(drop).map_err(|error| error.to_string())
}

fn check_code(
    engine: &ResidentEngine,
    code: &PlannedCode,
    needs: &BodyNeeds,
) -> Result<(), String> {
    match code {
        PlannedCode::Wasm(bytes) => check_module(engine, bytes, needs),
        PlannedCode::Linked(parts) => {
            let parts: Vec<(&str, &[u8])> =
                parts.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
            check_module(engine, &link_modules(&parts)?, needs)
        }
        PlannedCode::Builtin(name) if !builtin::names().any(|(known, _)| known == name) => {
            Err(format!("there is no builtin {name}"))
        }
        PlannedCode::Builtin(_) | PlannedCode::Bpf(..) => Ok(()),
    }
}

/// Starts an application.
///
/// # Errors
/// [`LaunchFault`]; nothing is left then.
pub fn launch(layout: &AppLayout, options: &LaunchOptions) -> Result<Launched, LaunchFault> {
    let used = layout.used();
    let (mut opened, mut links) = (Vec::new(), Vec::new());
    for (at, device) in layout.machine.devices.iter().enumerate() {
        let is_used = at == 0 || used.contains(&at);
        if !is_used && device.unusable.is_some() {
            continue;
        }
        match open(device, options) {
            Ok(link) => {
                opened.push(at);
                links.push(link);
            }
            Err(why) if is_used => {
                return Err(LaunchFault::Device { device: device.name.clone(), why });
            }
            Err(why) => tracing::warn!("device {} is left out: {why}", device.name),
        }
    }
    let plan = layout.runtime_plan(&opened)?;
    let running = Runtime::start(plan, links, options.runtime)?;
    Ok(Launched { running, opened })
}

fn open(device: &MachineDevice, options: &LaunchOptions) -> Result<Box<dyn DeviceLink>, String> {
    if let Some(why) = &device.unusable {
        return Err(why.clone());
    }
    let failed = |error: io::Error| error.to_string();
    Ok(match &device.pin {
        DevicePin::Core(number) => {
            Box::new(CoreDevice::start(&core(device, *number, options)).map_err(failed)?)
        }
        DevicePin::Any(_) => {
            let codes = WasmCodes::new(options.cache.as_deref())?;
            let limits = DeviceLimits::default();
            Box::new(HostDevice::start(&device.name, limits, codes).map_err(failed)?)
        }
        DevicePin::Node(node) => {
            let host = single_host(node.as_str())?;
            let service = SERVICE.parse().map_err(|_| "no name of a service".to_owned())?;
            let dialer = Dialer::from_environment(|name| env::var_os(name), &[service]);
            let dialer = dialer.map_err(|error| error.to_string())?;
            Box::new(NodeDevice::connect(&device.name, &host, &dialer, DIAL_LIMIT)?)
        }
        DevicePin::Nic(nic) => Box::new(NicLink::start(&device.name, nic.as_str())?),
    })
}

/// The host of a node's address.
fn single_host(address: &str) -> Result<Host, String> {
    let hosts: HostList = address.parse().map_err(|error: HostsError| error.to_string())?;
    hosts.iter().next().cloned().ok_or_else(|| format!("{address} names no host"))
}

fn core(device: &MachineDevice, number: u32, options: &LaunchOptions) -> CoreSpec {
    let mut args = options.core_args.clone();
    args.push(number.to_string().into());
    args.extend(options.cache.as_ref().map(|cache| cache.clone().into_os_string()));
    CoreSpec { name: device.name.clone(), program: options.program.clone(), args }
}
