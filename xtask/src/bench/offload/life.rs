//! How offcodes come, go and move: counted round trips, deployments beside bare processes, pauses
//! of moves beside what they cannot do without.

use std::env;

use anyhow::Result;
use serde_json::Value;

use super::programs::{figures, load, panel, printed};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, Summary, alternate, number};
use crate::bench::report::{Panel, Series};
use crate::scratch::Scratch;

const ROUNDS: usize = 5;
/// Of each program, beyond one to warm up.
const REPEATS: &str = "10";
const UNIT: &str = "µs, less is better";

/// Round trips of an offcode's creation.
pub(super) fn loads() -> Result<AimedFindings> {
    let found = printed(&load()?, &["load"])?;
    let count = |name: &str| Ok(Summary::of(&[number(&found, name)?]));
    let figures = ["/known", "/unknown"].map(count).into_iter().collect::<Result<_>>()?;
    Ok(AimedFindings { figures, ..AimedFindings::default() })
}

/// A whole application's start and end.
pub(super) fn deployments() -> Result<AimedFindings> {
    let load = load()?;
    let scratch = Scratch::new(&env::temp_dir(), "outboard-bench-offload-")?;
    let cache = scratch.directory("cache")?.to_string_lossy().into_owned();
    let deploy = |_: &str| printed(&load, &["deploy", &cache, REPEATS]);
    let mut contenders: [Contender<'_, Value>; 2] = [
        Contender { name: "deploy", measure: Box::new(deploy) },
        Contender { name: "bare", measure: Box::new(|_| printed(&load, &["bare", REPEATS])) },
    ];
    let points = &["20 offcodes, 4 devices"];
    let series = alternate(&mut contenders, points, ROUNDS)?;
    let [deploy, bare] = &series[..] else { anyhow::bail!("two were measured") };
    let drawn = vec![
        figures("begun and ended", deploy, "/whole/p50_us", 1.0)?,
        figures("3 bare processes", bare, "/whole/p50_us", 1.0)?,
        figures("begun", deploy, "/started/p50_us", 1.0)?,
    ];
    let figures = vec![drawn[0].ratio_to(&drawn[1], 0)];
    let panels = vec![panel("Deployment", UNIT, "application", points, drawn)];
    Ok(AimedFindings { figures, panels, ..AimedFindings::default() })
}

/// Moves between `host` and `core`.
pub(super) fn moves() -> Result<AimedFindings> {
    let load = load()?;
    let measure = |_: &str| printed(&load, &["move", "core", REPEATS]);
    let mut contenders: [Contender<'_, Value>; 1] =
        [Contender { name: "move", measure: Box::new(measure) }];
    let series = alternate(&mut contenders, &["1 MiB"], ROUNDS)?;
    let drawn = pauses(&series[0])?;
    let figures = vec![drawn.series[0].ratio_to(&drawn.series[1], 0), None];
    Ok(AimedFindings { figures, panels: vec![drawn], ..AimedFindings::default() })
}

fn pauses(found: &Series<Value>) -> Result<Panel> {
    let mut least = figures("memcpy and two wake-ups", found, "/memcpy/p50_us", 1.0)?;
    let wakes = figures("", found, "/two_wakes/p50_us", 1.0)?;
    let both = least.samples.iter_mut().flatten().zip(wakes.samples.iter().flatten());
    both.for_each(|(copy, wakes)| *copy += wakes);
    let series = vec![
        figures("the longest call", found, "/pause/p50_us", 1.0)?,
        least,
        figures("the whole move", found, "/move/p50_us", 1.0)?,
    ];
    Ok(panel("Move of 1 MiB of state, host and core", UNIT, "state", &["1 MiB"], series))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pause_stands_beside_the_sum_of_what_it_cannot_do_without() {
        let of = |us: f64| json!({ "p50_us": us });
        let (pause, memcpy) = (of(60.0), of(10.0));
        let sample =
            json!({ "pause": pause, "move": of(90.0), "memcpy": memcpy, "two_wakes": of(20.0) });
        let found = Series { name: String::new(), samples: vec![vec![sample]] };
        let drawn = pauses(&found).unwrap();
        assert_eq!(drawn.series[0].ratio_to(&drawn.series[1], 0).unwrap().median, 2.0);
    }
}
