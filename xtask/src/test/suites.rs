//! The table of test suites.
//!
//! A test that cargo alone can run needs no row: suite `unit` runs it. An integration test that
//! needs more (a package, minutes) says `test = false` in its crate's manifest, so that `cargo
//! test` leaves it out, and stands in a row here.

use std::env;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Result, anyhow};

use super::failures;
use super::needs::Need;
use super::sample::sample;
use super::{Count, Settings};
use crate::builds;
use crate::command::{self, cargo};
use crate::siw::interop::Program;
use crate::{cast, compile, ibverbs, libs, modules, siw, sources};

/// Among a suite's test programs: all that no suite names.
pub(super) const EVERY_OTHER: &str = "*";

/// When a suite's own checks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Before all tests.
    First,
    /// While test programs run.
    Beside,
    /// After all tests: they measure.
    Alone,
}

/// Runs a suite's own checks. An error counts as one failed check.
pub type RunChecks = fn(&Settings) -> Result<Count>;

/// A set of tests that runs or is skipped as one.
#[derive(Debug)]
pub struct Suite {
    /// What `cargo xtask test NAME` calls it.
    pub name: &'static str,
    /// What it tests, in one line.
    pub about: &'static str,
    /// Its requirements.
    pub needs: &'static [Need],
    /// Its test programs, as nextest names them: `PACKAGE::TEST`.
    pub tests: &'static [&'static str],
    /// Its checks that are no tests of cargo's.
    pub checks: Option<(Lane, RunChecks)>,
    /// Seconds that its checks and tests take on two cores, those of each test added up. Tests run
    /// side by side: a run takes less than its suites together.
    pub budget: u32,
}

impl Suite {
    /// Its requirements, and those of what runs it.
    pub(crate) fn all_needs(&self) -> impl Iterator<Item = &'static Need> {
        const NEXTEST: &Need = &Need::CargoTool("cargo-nextest");
        self.needs.iter().chain((!self.tests.is_empty()).then_some(NEXTEST))
    }

    /// Whether a test program belongs to it.
    pub(crate) fn runs(&self, binary: &str) -> bool {
        let has_others = self.tests.contains(&EVERY_OTHER);
        self.tests.contains(&binary) || has_others && !all_named().any(|named| named == binary)
    }
}

