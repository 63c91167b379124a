//! An application's whole start and end, beside the bare creation of as many processes.

use crate::Failure;
use crate::parts::{core, figures, host, module, offcode, start, wasm};
use outboard_offload::devices::DeviceLink;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The cores, by what they are called with: with `host` 4 devices, as many as are to be had on
/// two processors.
const CORES: [&str; 3] = ["0", "1", "any"];
const OFFCODES: usize = 20;

/// Half of the offcodes are builtins, half are of one module, whose compiled code is in `cache`
/// after the first round.
pub(crate) fn run(cache: &Path, rounds: usize) -> Result<Value, Failure> {
    let code = module()?;
    let (mut started, mut whole) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let since = Instant::now();
        let mut devices = vec![host(Some(cache))?];
        for processor in CORES {
            devices.push(Box::new(core(processor, Some(cache))?) as Box<dyn DeviceLink>);
        }
        let offcodes = (0..OFFCODES).map(|at| {
            let (name, device) = (format!("offcode{at}"), at % (CORES.len() + 1));
            match at / 2 % 2 {
                0 => offcode(&name, "counter", device, &[]),
                _ => wasm(&name, &code, device),
            }
        });
        let running = start(offcodes.collect(), Vec::new(), devices)?;
        let up = since.elapsed().as_secs_f64();
        running.handle().stop()?;
        drop(running);
        if round > 0 {
            started.push(up);
            whole.push(since.elapsed().as_secs_f64());
        }
    }
    Ok(json!({ "started": figures(started), "whole": figures(whole) }))
}

/// The processes alone.
pub(crate) fn bare(rounds: usize) -> Result<Value, Failure> {
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let since = Instant::now();
        let spawn = |_| Command::new("/proc/self/exe").arg("idle").stdin(Stdio::null()).spawn();
        let children = CORES.iter().map(spawn).collect::<Result<Vec<_>, _>>()?;
        for mut child in children {
            child.wait()?;
        }
        samples.push(since.elapsed().as_secs_f64());
    }
    Ok(json!({ "whole": figures(samples) }))
}
