//! The table of test suites.
//!
//! A test that cargo alone can run needs no row: `cargo test` finds it. An integration test that
//! needs more (a package, a release build, minutes) says `test = false` in its crate's manifest, so
//! that `cargo test` leaves it out, and has a row here that runs it by its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Result, anyhow, bail};

use super::builds::{self, Build};
use super::failures::{self, Finder};
use super::needs::Need;
use super::{Count, Settings};
use crate::command::{self, cargo};
use crate::siw::interop::Program;
use crate::{cast, compile, ibverbs, libs, modules, siw, sources, tidy};

/// A set of tests that runs or is skipped as one.
#[derive(Debug)]
pub struct Suite {
    /// What `cargo xtask test NAME` calls it.
    pub name: &'static str,
    /// What it tests, in one line.
    pub about: &'static str,
    /// Its requirements.
    pub needs: &'static [Need],
    /// Time limit in minutes, after which it is stopped and has failed: several times what it takes
    /// on two cores, including builds.
    pub minutes: u64,
    /// What it builds outside of `target/debug`.
    pub builds: Option<Build>,
    /// Runs it. An error counts as one failed test.
    pub run: fn(&Settings) -> Result<Count>,
}

/// Every suite of a plain run, quick ones first.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "tidy",
        about: "the house rules",
        needs: &[],
        minutes: 3,
        builds: None,
        run: house_rules,
    },
    Suite {
        name: "unit",
        about: "every crate's own tests",
        needs: &[],
        minutes: 30,
        builds: None,
        run: |settings| cargo_test(settings, &["--workspace"]),
    },
    Suite {
        name: "captures",
        about: "recorded traffic of Linux's siw, byte for byte",
        needs: &[],
        minutes: 5,
        builds: None,
        run: |settings| integration(settings, "captures"),
    },
    Suite {
        name: "tshark",
        about: "Wireshark's dissectors decode Outboard's packets",
        needs: &[Need::Packages(&["tshark"])],
        minutes: 5,
        builds: None,
        run: |settings| integration(settings, "tshark"),
    },
    Suite {
        name: "libraries",
        about: "libibverbs.so.1 and librdmacm.so.1: symbols, versions, stock programs load them",
        needs: &[Need::Packages(&["rdmacm-utils", "ibverbs-utils", "perftest", "fio"])],
        minutes: 8,
        builds: None,
        run: libraries,
    },
    Suite {
        name: "tour",
        about: "`outboard tour`, as a newcomer runs it, and interrupted",
        needs: &[Need::Packages(&["gcc", "libc6-dev"])],
        minutes: 5,
        builds: None,
        run: |settings| integration(settings, "tour"),
    },
    Suite {
        name: "siw",
        about: "Outboard and Linux's siw in a virtual machine interoperate",
        needs: &[Need::Packages(siw::PACKAGES)],
        minutes: 20,
        builds: Some(Build::Release),
        run: siw_interop,
    },
    Suite {
        name: "ibverbs",
        about: "stock RDMA programs on Outboard's libibverbs and librdmacm",
        needs: &[Need::Packages(ibverbs::PACKAGES)],
        minutes: 20,
        builds: Some(Build::Release),
        run: |settings| ibverbs::run(settings.full),
    },
    Suite {
        name: "compile",
        about: "outboard cc on three servers: builds, failures, unauthenticated peers",
        needs: &[Need::Packages(compile::PACKAGES)],
        minutes: 25,
        builds: None,
        run: |settings| compile::run(settings.full),
    },
    Suite {
        name: "cast",
        about: "outboard cast to fifteen nodes: whole files at all of them, whatever fails",
        needs: &[Need::Packages(cast::PACKAGES)],
        minutes: 25,
        builds: None,
        run: |settings| cast::run(settings.full),
    },
    Suite {
        name: "cast-slurm",
        about: "outboard cast and sbcast in jobs of a real Slurm, beside its sbcast, and by sshd",
        needs: &[Need::Packages(cast::slurm::PACKAGES)],
        minutes: 10,
        builds: None,
        run: |_| cast::slurm::run(),
    },
    Suite {
        name: "bad-peers",
        about: "peers that lie, stall and vanish",
        needs: &[],
        minutes: 5,
        builds: None,
        run: |settings| integration(settings, "bad_peers"),
    },
    Suite {
        name: "sandbox",
        about: "real compilers and a hostile job in sandboxes over a client's files",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        minutes: 8,
        builds: None,
        run: |settings| integration(settings, "sandbox"),
    },
    Suite {
        name: "network",
        about: "a manager and servers that compile for it, over loopback",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        minutes: 8,
        builds: None,
        run: |settings| integration(settings, "network"),
    },
    Suite {
        name: "modules",
        about: "shipped modules and bodies rebuilt to the same bytes; modules on all engines alike",
        needs: &[Need::Packages(modules::PACKAGES)],
        minutes: 15,
        builds: None,
        run: shipped_modules,
    },
    Suite {
        name: "nic",
        about: "bodies for BPF in the paths of interfaces: exact, refused, gone with their process",
        needs: &[Need::Packages(&["clang", "iproute2"])],
        minutes: 8,
        builds: None,
        run: |settings| cargo_test(settings, &["--package=outboard-nic", "--test=nic"]),
    },
    Suite {
        name: "offload",
        about: "outboard offload: new offcodes in C and Rust, built and run",
        needs: &[Need::Packages(modules::PACKAGES)],
        minutes: 10,
        builds: None,
        run: |settings| integration(settings, "offload_new"),
    },
    Suite {
        name: "fs",
        about: "outboard fs: programs, bytes, locks and names in mounts; full stores; replicas",
        needs: &[Need::Packages(&["attr", "fuse3", "git", "rsync", "sqlite3"])],
        minutes: 20,
        builds: None,
        run: file_system,
    },
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
        minutes: 20,
        builds: None,
        run: judged_file_system,
    },
    Suite {
        name: "active-c",
        about: "liboutboard_active.so.1: symbols, header, and C programs against a node that ends",
        needs: &[Need::Packages(&["gcc", "g++", "clang", "libc6-dev", "pkg-config"])],
        minutes: 12,
        builds: None,
        run: active_c,
    },
    Suite {
        name: "connections",
        about: "10,000 connections at once, in release",
        needs: &[],
        minutes: 8,
        builds: Some(Build::Release),
        run: |settings| counted(settings, &mut builds::connections()),
    },
    Suite {
        name: "loom",
        about: "every interleaving of threads in STag slots and between drivers of the engine",
        needs: &[],
        minutes: 12,
        builds: Some(Build::Loom),
        run: interleavings,
    },
    Suite {
        name: "asan",
        about: "AddressSanitizer on the crates with unsafe code",
        needs: &[Need::Nightly],
        minutes: 12,
        builds: Some(Build::Sanitized),
        run: |settings| counted(settings, &mut builds::sanitized_tests()?),
    },
];

