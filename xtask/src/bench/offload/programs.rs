//! Building the programs that measure themselves, and figures from what they print.

use anyhow::Result;
use serde_json::Value;

use crate::bench::measure::json;
use crate::bench::report::{Panel, Series};
use crate::builds;
use crate::command;

/// Builds an example in release mode, and returns its path.
pub(super) fn example(name: &str) -> Result<String> {
    Ok(builds::example(name)?.to_string_lossy().into_owned())
}

/// The program that loads the library.
pub(super) fn load() -> Result<String> {
    example("offload_load")
}

/// Runs a program that prints JSON.
pub(super) fn printed(program: &str, words: &[&str]) -> Result<Value> {
    let mut command = std::process::Command::new(program);
    json(command.args(words).current_dir(command::root()))
}

/// One number of each sample, times `factor`, under another name.
pub(super) fn figures(
    name: &str,
    samples: &Series<Value>,
    pointer: &str,
    factor: f64,
) -> Result<Series> {
    let mut series = samples.numbers(pointer)?;
    name.clone_into(&mut series.name);
    series.samples.iter_mut().flatten().for_each(|sample| *sample *= factor);
    Ok(series)
}

/// A panel of one quantity.
pub(super) fn panel(
    title: &str,
    unit: &str,
    axis: &str,
    points: &[&str],
    series: Vec<Series>,
) -> Panel {
    let points = points.iter().map(|point| (*point).to_owned()).collect();
    Panel { title: title.to_owned(), unit: unit.to_owned(), axis: axis.to_owned(), points, series }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_taken_from_every_sample_in_the_unit_asked_for() {
        let samples =
            vec![vec![json!({ "a": { "p50_us": 2.0 } }), json!({ "a": { "p50_us": 3 } })]];
        let printed = Series { name: "printed".to_owned(), samples };
        let found = figures("ours", &printed, "/a/p50_us", 1e3).unwrap();
        assert_eq!((found.name.as_str(), found.samples), ("ours", vec![vec![2000.0, 3000.0]]));
        assert!(figures("ours", &printed, "/b/p50_us", 1.0).is_err());
    }
}
