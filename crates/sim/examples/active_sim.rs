//! The simulation of active code for `cargo xtask bench active-sim`: reads what to simulate as JSON
//! from its standard input, an array of cases, and prints an array of what came of them.
//!
//! ```text
//! {"costs": {...}, "hardware": {...}, "workload": "list-get", "size": 100, "side": "plain",
//!  "clients": 1, "pieces": 200}
//! {"median_us": 512.0, "per_second": 1950.0, "round_trips": 102.0}
//! ```
//!
//! WORKLOAD is `list-get`, `list-put` (size: hops), `hash-get`, `hash-put` (bytes of a value),
//! `lock`, `lock-refused`, or `top-k` (bytes). `pieces` is how many pieces of work a client does
//! on average. Round trips are of one piece.

use outboard_sim::active::costs::{Costs, Hardware, Prices};
use outboard_sim::active::lock::Rivals;
use outboard_sim::active::simulation::Measured;
use outboard_sim::active::workload::{Side, Stage, Workload};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::error::Error;

const SEED: u64 = 1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    costs: Costs,
    hardware: Hardware,
    workload: String,
    size: u64,
    side: SideName,
    clients: usize,
    pieces: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SideName {
    Plain,
    Active,
}

#[derive(Debug, Serialize)]
struct Found {
    median_us: f64,
    per_second: f64,
    round_trips: f64,
}

fn workload(name: &str, size: u64) -> Result<Workload, Box<dyn Error>> {
    let bytes = usize::try_from(size)?;
    Ok(match name {
        "list-get" => Workload::ListGet(size),
        "list-put" => Workload::ListPut(size),
        "hash-get" => Workload::HashGet(bytes),
        "hash-put" => Workload::HashPut(bytes),
        "lock" => Workload::Lock(Rivals::Others),
        "lock-refused" => Workload::Lock(Rivals::Refused),
        "top-k" => Workload::TopK(bytes),
        other => return Err(format!("there is no workload {other}").into()),
    })
}

fn simulate(stage: &mut Stage, case: &Case) -> Measured {
    let prices = Prices { costs: case.costs, hardware: case.hardware };
    let side = match case.side {
        SideName::Plain => Side::Plain,
        SideName::Active => Side::Active,
    };
    stage.run(prices, (side, case.clients), case.clients * case.pieces, SEED)
}

fn main() -> Result<(), Box<dyn Error>> {
    let cases: Vec<Case> = serde_json::from_reader(std::io::stdin())?;
    let mut stages: HashMap<(String, u64), Stage> = HashMap::new();
    let mut all = Vec::new();
    for case in cases {
        let workload = workload(&case.workload, case.size)?;
        let stage = stages.entry((case.workload.clone(), case.size));
        let stage = stage.or_insert_with(|| Stage::new(workload));
        let measured = simulate(stage, &case);
        let pieces = measured.took_ns.len().max(1) as f64;
        all.push(Found {
            median_us: measured.median_ns() as f64 / 1e3,
            per_second: measured.per_second(),
            round_trips: measured.round_trips as f64 / pieces,
        });
    }
    println!("{}", serde_json::to_string(&all)?);
    Ok(())
}