/// Every suite of a plain run.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "tidy",
        about: "the house rules",
        needs: &[],
        tests: &[],
        checks: Some((Lane::First, house_rules)),
        budget: 30,
    },
    Suite {
        name: "licences",
        about: "licences and sources of every dependency",
        needs: &[Need::CargoTool("cargo-deny")],
        tests: &[],
        checks: Some((Lane::First, licences)),
        budget: 5,
    },
    Suite {
        name: "build",
        about: "every test and program, once: nothing compiles while tests run",
        needs: &[],
        tests: &[],
        checks: Some((Lane::First, build)),
        budget: 650,
    },
    Suite {
        name: "docs",
        about: "the documentation's examples",
        needs: &[],
        tests: &[],
        checks: Some((Lane::First, documentation)),
        budget: 75,
    },
    Suite {
        name: "unit",
        about: "every crate's own tests",
        needs: &[
            Need::Packages(&["clang", "g++", "iproute2", "lld", "make", "ninja-build"]),
            Need::Packages(&["procps", "python3"]),
        ],
        tests: &[EVERY_OTHER],
        checks: None,
        budget: 1250,
    },
    Suite {
        name: "tshark",
        about: "Wireshark's dissectors decode Outboard's packets",
        needs: &[Need::Packages(&["tshark"])],
        tests: &["outboard-verbs::tshark"],
        checks: None,
        budget: 30,
    },
    Suite {
        name: "libraries",
        about: "libibverbs.so.1 and librdmacm.so.1: symbols, versions, stock programs load them",
        needs: &[Need::Packages(&["rdmacm-utils", "ibverbs-utils", "perftest", "fio"])],
        tests: &["outboard::stock"],
        checks: Some((Lane::First, libraries)),
        budget: 15,
    },
    Suite {
        name: "tour",
        about: "`outboard tour`, as a newcomer runs it, and interrupted",
        needs: &[Need::Packages(&["gcc", "libc6-dev"])],
        tests: &["outboard::tour"],
        checks: None,
        budget: 190,
    },
    Suite {
        name: "siw",
        about: "Outboard and Linux's siw in a virtual machine interoperate",
        needs: &[Need::Packages(siw::PACKAGES)],
        tests: &[],
        checks: Some((Lane::Beside, siw_interop)),
        budget: 180,
    },
    Suite {
        name: "compile",
        about: "outboard cc on three servers: builds, failures, unauthenticated peers",
        needs: &[Need::Packages(compile::PACKAGES)],
        tests: &[],
        checks: Some((Lane::Beside, |settings| compile::run(settings.full))),
        budget: 300,
    },
    Suite {
        name: "cast-slurm",
        about: "outboard cast and sbcast in jobs of a real Slurm, beside its sbcast, and by sshd",
        needs: &[Need::Packages(cast::slurm::PACKAGES)],
        tests: &[],
        checks: Some((Lane::Beside, |_| cast::slurm::run())),
        budget: 65,
    },
    Suite {
        name: "sandbox",
        about: "real compilers and a hostile job in sandboxes over a client's files",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        tests: &["outboard-compile::sandbox"],
        checks: None,
        budget: 90,
    },
    Suite {
        name: "network",
        about: "a manager and servers that compile for it, over loopback",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        tests: &["outboard-compile::network"],
        checks: None,
        budget: 120,
    },
    Suite {
        name: "modules",
        about: "shipped modules and bodies rebuilt to the same bytes; modules on all engines alike",
        needs: &[Need::Packages(modules::PACKAGES)],
        tests: &["outboard-offcode::shipped"],
        checks: Some((Lane::First, shipped_modules)),
        budget: 140,
    },
    Suite {
        name: "nic",
        about: "bodies for BPF in the paths of interfaces: exact, refused, gone with their process",
        needs: &[Need::Packages(&["clang", "iproute2"])],
        tests: &["outboard-nic::nic"],
        checks: None,
        budget: 15,
    },
    Suite {
        name: "offload",
        about: "outboard offload: new offcodes in C and Rust, built and run",
        needs: &[Need::Packages(modules::PACKAGES), Need::Packages(&["procps"])],
        tests: &["outboard::offload_new"],
        checks: None,
        budget: 15,
    },
    Suite {
        name: "fs",
        about: "outboard fs: programs, bytes, locks and names in mounts; full stores; replicas",
        needs: &[Need::Packages(&["attr", "fuse3", "git", "python3", "rsync", "sqlite3"])],
        tests: &[
            "outboard-fs::mount_meta",
            "outboard-fs::locks",
            "outboard-fs::coherence",
            "outboard-fs::openings",
            "outboard-fs::one_sided",
            "outboard-fs::rdma",
            "outboard::fs",
            "outboard::fs_cp",
            "outboard::fs_cut",
            "outboard::fs_ends",
            "outboard::fs_grep",
            "outboard::fs_map",
            "outboard::fs_replica",
            "outboard::fs_snapshot",
            "outboard::fs_tree_hash",
            "outboard::fs_trips",
        ],
        checks: None,
        budget: 750,
    },
    Suite {
        name: "active-c",
        about: "liboutboard_active.so.1: symbols, header, and C programs against a node that ends",
        needs: &[Need::Packages(&["gcc", "g++", "clang", "libc6-dev", "pkg-config"])],
        tests: &["outboard-active-c::header", "outboard::active_c"],
        checks: Some((Lane::First, active_c)),
        budget: 50,
    },
    Suite {
        name: "connections",
        about: "10,000 connections at once",
        needs: &[],
        tests: &["outboard-verbs::connections"],
        checks: None,
        budget: 10,
    },
    Suite {
        name: "ibverbs",
        about: "stock RDMA programs on Outboard's libibverbs and librdmacm",
        needs: &[Need::Packages(ibverbs::PACKAGES)],
        tests: &[],
        checks: Some((Lane::Alone, |settings| ibverbs::run(settings.full))),
        budget: 60,
    },
    Suite {
        name: "cast",
        about: "outboard cast to fifteen nodes: whole files at all of them, whatever fails",
        needs: &[Need::Packages(cast::PACKAGES)],
        tests: &[],
        checks: Some((Lane::Alone, |settings| cast::run(settings.full))),
        budget: 110,
    },
];

/// Suites that take long to build: they run by their names or with [`Settings::full`].
pub const LONG_SUITES: &[Suite] = &[
    Suite {
        name: "fs-judged",
        about: "outboard fs as others judge it: pjdfstest, fsx, stress-ng, mptest, Lua's build",
        needs: &[
            Need::Packages(&["fuse3", "stress-ng", "sqlite3", "libsqlite3-dev"]),
            Need::Packages(&["gcc", "libc6-dev", "make"]),
            Need::Packages(sources::PACKAGES),
            Need::CargoProgram("pjdfstest"),
            Need::CargoProgram("fsx"),
        ],
        tests: &["outboard::fs_judged"],
        checks: None,
        budget: 300,
    },
    Suite {
        name: "loom",
        about: "every interleaving of threads in STag slots and between drivers of the engine",
        needs: &[],
        tests: &[],
        checks: Some((Lane::Alone, interleavings)),
        budget: 180,
    },
    Suite {
        name: "asan",
        about: "AddressSanitizer on the crates with unsafe code",
        needs: &[Need::Nightly],
        tests: &[],
        checks: Some((Lane::Alone, |_| all_pass(&mut builds::sanitized_tests()?))),
        budget: 180,
    },
    Suite {
        name: "fuzz",
        about: "every fuzz target for a while",
        needs: &[Need::Nightly, Need::CargoTool("cargo-fuzz")],
        tests: &[],
        checks: Some((Lane::Alone, fuzz)),
        budget: 1800,
    },
];

