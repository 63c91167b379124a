//! The result of a benchmark, as JSON with every sample and as a table with medians and ratios.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chart;
use super::measure::{Summary, number};

/// All results of a benchmark.
#[derive(Clone, Debug)]
pub struct Report {
    /// The title: what was compared.
    pub title: String,
    /// The conditions, in sentences: which core does what, blocking or spinning, CRC, encryption.
    pub conditions: Vec<String>,
    /// The targets and other tables of their own; they stand first.
    pub tables: Vec<Table>,
    /// One chart and one table each.
    pub panels: Vec<Panel>,
}

/// A table of text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Table {
    /// Such as `Targets`.
    pub title: String,
    /// Headings of the columns.
    pub head: Vec<String>,
    /// Rows of cells; each row has a cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// One measured quantity over several points.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// Such as `Latency`.
    pub title: String,
    /// Unit of the samples, and which direction is better, such as `µs, less is better`.
    pub unit: String,
    /// The quantity that the points vary, such as `message size`.
    pub axis: String,
    /// Names of the points.
    pub points: Vec<String>,
    /// Outboard's first: ratios are of Outboard to each rival.
    pub series: Vec<Series>,
}

/// All samples of one contender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series<S = f64> {
    /// The contender's name.
    pub name: String,
    /// For each point, one sample for each round.
    pub samples: Vec<Vec<S>>,
}

impl Report {
    /// Writes `bench/NAME.json` below `target` and `docs/benchmarks/NAME.{md,svg}` below `root`.
    ///
    /// # Errors
    /// When a file cannot be written or the chart not be drawn.
    pub fn write(&self, name: &str, root: &Path, target: &Path) -> Result<()> {
        let data = target.join("bench").join(name).with_extension("json");
        let page = root.join("docs/benchmarks").join(name).with_extension("md");
        save(&data, &serde_json::to_string_pretty(&self.json())?)?;
        save(&page, &self.markdown(name))?;
        save(&page.with_extension("svg"), &chart::draw(self)?)
    }

    /// Every sample and every table, with a description of the machine.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "title": self.title,
            "machine": machine(),
            "conditions": self.conditions,
            "tables": self.tables,
            "panels": self.panels,
        })
    }

    /// The page of the benchmark called `name`.
    #[must_use]
    pub fn markdown(&self, name: &str) -> String {
        let conditions = self.conditions.iter().map(|condition| format!("- {condition}\n"));
        let tables = self.tables.iter().map(|table| format!("\n{}", table.markdown()));
        let panels = self.panels.iter().map(|panel| format!("\n{}", panel.markdown()));
        format!(
            "# {title}\n\n![{title}]({name}.svg)\n\n\
             Median (least to most) of each; × is ours / theirs, median of the rounds' ratios.\n\
             Machine: {}. Drawn by `cargo xtask bench {name}`.\n\n{}{}{}",
            machine(),
            conditions.collect::<String>(),
            tables.collect::<String>(),
            panels.collect::<String>(),
            title = self.title,
        )
    }
}

impl Table {
    /// The table with its title.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        let rule = format!("|{}\n", " --- |".repeat(self.head.len()));
        format!("## {}\n\n{}{rule}{rows}", self.title, line(&self.head))
    }
}

impl Panel {
    fn markdown(&self) -> String {
        let names: Vec<&str> = self.series.iter().map(|series| series.name.as_str()).collect();
        let head = format!("| {} | {} |\n", self.axis, names.join(" | "));
        let rule = format!("| --- |{}\n", " ---: |".repeat(names.len()));
        let rows: String = (0..self.points.len()).map(|point| self.row(point)).collect();
        format!("## {} ({})\n\n{head}{rule}{rows}", self.title, self.unit)
    }

    fn row(&self, point: usize) -> String {
        let cells = self.series.iter().enumerate().map(|(index, series)| {
            let ours = self.series.first().filter(|_| index > 0);
            cell(series.summary(point), ours.and_then(|ours| ours.ratio_to(series, point)))
        });
        format!("| {} | {} |\n", self.points[point], cells.collect::<Vec<_>>().join(" | "))
    }
}

impl Series {
    /// The statistics of the samples at one point; `None` if there are none.
    #[must_use]
    pub fn summary(&self, point: usize) -> Option<Summary> {
        Summary::of(self.samples.get(point)?)
    }

    /// The ratios of this contender to a rival in each round, summarized: a slow minute that
    /// affects both cancels out.
    #[must_use]
    pub fn ratio_to(&self, rival: &Self, point: usize) -> Option<Summary> {
        let pairs = self.samples.get(point)?.iter().zip(rival.samples.get(point)?);
        Summary::of(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
    }
}

impl Series<Value> {
    /// The number at `pointer` (such as `/p50_us`) of every sample.
    ///
    /// # Errors
    /// When a sample has no such number.
    pub fn numbers(&self, pointer: &str) -> Result<Series> {
        let of_point = |samples: &Vec<Value>| -> Result<Vec<f64>> {
            samples.iter().map(|sample| number(sample, pointer)).collect()
        };
        let samples = self.samples.iter().map(of_point).collect::<Result<_>>()?;
        Ok(Series { name: self.name.clone(), samples })
    }
}

/// A cell of the table; a rival's ends with the ratio of Outboard to it.
fn cell(summary: Option<Summary>, ratio: Option<Summary>) -> String {
    match (summary, ratio) {
        (None, _) => "not run".to_owned(),
        (Some(summary), None) => summary.to_string(),
        (Some(summary), Some(ratio)) => format!("{summary} ×{:.2}", ratio.median),
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        write!(f, "{} ({} to {})", figure(median), figure(least), figure(most))
    }
}

/// Rounded to three significant digits.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn save(path: &Path, text: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    println!("writing {}", path.display());
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Processor, number of them, and kernel.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let processors = read("/proc/cpuinfo");
    let models = processors.lines().filter_map(|line| line.strip_prefix("model name\t: "));
    let kernel = read("/proc/sys/kernel/osrelease");
    let model = models.clone().next().unwrap_or("unknown processor");
    let version: Vec<&str> = kernel.trim().split('.').take(2).collect();
    format!("{} × {model}, Linux {}", models.count().max(1), version.join("."))
}
