//! The paper's Figure 10: the time of a build with 1 to 14 servers, redrawn.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::contender::Contender;
use super::distcc::Distcc;
use super::ours::{self, Ours, Way};
use super::rows::{Contenders, FACTOR};
use super::stage::{Kit, Medium, Servers};
use super::trial::Trial;
use super::work::Job;
use crate::bench::measure::{self, alternate};
use crate::bench::stack::section::{Runs, Section};

const POINTS: &[&str] = &["1", "2", "4", "7", "10", "14"];
/// A build at each point; the chart's lines connect them.
const ROUNDS: usize = 1;
/// The jobs of a build, taken from the beginning of the list.
const JOBS: usize = 150;
/// The jobs among these that are built before the measurement, so that all servers are connected.
const WARM_UP: usize = 28;

/// A line of the chart: a contender on a medium.
struct Line {
    name: &'static str,
    contender: Box<dyn Contender>,
    medium: Medium,
}

/// The lines whose contender takes part.
pub(super) fn servers(kit: &Kit, jobs: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    let jobs = &jobs[..JOBS];
    let takes_part = |name: &str| contenders.iter().any(|contender| contender.name() == name);
    let lines = lines(takes_part)?;
    let mut measured: Vec<_> = lines.iter().map(|line| line.measured(kit, jobs)).collect();
    let bound = move |point: &str| {
        let trial = trial(kit, jobs, point, Medium::Tmpfs)?;
        Ok(json!({ "wall_s": trial.bound()?.as_secs_f64() }))
    };
    let name = "list scheduling, no overhead";
    measured.push(measure::Contender { name, measure: Box::new(bound) });
    let runs = Runs { points: POINTS, series: alternate(&mut measured, POINTS, ROUNDS)? };
    let title = format!("Figure 10: {JOBS} jobs, recorded times × {FACTOR}");
    let panel = runs.panel(&title, "s, less is better", "servers", "/wall_s")?;
    Ok(Section { notes: vec![PAPER.to_owned()], panels: vec![panel], ..Section::default() })
}

const PAPER: &str = "The paper's Figure 10 is the same picture of Linux 2.6.22 on Pentium 4 \
                     machines: distcc gains nothing beyond 7 servers, rdistcc in software little, \
                     and with an engine on a core of its own it halves distcc's time at 14.";

fn lines(takes_part: impl Fn(&str) -> bool) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    if takes_part("pull") {
        let programs = ours::build()?;
        for way in [Way::Pull, Way::PreprocessElsewhere, Way::Preprocess] {
            let contender = Ours { programs: programs.clone(), way };
            let name = contender.name();
            lines.push(Line { name, contender: Box::new(contender), medium: Medium::Tmpfs });
        }
    }
    if takes_part("distcc") {
        let places = [("distcc on tmpfs", Medium::Tmpfs), ("distcc on disk", Medium::Disk)];
        let distcc = |(name, medium)| Line { name, contender: Box::new(Distcc), medium };
        lines.extend(places.map(distcc));
    }
    Ok(lines)
}

impl Line {
    fn measured<'a>(&'a self, kit: &'a Kit, jobs: &'a [Job]) -> measure::Contender<'a, Value> {
        let measure =
            |point: &str| trial(kit, jobs, point, self.medium)?.run(self.contender.as_ref());
        measure::Contender { name: self.name, measure: Box::new(measure) }
    }
}

fn trial<'a>(kit: &'a Kit, jobs: &'a [Job], point: &str, medium: Medium) -> Result<Trial<'a>> {
    let count: usize = point.parse().context("a number of servers")?;
    let servers = Servers::StandIns { count, factor: FACTOR };
    Ok(Trial { kit, servers, medium, jobs, warm_up: &jobs[..WARM_UP] })
}
