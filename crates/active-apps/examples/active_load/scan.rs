//! The records with the largest values among 100 MB (`modules/topk/topk.h`), found by an execution;
//! and the same bytes read whole.

use crate::Failure;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule};
use crate::timing::{Timing, milliseconds};
use outboard_active_apps::{RecordArray, RecordPredicate};
use serde_json::Value;

/// Bytes of all records, and of one: a key and a value.
const BYTES: u64 = 100_000_000;
const RECORD: u64 = 16;
const PIECE: usize = 1 << 20;
/// Reads under way at a time.
const DEPTH: u64 = 16;
const BEST: u32 = 10;

/// The same records as `topk.c` of the benchmark makes.
fn records() -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..2 * BYTES / RECORD).flat_map(|_| next().to_le_bytes()).collect()
}

/// `struct topk_args` for so many bytes: half of the keys are selected.
pub(crate) fn args(bytes: u64) -> Vec<u8> {
    let array = RecordArray { offset: ROOT, number: bytes / RECORD, record_len: 16 };
    array.top_args(BEST, RecordPredicate::KeyRange(0, u64::MAX / 2))
}

/// Fills the region, then executes again and again, or reads everything again and again.
pub(crate) fn run(
    [host, modules, wait]: [&str; 3],
    what: &str,
    ms: &str,
) -> Result<Value, Failure> {
    let mut module = ShippedModule::load(connect(host, "scan", wait)?, modules, "topk")?;
    for (index, piece) in records().chunks(PIECE).enumerate() {
        let at = ROOT + (index * PIECE) as u64;
        module.region.write(&mut module.client, at, piece)?;
    }
    let args = args(BYTES);
    let mut found = Vec::new();
    let timing = Timing::of(milliseconds(ms)?, || {
        match what {
            "top" => found = module.call("top", &args)?,
            _ => read_all(&mut module)?,
        }
        Ok(())
    })?;
    let mut said = timing.json();
    said["result"] = found.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
    Ok(said)
}

fn read_all(module: &mut ShippedModule) -> Result<(), Failure> {
    let pieces: Vec<(u64, usize)> = (0..BYTES.div_ceil(PIECE as u64))
        .map(|piece| (ROOT + piece * PIECE as u64, PIECE))
        .collect();
    for pieces in pieces.chunks(usize::try_from(DEPTH)?) {
        module.region.read_each(&mut module.client, pieces)?;
    }
    Ok(())
}
