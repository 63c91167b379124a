//! Layouts of random applications: how many are proven to be the best in 50 ms of processor time.

use anyhow::Result;
use serde_json::Value;

use super::programs::{example, printed};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Summary, number};
use crate::bench::report::Table;
use crate::bench::stack::section::table;

const GRAPHS: &str = "1000";

/// Costs as channels were measured decide; those that have nothing to do with each other are shown.
pub(super) fn proven() -> Result<AimedFindings> {
    let layouts = example("layouts")?;
    let found = printed(&layouts, &[GRAPHS, "0", "50", "both"])?;
    let figures = vec![
        Summary::of(&[number(&found, "/measured/proven")? / number(&found, "/measured/graphs")?]),
        Summary::of(&[number(&found, "/measured/worst_gap_per_mille")? / 1000.0]),
    ];
    let tables = vec![rows(&found)?];
    Ok(AimedFindings { figures, tables, ..AimedFindings::default() })
}

fn rows(found: &Value) -> Result<Table> {
    let row = |kind: &str, about: &str| -> Result<Vec<String>> {
        let of = |name: &str| number(found, &format!("/{kind}/{name}"));
        Ok(vec![
            about.to_owned(),
            format!("{:.1} %", 100.0 * of("proven")? / of("graphs")?),
            format!("{:.1} %", of("worst_gap_per_mille")? / 10.0),
            format!("{:.2}", of("cpu_p50_us")? / 1e3),
            format!("{:.2}", of("cpu_p90_us")? / 1e3),
            format!("{:.2}", of("cpu_p99_us")? / 1e3),
        ])
    };
    let rows = vec![
        row("measured", "a channel's messages by what devices cost")?,
        row("random", "no two costs have to do with each other")?,
    ];
    let head = ["costs", "proven in 50 ms", "largest gap", "median, ms", "90 %, ms", "99 %, ms"];
    Ok(table("Layouts of 40 offcodes, 8 devices, 80 channels", &head, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn shares_and_times_are_in_the_units_of_their_columns() {
        let kind = json!({ "graphs": 1000, "proven": 987, "worst_gap_per_mille": 12,
            "cpu_p50_us": 1500, "cpu_p90_us": 20_000, "cpu_p99_us": 50_000 });
        let found = json!({ "measured": kind, "random": kind });
        let drawn = rows(&found).unwrap();
        assert_eq!(drawn.rows[0][1..], ["98.7 %", "1.2 %", "1.50", "20.00", "50.00"]);
    }
}
