//! How long it takes to find the largest records of an array, by its bytes: executed at the node,
//! or read whole and looked through by the client.

use anyhow::Result;

use super::hops::{SLOWDOWNS, SPEEDUPS, core};
use super::model::{CARD, CostTable, Model, ModelCase, ModelHardware, ModelSide};
use crate::bench::report::{Panel, Series};

const SIZES: [(u64, &str); 6] = [
    (1 << 10, "1 KiB"),
    (1 << 12, "4 KiB"),
    (1 << 14, "16 KiB"),
    (1 << 16, "64 KiB"),
    (1 << 18, "256 KiB"),
    (1 << 20, "1 MiB"),
];
const RATES: [(f64, &str); 3] = [(1e9, "1 Gbit/s"), (10e9, "10 Gbit/s"), (100e9, "100 Gbit/s")];
const DELAY_NS: f64 = 10e3;
const PIECES: u32 = 3;

/// A panel for each rate of the link.
pub(super) fn scans(model: &Model, costs: &CostTable) -> Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for (bits_per_s, rate) in RATES {
        // A link of 100 Gbit/s is of no use to messages in software.
        let (engine_speedup, cheaper) = SPEEDUPS[if bits_per_s < 1e11 { 0 } else { 2 }];
        let line = |name: String, side, core_slowdown| -> Result<Series> {
            let hardware = ModelHardware {
                core_slowdown,
                engine_speedup,
                delay_ns: DELAY_NS,
                bits_per_s: Some(bits_per_s),
                ..CARD
            };
            let case = |(size, _)| ModelCase {
                costs: costs.clone(),
                hardware,
                workload: "top-k",
                size,
                side,
                clients: 1,
                pieces: PIECES,
            };
            let found = model.figures(&SIZES.map(case))?;
            Ok(Series { name, samples: found.iter().map(|found| vec![found.median_us]).collect() })
        };
        let active = SLOWDOWNS.iter().map(|slowdown| {
            line(format!("Execute, {}", core(*slowdown)), ModelSide::Active, *slowdown)
        });
        let plain = line("one Read, looked through".into(), ModelSide::Plain, 1.0);
        panels.push(Panel {
            title: format!("Top 10 of an array: {rate}, messages {cheaper}"),
            unit: "µs, less is better".into(),
            axis: "bytes, on a link of 10 µs one way".into(),
            points: SIZES.map(|(_, name)| name.to_owned()).into(),
            series: active.chain([plain]).collect::<Result<_>>()?,
        });
    }
    Ok(panels)
}
