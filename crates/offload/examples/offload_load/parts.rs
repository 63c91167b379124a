//! What applications are put together from here, and figures of many samples.

use crate::Failure;
use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_offload::device::{DeviceLimits, WasmCodes};
use outboard_offload::devices::{
    CoreDevice, CoreSpec, DeviceLink, HostDevice, NodeDevice, SERVICE,
};
use outboard_offload::request::InterfaceId;
use outboard_offload::runtime::{
    PlannedChannel, PlannedCode, PlannedEnd, PlannedOffcode, Running, Runtime, RuntimeOptions,
    RuntimePlan,
};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The interface of all offcodes here.
pub(crate) const FACE: InterfaceId = [7; 16];
/// Longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Messages that a channel holds.
const DEPTH: u32 = 256;

/// Answers each call with its parameters, and counts messages. All of its memory's first MiB is
/// used.
const MODULE: &str = r#"(module
    (import "offcode" "answer" (func $answer (param i64 i32 i32) (result i32)))
    (memory (export "memory") 17)
    (func (export "oc_buffer") (param i32) (result i32) (i32.const 1048576))
    (func (export "oc_initialize") (result i32)
        (memory.fill (i32.const 0) (i32.const 90) (i32.const 1048576)) (i32.const 0))
    (func (export "oc_message") (param i32 i32 i32)
        (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (i64.const 1))))
    (func (export "oc_call") (param i32 i32 i64 i32 i32)
        (drop (call $answer (local.get 2) (local.get 3) (local.get 4)))))"#;

/// That module's bytes.
pub(crate) fn module() -> Result<PlannedCode, Failure> {
    Ok(PlannedCode::Wasm(Arc::new(wat::parse_str(MODULE)?)))
}

/// A builtin, with attributes that are numbers.
pub(crate) fn offcode(
    name: &str,
    body: &str,
    device: usize,
    own: &[(&str, u64)],
) -> PlannedOffcode {
    let mut offcode = PlannedOffcode::builtin(name, body, device);
    offcode.ports = 2;
    offcode.interfaces = vec![FACE];
    offcode.needs.memory_bytes = 4 << 20;
    let text = |(name, value): &(&str, u64)| ((*name).to_owned(), value.to_string());
    offcode.attributes = own.iter().map(text).collect();
    offcode
}

/// An offcode of the module.
pub(crate) fn wasm(name: &str, code: &PlannedCode, device: usize) -> PlannedOffcode {
    let mut offcode = offcode(name, "", device, &[]);
    offcode.code = code.clone();
    offcode
}

pub(crate) fn end(name: &str, port: u16) -> PlannedEnd {
    PlannedEnd::Offcode(name.to_owned(), port)
}

/// The application's only end.
pub(crate) fn own_end() -> PlannedEnd {
    PlannedEnd::Application(String::new())
}

pub(crate) fn channel(from: PlannedEnd, to: PlannedEnd, bytes: u32) -> PlannedChannel {
    PlannedChannel { from, to: vec![to], is_reliable: true, depth: DEPTH, message_max: bytes }
}

pub(crate) fn host(cache: Option<&Path>) -> Result<Box<dyn DeviceLink>, Failure> {
    let codes = WasmCodes::new(cache)?;
    Ok(Box::new(HostDevice::start("host", DeviceLimits::default(), codes)?))
}

/// A process of this program's; `processor` as in its arguments.
pub(crate) fn core(processor: &str, cache: Option<&Path>) -> Result<CoreDevice, Failure> {
    let mut args = vec!["core".into(), processor.into()];
    args.extend(cache.map(|cache| cache.as_os_str().to_owned()));
    let name = format!("core:{processor}");
    Ok(CoreDevice::start(&CoreSpec { name, program: "/proc/self/exe".into(), args })?)
}

fn node(address: &str) -> Result<Box<dyn DeviceLink>, Failure> {
    let hosts: HostList = address.parse()?;
    let host = hosts.iter().next().ok_or("no host")?;
    let dialer = Dialer::from_environment(|name| std::env::var_os(name), &[SERVICE.parse()?])?;
    Ok(Box::new(NodeDevice::connect(address, host, &dialer, LONG)?))
}

/// The device `host`, and `far` if that is another: the index of the second.
pub(crate) fn devices(far: &str) -> Result<(Vec<Box<dyn DeviceLink>>, usize), Failure> {
    let host = host(None)?;
    Ok(match far {
        "host" => (vec![host], 0),
        "core" => (vec![host, Box::new(core("1", None)?)], 1),
        address => (vec![host, node(address)?], 1),
    })
}

pub(crate) fn start(
    offcodes: Vec<PlannedOffcode>,
    channels: Vec<PlannedChannel>,
    devices: Vec<Box<dyn DeviceLink>>,
) -> Result<Running, Failure> {
    let plan = RuntimePlan { name: "load".into(), offcodes, channels };
    // A busy machine loses no device.
    let options = RuntimeOptions { silence: LONG, reply_limit: LONG, ..RuntimeOptions::default() };
    Ok(Runtime::start(plan, devices, options)?)
}

/// Both numbers that a builtin's method 0 says.
pub(crate) fn numbers(running: &Running, name: &str) -> Result<(u64, u64), Failure> {
    let handle = running.handle();
    let answer = handle.call(handle.offcode(name)?, FACE, 0, &[], Some(LONG))?;
    Ok(postcard::from_bytes(&answer)?)
}

/// The median and more of samples in seconds, as microseconds.
pub(crate) fn figures(mut seconds: Vec<f64>) -> Value {
    seconds.sort_by(f64::total_cmp);
    let last = seconds.len().saturating_sub(1);
    let at = |percent: usize| seconds.get(last * percent / 100).map(|seconds| seconds * 1e6);
    json!({ "p10_us": at(10), "p50_us": at(50), "p90_us": at(90), "p99_us": at(99) })
}