/// Tests whose verdict depends on what else the machine does: test program and part of the name.
pub(super) const MEASURING: &[(&str, &str)] = &[
    ("outboard-cluster::wake_ups", ""),
    ("outboard-compile::sandbox", "a_warm_job_costs_little"),
    ("outboard-ibverbs::closed", ""),
    ("outboard-verbs::growth", ""),
    ("outboard-verbs::liveness", ""),
    ("outboard-verbs::polling", ""),
    ("outboard-verbs::waiting", ""),
    ("xtask", "lab::"),
];

/// Tests that keep a processor busy for ten seconds or more: a plain run has a third of them. Three
/// rows that follow each other take about as long as any other three.
const LONG_TESTS: &[(&str, &str)] = &[
    ("outboard::fs_cp", "what_is_copied_is_what_gnu_cp_copies_through_a_mount"),
    ("outboard-fs::one_sided", "walks_say_what_the_module_says"),
    ("outboard-compile::sandbox", "a_warm_job_costs_little"),
    ("outboard-fs::one_sided", "both_kinds_of_mounts_are_one_tree"),
    ("outboard::fs_grep", "what_the_server_finds_gnu_grep_finds_through_a_mount"),
    ("outboard::fs_cp", "copies_take_no_room_and_stay_apart"),
    ("outboard-offcode::shipped", "bytes_are_where_the_model_has_them"),
    ("outboard-fs::rdma", "two_mounts_are_one_tree"),
    ("outboard::fs_tree_hash", "a_tree_and_its_import_have_one_hash"),
    ("outboard-fs::rdma", "a_client_that_is_killed_leaves_a_whole_tree"),
    ("outboard-fs::mount_meta", "listings_stay_whole_while_names_go"),
    ("outboard-fs", "a_power_cut_loses_nothing_that_was_acknowledged"),
    ("outboard-cast::loopback", "sixty_four_nodes_on_a_starved_machine"),
    ("outboard-fs::rdma", "two_clients_change_one_tree"),
    ("outboard::perf", "a_server_that_dies_in_the_middle"),
    ("outboard-cast", "where_all_rates_waver_nobody_is_slow"),
    ("outboard-offcode::shipped", "executions_and_peers_see_one_map"),
    ("outboard::fs_snapshot", "a_snapshot_is_the_state_of_one_moment"),
    ("outboard-fs", "bits_that_change_are_noticed"),
    ("outboard-compile::front", "wrappers_that_are_killed_at_random_leave_nothing"),
    ("outboard::fs_replica", "what_was_synced_is_there_whenever_either_is_killed"),
];

/// Every test program that a suite names.
pub(super) fn all_named() -> impl Iterator<Item = &'static str> {
    let named = SUITES.iter().chain(LONG_SUITES).flat_map(|suite| suite.tests).copied();
    named.filter(|binary| *binary != EVERY_OTHER)
}

/// Tests of the suites that a plain run leaves out, by the commit.
pub(super) fn left_out(
    suites: &[&Suite],
    settings: &Settings,
) -> Vec<(&'static str, &'static str)> {
    let run = |binary| suites.iter().any(|suite| suite.runs(binary));
    let own = || LONG_TESTS.iter().copied().filter(|(binary, _)| run(binary));
    if settings.full {
        return Vec::new();
    }
    let name = |(binary, test): &(&str, &str)| format!("{binary} {test}");
    let chosen = sample("long tests", own().collect(), own().count().div_ceil(3), name);
    own().filter(|test| !chosen.contains(test)).collect()
}

/// In a process of its own: the runner, whose checks start thousands of programs, stays small.
fn house_rules(_: &Settings) -> Result<Count> {
    command::run(Command::new(env::current_exe()?).arg("tidy"))?;
    Ok(Count::one(true))
}

/// One check, which passes if it found nothing.
fn no_findings<T: Display>(findings: &[T]) -> Count {
    findings.iter().for_each(|finding| println!("{finding}"));
    Count::one(findings.is_empty())
}

fn licences(_: &Settings) -> Result<Count> {
    let check = ["deny", "check", "--hide-inclusion-graph", "licenses", "bans", "sources"];
    command::run(&mut cargo(check))?;
    Ok(Count::one(true))
}

/// Builds every test and benchmark, and the programs and examples that tests start. Benchmarks and
/// integration tests with `test = false` are built only by their names.
pub(super) fn build_tests() -> Result<()> {
    for targets in [&[][..], &["--test=*", "--bench=*"]] {
        command::run(cargo(["test", "--workspace", "--no-run"]).args(targets))?;
    }
    Ok(())
}

