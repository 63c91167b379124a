//! A scan of 100 MB for the largest records: by an execution, by the same C natively, and by
//! reading everything over a link of 1 Gbit/s.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::load::{ActivePrograms, NodeSetup, Where};
use super::redis::Protection;
use crate::bench::aimed::AimedFindings;
use crate::bench::measure::{Contender, alternate, json as printed, pinned};
use crate::bench::report::{Panel, Series};
use crate::bench::stack::section::{Runs, ratio};
use crate::command;
use crate::lab::{Lab, Link};

const ROUNDS: usize = 5;
const MS: &str = "1500";
const OURS: &str = "Execute";
/// The compilers whose best is compared with, and their names on the page.
const NATIVE: [(&str, &str); 2] = [("gcc", "native C, gcc -O2"), ("clang", "native C, clang -O2")];
const READ: &str = "reading it all";

/// On loopback beside native code, and over a link beside Reads.
pub(super) fn scans() -> Result<AimedFindings> {
    let programs = ActivePrograms::build()?;
    let native = beside_native(&programs)?;
    let link = over_link(&programs)?;
    let fastest = |point| {
        let times = NATIVE.iter().filter_map(|(_, name)| ratio(&native, name, OURS, point).ok()?);
        times.min_by(|one, other| one.median.total_cmp(&other.median))
    };
    let figures = vec![fastest(0), ratio(&link, READ, OURS, 0)?];
    Ok(AimedFindings { figures, panels: vec![native, link], ..AimedFindings::default() })
}

fn beside_native(programs: &ActivePrograms) -> Result<Panel> {
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "adaptive" };
    let node = programs.node(Where::Loopback, setup)?;
    let built = NATIVE.map(|(compiler, name)| (build(compiler), name));
    let mut contenders: Vec<Contender<'_, Value>> = vec![Contender {
        name: OURS,
        measure: Box::new(|_| node.shipped("scan", &["spin", "top", MS])),
    }];
    for (program, name) in &built {
        // A compiler that is not installed is left out.
        let Ok(program) = program else { continue };
        let native = |_: &str| printed(&mut pinned("1", &program.to_string_lossy(), &[MS]));
        contenders.push(Contender { name, measure: Box::new(native) });
    }
    let points = &["100 MB"];
    let series = alternate(&mut contenders, points, ROUNDS)?;
    same_result(&series)?;
    Runs { points, series }.panel("Top 10 of a scan, loopback", UNIT, "records", "/p50_us")
}

const UNIT: &str = "µs, less is better";

/// All contenders must have found the same.
fn same_result(series: &[Series<Value>]) -> Result<()> {
    let mut results = series.iter().flat_map(|series| &series.samples[0]).map(|it| &it["result"]);
    let first = results.next().context("there is a sample")?;
    ensure!(results.all(|result| result == first), "the scans found different records");
    Ok(())
}

fn over_link(programs: &ActivePrograms) -> Result<Panel> {
    let lab = Lab::new(&["0", "1"], Link::BitsPerSecond(1_000_000_000))?;
    let [client, server] = lab.hosts() else { anyhow::bail!("two hosts were asked for") };
    let setup = NodeSetup { protection: Protection::Encrypted, spin: "adaptive" };
    let node = programs.node(Where::Hosts([client, server]), setup)?;
    let scan = |what: &'static str| {
        let node = &node;
        Box::new(move |_: &str| node.shipped("scan", &["block", what, MS]))
    };
    let mut contenders: [Contender<'_, Value>; 2] = [
        Contender { name: OURS, measure: scan("top") },
        Contender { name: READ, measure: scan("all") },
    ];
    let points = &["100 MB"];
    let series = alternate(&mut contenders, points, 3)?;
    Runs { points, series }.panel("Top 10 of a scan, 1 Gbit/s", UNIT, "records", "/p50_us")
}

/// The module, its native host and `topk.c`, in one program.
fn build(compiler: &str) -> Result<PathBuf> {
    let root = command::root();
    let directory = command::target_dir().join("bench");
    fs::create_dir_all(&directory)?;
    let program = directory.join(format!("topk-{compiler}"));
    let modules = root.join("modules");
    let sources = ["topk/topk.c", "native/host.c"].map(|source| modules.join(source));
    let mut command = Command::new(compiler);
    command.args(["-O2", "-DOB_NATIVE", "-I"]).arg(&modules).arg("-I").arg(modules.join("include"));
    command.arg("-o").arg(&program).arg(root.join("xtask/src/bench/active/topk.c")).args(sources);
    command::run(&mut command)?;
    Ok(program)
}
