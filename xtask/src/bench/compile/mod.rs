//! `cargo xtask bench compile`: `outboard cc` beside distcc and icecream, on emulated servers; and
//! `compile-servers`, the same with 1 to 14 of them.
//! The servers' compiler is a stand-in that replays records of the real one; it sleeps instead of
//! computing, so that 14 servers fit on one processor. Needs root, because hosts are network
//! namespaces. `OUTBOARD_ONLY=pull,distcc` runs those contenders only, `OUTBOARD_PARTS=redis,where`
//! those parts (see [`PARTS`]).
//!
//! Reading order: `work` (the compiled sources), `recorder` and `watch` (recording the real
//! compiler), `place` (a server's stand-in), `stage` (client and servers), `build` (one build and
//! its cost), `contender`, `distcc`, `icecc`, `nocc`, `ours`, `trial` (one measurement), `rows`
//! (the targets), `setup` (the paper's Table 1 and connections), `whereabouts` (its Tables 2 and
//! 3), `figure` (its Figure 10).

mod build;
mod contender;
mod distcc;
mod figure;
mod icecc;
mod nocc;
mod ours;
mod place;
mod recorder;
mod rows;
mod setup;
mod stage;
mod trial;
mod watch;
mod whereabouts;
mod work;

use std::env;

use anyhow::Result;

use super::report::Report;
use super::stack::section::{self, Section};
use crate::command;
use crate::test::needs::Need;
use crate::{lab, sources};
use contender::{Contender, Nothing};
use ours::{Ours, Way};
use rows::Contenders;
use stage::Kit;
use trial::Trial;
use work::Job;

/// Its requirements.
pub(super) const NEEDS: &[Need] = &[
    Need::Packages(sources::PACKAGES),
    Need::Packages(lab::PACKAGES),
    Need::Packages(&["distcc", "icecc", "strace", "gcc", "g++", "libc6-dev", "make"]),
    Need::Packages(&["libibverbs-dev"]),
];

/// A part of the page, by its name in `OUTBOARD_PARTS`.
type Part = (&'static str, fn(&Kit, &[Job], &Contenders<'_>) -> Result<Section>);

const PARTS: &[Part] = &[
    ("redis", rows::redis),
    ("wide", rows::wide),
    ("feed", rows::feed),
    ("real", rows::real),
    ("setup", setup::figures),
    ("where", whereabouts::tables),
];

/// Measures everything; takes about half an hour.
///
/// # Errors
/// When not root, a package is missing, or a contender fails.
pub(super) fn run() -> Result<Report> {
    measure("Distributed compilation", PARTS)
}

/// Draws the paper's Figure 10; takes a quarter of an hour.
///
/// # Errors
/// As [`run`].
pub(super) fn run_servers() -> Result<Report> {
    measure("Distributed compilation by 1 to 14 servers", &[("servers", figure::servers)])
}

fn measure(title: &str, parts: &[Part]) -> Result<Report> {
    let kit = prepare()?;
    let jobs = work::redis(&kit.project())?;
    let everybody = contenders(&kit)?;
    let everybody: Vec<&dyn Contender> = everybody.iter().map(AsRef::as_ref).collect();
    let parts = parts.iter().filter(|(name, _)| asked("OUTBOARD_PARTS", name));
    let sections = parts.map(|(_, part)| part(&kit, &jobs, &everybody));
    let sections = sections.collect::<Result<Vec<_>>>()?;
    Ok(section::report(title, CONDITIONS, sections))
}

/// Makes everything that is made once.
fn prepare() -> Result<Kit> {
    let base = command::target_dir().join("bench/compile");
    let kit = Kit { base, programs: place::build()? };
    if !kit.project().is_dir() {
        work::make_project(&kit.project())?;
    }
    let mut jobs = work::redis(&kit.project())?;
    jobs.push(work::wide());
    recorder::record(&kit.project(), &jobs, &kit.records())?;
    Ok(kit)
}

/// Outboard first, because ratios are of Outboard to each rival.
fn contenders(kit: &Kit) -> Result<Vec<Box<dyn Contender>>> {
    let wanted = |name: &str| asked("OUTBOARD_ONLY", name);
    let mut all: Vec<Box<dyn Contender>> = Vec::new();
    if wanted("pull") || wanted("preprocess") {
        let programs = ours::build()?;
        let ours = |way| Box::new(Ours { programs: programs.clone(), way });
        all.extend([Way::Pull, Way::Preprocess].map(|way| ours(way) as Box<dyn Contender>));
    }
    all.push(Box::new(distcc::Distcc));
    all.push(Box::new(icecc::Icecc(kit.programs.nothing.clone())));
    if nocc::is_installed() {
        all.push(Box::new(nocc::Nocc));
    }
    all.retain(|contender| wanted(contender.name()));
    // The processor time of this one is subtracted from all others.
    all.push(Box::new(nothing(kit)));
    Ok(all)
}

fn nothing(kit: &Kit) -> Nothing {
    Nothing(kit.programs.nothing.display().to_string())
}

/// Whether a variable is unset or lists this name.
fn asked(variable: &str, name: &str) -> bool {
    env::var(variable).map_or(true, |names| names.split(',').any(|part| part == name))
}

const CONDITIONS: &[&str] = &[
    "Hosts are network namespaces with links of 1 Gbit/s to one bridge; messages shorter than \
     70 kB cross an idle link at once. The client has processor 0 to itself, all servers share \
     processor 1, so messages between them wake another processor.",
    "The servers' compiler is a stand-in: it reads every file that the real one read and repeats \
     its failed look-ups, or reads the preprocessed text; then it waits for the real one's \
     processor time, without using any, while it holds its server's one emulated core; then it \
     writes the recorded object. A server accepts two jobs at a time (of one or two servers, each \
     accepts more).",
    "CPU is everything in the client's control group, `make` too, less the same build with a \
     wrapper that does nothing. Project, objects and temporary files are on tmpfs for all unless \
     said. Every contender has built everything once before it is measured, and every object is \
     compared with the recorded one.",
];
