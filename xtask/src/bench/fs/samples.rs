//! Samples of several contenders at several points, put down as they come.

use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Series};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct FsSamples {
    panel: Panel,
}

impl FsSamples {
    pub(super) fn new(title: &str, unit: &str, points: &[&str], names: &[&str]) -> Self {
        let empty = |name: &&str| Series {
            name: (*name).to_owned(),
            samples: points.iter().map(|_| Vec::new()).collect(),
        };
        let panel = Panel {
            title: title.into(),
            unit: unit.into(),
            axis: "work".into(),
            points: points.iter().map(|point| (*point).to_owned()).collect(),
            series: names.iter().map(empty).collect(),
        };
        Self { panel }
    }

    /// A sample of a contender, both known by their names.
    pub(super) fn push(&mut self, name: &str, point: &str, value: f64) {
        eprintln!("{}: {name}, {point}: {value:.4}", self.panel.title);
        let at = self.panel.points.iter().position(|other| other == point);
        let series = self.panel.series.iter_mut().find(|series| series.name == name);
        if let (Some(at), Some(series)) = (at, series) {
            series.samples[at].push(value);
        }
    }

    /// One contender's samples divided by another's, round by round.
    pub(super) fn ratio(&self, (over, under): (&str, &str), point: &str) -> Option<Summary> {
        let of = |name| self.panel.series.iter().find(|series| series.name == name);
        let at = self.panel.points.iter().position(|other| other == point)?;
        of(over)?.ratio_to(of(under)?, at)
    }

    /// Without contenders that have no sample at all.
    pub(super) fn panel(mut self) -> Panel {
        self.panel.series.retain(|series| series.samples.iter().any(|point| !point.is_empty()));
        self.panel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_named_and_who_was_not_there_is_left_out() {
        let mut samples = FsSamples::new("t", "s", &["a", "b"], &["ours", "theirs", "none"]);
        samples.push("ours", "b", 2.0);
        samples.push("theirs", "b", 5.0);
        let of = |names, point| samples.ratio(names, point).map(|ratio| ratio.median);
        assert_eq!(of(("theirs", "ours"), "b"), Some(2.5));
        assert_eq!(of(("theirs", "ours"), "a"), None);
        assert_eq!(of(("none", "ours"), "b"), None);
        assert_eq!(samples.panel().series.len(), 2);
    }
}
