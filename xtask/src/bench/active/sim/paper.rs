//! The paper's table beside the simulation of a network and a list like its own.

use anyhow::{Context, Result};

use super::model::{CARD, CostTable, Model, ModelCase, ModelHardware, ModelSide};
use crate::bench::report::Table;
use crate::bench::stack::section::table;

/// The paper's milliseconds: what, by RDMA, by active code; and the work of the simulation.
const ROWS: [(&str, f64, f64, &str, u64); 4] = [
    ("list get", 19.38, 0.245, "list-get", HOPS),
    ("list put", 39.675, 0.33, "list-put", HOPS),
    ("table get", 1.739, 0.239, "hash-get", 64),
    ("table put", 1.919, 0.245, "hash-put", 64),
];
/// The paper's active table get is one round trip of about 0.239 ms; half of it goes one way.
const DELAY_NS: f64 = 117e3;
/// Its list get by RDMA takes as long as 81 such round trips: two of them find the list.
const HOPS: u64 = 79;
const PIECES: u32 = 20;

/// The paper says neither its network's delay nor the length of its list; both are derived from two
/// of its eight figures here, and the other six are compared.
pub(super) fn beside(model: &Model, costs: &CostTable) -> Result<Table> {
    let hardware = ModelHardware { delay_ns: DELAY_NS, ..CARD };
    let sides = [ModelSide::Plain, ModelSide::Active];
    let case = |(workload, size, side)| ModelCase {
        costs: costs.clone(),
        hardware,
        workload,
        size,
        side,
        clients: 1,
        pieces: PIECES,
    };
    let cases: Vec<ModelCase> = ROWS
        .iter()
        .flat_map(|(.., workload, size)| sides.map(|side| case((*workload, *size, side))))
        .collect();
    let figures = model.figures(&cases)?;
    let mut rows = Vec::new();
    for ((what, rdma_ms, active_ms, ..), figures) in ROWS.iter().zip(figures.chunks(2)) {
        let [plain, active] = figures.first_chunk().context("two sides")?;
        rows.push(vec![
            (*what).to_owned(),
            format!("{rdma_ms}"),
            format!("{active_ms}"),
            format!("{:.0}", rdma_ms / active_ms),
            format!("{:.3}", plain.median_us / 1e3),
            format!("{:.3}", active.median_us / 1e3),
            format!("{:.1}", plain.median_us / active.median_us),
            format!("{:.1}", plain.round_trips),
        ]);
    }
    let head = [
        "what",
        "the paper's RDMA, ms",
        "its active code, ms",
        "×",
        "simulated, plain, ms",
        "active, ms",
        "×",
        "round trips, plain",
    ];
    Ok(table("The paper's table, on a network like its own", &head, rows))
}
