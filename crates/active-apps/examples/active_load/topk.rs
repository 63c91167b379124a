//! The ten records with the largest values of a small array: found by an execution, or by a client
//! that reads the array and looks for itself.

use crate::Failure;
use crate::list::Side;
use crate::session::connect;
use crate::shipped::{ROOT, ShippedModule};
use crate::timing::{Timing, milliseconds};
use outboard_active_apps::{ActiveTopK, PlainTopK, RecordArray, RecordPredicate, Structure};
use serde_json::Value;

/// Bytes of a record: a key and a value.
const RECORD: u32 = 16;
const BEST: u32 = 10;

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
    let array =
        RecordArray { offset: ROOT, number: bytes as u64 / u64::from(RECORD), record_len: RECORD };
    let (client, wanted) = (&mut module.client, (BEST, RecordPredicate::KeyRange(0, u64::MAX)));
    let mut active = ActiveTopK::on(Structure::new(&module.region, 0, module.module));
    let mut plain = PlainTopK::on(active.structure().clone());
    let expected = plain.top(client, &array, wanted)?;
    let timing = Timing::of(milliseconds(ms)?, || {
        let found = match side {
            Side::Plain => plain.top(client, &array, wanted)?,
            Side::Active => active.top(client, &array, wanted)?,
        };
        (found == expected).then_some(()).ok_or_else(|| "other records are the best".into())
    })?;
    Ok(timing.json())
}
