//! Rules about crates: which may name which, that each has tests, that no two types that other
//! files see have one name, and that the fuzz targets' lock file knows what crates are built from.

use std::collections::HashMap;

use serde_json::Value;

use super::Finding;
use super::house::{ARROWS, DEV_CRATES, NAMES_APART};
use super::source::Source;

/// A crate names only crates below it. `metadata` is the output of `cargo metadata`.
pub(super) fn arrows(metadata: &Value) -> Vec<Finding> {
    let packages = items(metadata, "packages");
    let ours: Vec<&str> = packages.iter().map(|package| text(package, "name")).collect();
    packages.iter().flat_map(|package| package_arrows(package, &ours)).collect()
}

fn package_arrows(package: &Value, ours: &[&str]) -> Vec<Finding> {
    let name = text(package, "name");
    let Some((_, below)) = ARROWS.iter().find(|(row, _)| *row == name) else {
        return vec![Finding::new(name, 0, "has no row in ARROWS: say which crates it may name")];
    };
    let dependencies = items(package, "dependencies").iter();
    let named = dependencies.filter(|dependency| ours.contains(&text(dependency, "name")));
    let wrong = named.filter(|dependency| !allowed(dependency, below));
    wrong
        .map(|dependency| {
            let message = format!("must not name {}: see ARROWS", text(dependency, "name"));
            Finding::new(name, 0, message)
        })
        .collect()
}

fn allowed(dependency: &Value, below: &[&str]) -> bool {
    let name = text(dependency, "name");
    let for_tests = text(dependency, "kind") == "dev";
    below.contains(&name) || (for_tests && DEV_CRATES.contains(&name))
}

/// The lock file of the fuzz targets, which are a workspace of their own.
pub(super) const FUZZ_LOCK: &str = "fuzz/Cargo.lock";

/// The fuzz targets' lock file, of which `lock` is the text, has every dependency of our crates.
/// cargo would add what is missing at the next build, in whichever version is the newest then.
pub(super) fn fuzz_lock(metadata: &Value, lock: &str) -> Vec<Finding> {
    let missing = items(metadata, "packages").iter().flat_map(|package| {
        let name = text(package, "name");
        let begin = format!("\nname = \"{name}\"\n");
        let locked = lock.split("[[package]]").find(|entry| entry.starts_with(&begin));
        let needed = items(package, "dependencies").iter().filter(|dependency| {
            text(dependency, "kind") != "dev" && dependency["optional"] != true
        });
        let needed = needed.map(|dependency| text(dependency, "name"));
        let missing = needed.filter(move |needed| locked.is_some_and(|entry| lacks(entry, needed)));
        missing.map(move |missing| (name, missing))
    });
    let finding = |(name, missing)| {
        let message = format!(
            "lacks {missing}, which {name} depends on: cargo update --workspace --manifest-path \
             fuzz/Cargo.toml"
        );
        Finding::new(FUZZ_LOCK, 0, message)
    };
    missing.map(finding).collect()
}

/// Whether an entry of a lock file does not name a dependency, with its version or without.
fn lacks(entry: &str, dependency: &str) -> bool {
    let named = entry.lines().filter_map(|line| line.strip_prefix(" \""));
    let mut names = named.filter_map(|named| named.split([' ', '"']).next());
    names.all(|name| name != dependency)
}

fn items<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Every crate has at least one test.
pub(super) fn crates_have_tests(sources: &[Source]) -> Vec<Finding> {
    let mut crates: Vec<&str> = sources.iter().filter_map(Source::crate_name).collect();
    crates.dedup();
    let tested = |name: &str| {
        let own = sources.iter().filter(|source| source.crate_name() == Some(name));
        own.filter_map(|source| source.rust.as_ref())
            .any(|rust| rust.code.iter().any(|line| line.contains("#[test]")))
    };
    let untested = crates.into_iter().filter(|name| !tested(name));
    untested.map(|name| Finding::new(&format!("crates/{name}"), 0, "has no test")).collect()
}

/// A type that more than its own file sees has a name that no other has.
pub(super) fn one_meaning(sources: &[Source]) -> Vec<Finding> {
    let mut first: HashMap<&str, &Source> = HashMap::new();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| has_own_names(source)) {
        let lines = source.rust.iter().flat_map(|rust| rust.shipped());
        for (line, name) in lines.filter_map(|(line, code)| Some((line, shared_type(code)?))) {
            if let Some(other) = first.insert(name, source) {
                let other = &other.path;
                let what = format!("a type {name} is in {other} too: call one by what it is");
                findings.push(Finding::new(&source.path, line, what));
            }
        }
    }
    findings
}

fn has_own_names(source: &Source) -> bool {
    let is_apart = source.crate_name().is_none_or(|name| NAMES_APART.contains(&name));
    !is_apart && !source.is_tests() && source.path.contains("/src/")
}

/// The name of the type that a line defines for other files.
fn shared_type(code: &str) -> Option<&str> {
    let rest = code.strip_prefix("pub")?;
    let (_, rest) = rest.strip_prefix('(').map_or(Some(("", rest)), |at| at.split_once(')'))?;
    let mut words = rest.trim_start().split(|mark: char| !mark.is_alphanumeric() && mark != '_');
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&words.next()?);
    words.next().filter(|_| is_type)
}
