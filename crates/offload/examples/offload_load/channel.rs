//! Ping-pongs over channels as applications have them: with the runtime and the devices' loops.

use crate::Failure;
use crate::parts::{LONG, channel, devices, end, figures, numbers, offcode, own_end, start};
use outboard_offload::device::PortSend;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Between two offcodes: a round trip.
pub(crate) fn offcodes(far: &str, bytes: u32, rounds: u64) -> Result<Value, Failure> {
    let (devices, other) = devices(far)?;
    let ping = offcode("ping", "ping", 0, &[("count", rounds), ("size", bytes.into())]);
    let offcodes = vec![offcode("echo", "echo", other, &[]), ping];
    let (there, back) = ((end("ping", 1), end("echo", 0)), (end("echo", 1), end("ping", 0)));
    let channels = [there, back].map(|(from, to)| channel(from, to, bytes));
    let running = start(offcodes, channels.into(), devices)?;
    let began = Instant::now();
    loop {
        let (back, took_ns) = numbers(&running, "ping")?;
        if back >= rounds {
            let nanoseconds = took_ns / rounds.max(1);
            return Ok(json!({ "mean_us": nanoseconds as f64 / 1e3 }));
        }
        if began.elapsed() > LONG {
            return Err(format!("{back} of {rounds} messages came back").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Between the application and an offcode: round trips.
pub(crate) fn application(far: &str, bytes: u32, rounds: usize) -> Result<Value, Failure> {
    let (devices, other) = devices(far)?;
    let offcodes = vec![offcode("echo", "echo", other, &[])];
    let channels =
        vec![channel(own_end(), end("echo", 0), bytes), channel(end("echo", 1), own_end(), bytes)];
    let running = start(offcodes, channels, devices)?;
    let own = running.handle().end("")?;
    let message = vec![7; usize::try_from(bytes)?];
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let since = Instant::now();
        if own.send_within(&message, LONG) != PortSend::Taken {
            return Err("the channel is not connected".into());
        }
        own.receive_within(LONG).ok_or("a message did not come back")?;
        samples.push(since.elapsed().as_secs_f64());
    }
    Ok(figures(samples))
}
