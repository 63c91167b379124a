//! A benchmark in parts, each with ratios that a specification limits: runs the parts that are
//! asked for, and draws the page with what earlier runs found in the others. Measures nothing
//! itself.
//!
//! `OUTBOARD_ONLY=a,b` asks for these parts, `OUTBOARD_ONLY=page` for none. A part that fails loses
//! nobody else's figures. `kept` is what stays of each.

mod kept;

use std::env;
use std::time::Instant;

use anyhow::{Result, bail};

use super::measure::Summary;
use super::report::{Panel, Report, Table};
use super::stack::section::{Limit, Target, table};
use kept::KeptAimed;

/// Of `OUTBOARD_ONLY`: nothing is measured.
const PAGE: &str = "page";

/// What a part found.
#[derive(Debug, Default)]
pub(super) struct AimedFindings {
    /// One for each of [`AimedPart::aims`], in their order; `None` if it could not be measured.
    pub(super) figures: Vec<Option<Summary>>,
    pub(super) notes: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) panels: Vec<Panel>,
}

/// A ratio that the specification limits.
#[derive(Debug)]
pub(super) struct Aim {
    /// Names the quantities that are divided.
    pub(super) what: &'static str,
    pub(super) limit: Limit,
    /// The paper's figure; may be empty.
    pub(super) paper: &'static str,
}

/// At least so much.
pub(super) const fn least(what: &'static str, ratio: f64) -> Aim {
    Aim { what, limit: Limit::AtLeast(ratio), paper: "" }
}

/// At most so much.
pub(super) const fn most(what: &'static str, ratio: f64) -> Aim {
    Aim { what, limit: Limit::AtMost(ratio), paper: "" }
}

/// See the [module](self).
pub(super) struct AimedPart {
    pub(super) name: &'static str,
    pub(super) aims: &'static [Aim],
    pub(super) measure: fn() -> Result<AimedFindings>,
}

/// A benchmark's page, and its parts in their order on it.
pub(super) struct AimedPage {
    /// The benchmark's name.
    pub(super) bench: &'static str,
    pub(super) title: &'static str,
    pub(super) conditions: &'static [&'static str],
    pub(super) parts: &'static [AimedPart],
}

/// Measures what is asked for, and draws everything that was found. What a part found is kept as
/// soon as it ends.
///
/// # Errors
/// When a part has another name, or a file cannot be written. A part that fails is rows of the
/// page.
pub(super) fn run(page: &AimedPage) -> Result<Report> {
    let only = env::var("OUTBOARD_ONLY").unwrap_or_default();
    let asked: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    let names: Vec<&str> = page.parts.iter().map(|part| part.name).chain([PAGE]).collect();
    if let Some(unknown) = asked.iter().find(|name| !names.contains(*name)) {
        bail!("OUTBOARD_ONLY names {unknown}, but there are: {}", names.join(", "));
    }
    for part in page.parts.iter().filter(|part| asked.is_empty() || asked.contains(&part.name)) {
        part.run().save(page.bench, part)?;
    }
    page.draw()
}

impl AimedPage {
    /// Everything that the last run of each part found.
    fn draw(&self) -> Result<Report> {
        let mut page = Report {
            title: self.title.into(),
            conditions: self.conditions.iter().map(|text| (*text).to_owned()).collect(),
            tables: Vec::new(),
            panels: Vec::new(),
        };
        let (mut rows, mut runs) = (Vec::new(), Vec::new());
        for part in self.parts {
            let kept = KeptAimed::load(self.bench, part)?;
            rows.extend(kept.rows);
            page.conditions.extend(kept.notes);
            page.tables.extend(kept.tables);
            page.panels.extend(kept.panels);
            runs.push(vec![part.name.into(), kept.took, kept.commit]);
        }
        page.tables.insert(0, table("Targets", &Target::HEAD, rows));
        page.tables.push(table("Parts of this page", &["part", "took", "commit"], runs));
        Ok(page)
    }
}

impl AimedPart {
    /// Measures it; a failure is among what it returns.
    fn run(&self) -> KeptAimed {
        eprintln!("part {} begins", self.name);
        let began = Instant::now();
        let found = (self.measure)();
        let seconds = began.elapsed().as_secs_f64();
        eprintln!("part {} took {seconds:.0} s", self.name);
        KeptAimed::new(self, found, seconds)
    }
}

/// Whether no two parts, and no two aims, are called alike.
#[cfg(test)]
pub(super) fn are_apart(parts: &[AimedPart]) -> bool {
    let aims = parts.iter().flat_map(|part| part.aims).map(|aim| aim.what);
    let names: Vec<&str> = parts.iter().map(|part| part.name).chain(aims).collect();
    names.iter().collect::<std::collections::HashSet<_>>().len() == names.len()
}
