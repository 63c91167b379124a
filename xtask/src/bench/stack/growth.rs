//! The cost of one more connection when there are thousands: `growth.c` on the C libraries, in
//! processor time of both ends, which is not affected by other work on the machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::FIGURE_ROUNDS;
use super::section::{Limit, Runs, Section, Target};
use crate::bench::measure::{self, Contender, Summary, alternate};
use crate::bench::report::Panel;
use crate::{command, libs};

/// Numbers of existing connections; the others are compared with the first.
const POINTS: [&str; 3] = ["10", "8000", "10000"];
/// The limit of the cost with many connections, as a multiple of that with few.
const MOST: f64 = 2.0;
/// The operations, and where the program prints their costs.
const COSTS: [(&str, &str); 5] = [
    ("connecting", "/connect_us"),
    ("registering", "/register_us"),
    ("deregistering", "/deregister_us"),
    ("a Read waited for by polling", "/read_us"),
    ("ending", "/end_us"),
];

/// The cost of each operation on one connection while there are others.
pub(super) fn costs() -> Result<Section> {
    let libraries = libs::build(true)?;
    let program = compile(&libraries)?;
    let measure = |point: &str| {
        let mut command = Command::new(&program);
        measure::json(command.arg(point).env("LD_LIBRARY_PATH", &libraries))
    };
    // The largest number may need more descriptors than a process may have here.
    let fits = measure(POINTS[2]).is_ok();
    let points = &POINTS[..if fits { 3 } else { 2 }];
    let mut contenders = [Contender { name: "Outboard", measure: Box::new(measure) }];
    let runs = Runs { points, series: alternate(&mut contenders, points, FIGURE_ROUNDS)? };
    let mut section = Section::default();
    for (what, pointer) in COSTS {
        let title = format!("Processor time of {what}, both ends");
        let panel = runs.panel(&title, "µs, less is better", "connections", pointer)?;
        for (index, point) in POINTS.iter().enumerate().skip(1) {
            let name = format!("{what} with {point} connections / with {}", POINTS[0]);
            section.targets.push(Target::new(&name, Limit::AtMost(MOST), growth(&panel, index)));
        }
        section.panels.push(panel);
    }
    Ok(section)
}

/// The cost at a point as a multiple of that at the first, round by round; `None` if it was not
/// measured.
pub(super) fn growth(panel: &Panel, point: usize) -> Option<Summary> {
    let samples = &panel.series.first()?.samples;
    let pairs = samples.get(point)?.iter().zip(samples.first()?);
    Summary::of(&pairs.map(|(many, few)| many / few).collect::<Vec<_>>())
}

fn compile(libraries: &Path) -> Result<PathBuf> {
    let binary = command::target_dir().join("bench/growth");
    std::fs::create_dir_all(command::target_dir().join("bench"))?;
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2"]);
    cc.arg(command::root().join("xtask/src/bench/stack/growth.c")).arg("-o").arg(&binary);
    cc.arg("-L").arg(libraries).args(["-lrdmacm", "-libverbs"]);
    command::run(&mut cc)?;
    Ok(binary)
}
