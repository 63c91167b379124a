//! The targets: the client's processor time, the time of a build, the rate at which one client
//! hands over jobs.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::build;
use super::contender::{Bare, Contender, Plain};
use super::stage::{Kit, Medium, Servers};
use super::trial::Trial;
use super::work::{self, Job};
use crate::bench::measure::{Summary, alternate};
use crate::bench::report::{Panel, Series};
use crate::bench::stack::section::{Limit, Runs, Section, Target, ratio};
use crate::command;

const SERVERS: usize = 14;
const ROUNDS: usize = 3;
/// Chosen so that distcc's client is busy at about seven servers, as in the paper.
pub(super) const FACTOR: f64 = 0.6;
/// Jobs in a build, in a build without waiting, and in a build of the file with many headers.
const JOBS: usize = 1000;
const FAST_JOBS: usize = 500;
const WIDE_JOBS: usize = 200;
/// Jobs of the build with real compilers.
const REAL_JOBS: usize = 60;
/// If servers use more than this share of their processor, the client's limit cannot be measured.
const BUSY_MAX: f64 = 0.8;

/// All contenders, `nothing` first.
pub(super) type Contenders<'a> = [&'a dyn Contender];

/// 1,000 jobs of Redis on 14 servers.
pub(super) fn redis(kit: &Kit, jobs: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    let build = build::repeated(jobs, JOBS);
    let trial = trial(kit, FACTOR, &build, jobs);
    let points = &["Redis"];
    let runs = runs(&trial, points, contenders)?;
    let bare = bare(kit, jobs)?;
    let title = format!("{JOBS} jobs on {SERVERS} servers, recorded times × {FACTOR}");
    let wall = compiling(runs.panel(&title, "s, less is better", "build", "/wall_s")?);
    let client = less_nothing(client_cpu(&runs)?)?;
    let title = "Servers' CPU a job, stand-in included";
    let servers = compiling(runs.panel(title, "ms, less is better", "build", "/servers_ms")?);
    let bound = trial.bound()?.as_secs_f64();
    let targets = vec![
        Target::new("client CPU a job, pull, ms", Limit::AtMost(3.0), summary(&client, "pull")),
        quotient("client CPU a job: preprocess / distcc", &client, "preprocess", 1.0)?,
        Target::new(
            "build on 14 servers: pull / list scheduling",
            Limit::AtMost(1.10),
            scaled(&wall, "pull", |seconds| seconds / bound),
        ),
        Target::new(
            "build on 14 servers: distcc / pull",
            Limit::AtLeast(1.7),
            ratio_of(&wall, "distcc", "pull")?,
        ),
        Target::new(
            "servers' CPU a job besides the compiler, pull, ms",
            Limit::AtMost(4.0),
            scaled(&servers, "pull", |ms| ms - bare),
        ),
        bytes(kit, jobs, &runs)?,
    ];
    let notes = vec![
        format!("List scheduling of the {JOBS} jobs without any overhead takes {bound:.2} s."),
        format!("The stand-in itself takes {bare:.2} ms of a processor for a job."),
    ];
    Ok(Section { notes, targets, panels: vec![wall, client, servers], ..Section::default() })
}

/// A file that includes 200 others.
pub(super) fn wide(kit: &Kit, _: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    let jobs = vec![work::wide(); WIDE_JOBS];
    let runs = runs(&trial(kit, 0.0, &jobs, &jobs), &["200 headers"], contenders)?;
    let client = less_nothing(client_cpu(&runs)?)?;
    let what = "client CPU a job, pull, C++ with 200 headers, ms";
    let targets = vec![Target::new(what, Limit::AtMost(4.0), summary(&client, "pull"))];
    Ok(Section { targets, panels: vec![client], ..Section::default() })
}

/// How many jobs a second one client processor can hand to compilers that do not wait.
pub(super) fn feed(kit: &Kit, jobs: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    let build = build::repeated(jobs, FAST_JOBS);
    let compiling: Vec<&dyn Contender> =
        contenders.iter().copied().filter(|contender| contender.compiles()).collect();
    let runs = runs(&trial(kit, 0.0, &build, jobs), &["Redis"], &compiling)?;
    let unit = "1/s, more is better";
    let rate = runs.panel("Jobs that one client core feeds", unit, "build", "/jobs_per_s")?;
    let what = "jobs a second that one client core can feed: pull / distcc";
    let figure = ratio_of(&rate, "pull", "distcc")?;
    let busy = runs.panel("", "", "", "/servers_busy")?;
    let mut notes = Vec::new();
    for series in &busy.series {
        let share = series.summary(0).map_or(0.0, |summary| summary.median);
        let too_much = if share > BUSY_MAX { ": their limit, not the client's" } else { "" };
        let percent = share * 100.0;
        notes.push(format!(
            "Feeding with {}, the servers' core is {percent:.0} % busy{too_much}.",
            series.name
        ));
    }
    let targets = vec![Target::new(what, Limit::AtLeast(3.0), figure)];
    Ok(Section { notes, targets, panels: vec![rate], ..Section::default() })
}

