//! What suites build beside the workspace's `target/debug`: the commands of cargo.
//!
//! Those of different builds write to different directories: cargo locks one while it builds there.

use std::process::Command;

use anyhow::{Context, Result};

use crate::command::{self, cargo};
use crate::libs;

/// What a suite builds outside of `target/debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// The program, the libraries and the tests that run optimised.
    Release,
    /// The models of threads.
    Loom,
    /// The crates with unsafe code, for AddressSanitizer.
    Sanitized,
    /// The fuzz targets.
    Fuzz,
}

/// Copies to and from shared memory in Rust instead of assembly, so that sanitizers can check them.
const VISIBLE_COPIES: &str = "--cfg outboard_bytewise";

/// Crates with models for loom, and the part of the models' names.
const MODELS: [(&str, &str); 2] = [("outboard-mem", "interleaved"), ("outboard-verbs", "models")];

impl Build {
    /// The commands that build it and run nothing.
    pub(super) fn commands(self) -> Result<Vec<Command>> {
        Ok(match self {
            Self::Release => vec![release(), libs::archive_build(true), unrun(connections())],
            Self::Loom => loom_tests().map(unrun).into(),
            Self::Sanitized => vec![unrun(sanitized_tests()?)],
            Self::Fuzz => vec![cargo_fuzz("build")],
        })
    }
}

/// The program and an example, as users build them.
pub(super) fn release() -> Command {
    cargo(["build", "--workspace", "--release", "--bin=outboard", "--example=rping"])
}

/// The test of many connections.
pub(super) fn connections() -> Command {
    cargo(["test", "--no-fail-fast", "--workspace", "--release", "--test=connections"])
}

/// In a target directory of its own: its compiler flags would cause a rebuild of everything else.
pub(super) fn loom_tests() -> [Command; MODELS.len()] {
    MODELS.map(|(package, models)| {
        let mut test = cargo(["test", "--lib", "--package", package, models]);
        test.env("CARGO_TARGET_DIR", command::target_dir().join("loom"));
        test.env("RUSTFLAGS", "--cfg loom");
        test
    })
}

/// Names the target explicitly, so that build scripts are not instrumented.
pub(super) fn sanitized_tests() -> Result<Command> {
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
pub(super) fn cargo_fuzz(command: &str) -> Command {
    let mut fuzz = cargo(["+nightly", "fuzz", command, "--codegen-units=16"]);
    fuzz.env("CARGO_TARGET_DIR", command::target_dir().join("fuzz"));
    fuzz.env("RUSTFLAGS", VISIBLE_COPIES);
    fuzz
}

fn unrun(mut test: Command) -> Command {
    test.arg("--no-run");
    test
}
