//! Moves of an offcode with 1 MiB of state, as one sees them who calls it all the time.

use crate::Failure;
use crate::parts::{FACE, LONG, devices, figures, module, start, wasm};
use outboard_offload::runtime::ApplicationHandle;
use serde_json::{Value, json};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Moves there and back; what they are compared with is measured in between.
pub(crate) fn run(far: &str, rounds: usize) -> Result<Value, Failure> {
    let (devices, other) = devices(far)?;
    if other == 0 {
        return Err("`host` is where it comes from".into());
    }
    let running = start(vec![wasm("held", &module()?, 0)], Vec::new(), devices)?;
    let handle = running.handle();
    let (mut pauses, mut moves, mut copies, mut wakes) =
        <(Vec<_>, Vec<_>, Vec<_>, Vec<_>)>::default();
    for round in 0..=rounds {
        for device in [other, 0] {
            let (pause, took) = one(&handle, device)?;
            // At first code has to be sent and compiled.
            if round > 0 {
                pauses.push(pause);
                moves.push(took);
            }
        }
        copies.push(copy());
        wakes.push(two_wakes()?);
    }
    Ok(json!({
        "pause": figures(pauses),
        "move": figures(moves),
        "memcpy": figures(copies),
        "two_wakes": figures(wakes),
    }))
}

/// The longest call while it moves, and the move itself, in seconds.
fn one(handle: &ApplicationHandle, device: usize) -> Result<(f64, f64), Failure> {
    let is_over = AtomicBool::new(false);
    let (began, over) = (&AtomicBool::new(false), &is_over);
    thread::scope(|threads| {
        let calling = threads.spawn(move || longest_call(handle, began, over));
        while !began.load(Ordering::Relaxed) && !calling.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let since = Instant::now();
        let moved = handle.move_offcode("held", device);
        let took = since.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        let longest = calling.join().map_err(|_| "the caller failed")?;
        moved?;
        Ok((longest.map_err(|why| -> Failure { why.into() })?, took))
    })
}

fn longest_call(
    handle: &ApplicationHandle,
    began: &AtomicBool,
    over: &AtomicBool,
) -> Result<f64, String> {
    let target = handle.offcode("held").map_err(|error| error.to_string())?;
    let mut longest = 0_f64;
    while !over.load(Ordering::Relaxed) {
        let since = Instant::now();
        let answer = handle.call(target, FACE, 0, &[], Some(LONG));
        answer.map_err(|fault| fault.to_string())?;
        longest = longest.max(since.elapsed().as_secs_f64());
        began.store(true, Ordering::Relaxed);
    }
    Ok(longest)
}

/// Seconds of a copy of 1 MiB into memory that is there.
fn copy() -> f64 {
    let (from, mut to) = (vec![1_u8; MIB], vec![2_u8; MIB]);
    let since = Instant::now();
    to.copy_from_slice(black_box(&from));
    black_box(&to);
    since.elapsed().as_secs_f64()
}

/// Seconds in which a byte goes to another thread that sleeps, and comes back to this one.
fn two_wakes() -> Result<f64, Failure> {
    let (mut near, mut far) = UnixStream::pair()?;
    let other = thread::spawn(move || {
        let mut byte = [0];
        for _ in 0..2 {
            far.read_exact(&mut byte)?;
            far.write_all(&byte)?;
        }
        Ok::<_, std::io::Error>(())
    });
    let mut turn = || {
        let since = Instant::now();
        near.write_all(&[1])?;
        near.read_exact(&mut [0])?;
        Ok::<_, std::io::Error>(since.elapsed().as_secs_f64())
    };
    turn()?;
    thread::sleep(Duration::from_millis(1));
    let took = turn()?;
    other.join().map_err(|_| "a thread failed")??;
    Ok(took)
}
