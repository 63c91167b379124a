//! Measures what carries channels on this machine: by builtins on two threads, at several sizes.
//!
//! A processor of its own makes rings quicker than what is measured here between threads that
//! sleep: costs are those of a machine that has other things to do.

use crate::device::{DeviceLimits, WasmCodes};
use crate::devices::{DeviceLink, HostDevice};
use crate::launch::{LaunchFault, LaunchOptions};
use crate::planning::costs::{CarrierCosts, ChannelCosts, SIZES, SizeCost};
use crate::runtime::{PlannedChannel, PlannedEnd, PlannedOffcode, Running, Runtime, RuntimePlan};
use std::time::{Duration, Instant};

/// Bytes that a stream carries at each size, about.
const STREAM_BYTES: u64 = 32 << 20;
/// Round trips at each size.
const ROUNDS: u64 = 400;
/// How long one measurement may take.
const LIMIT: Duration = Duration::from_secs(20);
/// Messages that a measured channel holds.
const DEPTH: u32 = 64;
/// The interface of builtins that say numbers.
const NUMBERS: [u8; 16] = [0; 16];

/// The carriers, by who talks with whom.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    OneDevice,
    TwoDevices,
    Application,
}

/// Measures all carriers, which takes some seconds.
///
/// # Errors
/// This machine's: no threads, or builtins that do not answer.
pub fn channel_costs(options: &LaunchOptions) -> Result<ChannelCosts, LaunchFault> {
    Ok(ChannelCosts {
        is_guess: false,
        inside: carrier(Between::OneDevice, options)?,
        ring: carrier(Between::TwoDevices, options)?,
        session: carrier(Between::Application, options)?,
    })
}

fn carrier(between: Between, options: &LaunchOptions) -> Result<CarrierCosts, LaunchFault> {
    let size = |bytes: &u32| {
        let (messages_per_s, cpu_ns) = stream(between, *bytes, options)?;
        let latency_ns = half_round_trip_ns(between, *bytes, options)?;
        Ok(SizeCost { bytes: *bytes, latency_ns, messages_per_s, cpu_ns })
    };
    Ok(CarrierCosts { sizes: SIZES.iter().map(size).collect::<Result<_, LaunchFault>>()? })
}

fn offcode(name: &str, body: &str, device: usize, own: &[(&str, u64)]) -> PlannedOffcode {
    let mut offcode = PlannedOffcode::builtin(name, body, device);
    offcode.ports = 2;
    offcode.interfaces = vec![NUMBERS];
    let text = |(name, value): &(&str, u64)| ((*name).to_owned(), value.to_string());
    offcode.attributes = own.iter().map(text).collect();
    offcode
}

fn channel(from: PlannedEnd, to: PlannedEnd, bytes: u32) -> PlannedChannel {
    PlannedChannel { from, to: vec![to], is_reliable: true, depth: DEPTH, message_max: bytes }
}

fn end(name: &str, port: u16) -> PlannedEnd {
    PlannedEnd::Offcode(name.to_owned(), port)
}

fn start(plan: RuntimePlan, options: &LaunchOptions) -> Result<Running, LaunchFault> {
    let mut links: Vec<Box<dyn DeviceLink>> = Vec::new();
    for name in ["measured:0", "measured:1"] {
        let failed = |why: String| LaunchFault::Device { device: name.to_owned(), why };
        let codes = WasmCodes::new(None).map_err(failed)?;
        let device = HostDevice::start(name, DeviceLimits::default(), codes);
        links.push(Box::new(device.map_err(|error| failed(error.to_string()))?));
    }
    Ok(Runtime::start(plan, links, options.runtime)?)
}

