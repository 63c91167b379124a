//! What a part of the page is made of: panels, tables, and what was aimed at.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Series, Table};

/// A part of the page.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub(super) notes: Vec<String>,
    pub(super) targets: Vec<Target>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
}

/// What is good enough.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// What was aimed at, and what came out.
#[derive(Debug)]
pub(super) struct Target {
    /// What is divided by what.
    pub(super) what: String,
    pub(super) limit: Limit,
    /// `None` when it could not be measured here.
    pub(super) figure: Option<Summary>,
    /// What the papers report for theirs; may be empty.
    pub(super) paper: &'static str,
}

impl Target {
    /// Columns of [`Target::row`].
    pub(super) const HEAD: [&'static str; 5] = ["what", "target", "figure", "", "the papers'"];

    /// A target without a figure of the papers'.
    pub(super) fn new(what: &str, limit: Limit, figure: Option<Summary>) -> Self {
        Self { what: what.to_owned(), limit, figure, paper: "" }
    }

    /// One row of the table. The median decides.
    pub(super) fn row(&self) -> Vec<String> {
        let (limit, met) = match self.limit {
            Limit::AtMost(most) => (format!("≤ {most:.2}"), self.median().map(|m| m <= most)),
            Limit::AtLeast(least) => (format!("≥ {least:.2}"), self.median().map(|m| m >= least)),
        };
        let figure = self.figure.map_or_else(String::new, |figure| figure.to_string());
        let verdict = match met {
            Some(true) => "met",
            Some(false) => "**not met**",
            None => "not run",
        };
        let cells = [&self.what, &limit, &figure, verdict, self.paper];
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    fn median(&self) -> Option<f64> {
        Some(self.figure?.median)
    }
}

/// A table from what it is made of.
pub(super) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    let head = head.iter().map(|head| (*head).to_owned()).collect();
    Table { title: title.to_owned(), head, rows }
}

/// Runs of several contenders at several points.
#[derive(Debug)]
pub(super) struct Runs<'a> {
    pub(super) points: &'a [&'a str],
    pub(super) series: Vec<Series<Value>>,
}

impl Runs<'_> {
    /// A panel of one figure of those contenders whose runs have it.
    pub(super) fn panel(&self, title: &str, unit: &str, axis: &str, figure: &str) -> Result<Panel> {
        let has = |series: &&Series<Value>| series.samples[0][0].pointer(figure).is_some();
        let series = self.series.iter().filter(has).map(|series| series.numbers(figure));
        Ok(Panel {
            title: title.to_owned(),
            unit: unit.to_owned(),
            axis: axis.to_owned(),
            points: self.points.iter().map(|point| (*point).to_owned()).collect(),
            series: series.collect::<Result<_>>()?,
        })
    }
}

/// One contender's samples divided by another's, round by round; `None` without the other.
pub(super) fn ratio(
    panel: &Panel,
    ours: &str,
    theirs: &str,
    point: usize,
) -> Result<Option<Summary>> {
    let find = |name| panel.series.iter().find(|series| series.name == name);
    let ours = find(ours).with_context(|| format!("{} has no {ours}", panel.title))?;
    Ok(find(theirs).and_then(|theirs| ours.ratio_to(theirs, point)))
}