/// Real compilers: one server beside its client on this machine, against `make` alone.
pub(super) fn real(kit: &Kit, jobs: &[Job], contenders: &Contenders<'_>) -> Result<Section> {
    let jobs = &jobs[..REAL_JOBS];
    let servers = Servers::Real;
    let trial = Trial { kit, servers, medium: Medium::Tmpfs, jobs, warm_up: &jobs[..SERVERS] };
    let pull = contenders.iter().copied().filter(|contender| contender.name() == "pull");
    let both: Vec<&dyn Contender> = pull.chain([&Plain as &dyn Contender]).collect();
    let runs = runs(&trial, &["Redis"], &both)?;
    let title = format!("{REAL_JOBS} jobs, real compilers, one server on the client's machine");
    let wall = runs.panel(&title, "s, less is better", "build", "/wall_s")?;
    let what = "real compilers, one server on the same machine: pull / make alone";
    let target = Target::new(what, Limit::AtMost(1.08), ratio_of(&wall, "pull", Plain.name())?);
    Ok(Section { targets: vec![target], panels: vec![wall], ..Section::default() })
}

/// Stand-ins that sleep `factor` times as long as the real compiler computed.
pub(super) fn trial<'a>(
    kit: &'a Kit,
    factor: f64,
    jobs: &'a [Job],
    warm_up: &'a [Job],
) -> Trial<'a> {
    let servers = Servers::StandIns { count: SERVERS, factor };
    Trial { kit, servers, medium: Medium::Tmpfs, jobs, warm_up }
}

fn runs<'a>(
    trial: &Trial<'_>,
    points: &'a [&'a str],
    contenders: &Contenders<'_>,
) -> Result<Runs<'a>> {
    let mut measured: Vec<_> =
        contenders.iter().map(|contender| trial.contender(*contender)).collect();
    Ok(Runs { points, series: alternate(&mut measured, points, ROUNDS)? })
}

fn client_cpu(runs: &Runs<'_>) -> Result<Panel> {
    let title = "Client's CPU a job, less a wrapper that does nothing";
    runs.panel(title, "ms, less is better", "build", "/client_ms")
}

/// The panel without `nothing`, which made no objects.
fn compiling(mut panel: Panel) -> Panel {
    panel.series.retain(|series| series.name != "nothing");
    panel
}

/// Subtracts the samples of `nothing` from all others, round by round, and removes it.
fn less_nothing(mut panel: Panel) -> Result<Panel> {
    let nothing = panel.series.iter().position(|series| series.name == "nothing");
    let nothing = panel.series.remove(nothing.context("there is no measurement of `nothing`")?);
    for series in &mut panel.series {
        for (samples, less) in series.samples.iter_mut().zip(&nothing.samples) {
            samples.iter_mut().zip(less).for_each(|(sample, less)| *sample -= less);
        }
    }
    Ok(panel)
}

/// Processor time of the stand-in itself for a job, less that of an empty process, in ms.
fn bare(kit: &Kit, jobs: &[Job]) -> Result<f64> {
    let servers = Servers::StandIns { count: 1, factor: 0.0 };
    let trial = Trial { servers, ..trial(kit, 0.0, jobs, jobs) };
    let nothing = super::nothing(kit);
    let ms = |contender: &dyn Contender| -> Result<f64> {
        let sample = trial.run(contender)?;
        sample["client_ms"].as_f64().context("no processor time")
    };
    Ok(ms(&Bare)? - ms(&nothing)?)
}

/// Bytes that the client sends in a build that the servers have built before.
fn bytes(kit: &Kit, jobs: &[Job], runs: &Runs<'_>) -> Result<Target> {
    let preprocessed = preprocessed(kit, jobs)?;
    let sent = runs.panel("", "", "", "/sent")?;
    #[expect(clippy::cast_precision_loss, reason = "a ratio of bytes")]
    let whole = preprocessed as f64 * JOBS as f64 / jobs.len() as f64;
    let figure = scaled(&sent, "pull", |bytes| bytes / whole);
    let what = "bytes to servers, second build: pull / preprocessed";
    Ok(Target::new(what, Limit::AtMost(0.05), figure))
}

/// Bytes of all jobs' sources, preprocessed.
fn preprocessed(kit: &Kit, jobs: &[Job]) -> Result<u64> {
    let text = std::env::temp_dir().join(format!("outboard-{}.i", std::process::id()));
    let mut bytes = 0;
    for job in jobs {
        let mut compiler = Command::new(job.compiler);
        compiler.args(job.words(&text.to_string_lossy())).arg("-E").current_dir(kit.project());
        command::run(&mut compiler)?;
        bytes += fs::metadata(&text)?.len();
    }
    fs::remove_file(&text)?;
    Ok(bytes)
}

fn find<'a>(panel: &'a Panel, name: &str) -> Option<&'a Series> {
    panel.series.iter().find(|series| series.name == name)
}

fn summary(panel: &Panel, name: &str) -> Option<Summary> {
    find(panel, name)?.summary(0)
}

fn scaled(panel: &Panel, name: &str, scale: impl Fn(f64) -> f64) -> Option<Summary> {
    let samples = find(panel, name)?.samples.first()?;
    Summary::of(&samples.iter().map(|sample| scale(*sample)).collect::<Vec<_>>())
}

/// The ratio of two contenders; `None` unless both took part.
fn ratio_of(panel: &Panel, ours: &str, theirs: &str) -> Result<Option<Summary>> {
    match find(panel, ours) {
        Some(_) => ratio(panel, ours, theirs, 0),
        None => Ok(None),
    }
}

fn quotient(what: &str, panel: &Panel, ours: &str, limit: f64) -> Result<Target> {
    Ok(Target::new(what, Limit::AtMost(limit), ratio_of(panel, ours, "distcc")?))
}
