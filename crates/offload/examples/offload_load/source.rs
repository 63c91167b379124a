//! Messages at a rate from the application to a counter: the processor time of both, where the
//! counter is on one device or another.

use crate::Failure;
use crate::parts::{FACE, LONG, channel, core, end, host, offcode, own_end, start};
use outboard_offload::device::PortSend;
use outboard_offload::devices::DeviceLink;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How often the application sends what is due.
const TICK: Duration = Duration::from_millis(1);
const BYTES: u32 = 64;

/// Sends `rate` messages a second for so many milliseconds.
pub(crate) fn run(far: &str, rate: u32, ms: u32) -> Result<Value, Failure> {
    let mut devices = vec![host(None)?];
    let mut process = None;
    if far == "core" {
        let core = core("any", None)?;
        process = Some(core.process());
        devices.push(Box::new(core) as Box<dyn DeviceLink>);
    }
    let offcodes = vec![offcode("counter", "counter", devices.len() - 1, &[])];
    let channels = vec![channel(own_end(), end("counter", 0), BYTES)];
    let running = start(offcodes, channels, devices)?;
    let (handle, own) = (running.handle(), running.handle().end("")?);
    let target = handle.offcode("counter")?;
    let before = times(process)?;
    let began = Instant::now();
    let total = u64::from(rate) * u64::from(ms) / 1000;
    let mut sent = 0;
    while sent < total {
        let due = u128::from(rate) * began.elapsed().as_micros() / 1_000_000;
        while sent < total && u128::from(sent) < due {
            if own.send_within(&[7; BYTES as usize], LONG) != PortSend::Taken {
                return Err("the channel is not connected".into());
            }
            sent += 1;
        }
        std::thread::sleep(TICK);
    }
    while counted(&handle.call(target, FACE, 0, &[], Some(LONG))?)? < total {
        std::thread::sleep(TICK);
    }
    let after = times(process)?;
    let share = |of: usize| (after[of] - before[of]) / began.elapsed().as_secs_f64();
    Ok(json!({ "application": share(0), "all": share(0) + share(1) }))
}

fn counted(answer: &[u8]) -> Result<u64, Failure> {
    Ok(postcard::from_bytes::<(u64, u64)>(answer)?.0)
}

/// Seconds of processor time of this process, and of that one.
fn times(process: Option<u32>) -> Result<[f64; 2], Failure> {
    Ok([time_of("self")?, process.map_or(Ok(0.0), |number| time_of(&number.to_string()))?])
}

/// From the scheduler's own account, in nanoseconds, of all threads.
fn time_of(process: &str) -> Result<f64, Failure> {
    let mut seconds = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let spent = text.split_whitespace().next().ok_or("schedstat is empty")?;
        seconds += spent.parse::<f64>()? / 1e9;
    }
    Ok(seconds)
}