fn build(_: &Settings) -> Result<Count> {
    build_tests()?;
    command::run(&mut builds::workspace(false))?;
    Ok(Count::one(true))
}

fn documentation(_: &Settings) -> Result<Count> {
    command::run(&mut cargo(["test", "--workspace", "--doc", "--quiet"]))?;
    Ok(Count::one(true))
}

/// Runs a `cargo test`; all its tests count as one.
fn all_pass(test: &mut Command) -> Result<Count> {
    command::run(test.env("OUTBOARD_FULL", "1"))?;
    Ok(Count::one(true))
}

/// Compares the libraries with the tables.
fn libraries(_: &Settings) -> Result<Count> {
    let directory = libs::build(false)?;
    Ok(no_findings(&libs::check(&directory)?))
}

/// Compares the library's symbols with its header.
fn active_c(_: &Settings) -> Result<Count> {
    let directory = libs::active::build(false)?;
    Ok(no_findings(&libs::active::check(&directory)?))
}

/// Compares the built modules with their sources.
fn shipped_modules(_: &Settings) -> Result<Count> {
    Ok(no_findings(&modules::check()?))
}

/// Outboard and siw each as server and client: first with `rping` (the project's example program,
/// the stock program on the project's C libraries, and the stock program on siw), then with
/// perftest's programs.
fn siw_interop(settings: &Settings) -> Result<Count> {
    let outboard = builds::outboard(settings.full)?;
    libs::build(settings.full)?;
    let native = outboard.with_file_name("examples").join("rping");
    let vm = siw::prepare().map_err(|error| anyhow!(error))?;
    let iterations = if settings.full { 10_000 } else { 1_000 };
    let meetings = [
        (Program::Native(&native), siw::interop::matrix(iterations)),
        (Program::Stock(&outboard), siw::interop::stock_matrix(iterations)),
    ];
    let mut total = Count::default();
    for (program, runs) in meetings {
        siw::interop::rping(&vm, program, &runs).map_err(|error| anyhow!(error))?;
        total += Count { passed: u32::try_from(runs.len())?, ..Count::default() };
    }
    let runs = siw::perftest::run(&vm, &outboard, iterations / 20);
    let runs = runs.map_err(|error| anyhow!(error))?;
    total += Count { passed: u32::try_from(runs)?, ..Count::default() };
    Ok(total)
}

fn interleavings(_: &Settings) -> Result<Count> {
    let mut total = Count::default();
    for mut test in builds::loom_tests() {
        total += all_pass(&mut test)?;
    }
    Ok(total)
}

/// Builds all targets once, then runs as many at a time as there are processors.
fn fuzz(settings: &Settings) -> Result<Count> {
    let seconds = if settings.full { 15 * 60 } else { 30 };
    let targets = command::output(&mut cargo(["+nightly", "fuzz", "list"]))?;
    let targets: Vec<&str> = targets.lines().collect();
    command::run(&mut builds::cargo_fuzz("build"))?;
    let logs = command::target_dir().join("fuzz-logs");
    fs::create_dir_all(&logs)?;
    let mut total = Count::default();
    for batch in targets.chunks(thread::available_parallelism()?.get()) {
        for passed in fuzz_at_once(batch, seconds, &logs)? {
            total += Count::one(passed);
        }
    }
    Ok(total)
}

/// Inputs that a target begins with, if there are any: its kept corpus or, for modules, those that
/// are shipped.
fn seeds(target: &str) -> Option<PathBuf> {
    let directory = match target {
        "offcode_load" => "modules/built".into(),
        _ => format!("fuzz/corpus/{target}"),
    };
    Some(command::root().join(directory)).filter(|directory| directory.is_dir())
}

fn fuzz_at_once(targets: &[&str], seconds: u32, logs: &Path) -> Result<Vec<bool>> {
    let started = targets.iter().map(|target| {
        println!("fuzz {target} for {seconds} s");
        let limit = format!("-max_total_time={seconds}");
        // New inputs are written to the first directory; the seeds are only read.
        let finds = logs.join(format!("{target}-finds"));
        fs::create_dir_all(&finds)?;
        let log = fs::File::create(logs.join(target))?;
        let mut command = builds::cargo_fuzz("run");
        command.arg(target).arg(&finds).args(seeds(target)).args(["--", &limit]);
        Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
    });
    let children = started.collect::<Result<Vec<_>>>()?;
    let finished = children.into_iter().zip(targets).map(|(mut child, target)| {
        let passed = child.wait()?.success();
        if !passed {
            println!("{}", fs::read_to_string(logs.join(target))?);
            failures::remember(&format!("FAILED  fuzz {target}"));
        }
        Ok(passed)
    });
    finished.collect()
}
