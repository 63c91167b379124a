//! What a part found, as rows of the page, and as JSON in `target/bench/NAME`: a later run of
//! other parts draws it again. Measures nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Aim, AimedFindings, AimedPart};
use crate::bench::report::{Panel, Table};
use crate::bench::stack::section::Target;
use crate::command;

/// See the [module](self).
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct KeptAimed {
    /// Of the table of targets.
    pub(super) rows: Vec<Vec<String>>,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
    /// How long it took; empty if it was never run.
    pub(super) took: String,
    /// What was measured: the commit, with `-dirty` if the sources were changed.
    pub(super) commit: String,
}

impl KeptAimed {
    /// A part's findings, or why there are none.
    pub(super) fn new(part: &AimedPart, found: Result<AimedFindings>, seconds: f64) -> Self {
        let found = found.unwrap_or_else(|error| {
            let why = format!("{error:#}").replace(['\n', '|'], " ");
            let notes = vec![format!("**Part {} failed**: {why}", part.name)];
            AimedFindings { notes, ..AimedFindings::default() }
        });
        let mut describe = Command::new("git");
        describe.args(["describe", "--always", "--dirty"]).current_dir(command::root());
        let commit = command::output(&mut describe).unwrap_or_else(|_| "unknown".into());
        Self {
            rows: rows(part, &found),
            notes: found.notes,
            tables: found.tables,
            panels: found.panels,
            took: format!("{seconds:.0} s"),
            commit: commit.trim().to_owned(),
        }
    }

    /// What the last run of a part found; rows that say so if there was none.
    pub(super) fn load(bench: &str, part: &AimedPart) -> Result<Self> {
        let path = path(bench, part);
        if !path.exists() {
            return Ok(Self { rows: rows(part, &AimedFindings::default()), ..Self::default() });
        }
        let other = || format!("{} is not of this benchmark: remove it", path.display());
        serde_json::from_str(&fs::read_to_string(&path)?).with_context(other)
    }

    /// Keeps it.
    pub(super) fn save(&self, bench: &str, part: &AimedPart) -> Result<()> {
        let path = path(bench, part);
        fs::create_dir_all(path.with_file_name(""))?;
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path(bench: &str, part: &AimedPart) -> PathBuf {
    command::target_dir().join("bench").join(bench).join(part.name).with_extension("json")
}

/// One for each aim; an aim without a figure is not run.
fn rows(part: &AimedPart, found: &AimedFindings) -> Vec<Vec<String>> {
    let figures = found.figures.iter().copied().chain(std::iter::repeat(None));
    let target = |(aim, figure): (&Aim, _)| {
        Target { paper: aim.paper, ..Target::new(aim.what, aim.limit, figure) }.row()
    };
    part.aims.iter().zip(figures).map(target).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measure::Summary;
    use crate::bench::stack::section::Limit;

    const AIMS: &[Aim] = &[
        Aim { what: "a / b", limit: Limit::AtLeast(3.0), paper: "7" },
        Aim { what: "c / d", limit: Limit::AtMost(1.5), paper: "" },
    ];

    fn part() -> AimedPart {
        AimedPart { name: "sample", aims: AIMS, measure: || anyhow::bail!("no | route\nhere") }
    }

    fn verdicts(kept: &KeptAimed) -> Vec<&str> {
        kept.rows.iter().map(|row| row[3].as_str()).collect()
    }

    #[test]
    fn every_aim_has_a_row_whether_it_was_measured_or_not() {
        let figures = vec![Summary::of(&[2.0, 3.5, 4.0])];
        let found = AimedFindings { figures, ..AimedFindings::default() };
        let kept = KeptAimed::new(&part(), Ok(found), 1.0);
        assert_eq!(verdicts(&kept), ["met", "not run"]);
        assert_eq!(kept.rows[0][4], "7");
    }

    #[test]
    fn a_part_that_fails_says_why_on_the_page() {
        let kept = part().run();
        assert_eq!(verdicts(&kept), ["not run", "not run"]);
        assert_eq!(kept.notes, ["**Part sample failed**: no   route here"]);
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
        let kept = part().run();
        let text = serde_json::to_string(&kept).unwrap();
        let read: KeptAimed = serde_json::from_str(&text).unwrap();
        assert_eq!((read.rows, read.commit), (kept.rows, kept.commit));
    }
}