/// Messages a second and processor time of a message, in a stream of them.
fn stream(
    between: Between,
    bytes: u32,
    options: &LaunchOptions,
) -> Result<(u64, u64), LaunchFault> {
    let count = (STREAM_BYTES / u64::from(bytes)).clamp(64, 20_000);
    let far = usize::from(between == Between::TwoDevices);
    let mut offcodes = vec![offcode("sink", "sink", far, &[])];
    let from = match between {
        Between::Application => PlannedEnd::Application(String::new()),
        _ => end("source", 0),
    };
    if between != Between::Application {
        let own = [("count", count), ("size", bytes.into())];
        offcodes.push(offcode("source", "source", 0, &own));
    }
    let channels = vec![channel(from, end("sink", 0), bytes)];
    let (began, used) = (Instant::now(), process_time());
    let running = start(RuntimePlan { name: "measure".into(), offcodes, channels }, options)?;
    let (began, used) = match between {
        Between::Application => {
            let now = (Instant::now(), process_time());
            let own = running.handle().end("")?;
            let mut message = vec![0; bytes as usize];
            for number in 0..count {
                message[..8].copy_from_slice(&number.to_le_bytes());
                let _waits = own.send_within(&message, LIMIT);
            }
            now
        }
        _ => (began, used),
    };
    wait(&running, "sink", count)?;
    let (took, cpu) = (began.elapsed(), process_time().saturating_sub(used));
    let per_s = u128::from(count) * 1_000_000_000 / took.as_nanos().max(1);
    let cpu_ns = cpu.as_nanos() / u128::from(count);
    Ok((u64::try_from(per_s).unwrap_or(u64::MAX), u64::try_from(cpu_ns).unwrap_or(u64::MAX)))
}

/// Waits until an offcode's first number is `count`.
fn wait(running: &Running, name: &str, count: u64) -> Result<u64, LaunchFault> {
    let handle = running.handle();
    let id = handle.offcode(name)?;
    let silent = |why: &str| LaunchFault::Device { device: name.to_owned(), why: why.to_owned() };
    let began = Instant::now();
    while began.elapsed() < LIMIT {
        let answer = handle.call(id, NUMBERS, 0, &[], Some(LIMIT));
        let answer = answer.map_err(|fault| silent(&fault.to_string()))?;
        let numbers: (u64, u64) =
            postcard::from_bytes(&answer).map_err(|_| silent("it says no numbers"))?;
        if numbers.0 >= count {
            return Ok(numbers.1);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(silent("the messages did not arrive in 20 s"))
}

fn half_round_trip_ns(
    between: Between,
    bytes: u32,
    options: &LaunchOptions,
) -> Result<u64, LaunchFault> {
    let far = usize::from(between == Between::TwoDevices);
    let mut offcodes = vec![offcode("echo", "echo", far, &[])];
    let near = |port: u16| match between {
        Between::Application => PlannedEnd::Application(String::new()),
        _ => end("ping", port),
    };
    if between != Between::Application {
        let own = [("count", ROUNDS), ("size", bytes.into())];
        offcodes.push(offcode("ping", "ping", 0, &own));
    }
    let channels =
        vec![channel(near(1), end("echo", 0), bytes), channel(end("echo", 1), near(0), bytes)];
    let running = start(RuntimePlan { name: "measure".into(), offcodes, channels }, options)?;
    if between == Between::Application {
        return ping(&running, bytes);
    }
    Ok(wait(&running, "ping", ROUNDS)? / ROUNDS / 2)
}

/// Round trips of the application itself.
fn ping(running: &Running, bytes: u32) -> Result<u64, LaunchFault> {
    let own = running.handle().end("")?;
    let message = vec![0; bytes as usize];
    let began = Instant::now();
    for _ in 0..ROUNDS {
        let _waits = own.send_within(&message, LIMIT);
        if own.receive_within(LIMIT).is_none() {
            let (device, why) = ("echo".to_owned(), "a message did not come back".to_owned());
            return Err(LaunchFault::Device { device, why });
        }
    }
    let half = began.elapsed().as_nanos() / u128::from(ROUNDS) / 2;
    Ok(u64::try_from(half).unwrap_or(u64::MAX))
}

/// Processor time of this process.
fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeOptions;

    #[test]
    fn every_carrier_is_measured_at_every_size() {
        let runtime = RuntimeOptions::default();
        let options =
            LaunchOptions { program: "/none".into(), core_args: vec![], cache: None, runtime };
        for between in [Between::OneDevice, Between::TwoDevices, Between::Application] {
            let (rate, cpu_ns) = stream(between, 1024, &options).expect("a stream");
            let half = half_round_trip_ns(between, 1024, &options).expect("round trips");
            assert!(rate > 0 && cpu_ns > 0 && half > 0, "{rate} {cpu_ns} {half}");
        }
    }
}