/// Suites that take long to build: they run by their names or with [`Settings::full`].
pub const LONG_SUITES: &[Suite] = &[Suite {
    name: "fuzz",
    about: "every fuzz target for a while",
    needs: &[Need::Nightly, Need::CargoTool("fuzz")],
    minutes: 30,
    builds: Some(Build::Fuzz),
    run: fuzz,
}];

fn house_rules(_: &Settings) -> Result<Count> {
    let findings = tidy::check()?;
    findings.iter().for_each(|finding| println!("{finding}"));
    Ok(Count::one(findings.is_empty()))
}

fn integration(settings: &Settings, name: &str) -> Result<Count> {
    cargo_test(settings, &["--workspace", &format!("--test={name}")])
}

fn cargo_test(settings: &Settings, arguments: &[&str]) -> Result<Count> {
    counted(settings, cargo(["test", "--no-fail-fast"]).args(arguments))
}

/// Runs a `cargo test` and adds up what its test programs report.
fn counted(settings: &Settings, test: &mut Command) -> Result<Count> {
    if settings.full {
        test.env("OUTBOARD_FULL", "1");
    }
    let mut total = Count::default();
    let mut failed = Finder::default();
    let succeeded = command::watch(test, |line| {
        if let Some(failure) = failed.line(line) {
            failures::remember(&failure);
        }
        if let Some(count) = Count::parse(line) {
            total += count;
        }
    })?;
    if !succeeded && total.failed == 0 {
        total.failed = 1;
    }
    if total == Count::default() {
        bail!("{} ran no test", command::line(test));
    }
    Ok(total)
}

/// Counts the comparison of the libraries with the tables as one test.
fn libraries(settings: &Settings) -> Result<Count> {
    let directory = libs::build(false)?;
    let findings = libs::check(&directory)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    let mut count = Count::one(findings.is_empty());
    count += integration(settings, "stock")?;
    Ok(count)
}

/// Counts the comparison of the library's symbols with its header as one test.
fn active_c(settings: &Settings) -> Result<Count> {
    let directory = libs::active::build(false)?;
    let findings = libs::active::check(&directory)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    let mut count = Count::one(findings.is_empty());
    count += integration(settings, "header")?;
    count += integration(settings, "active_c")?;
    Ok(count)
}

/// Mounts of the crate's own tests, then the program as users type it.
fn file_system(settings: &Settings) -> Result<Count> {
    let mut count = integration(settings, "mount_meta")?;
    count += integration(settings, "locks")?;
    count += integration(settings, "coherence")?;
    count += integration(settings, "one_sided")?;
    count += integration(settings, "rdma")?;
    let tests = ["fs", "fs_cp", "fs_cut", "fs_grep", "fs_map", "fs_replica"];
    let more = ["fs_snapshot", "fs_tree_hash", "fs_trips"];
    let tests: Vec<String> =
        tests.iter().chain(&more).map(|test| format!("--test={test}")).collect();
    let tests = tests.iter().map(String::as_str);
    let words: Vec<&str> = std::iter::once("--package=outboard").chain(tests).collect();
    count += cargo_test(settings, &words)?;
    Ok(count)
}

/// What is built from sources that have to be fetched only by `--full`.
fn judged_file_system(settings: &Settings) -> Result<Count> {
    let mut test = cargo(["test", "--no-fail-fast", "--package=outboard", "--test=fs_judged"]);
    if settings.full {
        for project in [sources::LUA, sources::SQLITE] {
            project.path()?;
        }
        test.env("OUTBOARD_SOURCES", sources::directory());
    }
    counted(settings, &mut test)
}

/// Counts the comparison of the built modules with their sources as one test.
fn shipped_modules(settings: &Settings) -> Result<Count> {
    let findings = modules::check()?;
    findings.iter().for_each(|finding| println!("{finding}"));
    let mut count = Count::one(findings.is_empty());
    count += integration(settings, "shipped")?;
    Ok(count)
}

/// Outboard and siw each as server and client: first with `rping` (the project's example program,
/// the stock program on the project's C libraries, and the stock program on siw), then with
/// perftest's programs.
fn siw_interop(settings: &Settings) -> Result<Count> {
    command::run(&mut builds::release())?;
    libs::build(true)?;
    let target = command::target_dir().join("release");
    let (native, outboard) = (target.join("examples/rping"), target.join("outboard"));
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

fn interleavings(settings: &Settings) -> Result<Count> {
    let mut total = Count::default();
    for mut test in builds::loom_tests() {
        total += counted(settings, &mut test)?;
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
