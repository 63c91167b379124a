//! Proof that programs built for RDMA hardware run unchanged: stock ones from Debian, pyverbs' own
//! tests, and C programs of ours that are hard on the libraries.
//!
//! Every program has a time limit. Reading order: `table` (what is run), `pair` (running a row),
//! `process`, `pyverbs`, `c_programs`.

mod c_programs;
mod pair;
mod process;
mod pyverbs;
mod table;

use std::fs;
use std::time::Instant;

use anyhow::Result;

use crate::command::{self, cargo};
use crate::test::Count;
use pair::Bench;

/// The Debian packages of the programs, and what compiles C.
pub const PACKAGES: &[&str] = &[
    "rdmacm-utils",
    "ibverbs-utils",
    "perftest",
    "fio",
    "libfabric-bin",
    "python3-pyverbs",
    "rdma-core",
    "libibverbs-dev",
    "librdmacm-dev",
    "gcc",
    "libc6-dev",
    "iproute2",
];

/// Builds the libraries and runs everything on them.
///
/// # Errors
/// When something does not build; a program that fails is counted.
pub fn run(full: bool) -> Result<Count> {
    let bench = prepare()?;
    let mut total = Count::default();
    for row in table::rows(full) {
        let began = Instant::now();
        total += told(&row.name, began, bench.run(&row));
    }
    total += c_programs::run(&bench)?;
    total += pyverbs::run(&bench)?;
    Ok(total)
}

fn prepare() -> Result<Bench> {
    command::run(&mut cargo(["build", "--release", "--package", "outboard"]))?;
    command::run(&mut cargo(["xtask", "libs"]))?;
    let logs = command::target_dir().join("ibverbs");
    fs::create_dir_all(&logs)?;
    Ok(Bench { outboard: command::target_dir().join("release/outboard"), logs })
}

/// Prints how one program went.
fn told(name: &str, began: Instant, result: Result<()>) -> Count {
    let seconds = began.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("passed  {name} ({seconds:.1} s)"),
        Err(error) => println!("FAILED  {name} ({seconds:.1} s): {error:#}"),
    }
    Count::one(result.is_ok())
}
