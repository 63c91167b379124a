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

use super::cargo_output::TestOutput;
use super::needs::Need;
use super::sample::sample;
use super::{Count, Settings};
use super::{failures, flaky};
use crate::builds;
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
    /// Runs it. An error counts as one failed test.
    pub run: fn(&Settings) -> Result<Count>,
}

/// Every suite of a plain run, quick ones first.
pub const SUITES: &[Suite] = &[
    Suite { name: "tidy", about: "the house rules", needs: &[], minutes: 3, run: house_rules },
    Suite {
        name: "licences",
        about: "licences and sources of every dependency",
        needs: &[Need::CargoTool("deny")],
        minutes: 3,
        run: |_| {
            let check = ["deny", "check", "--hide-inclusion-graph"];
            command::run(cargo(check).args(["licenses", "bans", "sources"]))?;
            Ok(Count::one(true))
        },
    },
    Suite {
        name: "build",
        about: "every test and program, once: nothing compiles while tests run",
        needs: &[],
        minutes: 20,
        run: |_| build(),
    },
    Suite {
        name: "unit",
        about: "every crate's own tests",
        needs: &[],
        minutes: 30,
        run: |settings| cargo_test(settings, &["--workspace"]),
    },
    Suite {
        name: "tshark",
        about: "Wireshark's dissectors decode Outboard's packets",
        needs: &[Need::Packages(&["tshark"])],
        minutes: 5,
        run: |settings| integration(settings, "tshark"),
    },
    Suite {
        name: "libraries",
        about: "libibverbs.so.1 and librdmacm.so.1: symbols, versions, stock programs load them",
        needs: &[Need::Packages(&["rdmacm-utils", "ibverbs-utils", "perftest", "fio"])],
        minutes: 8,
        run: libraries,
    },
    Suite {
        name: "tour",
        about: "`outboard tour`, as a newcomer runs it, and interrupted",
        needs: &[Need::Packages(&["gcc", "libc6-dev"])],
        minutes: 5,
        run: |settings| integration(settings, "tour"),
    },
    Suite {
        name: "siw",
        about: "Outboard and Linux's siw in a virtual machine interoperate",
        needs: &[Need::Packages(siw::PACKAGES)],
        minutes: 20,
        run: siw_interop,
    },
    Suite {
        name: "ibverbs",
        about: "stock RDMA programs on Outboard's libibverbs and librdmacm",
        needs: &[Need::Packages(ibverbs::PACKAGES)],
        minutes: 20,
        run: |settings| ibverbs::run(settings.full),
    },
    Suite {
        name: "compile",
        about: "outboard cc on three servers: builds, failures, unauthenticated peers",
        needs: &[Need::Packages(compile::PACKAGES)],
        minutes: 25,
        run: |settings| compile::run(settings.full),
    },
    Suite {
        name: "cast",
        about: "outboard cast to fifteen nodes: whole files at all of them, whatever fails",
        needs: &[Need::Packages(cast::PACKAGES)],
        minutes: 25,
        run: |settings| cast::run(settings.full),
    },
    Suite {
        name: "cast-slurm",
        about: "outboard cast and sbcast in jobs of a real Slurm, beside its sbcast, and by sshd",
        needs: &[Need::Packages(cast::slurm::PACKAGES)],
        minutes: 10,
        run: |_| cast::slurm::run(),
    },
    Suite {
        name: "sandbox",
        about: "real compilers and a hostile job in sandboxes over a client's files",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        minutes: 8,
        run: |settings| integration(settings, "sandbox"),
    },
    Suite {
        name: "network",
        about: "a manager and servers that compile for it, over loopback",
        needs: &[Need::Packages(&["gcc", "g++", "binutils"])],
        minutes: 8,
        run: |settings| integration(settings, "network"),
    },
    Suite {
        name: "modules",
        about: "shipped modules and bodies rebuilt to the same bytes; modules on all engines alike",
        needs: &[Need::Packages(modules::PACKAGES)],
        minutes: 15,
        run: shipped_modules,
    },
    Suite {
        name: "nic",
        about: "bodies for BPF in the paths of interfaces: exact, refused, gone with their process",
        needs: &[Need::Packages(&["clang", "iproute2"])],
        minutes: 8,
        run: |settings| integration(settings, "nic"),
    },
    Suite {
        name: "offload",
        about: "outboard offload: new offcodes in C and Rust, built and run",
        needs: &[Need::Packages(modules::PACKAGES)],
        minutes: 10,
        run: |settings| integration(settings, "offload_new"),
    },
    Suite {
        name: "fs",
        about: "outboard fs: programs, bytes, locks and names in mounts; full stores; replicas",
        needs: &[Need::Packages(&["attr", "fuse3", "git", "rsync", "sqlite3"])],
        minutes: 20,
        run: file_system,
    },
    Suite {
        name: "active-c",
        about: "liboutboard_active.so.1: symbols, header, and C programs against a node that ends",
        needs: &[Need::Packages(&["gcc", "g++", "clang", "libc6-dev", "pkg-config"])],
        minutes: 12,
        run: active_c,
    },
    Suite {
        name: "connections",
        about: "10,000 connections at once",
        needs: &[],
        minutes: 8,
        run: |settings| counted(settings, &mut builds::connections(settings.full)),
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
        minutes: 20,
        run: judged_file_system,
    },
    Suite {
        name: "loom",
        about: "every interleaving of threads in STag slots and between drivers of the engine",
        needs: &[],
        minutes: 12,
        run: interleavings,
    },
    Suite {
        name: "asan",
        about: "AddressSanitizer on the crates with unsafe code",
        needs: &[Need::Nightly],
        minutes: 12,
        run: |settings| counted(settings, &mut builds::sanitized_tests()?),
    },
    Suite {
        name: "fuzz",
        about: "every fuzz target for a while",
        needs: &[Need::Nightly, Need::CargoTool("fuzz")],
        minutes: 30,
        run: fuzz,
    },
];

