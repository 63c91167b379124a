//! Rings in shared memory beside iceoryx2, which is built from cargo's registry as a package of its
//! own below `target/bench`; and ping-pongs of offcodes over channels.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::programs::{figures, load, panel, printed};
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate, json};
use crate::bench::report::{Panel, Series};
use crate::command::{self, cargo};

const ROUNDS: usize = 5;
const TURNS: &str = "2000";
const PACKAGE: &str = include_str!("iceoryx/package.toml");
const PROGRAM: &str = include_str!("iceoryx/main.rs");
const BETWEEN: &str = "between_messages_one_way_64_b_ns";

/// Rings, iceoryx2; then channels with everything around them.
pub(super) fn beside_iceoryx() -> Result<AimedFindings> {
    let (iceoryx, load) = (iceoryx()?, load()?);
    let ring = |_: &str| {
        json(&mut cargo(["bench", "--package", "outboard-mem", "--bench", "ring", "--", "1"]))
    };
    let mut contenders: [Contender<'_, Value>; 2] = [
        Contender { name: "ring", measure: Box::new(ring) },
        Contender { name: "iceoryx2", measure: Box::new(|_| printed(&iceoryx, &[])) },
    ];
    let series = alternate(&mut contenders, &["64 B"], ROUNDS)?;
    let [rings, rival] = &series[..] else { anyhow::bail!("two were measured") };
    let (turns, rates) = (turns(rings, rival)?, rates(rings, rival)?);
    let large = figures("1 MiB", rings, &only_poll("half_round_trip_1_mib_in_place_ns"), 1.0)?;
    let small = figures("64 B", rings, &only_poll("half_round_trip_64_b_in_place_ns"), 1.0)?;
    let figures = vec![
        turns.series[0].ratio_to(&turns.series[1], 0),
        rates.series[0].ratio_to(&rates.series[1], 0),
        large.ratio_to(&small, 0),
    ];
    let unit = "ns, less is better";
    let in_place =
        panel("Half a round trip in place", unit, "message", &["in place"], vec![large, small]);
    let panels = vec![turns, rates, in_place, between_offcodes(&load)?];
    Ok(AimedFindings { figures, panels, ..AimedFindings::default() })
}

/// Of the bench's figures with nobody who may sleep.
fn only_poll(name: &str) -> String {
    format!("/only_poll/{name}/median")
}

fn turns(rings: &Series<Value>, rival: &Series<Value>) -> Result<Panel> {
    let name = "half_round_trip_64_b_ns";
    let series = vec![
        figures("ring", rings, &only_poll(name), 1.0)?,
        figures("iceoryx2", rival, &format!("/{name}"), 1.0)?,
        figures("ring, may sleep", rings, &format!("/may_sleep/{name}/median"), 1.0)?,
    ];
    let unit = "ns, less is better";
    Ok(panel("Half a round trip, copied, spinning", unit, "message", &["64 B"], series))
}

/// Messages a second, from the time between two.
fn rates(rings: &Series<Value>, rival: &Series<Value>) -> Result<Panel> {
    let mut series = vec![
        figures("ring", rings, &only_poll(BETWEEN), 1.0)?,
        figures("iceoryx2", rival, &format!("/{BETWEEN}"), 1.0)?,
    ];
    series.iter_mut().flat_map(|one| &mut one.samples).flatten().for_each(|ns| *ns = 1e3 / *ns);
    Ok(panel("Messages one way", "millions/s, more is better", "message", &["64 B"], series))
}

/// Round trips between two offcodes, on one device and on two.
fn between_offcodes(load: &str) -> Result<Panel> {
    let points = ["64", "65536"];
    let pair = |name: &'static str, far: &'static str| Contender {
        name,
        measure: Box::new(move |bytes: &str| printed(load, &["channel", far, bytes, TURNS])),
    };
    let mut contenders: [Contender<'_, Value>; 2] =
        [pair("both on host", "host"), pair("host and core", "core")];
    let series = alternate(&mut contenders, &points, ROUNDS)?;
    let series = series.iter().map(|one| figures(&one.name, one, "/mean_us", 1.0));
    let unit = "µs, less is better";
    let series = series.collect::<Result<_>>()?;
    Ok(panel("Offcodes: round trip", unit, "bytes of a message", &points, series))
}

/// Builds the rival's program, and returns its path.
fn iceoryx() -> Result<String> {
    let place = command::target_dir().join("bench/offload/iceoryx");
    fs::create_dir_all(place.join("src"))?;
    for (name, text) in [("Cargo.toml", PACKAGE), ("src/main.rs", PROGRAM)] {
        let path = place.join(name);
        // What is as it was is not compiled again.
        if fs::read_to_string(&path).ok().as_deref() != Some(text) {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    let mut build = cargo(["build", "--release", "--target-dir", "target"]);
    command::run(build.current_dir(&place))?;
    Ok(place.join("target/release/iceoryx-ring").to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_are_from_the_time_between_messages_with_ours_first() {
        let ours = json!({ "only_poll": { (BETWEEN): { "median": 20.0 } } });
        let of = |value: Value| Series { name: String::new(), samples: vec![vec![value]] };
        let found = rates(&of(ours), &of(json!({ (BETWEEN): 40.0 }))).unwrap();
        assert_eq!(found.series[0].samples, [[50.0]]);
        assert_eq!(found.series[0].ratio_to(&found.series[1], 0).unwrap().median, 2.0);
    }

    #[test]
    fn the_rivals_package_is_outside_of_the_workspace() {
        let has = |line: &str| PACKAGE.lines().any(|found| found == line);
        assert!(has("[workspace]") && has("[dependencies]"));
    }
}
