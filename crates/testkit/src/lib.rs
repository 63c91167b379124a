//! What tests of many crates share.
//!
//! Only tests depend on this crate. Its manifest gives dependencies the features that they have in
//! a build of the whole workspace.

#![forbid(unsafe_code)]

pub mod hung;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for what must happen. Only a test that fails waits this long: the value
/// says nothing about how fast anything has to be.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// A wait looks this often.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `is_so` holds.
///
/// # Panics
/// When it does not within [`PATIENCE`]; the message names `what`.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {} s in vain: {what}", PATIENCE.as_secs());
        thread::sleep(LOOK);
    }
}

/// The path of an example program of this workspace, built as the calling test is.
///
/// `cargo xtask test` builds all examples first. `cargo test` builds them only when it runs
/// everything, and one that is there may be old: then this builds it, once a process.
///
/// # Panics
/// When it does not build.
pub fn example(name: &str) -> PathBuf {
    static BUILT: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let this = env::current_exe().expect("a path");
    let directory = this.parent().and_then(Path::parent).expect("DIR/deps/TEST");
    let program = directory.join("examples").join(name);
    if env::var_os("NEXTEST").is_some() && program.exists() {
        return program;
    }
    let mut built = BUILT.lock().expect("no builder has panicked");
    if !built.iter().any(|one| one == name) {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // With the features that the dependencies have in a test of the whole workspace.
        cargo.args(["build", "--quiet", "--workspace", "--example", name]);
        if directory.ends_with("release") {
            cargo.arg("--release");
        }
        without_own_package(&mut cargo);
        assert!(cargo.status().expect("cargo").success(), "{name} does not build");
        built.push(name.to_owned());
    }
    program
}

/// Removes what cargo tells this test about its own package: build scripts depend on it, and cargo
/// would build them, and all crates above them, anew.
fn without_own_package(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_is_waited_for() {
        let mut looks = 0;
        eventually("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }
}