fn house_rules(_: &Settings) -> Result<Count> {
    let findings = tidy::check()?;
    findings.iter().for_each(|finding| println!("{finding}"));
    Ok(Count::one(findings.is_empty()))
}

/// Integration tests with `test = false` are built only by their names.
fn build() -> Result<Count> {
    for targets in [&["--quiet"][..], &["--quiet", "--test=*"]] {
        command::run(cargo(["test", "--workspace", "--no-run"]).args(targets))?;
    }
    command::run(&mut builds::workspace(false))?;
    Ok(Count::one(true))
}

fn integration(settings: &Settings, name: &str) -> Result<Count> {
    cargo_test(settings, &["--workspace", &format!("--test={name}")])
}

fn cargo_test(settings: &Settings, arguments: &[&str]) -> Result<Count> {
    counted(settings, cargo(["test", "--no-fail-fast"]).args(arguments))
}

/// Runs a `cargo test` and adds up what its test programs report. Tests that fail run again.
fn counted(settings: &Settings, test: &mut Command) -> Result<Count> {
    if settings.full {
        test.env("OUTBOARD_FULL", "1");
    } else {
        // Properties find new counterexamples in `--full`.
        test.env("PROPTEST_RNG_SEED", "1");
    }
    let mut output = TestOutput::default();
    let succeeded = command::watch(test, |line| output.line(line))?;
    let mut total = output.count;
    if total == Count::default() {
        bail!("{} ran no test", command::line(test));
    }
    if succeeded {
        return Ok(total);
    }
    total.failed = total.failed.max(1);
    if output.names_all_failures() {
        for (name, text) in &output.failed {
            if flaky::passes_again(name, text, || passes_alone(test, name)) {
                total.failed -= 1;
                total.passed += 1;
            }
        }
    }
    if total.failed > 0 {
        output.texts.iter().for_each(|text| failures::remember(text));
    }
    Ok(total)
}

/// Runs one test of those that `all` runs, by its whole name; whether it ran and passed.
fn passes_alone(all: &Command, name: &str) -> bool {
    let mut test = Command::new(all.get_program());
    test.args(all.get_args()).args(["--", "--exact", name, "--test-threads=1"]);
    for (variable, value) in all.get_envs() {
        match value {
            Some(value) => test.env(variable, value),
            None => test.env_remove(variable),
        };
    }
    if let Some(directory) = all.get_current_dir() {
        test.current_dir(directory);
    }
    let mut output = TestOutput::default();
    let succeeded = command::watch(&mut test, |line| output.line(line));
    succeeded.unwrap_or(false) && output.count.passed > 0
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

/// Tests of fs in a plain run: mounts by the crate's own tests, then the program as users type it.
const FS_TESTS: [&str; 8] =
    ["mount_meta", "locks", "coherence", "one_sided", "fs", "fs_grep", "fs_map", "fs_trips"];
/// Tests of fs that take a minute each, and the number of those in a plain run.
const FS_LONG_TESTS: [&str; 6] =
    ["rdma", "fs_cp", "fs_cut", "fs_replica", "fs_snapshot", "fs_tree_hash"];
const FS_SAMPLE: usize = 2;

fn file_system(settings: &Settings) -> Result<Count> {
    let name = |test: &&str| (*test).to_owned();
    let long = match settings.full {
        true => FS_LONG_TESTS.into(),
        false => sample("long tests", FS_LONG_TESTS.into(), FS_SAMPLE, name),
    };
    let tests: Vec<String> =
        FS_TESTS.iter().chain(&long).map(|test| format!("--test={test}")).collect();
    let words = std::iter::once("--workspace").chain(tests.iter().map(String::as_str));
    cargo_test(settings, &words.collect::<Vec<_>>())
}

/// What is built from sources that have to be fetched only by `--full`.
fn judged_file_system(settings: &Settings) -> Result<Count> {
    let mut test = cargo(["test", "--no-fail-fast", "--workspace", "--test=fs_judged"]);
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
