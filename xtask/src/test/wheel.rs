//! Subcommands of cargo as PyPI has them: wheels that contain upstream's binary, which take seconds
//! where `cargo install` compiles for minutes.
//!
//! Never replaces `cargo install`: where there is no pip, no network or no wheel for this
//! architecture, the caller falls back to it.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::needs::Need;
use crate::command;
use crate::scratch::Scratch;

/// What downloads wheels.
pub(super) const NEED: Need = Need::Packages(&["python3-pip"]);

/// Puts a program called `cargo-NAME` where `cargo install` would.
///
/// # Errors
/// When it cannot be downloaded, or the wheel is not laid out as expected.
pub(super) fn install(tool: &str) -> Result<()> {
    println!("+ {tool} from its wheel");
    let scratch = Scratch::new(&env::temp_dir(), "outboard-wheel-")?;
    let at = scratch.path("");
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"]);
    command::run(pip.arg(&at).arg(format!("astral-dev-toolchain-{tool}")))?;
    let mut unzip = Command::new("python3");
    command::run(unzip.args(["-m", "zipfile", "-e"]).arg(ending(&at, ".whl")?).arg(&at))?;
    let binary = ending(&at, ".data")?.join("scripts").join(tool);
    fs::set_permissions(&binary, Permissions::from_mode(0o755))
        .with_context(|| format!("the wheel has no {tool}"))?;
    let place = binaries()?.join(tool);
    fs::create_dir_all(binaries()?)?;
    fs::copy(&binary, &place).with_context(|| format!("cannot write {}", place.display()))?;
    Ok(())
}

/// Where `cargo install` puts programs.
fn binaries() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home);
    Ok(cargo.context("neither CARGO_HOME nor HOME is set")?.join("bin"))
}

/// The entry of a directory whose name ends like this.
fn ending(directory: &Path, suffix: &str) -> Result<PathBuf> {
    let mut entries = fs::read_dir(directory)?.filter_map(|entry| Some(entry.ok()?.path()));
    let found = entries.find(|path| path.to_string_lossy().ends_with(suffix));
    found.with_context(|| format!("nothing in {} ends with {suffix}", directory.display()))
}
