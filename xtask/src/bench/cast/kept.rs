//! What a part found, as rows of the page, and as JSON in `target/bench/cast`: a later run of
//! other parts draws it again. Measures nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::parts::{Bound, CastPart, Findings};
use crate::bench::measure::Summary;
use crate::bench::report::{Panel, Table};
use crate::command;

/// Columns of the rows.
pub(super) const HEAD: [&str; 5] = ["what", "must be", "figure", "verdict", "how it is measured"];

/// See the [module](self).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptPart {
    pub(super) rows: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
    pub(super) costs: Option<Vec<f64>>,
    pub(super) finished: Option<Finished>,
}

/// When and of what a part's figures are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Finished {
    /// How long it took.
    pub(super) seconds: f64,
    /// What was measured: the commit, with `-dirty` if the sources were changed.
    pub(super) commit: String,
}

impl Finished {
    pub(super) fn now(seconds: f64) -> Self {
        let mut describe = Command::new("git");
        describe.args(["describe", "--always", "--dirty"]).current_dir(command::root());
        let commit = command::output(&mut describe).unwrap_or_else(|_| "unknown".into());
        Self { seconds, commit: commit.trim().to_owned() }
    }
}

impl KeptPart {
    pub(super) fn new(part: &CastPart, found: Findings, finished: Finished) -> Self {
        let Findings { figures, mut notes, tables, panels, costs, failures } = found;
        let why = failures.iter().map(|failure| one_line(failure)).collect::<Vec<_>>();
        let figures = figures.into_iter().chain(std::iter::repeat(None));
        let rows = part.bounds.iter().zip(figures);
        let rows = rows.map(|(bound, figure)| row(bound, figure, why.first())).collect();
        notes.extend(why.iter().map(|why| format!("Part {}: {why}", part.name)));
        Self { rows, notes, tables, panels, costs, finished: Some(finished) }
    }

    /// What the last run of a part found; rows that say so if there was none.
    pub(super) fn load(part: &CastPart) -> Result<Self> {
        let path = path(part.name);
        if !path.exists() {
            let rows = part.bounds.iter().map(|bound| row(bound, None, None)).collect();
            return Ok(Self { rows, ..Self::default() });
        }
        let text = fs::read_to_string(&path)?;
        let other = || format!("{} is not of this benchmark: remove it", path.display());
        serde_json::from_str(&text).with_context(other)
    }

    pub(super) fn save(&self, part: &CastPart) -> Result<()> {
        let path = path(part.name);
        fs::create_dir_all(path.parent().context("a file is in a directory")?)?;
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The middle sample of a contender at the first point of any panel that has it.
    pub(super) fn median(&self, contender: &str) -> Option<f64> {
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        let found = series.filter(|series| series.name == contender);
        found.filter_map(|series| series.summary(0)).map(|summary| summary.median).next()
    }
}

fn path(part: &str) -> PathBuf {
    command::target_dir().join("bench/cast").join(part).with_extension("json")
}

/// The median decides.
fn row(bound: &Bound, figure: Option<Summary>, why: Option<&String>) -> Vec<String> {
    let verdict = match (figure, why) {
        (Some(figure), _) if figure.median <= bound.most => "met".to_owned(),
        (Some(_), _) => "**not met**".to_owned(),
        (None, Some(why)) => format!("**failed**: {why}"),
        (None, None) => "not run".to_owned(),
    };
    let shown = figure.map(|figure| figure.to_string()).unwrap_or_default();
    vec![bound.what.into(), format!("≤ {:.2}", bound.most), shown, verdict, bound.how.into()]
}

/// A failure as a cell can hold it: how it begins, which names what failed, and how it ends, which
/// says why.
fn one_line(text: &str) -> String {
    const CHARACTERS_MAX: usize = 150;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "/");
    let characters: Vec<char> = words.chars().collect();
    if characters.len() <= 2 * CHARACTERS_MAX {
        return words;
    }
    let (start, end) =
        (&characters[..CHARACTERS_MAX], &characters[characters.len() - CHARACTERS_MAX..]);
    format!("{} [...] {}", start.iter().collect::<String>(), end.iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound = Bound { what: "a / b", most: 1.1, how: "By hand." };

    fn verdict(figure: Option<f64>, why: Option<&str>) -> String {
        let figure = figure.and_then(|figure| Summary::of(&[figure]));
        row(&BOUND, figure, why.map(str::to_owned).as_ref())[3].clone()
    }

    #[test]
    fn rows_say_whether_a_bound_is_met_or_what_failed() {
        assert_eq!(verdict(Some(1.1), None), "met");
        assert_eq!(verdict(Some(1.11), Some("udpcast failed")), "**not met**");
        assert_eq!(verdict(None, Some("no route")), "**failed**: no route");
        assert_eq!(verdict(None, None), "not run");
    }

    #[test]
    fn a_part_that_failed_has_all_its_rows() {
        let part = &super::super::parts::PARTS[0];
        let failures = vec!["no\n| route".to_owned()];
        let found = Findings { failures, ..Findings::default() };
        let kept = KeptPart::new(part, found, Finished { seconds: 1.0, commit: "c".into() });
        assert_eq!(kept.rows.len(), part.bounds.len());
        assert_eq!(kept.rows[0][3], "**failed**: no / route");
    }

    #[test]
    fn a_long_failure_keeps_its_beginning_and_its_reason() {
        let shown = one_line(&format!("star failed: {} no route", "sh -c x ".repeat(100)));
        assert!(shown.starts_with("star failed: ") && shown.ends_with("x no route"), "{shown}");
        assert!(shown.chars().count() < 310, "{shown}");
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let panel = Panel {
            title: "t".into(),
            unit: "s".into(),
            axis: "n".into(),
            points: vec!["1".into()],
            series: vec![crate::bench::report::Series {
                name: "ours".into(),
                samples: vec![vec![1.0, 3.0]],
            }],
        };
        let kept = KeptPart { panels: vec![panel], costs: Some(vec![0.5]), ..KeptPart::default() };
        let text = serde_json::to_string(&kept).expect("JSON");
        let read: KeptPart = serde_json::from_str(&text).expect("the same");
        assert_eq!((read.median("ours"), read.median("theirs")), (Some(2.0), None));
        assert_eq!(read.costs, kept.costs);
    }
}
