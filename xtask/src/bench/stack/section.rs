//! The parts of a benchmark's page: panels, tables and targets.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Report, Series, Table};

/// A part of the page, such as latency.
#[derive(Debug, Default)]
pub(in crate::bench) struct Section {
    pub(in crate::bench) notes: Vec<String>,
    pub(in crate::bench) targets: Vec<Target>,
    pub(in crate::bench) tables: Vec<Table>,
    pub(in crate::bench) panels: Vec<Panel>,
}

/// The limit that a target sets.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// A target and its measured value.
#[derive(Debug)]
pub(in crate::bench) struct Target {
    /// Names the quantities that are divided.
    pub(in crate::bench) what: String,
    pub(in crate::bench) limit: Limit,
    /// `None` if it could not be measured here.
    pub(in crate::bench) figure: Option<Summary>,
    /// The papers' figure for their system; may be empty.
    pub(in crate::bench) paper: &'static str,
}

impl Target {
    /// Columns of [`Target::row`].
    pub(in crate::bench) const HEAD: [&'static str; 5] =
        ["what", "target", "figure", "", "the papers'"];

    /// A target for which the papers have no figure.
    pub(in crate::bench) fn new(what: &str, limit: Limit, figure: Option<Summary>) -> Self {
        Self { what: what.to_owned(), limit, figure, paper: "" }
    }

    /// One row of the table. The median decides.
    pub(in crate::bench) fn row(&self) -> Vec<String> {
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

/// The page: targets first, then everything else in order.
pub(in crate::bench) fn report(
    title: &str,
    conditions: &[&str],
    sections: impl IntoIterator<Item = Section>,
) -> Report {
    let mut report = Report {
        title: title.to_owned(),
        conditions: conditions.iter().map(|text| (*text).to_owned()).collect(),
        tables: Vec::new(),
        panels: Vec::new(),
    };
    let mut targets = Vec::new();
    for section in sections {
        targets.extend(section.targets.iter().map(Target::row));
        report.tables.extend(section.tables);
        report.panels.extend(section.panels);
        report.conditions.extend(section.notes);
    }
    if !targets.is_empty() {
        report.tables.insert(0, table("Targets", &Target::HEAD, targets));
    }
    report
}

/// A table from its parts.
pub(in crate::bench) fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    let head = head.iter().map(|head| (*head).to_owned()).collect();
    Table { title: title.to_owned(), head, rows }
}

/// Samples of several contenders at several points.
#[derive(Debug)]
pub(in crate::bench) struct Runs<'a> {
    pub(in crate::bench) points: &'a [&'a str],
    pub(in crate::bench) series: Vec<Series<Value>>,
}

impl Runs<'_> {
    /// A panel of one figure, with the contenders whose samples have it.
    pub(in crate::bench) fn panel(
        &self,
        title: &str,
        unit: &str,
        axis: &str,
        figure: &str,
    ) -> Result<Panel> {
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

/// One contender's samples divided by another's, round by round; `None` if the other is missing.
pub(in crate::bench) fn ratio(
    panel: &Panel,
    ours: &str,
    theirs: &str,
    point: usize,
) -> Result<Option<Summary>> {
    let find = |name| panel.series.iter().find(|series| series.name == name);
    let ours = find(ours).with_context(|| format!("{} has no {ours}", panel.title))?;
    Ok(find(theirs).and_then(|theirs| ours.ratio_to(theirs, point)))
}
