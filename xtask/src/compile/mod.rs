//! Tests that `outboard cc` builds what local compilers build, even if files, servers or links
//! change during a build.
//!
//! A client and three servers are network namespaces of this machine, and programs are started as
//! users start them. Every check begins with new nodes and a client without state, and has a time
//! limit for each program that it starts. `OUTBOARD_ONLY=redis cargo xtask test compile` runs the
//! checks with that in their names.
//!
//! Reading order: `site` (hosts, nodes, the client), `tree` (the files of a build), `statistics`,
//! `project` (Redis, ZeroMQ), then the checks: `builds`, `linux`, `layouts`, `callers`, `failures`,
//! `edits`, `strangers`, `storm`.

mod builds;
mod callers;
mod edits;
mod failures;
mod layouts;
mod linux;
mod project;
mod site;
mod statistics;
mod storm;
mod strangers;
mod tree;

use anyhow::Result;

use crate::test::Count;
use crate::test::check::{SuiteCheck, passes, wanted};
use crate::test::needs::is_root;
use crate::test::sample::sample;
use site::Site;

/// The Debian packages that the checks need beside those of [`crate::lab`] and
/// [`crate::sources`].
pub const PACKAGES: &[&str] = &[
    "apt",
    "bc",
    "bison",
    "ccache",
    "clang",
    "cmake",
    "dpkg-dev",
    "flex",
    "g++",
    "gcc",
    "iproute2",
    "libc6-dev",
    "linux-source-6.1",
    "make",
    "ninja-build",
    "util-linux",
    "xz-utils",
];

type Check = SuiteCheck<Site>;

/// Builds the programs and runs every check.
///
/// # Errors
/// When hosts cannot be made here or a program does not build; a check that fails is counted.
pub fn run(full: bool) -> Result<Count> {
    if !is_root() {
        println!("skipped: hosts are network namespaces, which need root");
        return Ok(Count { skipped: 1, ..Count::default() });
    }
    let mut projects = builds::checks(full);
    projects.extend(linux::checks(full));
    let failures = failures::checks(full);
    let mut checks = Vec::new();
    for (what, long, count) in [("projects", projects, 1), ("failures", failures, 1)] {
        checks.extend(if full {
            long
        } else {
            sample(what, long, count, |check| check.name.clone())
        });
    }
    checks.extend(layouts::checks());
    checks.extend(callers::checks());
    checks.extend(edits::checks(full));
    checks.extend(strangers::checks());
    checks.extend(storm::checks(full));
    checks.retain(|check| wanted(&check.name));
    let mut site = Site::new()?;
    let mut total = Count::default();
    for check in checks {
        let passed = passes(&check.name, || {
            let begun = site.begin().and_then(|()| (check.run)(&mut site));
            begun.and_then(|()| site.end()).inspect_err(|_| site.print_logs())
        });
        total += Count::one(passed);
    }
    Ok(total)
}
