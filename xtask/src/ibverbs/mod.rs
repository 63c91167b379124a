//! Proof that programs built for RDMA hardware run unchanged: stock ones from Debian, pyverbs' own
//! tests, and the project's C programs that stress the libraries.
//!
//! Every program has a time limit. `OUTBOARD_ONLY=ib_send_bw cargo xtask test ibverbs` runs the
//! rows with that in their names. Reading order: `table` (what is run), `pair` (running a row),
//! `namespace`, `debian13` (rdma-core 56), `ordinary` (a user), `pyverbs`, `c_programs`.

mod c_programs;
mod debian13;
mod namespace;
mod ordinary;
mod pair;
mod pyverbs;
mod table;

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::builds;
use crate::command;
use crate::libs;
use crate::test::Count;
use crate::test::check::{passes, print_result, wanted};
use crate::test::sample::sample;
use debian13::Debian13;
use namespace::Namespace;
use ordinary::Ordinary;
use pair::Bench;
use table::{Row, Site};

/// The Debian packages of the programs, and what compiles C.
pub const PACKAGES: &[&str] = &[
    "rdmacm-utils",
    "ibverbs-utils",
    "perftest",
    "fio",
    "libfabric-bin",
    "openmpi-bin",
    "libopenmpi-dev",
    "qperf",
    "python3-pyverbs",
    "rdma-core",
    "libibverbs-dev",
    "librdmacm-dev",
    "gcc",
    "libc6-dev",
    "iproute2",
    "util-linux",
];

/// Programs at a time. perftest measures the processor's speed for a fifth of a second, at each
/// size and at both ends, which is most of its time: other rows can run then.
const AT_ONCE: usize = 3;
/// How many of the slowest are named at the end.
const SLOWEST: usize = 10;

/// Builds the libraries, optimised if everything is to run whole, and runs everything on them.
///
/// # Errors
/// When something does not build; a program that fails is counted.
pub fn run(full: bool) -> Result<Count> {
    let jobs = jobs(full);
    let bench = prepare(&jobs, full)?;
    let jobs = Mutex::new(jobs);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let work = || {
            while let Some(job) = next(&jobs) {
                let one = job.run(&bench);
                done.lock().unwrap_or_else(PoisonError::into_inner).push(one);
            }
        };
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(work)));
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(report(done))
}

/// A unit of work that is run and counted by itself.
#[derive(Debug)]
enum Job {
    Row(Row),
    CProgram(&'static c_programs::Program, &'static str),
    Pyverbs(&'static str, Site),
    Mpi(Row),
}

/// The result of a job: its name, how long it took, its count.
type Done = (String, Duration, Count);

/// Everything that `OUTBOARD_ONLY` asks for, or a third of each table; the longest first.
fn jobs(full: bool) -> VecDeque<Job> {
    let programs = c_programs::PROGRAMS.iter();
    let both = |program| ["iwarp", "roce"].map(|personality| Job::CProgram(program, personality));
    let pyverbs = [("roce", Site::Loopback), ("iwarp", Site::Loopback), ("roce", Site::Ordinary)];
    let pyverbs = pyverbs.map(|(personality, site)| Job::Pyverbs(personality, site));
    let mpi = ["iwarp", "roce"].map(|at| Job::Mpi(table::mpi(at)));
    let rows = table::rows(full).into_iter().map(Job::Row);
    let c_programs = programs.flat_map(both);
    let tables: [(&str, Vec<Job>); 4] = [
        ("pyverbs", pyverbs.into()),
        ("MPI", mpi.into()),
        ("programs", rows.collect()),
        ("C programs", c_programs.collect()),
    ];
    let chosen = |(what, jobs): (&str, Vec<Job>)| {
        let third = jobs.len().div_ceil(3);
        if full { jobs } else { sample(what, jobs, third, Job::name) }
    };
    tables.into_iter().flat_map(chosen).filter(|job| wanted(&job.name())).collect()
}

fn next(jobs: &Mutex<VecDeque<Job>>) -> Option<Job> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

impl Job {
    fn name(&self) -> String {
        match self {
            Self::Row(row) | Self::Mpi(row) => row.name.clone(),
            Self::CProgram(program, personality) => format!("{}.c ({personality})", program.name),
            Self::Pyverbs(personality, Site::Ordinary) => {
                format!("pyverbs as an ordinary user ({personality})")
            }
            Self::Pyverbs(personality, _) => format!("pyverbs ({personality})"),
        }
    }

    fn site(&self) -> Site {
        match self {
            Self::Row(row) | Self::Mpi(row) => row.site,
            Self::CProgram(..) => Site::Loopback,
            Self::Pyverbs(_, site) => *site,
        }
    }

    fn run(&self, bench: &Bench) -> Done {
        let (name, began) = (self.name(), Instant::now());
        if let Some(why) = bench.lacks(self.site()) {
            return (name.clone(), Duration::ZERO, skipped(&name, why));
        }
        // Many stock programs have limits of time of their own, such as a transport's retries of
        // half a second.
        let again = |run: &dyn Fn() -> Result<()>| Count::one(passes(&name, run));
        let count = match self {
            Self::Row(row) => again(&|| bench.run(row)),
            Self::Mpi(row) => {
                again(&|| c_programs::compile_mpi(bench).and_then(|()| bench.run(row)))
            }
            Self::CProgram(program, personality) => {
                again(&|| c_programs::run(bench, program, personality))
            }
            Self::Pyverbs(personality, site) => pyverbs::run(bench, personality, *site)
                .unwrap_or_else(|error| Count::one(print_result(&name, began, &Err(error)))),
        };
        (name, began.elapsed(), count)
    }
}

/// Adds up the counts, and names the slowest rows.
fn report(mut done: Vec<Done>) -> Count {
    done.sort_by_key(|(_, took, _)| Reverse(*took));
    println!("slowest:");
    for (name, took, _) in done.iter().take(SLOWEST) {
        println!("{:7.1} s  {name}", took.as_secs_f64());
    }
    let mut total = Count::default();
    done.iter().for_each(|(.., count)| total += *count);
    total
}

fn prepare(jobs: &VecDeque<Job>, release: bool) -> Result<Bench> {
    let outboard = builds::outboard(release)?;
    libs::build(release)?;
    let logs = command::target_dir().join("ibverbs");
    fs::create_dir_all(&logs)?;
    let namespace = Namespace::new().map_err(|error| format!("{error:#}"));
    let debian13 = match jobs.iter().any(|job| job.site() == Site::Debian13) {
        true => Debian13::new(&command::target_dir().join("debian13"), &outboard),
        false => Err(anyhow!("no row needs it")),
    };
    let debian13 = debian13.map_err(|error| format!("{error:#}"));
    let ordinary = Ordinary::new(&outboard).map_err(|error| format!("{error:#}"));
    Ok(Bench { outboard, logs, namespace, debian13, ordinary })
}

/// Prints why one program did not run; CI does not accept that.
fn skipped(name: &str, why: &str) -> Count {
    println!("skipped {name}: {why}");
    Count { skipped: 1, ..Count::default() }
}
