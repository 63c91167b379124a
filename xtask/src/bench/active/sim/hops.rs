//! From how many dependent Reads on one execution is faster: by link delay, by the core's speed,
//! and by what messages cost.

use anyhow::Result;

use super::model::{CARD, CostTable, Model, ModelCase, ModelFigures, ModelHardware, ModelSide};
use crate::bench::report::{Panel, Series, Table};
use crate::bench::stack::section::table;

/// A list's get behind so many nodes takes two Reads more than it passes nodes.
const HOPS: [u64; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 18, 28, 50, 100, 200, 350, 600, 998];
/// Among these, as the points of a drawing.
const DRAWN: [u64; 7] = [0, 3, 8, 28, 100, 350, 998];
const READS_BESIDE: u64 = 2;
/// One way, with names.
const DELAYS: [(f64, &str); 5] =
    [(0.0, "0"), (1e3, "1 µs"), (10e3, "10 µs"), (100e3, "100 µs"), (1e6, "1 ms")];
/// Cores: the host's, and slower ones.
pub(super) const SLOWDOWNS: [f64; 3] = [1.0, 3.0, 10.0];
/// Messages as measured in software, and as if hardware made them cheaper.
pub(super) const SPEEDUPS: [(f64, &str); 3] =
    [(1.0, "as measured"), (5.0, "5 times cheaper"), (20.0, "20 times cheaper")];
const PIECES: u32 = 3;

fn case(costs: &CostTable, hardware: ModelHardware, hops: u64, side: ModelSide) -> ModelCase {
    let (workload, size) = ("list-get", hops);
    ModelCase { costs: costs.clone(), hardware, workload, size, side, clients: 1, pieces: PIECES }
}

/// Plain verbs and execution for each number of hops.
fn both(
    model: &Model,
    costs: &CostTable,
    hardware: ModelHardware,
    hops: &[u64],
) -> Result<Vec<[ModelFigures; 2]>> {
    let sides = [ModelSide::Plain, ModelSide::Active];
    let of_hops = |hops: &u64| sides.map(|side| case(costs, hardware, *hops, side));
    let figures = model.figures(&hops.iter().flat_map(of_hops).collect::<Vec<_>>())?;
    Ok(figures.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect())
}

/// One Read is the get of a table whose values lie in their buckets.
fn one_read(
    model: &Model,
    costs: &CostTable,
    hardware: ModelHardware,
) -> Result<[ModelFigures; 2]> {
    let case = |side| ModelCase {
        workload: "hash-get",
        size: 16,
        pieces: 20,
        ..case(costs, hardware, 0, side)
    };
    let figures = model.figures(&[ModelSide::Plain, ModelSide::Active].map(case))?;
    Ok([figures[0], figures[1]])
}

/// For each price of messages: the number of dependent Reads from which execution is faster.
pub(super) fn crossovers(model: &Model, costs: &CostTable) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for (engine_speedup, name) in SPEEDUPS {
        let mut rows = Vec::new();
        for (delay_ns, delay) in DELAYS {
            let mut row = vec![delay.to_owned()];
            for core_slowdown in SLOWDOWNS {
                let hardware = ModelHardware { core_slowdown, engine_speedup, delay_ns, ..CARD };
                row.push(crossover(model, costs, hardware)?);
            }
            rows.push(row);
        }
        let title = format!("Dependent Reads from which one execution is faster, messages {name}");
        let head =
            ["link delay, one way", "core as the host's", "3 times slower", "10 times slower"];
        tables.push(table(&title, &head, rows));
    }
    Ok(tables)
}

fn crossover(model: &Model, costs: &CostTable, hardware: ModelHardware) -> Result<String> {
    let [plain, active] = one_read(model, costs, hardware)?;
    if active.median_us < plain.median_us {
        return Ok("1".into());
    }
    let all = both(model, costs, hardware, &HOPS)?;
    let faster = |[plain, active]: &[ModelFigures; 2]| active.median_us < plain.median_us;
    let Some(at) = all.iter().position(faster) else {
        return Ok(format!("more than {}", HOPS[HOPS.len() - 1] + READS_BESIDE));
    };
    let (most, least) = (HOPS[at], if at == 0 { HOPS[0] } else { HOPS[at - 1] + 1 });
    // Between two of the points, one by one.
    let between: Vec<u64> = (least..=most).collect();
    let all = both(model, costs, hardware, &between)?;
    let first = all.iter().position(faster).map_or(most, |at| between[at]);
    Ok((first + READS_BESIDE).to_string())
}

/// How many times faster one execution is, by dependent Reads: a line for each core.
pub(super) fn ratios(model: &Model, costs: &CostTable) -> Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for (engine_speedup, name) in [SPEEDUPS[0], SPEEDUPS[2]] {
        for (delay_ns, delay) in [DELAYS[0], DELAYS[2], DELAYS[4]] {
            let line = |core_slowdown: f64| -> Result<Series> {
                let hardware = ModelHardware { core_slowdown, engine_speedup, delay_ns, ..CARD };
                let all = both(model, costs, hardware, &DRAWN)?;
                let ratio =
                    |[plain, active]: [ModelFigures; 2]| vec![plain.median_us / active.median_us];
                let samples = all.into_iter().map(ratio).collect();
                Ok(Series { name: core(core_slowdown), samples })
            };
            panels.push(Panel {
                title: format!("Execution beside plain Reads: delay {delay}, messages {name}"),
                unit: "times faster, 1 is as fast".into(),
                axis: "dependent Reads".into(),
                points: DRAWN.map(|hops| (hops + READS_BESIDE).to_string()).into(),
                series: SLOWDOWNS.into_iter().map(line).collect::<Result<_>>()?,
            });
        }
    }
    Ok(panels)
}

/// A core's name.
pub(super) fn core(slowdown: f64) -> String {
    match slowdown {
        1.0 => "core as the host's".into(),
        slowdown => format!("core {slowdown} times slower"),
    }
}
