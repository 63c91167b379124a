//! What messages at a rate cost in processor time, with their counter on one device or another.

use anyhow::Result;
use serde_json::Value;

use super::programs::{figures, load, panel, printed};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate};

const ROUNDS: usize = 5;
const RATE: &str = "100000";
const MS: &str = "1000";

/// 100,000 messages of 64 B a second, from the application.
pub(super) fn processor_time() -> Result<AimedFindings> {
    let load = load()?;
    let measure = |far: &str| printed(&load, &["source", far, RATE, MS]);
    let mut contenders: [Contender<'_, Value>; 1] =
        [Contender { name: "all", measure: Box::new(measure) }];
    let points = ["host", "core"];
    let found = alternate(&mut contenders, &points, ROUNDS)?;
    let series = vec![
        figures("the application's process", &found[0], "/application", 100.0)?,
        figures("with the core's", &found[0], "/all", 100.0)?,
    ];
    let title = "Processor time at 100,000 messages a second to a counter";
    let unit = "% of a processor, less is better";
    let panels = vec![panel(title, unit, "the counter's device", &points, series)];
    Ok(AimedFindings { panels, ..AimedFindings::default() })
}
