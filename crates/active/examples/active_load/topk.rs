//! The ten records with the largest values of a small array (`modules/topk/topk.h`): found by an
//! execution, or by a client that reads the array and looks for itself.

use crate::Failure;
use crate::list::Side;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule, word, words};
use crate::timing::{Timing, milliseconds};
use serde_json::Value;

/// Bytes of a record: a key and a value.
const RECORD: usize = 16;
const BEST: usize = 10;
/// Of `topk.h`: a <= key <= b.
const KEY_RANGE: u64 = 1;

/// Fills the region, then finds them again and again.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    [side, bytes, ms]: [&str; 3],
) -> Result<Value, Failure> {
    let (side, bytes): (_, usize) = (Side::parse(side)?, bytes.parse()?);
    let mut module = ShippedModule::load(connect(host, "scan", wait)?, modules, "topk")?;
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let array: Vec<u8> = (0..bytes / 8).flat_map(|_| next().to_le_bytes()).collect();
    module.region.write(&mut module.client, ROOT, &array)?;
    let lengths = (RECORD | BEST << 32) as u64;
    let args = words(&[ROOT, (bytes / RECORD) as u64, lengths, KEY_RANGE, 0, u64::MAX]);
    let expected = best(&array)?;
    let timing = Timing::of(milliseconds(ms)?, || {
        let found = match side {
            Side::Plain => best(&module.region.read(&mut module.client, ROOT, bytes)?)?,
            Side::Active => {
                let answer = module.call("top", &args)?;
                (0..BEST).map(|at| word(&answer, 16 + 24 * at + 8)).collect::<Result<_, _>>()?
            }
        };
        (found == expected).then_some(()).ok_or_else(|| "other records are the best".into())
    })?;
    Ok(timing.json())
}

/// The largest values, the largest first.
fn best(array: &[u8]) -> Result<Vec<u64>, Failure> {
    let mut best: Vec<u64> = Vec::with_capacity(BEST + 1);
    for record in array.chunks_exact(RECORD) {
        let value = word(record, 8)?;
        if best.len() < BEST || best.last().is_some_and(|worst| *worst < value) {
            let at = best.partition_point(|other| *other > value);
            best.insert(at, value);
            best.truncate(BEST);
        }
    }
    Ok(best)
}
