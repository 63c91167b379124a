//! `cargo xtask`: the project's own checks, test runner and benchmarks.
//!
//! Only reads the command line; the work is in the library beside it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
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
        /// Install what the suites need first: Debian packages, cargo-nextest, cargo-deny; with
        /// --full also nightly Rust, cargo-fuzz, pjdfstest and fsx
        #[arg(long)]
        install: bool,
    },
    /// Link libibverbs.so.1, librdmacm.so.1 and liboutboard_active.so.1; prints where they are
    Libs {
        /// With optimisation, below target/release instead of target/debug
        #[arg(long)]
        release: bool,
    },
    /// Regenerate the C layouts of libibverbs and librdmacm from the installed headers, by bindgen
    Bindings,
    /// Build the shipped modules of active code, or check that the built ones are up to date
    Modules {
        /// What to do
        step: ModulesStep,
    },
    /// Emulated hosts on this machine
    Lab {
        #[command(subcommand)]
        lab: LabTask,
    },
    /// Run a benchmark against its rivals: cargo xtask bench stack
    Bench {
        /// Which benchmark
        name: String,
        /// Install what it needs first
        #[arg(long)]
        install: bool,
    },
}

/// What to do with the modules.
#[derive(Clone, Copy, ValueEnum)]
enum ModulesStep {
    /// Build them into modules/built
    Build,
    /// Build them elsewhere and compare
    Check,
}

#[derive(Subcommand)]
enum LabTask {
    /// Two hosts, A and B, with a link that delays every packet; runs a command on A
    #[command(after_help = xtask::lab::run::EXAMPLES)]
    Delay {
        /// How long each packet takes, such as 100us or 1ms
        #[arg(long, value_parser = xtask::lab::units::duration)]
        one_way: Duration,
        /// What each host sends at most in a second, such as 1gbit; unlimited without it
        #[arg(long, value_parser = xtask::lab::units::bits)]
        rate: Option<u64>,
        /// The command and its arguments
        #[arg(last = true)]
        command: Vec<OsString>,
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
        Task::Modules { step: ModulesStep::Build } => xtask::modules::build(),
        Task::Modules { step: ModulesStep::Check } => xtask::modules::report(),
        Task::Lab { lab: LabTask::Delay { one_way, rate, command } } => {
            xtask::lab::run::delay(one_way, rate, &command)
        }
        Task::Bench { name, install } => xtask::bench::run(&name, install),
    }
}

fn libs(release: bool) -> Result<()> {
    xtask::libs::build(release)?;
    println!("{}", xtask::libs::active::build(release)?.display());
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
