//! The rule of one build: a crate's tests find in the build of the workspace every dependency with
//! the features that they want.
//!
//! Cargo unifies features over the packages that a command names: `cargo test -p CRATE` alone would
//! build dependencies with fewer features than the workspace does, beside those that are there.
//! `outboard-testkit`, on which each crate's tests depend, names what is missing.

use std::collections::BTreeSet;
use std::thread;

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::Finding;
use crate::command::{self, cargo};

const TESTKIT: &str = "crates/testkit/Cargo.toml";

/// Packages by name and version, each with its features: `libc v0.2.191|default,std`.
type Built = BTreeSet<String>;

/// Compares each crate's dependencies with the workspace's. `metadata` is the output of
/// `cargo metadata`.
///
/// # Errors
/// When `cargo tree` fails.
pub(super) fn check(metadata: &Value) -> Result<Vec<Finding>> {
    let workspace = built(&["--workspace"])?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let names = packages.iter().filter_map(|package| package["name"].as_str());
    thread::scope(|scope| {
        let workspace = &workspace;
        let one = |name| move || Ok(lacking(name, &built(&["--package", name])?, workspace));
        let runs: Vec<_> = names.map(|name| scope.spawn(one(name))).collect();
        let found = runs.into_iter().map(|run| run.join().map_err(|_| anyhow!("a panic"))?);
        Ok(found.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    })
}

fn built(packages: &[&str]) -> Result<Built> {
    let tree = ["tree", "--edges=normal,build,dev", "--prefix=none", "--format={p}|{f}"];
    let tree = command::output(cargo(tree).arg("--quiet").args(packages))?;
    let entry = |line: &str| line.replace(" (*)", "").replace(" (proc-macro)", "");
    Ok(tree.lines().filter(|line| !line.is_empty()).map(entry).collect())
}

fn lacking(name: &str, own: &Built, workspace: &Built) -> Vec<Finding> {
    let missing = own.difference(workspace).map(|missing| {
        let (package, features) = missing.split_once('|').unwrap_or((missing, ""));
        let same = format!("{package}|");
        let built = workspace.iter().filter_map(|other| other.strip_prefix(&same));
        let built = built.map(|features| format!("`{features}`")).collect::<Vec<_>>().join(" or ");
        let message = format!(
            "the tests of {name} would build {package} anew, with the features `{features}` where \
             the workspace has {built}: name it here (for build scripts and derives among \
             build-dependencies), and outboard-testkit among {name}'s dev-dependencies"
        );
        Finding::new(TESTKIT, 0, message)
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_with_fewer_features_is_found() {
        let built = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let workspace = built(&["libc v1|default,std", "libc v1|default", "memchr v2|"]);
        assert_eq!(lacking("a", &built(&["libc v1|default", "memchr v2|"]), &workspace), []);
        let found = lacking("a", &built(&["libc v1|", "memchr v2|"]), &workspace);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains("`default` or `default,std`"), "{}", found[0].message);
    }
}
