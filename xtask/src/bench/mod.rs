//! Benchmarks: `cargo xtask bench NAME`.
//!
//! A benchmark runs Outboard and its rivals in turn, on the same work, in one run; only ratios
//! count, because absolute times from a shared machine are noise. It never fails a test run.
//! `OUTBOARD_ROUNDS=1` does everything once, to see that it works.
//! `measure` runs commands and summarizes samples, `report` writes `target/bench/NAME.json` and the
//! table `docs/benchmarks/NAME.md`, `chart` draws the chart beside it. A new benchmark is a module
//! here and a row in [`BENCHES`].

mod active;
mod aimed;
mod cast;
pub mod chart;
mod compile;
mod fs;
mod ibverbs;
pub mod measure;
mod offload;
pub mod report;
mod stack;

#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};

use report::Report;

use crate::command;
use crate::test::needs::{self, Need};

/// A benchmark that can be run by name.
#[derive(Debug)]
pub struct Bench {
    /// Its name in `cargo xtask bench NAME`.
    pub name: &'static str,
    /// Its requirements.
    pub needs: &'static [Need],
    /// Measures everything; may take minutes.
    pub run: fn() -> Result<Report>,
}

/// Every benchmark.
pub const BENCHES: &[Bench] = &[
    Bench { name: "stack", needs: stack::NEEDS, run: stack::run },
    Bench { name: "ibverbs", needs: ibverbs::NEEDS, run: ibverbs::run },
    Bench { name: "cast", needs: cast::NEEDS, run: cast::run },
    Bench { name: "active", needs: active::NEEDS, run: active::run },
    Bench { name: "fs", needs: fs::NEEDS, run: fs::run },
    Bench { name: "active-sim", needs: active::NEEDS, run: active::sim::run },
    Bench { name: "offload", needs: offload::NEEDS, run: offload::run },
    Bench { name: "compile", needs: compile::NEEDS, run: compile::run },
    Bench { name: "compile-servers", needs: compile::NEEDS, run: compile::run_servers },
];

/// Runs one benchmark, prints its table and writes its files. With `install`, its requirements are
/// installed first.
///
/// # Errors
/// When the name is unknown, something is missing, a contender fails, or a file cannot be written.
pub fn run(name: &str, install: bool) -> Result<()> {
    let names = BENCHES.iter().map(|bench| bench.name).collect::<Vec<_>>();
    let known = || format!("no benchmark {name}; there are: {}", names.join(", "));
    let bench = BENCHES.iter().find(|bench| bench.name == name).with_context(known)?;
    if install {
        needs::install(bench.needs)?;
    }
    let missing = needs::missing(bench.needs);
    if !missing.is_empty() {
        bail!("{name} needs: {}", needs::remedy(&missing));
    }
    let report = (bench.run)()?;
    println!("{}", report.markdown(name));
    report.write(name, command::root(), &command::target_dir())
}
