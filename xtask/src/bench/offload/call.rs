//! Calls: a resident's entry beside a call of wasmtime's of the same type, and Calls of an
//! application to an offcode of its own process.

use anyhow::Result;
use serde_json::Value;

use super::programs::{example, figures, load, panel, printed};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate};

const ROUNDS: usize = 5;
const MS: &str = "500";

/// All in turn; the resident and wasmtime in one program.
pub(super) fn beside_wasmtime() -> Result<AimedFindings> {
    let (resident, load) = (example("resident")?, load()?);
    let calls = |body: &'static str| {
        let load = load.clone();
        Box::new(move |_: &str| printed(&load, &["call", body, MS]))
    };
    let mut contenders: [Contender<'_, Value>; 3] = [
        Contender { name: "resident", measure: Box::new(|_| printed(&resident, &[])) },
        Contender { name: "builtin", measure: calls("builtin") },
        Contender { name: "wasm", measure: calls("wasm") },
    ];
    let points = &["16 B"];
    let series = alternate(&mut contenders, points, ROUNDS)?;
    let [entries, builtin, wasm] = &series[..] else { anyhow::bail!("three were measured") };
    let drawn = vec![
        figures("Call of a resident, answered", entries, "/call_16_bytes_answered_ns", 1.0)?,
        figures("wasmtime's bare typed call", entries, "/bare_call_ns", 1.0)?,
        figures("message to a resident", entries, "/message_16_bytes_ns", 1.0)?,
        figures("application to a builtin on host", builtin, "/p50_us", 1e3)?,
        figures("application to wasm on host", wasm, "/p50_us", 1e3)?,
    ];
    let figures = vec![drawn[0].ratio_to(&drawn[1], 0)];
    let panels = vec![panel("Calls", "ns, less is better", "parameters", points, drawn)];
    let note = "An application's Call to `host` goes through the runtime's thread and the \
                device's: four wake-ups of threads; a resident's is a call on the same thread.";
    Ok(AimedFindings { figures, panels, notes: vec![note.into()], ..AimedFindings::default() })
}
