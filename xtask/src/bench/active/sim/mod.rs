//! `cargo xtask bench active-sim`: the paper's simulation. Measures what messages, one-sided
//! operations and executions cost here, checks what `crates/sim` makes of these figures against
//! real nodes, and draws what it says of machines that are not here.
//!
//! `OUTBOARD_ONLY=costs,loopback` runs these parts alone and draws the page with what earlier runs
//! found in the others; `OUTBOARD_ONLY=page` measures nothing. Parts: `costs`, `loopback`,
//! `delayed`; each takes less than a minute.
//!
//! Reading order: `costs` (what is measured, and the costs that follow), `processor` (time of the
//! node's processes), `model` (the simulation as a program), `check` (workloads on real nodes),
//! then what is drawn: `hops`, `clients`, `bytes`, `paper`.

mod bytes;
mod check;
mod clients;
mod costs;
mod hops;
mod model;
mod paper;
mod processor;

use std::path::PathBuf;
use std::{env, fs};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bench::report::Report;
use crate::command;
use check::CheckedPath;
use costs::MeasuredCosts;
use model::Model;

/// Parts that measure, in their order.
const PARTS: [&str; 3] = [COSTS, LOOPBACK, DELAYED];
const COSTS: &str = "costs";
const LOOPBACK: &str = "loopback";
const DELAYED: &str = "delayed";
/// Of `OUTBOARD_ONLY`: nothing is measured.
const PAGE: &str = "page";

/// Measures what is asked for, and draws everything.
///
/// # Errors
/// When a part has another name, fails, or was never run.
pub(in crate::bench) fn run() -> Result<Report> {
    let only = env::var("OUTBOARD_ONLY").unwrap_or_default();
    let asked: Vec<&str> = only.split(',').filter(|name| !name.is_empty()).collect();
    if let Some(unknown) = asked.iter().find(|name| !PARTS.contains(name) && **name != PAGE) {
        bail!("OUTBOARD_ONLY names {unknown}, but there are: {}, {PAGE}", PARTS.join(", "));
    }
    let is_asked = |part: &str| asked.is_empty() || asked.contains(&part);
    if is_asked(COSTS) {
        save(COSTS, &costs::measure()?)?;
    }
    if is_asked(LOOPBACK) {
        save(LOOPBACK, &check::on_loopback()?)?;
    }
    if is_asked(DELAYED) {
        save(DELAYED, &check::over_a_delay()?)?;
    }
    page()
}

/// Everything that was found, and what follows from it.
fn page() -> Result<Report> {
    let costs: MeasuredCosts = load(COSTS)?;
    let model = Model::build()?;
    let mut page = Report {
        title: "Active code, simulated".into(),
        conditions: CONDITIONS.iter().map(|text| (*text).to_owned()).collect(),
        tables: vec![costs.table()],
        panels: Vec::new(),
    };
    for (part, path) in [(LOOPBACK, costs.loopback()), (DELAYED, costs.delayed())] {
        let checked: CheckedPath = load(part)?;
        let (table, note) = checked.beside(&model, path)?;
        page.tables.push(table);
        page.conditions.push(note);
    }
    page.tables.extend(hops::crossovers(&model, costs.loopback().0)?);
    page.panels.extend(hops::ratios(&model, costs.loopback().0)?);
    page.panels.extend(clients::throughputs(&model, costs.loopback().0)?);
    page.panels.extend(bytes::scans(&model, costs.loopback().0)?);
    page.tables.push(paper::beside(&model, costs.loopback().0)?);
    let beside = command::root().join("docs/benchmarks/active-sim.json");
    fs::write(&beside, serde_json::to_string_pretty(&costs)? + "\n")?;
    Ok(page)
}

fn path(part: &str) -> PathBuf {
    command::target_dir().join("bench/active-sim").join(part).with_extension("json")
}

fn save(part: &str, found: &impl Serialize) -> Result<()> {
    let path = path(part);
    fs::create_dir_all(path.with_file_name(""))?;
    fs::write(&path, serde_json::to_string_pretty(found)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn load<T: DeserializeOwned>(part: &str) -> Result<T> {
    let path = path(part);
    let missing = || format!("part {part} was never run: OUTBOARD_ONLY={part} runs it");
    let text = fs::read_to_string(&path).with_context(missing)?;
    let other = || format!("{} is not of this benchmark: remove it", path.display());
    serde_json::from_str(&text).with_context(other)
}

const CONDITIONS: &[&str] = &[
    "**What is simulated.** Clients, each with a processor and a link of its own; a node with an \
     engine that serves messages and a core that executes, each one thing at a time, first come, \
     first served. The modules that come with Outboard are really executed, by the node's own \
     executor on a real region, in virtual time; plain clients Read, Write and CompareSwap the \
     same bytes as real ones. An execution's fuel becomes time; a core that is 3 or 10 times \
     slower takes 3 or 10 times as long for the fixed part, the fuel and the commit, but messages \
     and plain verbs cost what they cost.",
    "**What is not.** Caches, losses, congestion, several cores, the client's own work (but for \
     looking through what it has read), and pauses of either machine. One unit of fuel costs the \
     same in every module, the mean of one whose steps wait for each other and one whose steps do \
     not: real ones differ by more than two times. One-sided operations that arrive while the \
     core executes on its own see its writes from its beginning.",
    "**Where the costs come from.** From this machine, encrypted: each kind of request alone, by \
     `active_load probe`; a Send ping-pong; and the processor time of a node that 64 clients ask \
     to execute, or one client floods with Reads, 64 posted together, which favours Reads. None \
     of these is among the workloads that check the simulation. [active-sim.json](active-sim.json) \
     has the costs and all figures behind them. Sleeping sides were measured on a link of 20 µs \
     one way and are checked on one of 100 µs; what a commit and a unit of fuel cost they share \
     with loopback.",
    "**Messages 5 or 20 times cheaper** stand for a network card in hardware. No measurement is \
     behind these two factors; all else is as measured.",
    "**What follows.** Where Reads depend on each other, one execution is faster from the second \
     Read on as soon as the link takes 10 µs one way, even on the slowest of the cores. Without \
     a delay a slow core needs a few Reads more, and some tens where messages are as cheap as in \
     hardware. The gain grows with the hops until walking them at the core takes as long as a \
     round trip. A get that needs one Read is never faster by execution.",
    "**Where it stops paying**: at that one Read; where many clients fill the core, because an \
     execution's fixed part limits what a core does in a second, while cheap messages leave an \
     engine room for many more Reads; and where a slow core scans what a fast link could carry to \
     a client's processor.",
    "**The paper's table**: it says neither its network's delay nor its list's length; both are \
     derived here from its list get by RDMA and its active table get. Its list put takes as \
     long as two Reads for each hop, its table as seven where ours takes two.",
    "In the panels × divides the first column by the other one. A simulation's figures have no \
     spread.",
];
