//! Calls of an empty module, and plain Reads.

use crate::Failure;
use crate::many::Calling;
use crate::session::{connect, connect_all};
use crate::timing::{Timing, milliseconds};
use outboard_active::{ActiveCall, Outcome};
use serde_json::Value;
use std::time::Duration;

/// Does nothing and returns nothing.
const EMPTY: &str = r#"(module
    (import "env" "memory" (memory 1))
    (func (export "empty") (result i64) (i64.const 0)))"#;
const READ: usize = 64;
/// Less than a node's loop looks for messages behind the last one.
const PAUSE: Duration = Duration::from_micros(400);

/// What a call must end with.
pub(crate) fn done(outcome: Outcome) -> Result<Vec<u8>, Failure> {
    match outcome {
        Outcome::Done { result, .. } => Ok(result),
        other => Err(format!("a call ended with {other:?}").into()),
    }
}

/// Executes a module that does nothing, one call after the other.
pub(crate) fn empty(host: &str, region: &str, wait: &str, ms: &str) -> Result<Value, Failure> {
    let (mut client, region) = connect(host, region, wait)?;
    let (module, _) = client.load("empty", &wat::parse_str(EMPTY)?)?;
    let call = ActiveCall::new(&region, module, "empty", &[]);
    let timing = Timing::of(milliseconds(ms)?, || done(client.execute(&call)?).map(drop))?;
    Ok(timing.json())
}

/// The same on many connections, several under way on each.
pub(crate) fn empty_many(
    host: &str,
    region: &str,
    [connections, depth, ms]: [&str; 3],
) -> Result<Value, Failure> {
    let mut all = connect_all(host, region, connections.parse()?)?;
    let (client, _) = all.first_mut().ok_or("no connection")?;
    let (module, _) = client.load("empty", &wat::parse_str(EMPTY)?)?;
    let (depth, next_args) = (depth.parse()?, &mut Vec::new);
    let mut calling = Calling { module, entry: "empty", next_args, depth };
    Ok(calling.run(all, milliseconds(ms)?)?.json())
}

/// Executes it every now and then, until it is killed: so that a node's loop that spins does not
/// stop while others ask for nothing but Reads.
pub(crate) fn awake(host: &str, region: &str) -> Result<Value, Failure> {
    let (mut client, region) = connect(host, region, "block")?;
    let (module, _) = client.load("empty", &wat::parse_str(EMPTY)?)?;
    let call = ActiveCall::new(&region, module, "empty", &[]);
    println!("awake");
    loop {
        done(client.execute(&call)?)?;
        std::thread::sleep(PAUSE);
    }
}

/// Reads 64 bytes here and there.
pub(crate) fn reads(host: &str, region: &str, wait: &str, ms: &str) -> Result<Value, Failure> {
    let (mut client, region) = connect(host, region, wait)?;
    let (lines, mut next) = (region.len() / READ as u64, 0_u64);
    let timing = Timing::of(milliseconds(ms)?, || {
        next = (next + 7919) % lines;
        Ok(region.read(&mut client, next * READ as u64, READ).map(drop)?)
    })?;
    Ok(timing.json())
}
