//! An example module: counters, each an aligned word of the region that peers may change, too.
//!
//! The template in C has the same; here nothing needs `unsafe`.
#![no_std]
#![forbid(unsafe_code)]

use outboard_guest::{entry, region, Args, Failure};

const LIMIT: Failure = Failure::new(100, "the counter's limit is reached");

entry!(add, add);
entry!(get, get);

/// Adds to a counter, unless it would exceed a limit. Arguments: u64 offset, delta, limit. Result:
/// u64, the sum.
fn add(args: &mut Args) -> Result<u64, Failure> {
    let (offset, delta, limit) = (args.u64()?, args.u64()?, args.u64()?);
    let sum = region::add64(offset, delta).wrapping_add(delta);
    if sum > limit {
        return Err(LIMIT);
    }
    Ok(sum)
}

/// Reads a counter. Arguments: u64 offset. It writes nothing, and so can be executed at the client.
fn get(args: &mut Args) -> Result<u64, Failure> {
    Ok(region::get64(args.u64()?))
}
