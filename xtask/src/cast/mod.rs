//! Tests that `outboard cast` puts the same files on all nodes, whatever happens to some of them.
//!
//! A source and fifteen nodes are network namespaces of this machine; every node has a destination
//! of its own, and programs are started as users start them. `OUTBOARD_ONLY=sparse cargo xtask test
//! cast` runs the checks with that in their names; `--full` runs every fault at every moment of
//! every schedule.
//!
//! Reading order: `site` (hosts, nodes, the source), `run` (one cast), `image` (trees, compared
//! completely), `sample` (the tree that is cast), `watch` (nothing partial is ever seen), `traces`
//! (what a cast may leave behind), then the checks: `plain`, `faults`, `corruption`, `sources`,
//! `large`, `topology`, `strangers`, `spellings`, `ordinary` (which needs no root). `slurm` is a
//! suite of its own.

mod image;
mod run;
mod sample;
mod site;
mod traces;
mod watch;

mod corruption;
mod faults;
mod large;
mod ordinary;
mod plain;
pub mod slurm;
mod sources;
mod spellings;
mod strangers;
mod topology;

use anyhow::Result;

use crate::test::Count;
use crate::test::check::{SuiteCheck, passes, wanted};
use crate::test::needs::is_root;
use crate::test::sample::sample;
use site::CastSite;

/// The Debian packages that the checks need, with those of [`crate::lab`].
pub const PACKAGES: &[&str] = &["iproute2", "mount", "util-linux"];

type CastCheck = SuiteCheck<CastSite>;

/// Builds the programs and runs every check.
///
/// # Errors
/// When hosts cannot be made here or a program does not build; a check that fails is counted.
pub fn run(full: bool) -> Result<Count> {
    let mut total = ordinary()?;
    if !is_root() {
        println!("skipped: hosts are network namespaces, which need root");
        total += Count { skipped: 1, ..Count::default() };
        return Ok(total);
    }
    let mut checks = plain::checks(full);
    let mut long = faults::checks(full);
    long.extend(corruption::checks(full));
    long.extend(sources::checks(full));
    long.extend(large::checks(full));
    let name = |check: &CastCheck| check.name.clone();
    let third = long.len().div_ceil(3);
    checks.extend(if full { long } else { sample("faults and sizes", long, third, name) });
    checks.extend(large::changes());
    checks.extend(topology::checks());
    checks.extend(strangers::checks());
    checks.extend(spellings::checks());
    checks.retain(|check| wanted(&check.name));
    if checks.is_empty() {
        return Ok(total);
    }
    let mut site = CastSite::new()?;
    for check in checks {
        total += Count::one(passes(&check.name, || one(&mut site, &check)));
    }
    Ok(total)
}

/// The checks that need no root.
fn ordinary() -> Result<Count> {
    let mut total = Count::default();
    let checks: Vec<_> = ordinary::CHECKS.iter().filter(|(name, _)| wanted(name)).collect();
    if checks.is_empty() {
        return Ok(total);
    }
    let account = ordinary::Account::new()?;
    for (name, run) in checks {
        total += Count::one(passes(name, || run(&account)));
    }
    Ok(total)
}

/// Runs a check; after one that fails, everything begins anew.
fn one(site: &mut CastSite, check: &CastCheck) -> Result<()> {
    site.clear()?;
    let result = (check.run)(site).and_then(|()| site.expect_no_panic());
    if result.is_err() {
        site.print_logs();
        site.restore()?;
    }
    site.forget_logs()?;
    result
}
