//! How many operations a second a node serves, by clients: where its core is full.

use anyhow::Result;

use super::hops::{SLOWDOWNS, SPEEDUPS, core};
use super::model::{CARD, CostTable, Model, ModelCase, ModelHardware, ModelSide};
use crate::bench::report::{Panel, Series};

const CLIENTS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const DELAY_NS: f64 = 10e3;
const PIECES: u32 = 30;
/// The workload, its size, its name.
const WORKS: [(&str, u64, &str); 3] = [
    ("hash-get", 16, "hash gets of one Read"),
    ("hash-put", 64, "hash puts of two Reads, a Write and a CompareSwap"),
    ("list-get", 98, "list gets of 100 Reads"),
];

/// A panel for each workload and price of messages.
pub(super) fn throughputs(model: &Model, costs: &CostTable) -> Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for (engine_speedup, cheaper) in [SPEEDUPS[0], SPEEDUPS[2]] {
        for (workload, size, name) in WORKS {
            let hardware = ModelHardware { engine_speedup, delay_ns: DELAY_NS, ..CARD };
            let line = |name: String, side, core_slowdown| -> Result<Series> {
                let case = |clients: u32| ModelCase {
                    costs: costs.clone(),
                    hardware: ModelHardware { core_slowdown, ..hardware },
                    workload,
                    size,
                    side,
                    clients,
                    pieces: PIECES,
                };
                let found = model.figures(&CLIENTS.map(case))?;
                let samples = found.iter().map(|found| vec![found.per_second / 1e3]).collect();
                Ok(Series { name, samples })
            };
            let active = SLOWDOWNS.iter().map(|slowdown| {
                line(format!("Execute, {}", core(*slowdown)), ModelSide::Active, *slowdown)
            });
            let plain = line("plain verbs".into(), ModelSide::Plain, 1.0);
            panels.push(Panel {
                title: format!("Throughput: {name}, messages {cheaper}"),
                unit: "thousand a second, more is better".into(),
                axis: "clients, each on a link of 10 µs one way".into(),
                points: CLIENTS.map(|clients| clients.to_string()).into(),
                series: active.chain([plain]).collect::<Result<_>>()?,
            });
        }
    }
    Ok(panels)
}
