//! What suites and benchmarks build: the commands of cargo.
//!
//! Whatever is built in the workspace is built by the one command of [`workspace`], with the
//! features that the tests of the whole workspace have: another choice of packages would build half
//! of the dependencies anew.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, cargo};

/// Copies to and from shared memory in Rust instead of assembly, so that sanitizers can check them.
const VISIBLE_COPIES: &str = "--cfg outboard_bytewise";

/// Crates with models for loom, and the part of the models' names.
const MODELS: [(&str, &str); 2] = [("outboard-mem", "interleaved"), ("outboard-verbs", "models")];

/// The libraries, the two programs, and the example that the suites start.
pub(crate) fn workspace(release: bool) -> Command {
    // An example makes cargo take the features that tests need into account.
    let targets = ["--lib", "--bin=outboard", "--bin=outboard-cc", "--example=rping"];
    let mut build = cargo(["build", "--workspace"]);
    build.args(targets).args(release.then_some("--release"));
    build
}

/// Where [`workspace`] puts the programs and the static libraries.
pub(crate) fn directory(release: bool) -> PathBuf {
    command::target_dir().join(if release { "release" } else { "debug" })
}

/// Builds the program `outboard` and returns its path.
pub(crate) fn outboard(release: bool) -> Result<PathBuf> {
    command::run(&mut workspace(release))?;
    Ok(directory(release).join("outboard"))
}

/// Builds an example in release mode and returns its path.
pub(crate) fn example(name: &str) -> Result<PathBuf> {
    command::run(workspace(true).args(["--example", name]))?;
    Ok(directory(true).join("examples").join(name))
}

/// In a target directory of its own: its compiler flags would cause a rebuild of everything else.
pub(crate) fn loom_tests() -> [Command; MODELS.len()] {
    MODELS.map(|(package, models)| {
        let mut test = cargo(["test", "--lib", "--package", package, models]);
        test.env("CARGO_TARGET_DIR", command::target_dir().join("loom"));
        test.env("RUSTFLAGS", "--cfg loom");
        test
    })
}

/// Names the target explicitly, so that build scripts are not instrumented.
pub(crate) fn sanitized_tests() -> Result<Command> {
    let version = command::output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc -vV names no host")?;
    let mut test = cargo(["+nightly", "test", "--no-fail-fast", "--lib"]);
    // Only tests that run inside one process: an example started by a test is not instrumented.
    test.args(["--test=connect", "--test=objects", "--test=operations"]);
    test.args(["--package=outboard-mem", "--package=outboard-verbs", "--target", host]);
    test.env("CARGO_TARGET_DIR", command::target_dir().join("sanitized"));
    test.env("RUSTFLAGS", format!("-Zsanitizer=address {VISIBLE_COPIES}"));
    Ok(test)
}

/// A command of cargo-fuzz that builds: each with the same flags, or it would build all anew. With
/// one codegen unit, the default, the build takes much longer.
pub(crate) fn cargo_fuzz(command: &str) -> Command {
    let mut fuzz = cargo(["+nightly", "fuzz", command, "--codegen-units=16"]);
    fuzz.env("CARGO_TARGET_DIR", command::target_dir().join("fuzz"));
    fuzz.env("RUSTFLAGS", VISIBLE_COPIES);
    fuzz
}
