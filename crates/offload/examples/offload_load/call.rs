//! Calls from the application to an offcode in its own process.

use crate::Failure;
use crate::parts::{FACE, LONG, devices, figures, module, offcode, start, wasm};
use serde_json::Value;
use std::time::{Duration, Instant};

const PARAMS: [u8; 16] = [7; 16];
/// Calls before those that count.
const WARM: u32 = 200;

/// Calls for so many milliseconds.
pub(crate) fn run(body: &str, ms: u64) -> Result<Value, Failure> {
    let echo = match body {
        "wasm" => wasm("echo", &module()?, 0),
        _ => offcode("echo", "echo", 0, &[]),
    };
    let running = start(vec![echo], Vec::new(), devices("host")?.0)?;
    let handle = running.handle();
    let target = handle.offcode("echo")?;
    let call = || handle.call(target, FACE, 0, &PARAMS, Some(LONG));
    for _ in 0..WARM {
        call()?;
    }
    let (began, mut samples) = (Instant::now(), Vec::new());
    while began.elapsed() < Duration::from_millis(ms) {
        let since = Instant::now();
        let answer = call()?;
        samples.push(since.elapsed().as_secs_f64());
        if answer != PARAMS {
            return Err("the answer is another".into());
        }
    }
    Ok(figures(samples))
}
