//! `cargo xtask`: the project's own checks, test runner and benchmarks.
//!
//! Only reads the command line; the work is in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use xtask::test::Settings;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks, tests and benchmarks of Outboard")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Check what the compiler cannot: crate arrows, sizes, unsafe code, banned text, links
    Tidy,
    /// Run every test suite, or the named ones: cargo xtask test tidy unit
    Test {
        /// Suites to run; all of them when none is named
        suites: Vec<String>,
        /// Run the long matrices whole and fuzz for 15 minutes a target
        #[arg(long)]
        full: bool,
        /// Install what the suites need first: Debian packages, cargo-fuzz, nightly Rust
        #[arg(long)]
        install: bool,
    },
    /// Link libibverbs.so.1 and librdmacm.so.1; prints where they are
    Libs {
        /// With optimisation, below target/release instead of target/debug
        #[arg(long)]
        release: bool,
    },
    /// Regenerate the C layouts of libibverbs and librdmacm from the installed headers, by bindgen
    Bindings,
    /// Run a benchmark against its rivals: cargo xtask bench stack
    Bench {
        /// Which benchmark
        name: String,
        /// Install what it needs first
        #[arg(long)]
        install: bool,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Tidy => tidy(),
        Task::Test { suites, full, install } => {
            xtask::test::run(&suites, install, &Settings { full })
        }
        Task::Libs { release } => libs(release),
        Task::Bindings => xtask::bindings::run(),
        Task::Bench { name, install } => xtask::bench::run(&name, install),
    }
}

fn libs(release: bool) -> Result<()> {
    println!("{}", xtask::libs::build(release)?.display());
    Ok(())
}

fn tidy() -> Result<()> {
    let findings = xtask::tidy::check()?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(());
    }
    bail!("{} findings; STYLE.md has the reason for each rule", findings.len())
}
