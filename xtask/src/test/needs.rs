//! Requirements of a suite or a benchmark beyond Rust: detecting which are missing, and installing
//! them.
//!
//! Never installs anything unless told to by `--install`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use anyhow::Result;

use super::fetch;
use super::wheel;
use crate::command;

/// A requirement of a suite or a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Debian packages.
    Packages(&'static [&'static str]),
    /// A subcommand of cargo, by its crate: `cargo-NAME`.
    CargoTool(&'static str),
    /// A program from the crate of its name.
    CargoProgram(&'static str),
    /// The nightly toolchain, for options that stable Rust lacks.
    Nightly,
}

/// A single missing item, by the command that installs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missing {
    Package(&'static str),
    CargoTool(&'static str),
    CargoProgram(&'static str),
    Nightly,
}

/// The items of `needs` that this machine lacks.
pub(crate) fn missing<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Vec<Missing> {
    let mut missing: Vec<Missing> = needs.into_iter().flat_map(lacking).collect();
    missing.sort();
    missing.dedup();
    missing
}

fn lacking(need: &Need) -> Vec<Missing> {
    match *need {
        Need::Packages(packages) => {
            let absent = packages.iter().filter(|package| !is_installed(package));
            absent.map(|package| Missing::Package(package)).collect()
        }
        Need::CargoTool(name) if !is_subcommand(name) => vec![Missing::CargoTool(name)],
        Need::CargoProgram(name) if !command::succeeds(name, &["--version"]) => {
            vec![Missing::CargoProgram(name)]
        }
        Need::Nightly if !has_nightly(&toolchains()) => vec![Missing::Nightly],
        Need::CargoTool(_) | Need::CargoProgram(_) | Need::Nightly => Vec::new(),
    }
}

fn is_subcommand(name: &str) -> bool {
    let subcommand = name.trim_start_matches("cargo-");
    command::succeeds("cargo", &[subcommand, "--version"])
}

/// The toolchains that rustup has. `cargo +nightly` is not tried: rustup would install it.
fn toolchains() -> String {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Whether `cargo +nightly` has a toolchain: the undated one for this machine.
fn has_nightly(toolchains: &str) -> bool {
    let names = toolchains.lines().filter_map(|line| line.split_whitespace().next());
    names.into_iter().any(|name| {
        let host = name.strip_prefix("nightly-");
        name == "nightly"
            || host.is_some_and(|host| !host.starts_with(|c: char| c.is_ascii_digit()))
    })
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}\n", package]);
    let output = query.output();
    output.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line == "installed")
    })
}

/// The commands that install the missing items, as typed in a shell.
pub(crate) fn remedy(missing: &[Missing]) -> String {
    let commands = commands(missing);
    commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ")
}

/// Installs the missing items of `needs`.
///
/// # Errors
/// When one of the installations fails.
pub(crate) fn install<'a>(needs: impl IntoIterator<Item = &'a Need>) -> Result<()> {
    let missing = missing(needs);
    let (mut packages, others): (Vec<_>, Vec<_>) =
        missing.into_iter().partition(|thing| matches!(thing, Missing::Package(_)));
    if others.iter().any(|thing| matches!(thing, Missing::CargoTool(_))) {
        packages.extend(lacking(&wheel::NEED));
    }
    if !packages.is_empty() {
        fetched(&as_root(&["apt-get", "update"]))?;
    }
    commands(&packages).iter().try_for_each(|words| fetched(words))?;
    let from_wheel = |thing: &Missing| match *thing {
        Missing::CargoTool(name) => wheel::install(name).is_ok(),
        _ => false,
    };
    let others: Vec<_> = others.into_iter().filter(|thing| !from_wheel(thing)).collect();
    commands(&others).iter().try_for_each(|words| fetched(words))
}

fn fetched(words: &[&str]) -> Result<()> {
    let line = words.join(" ");
    println!("+ {line}");
    fetch::tried(&line, fetch::PAUSE, || command::run(Command::new(words[0]).args(&words[1..])))
}

fn commands(missing: &[Missing]) -> Vec<Vec<&'static str>> {
    let package = |thing: &Missing| match *thing {
        Missing::Package(name) => Some(name),
        _ => None,
    };
    let packages: Vec<_> = missing.iter().filter_map(package).collect();
    let mut commands = Vec::new();
    if !packages.is_empty() {
        let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes"];
        let mut words = as_root(&apt);
        words.push("--no-install-recommends");
        words.extend(packages);
        commands.push(words);
    }
    commands.extend(missing.iter().filter_map(rust_tool));
    commands
}

fn rust_tool(missing: &Missing) -> Option<Vec<&'static str>> {
    match missing {
        Missing::Package(_) => None,
        Missing::CargoTool(name) | Missing::CargoProgram(name) => {
            Some(vec!["cargo", "install", "--locked", name])
        }
        Missing::Nightly => {
            Some(vec!["rustup", "toolchain", "install", "nightly", "--profile=minimal"])
        }
    }
}

fn as_root(words: &[&'static str]) -> Vec<&'static str> {
    let mut all = if is_root() { Vec::new() } else { vec!["sudo"] };
    all.extend(words);
    all
}

/// This process's entry in `/proc` belongs to its user.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nightly_of_a_day_is_no_nightly() {
        assert!(has_nightly(
            "stable-x86_64-unknown-linux-gnu (default)\nnightly-x86_64-unknown-linux-gnu\n"
        ));
        assert!(has_nightly("nightly (default)\n"));
        assert!(!has_nightly(
            "stable-x86_64-unknown-linux-gnu\nnightly-2026-01-02-x86_64-unknown-linux-gnu"
        ));
        assert!(!has_nightly("no installed toolchains\n"));
        assert!(!has_nightly(""));
    }
}
