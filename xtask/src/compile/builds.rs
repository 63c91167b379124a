//! Whole projects with every kind of output: the results equal those of local compilers, and every
//! local job has a reason.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Check;
use super::project::{Amount, Kind, Place, Project};
use super::site::{SERVERS, Site};
use super::statistics::ORDINARY;
use super::tree::Tree;

/// Options for optimisation and debug information. For variables in optimised code gcc writes
/// values that depend on its own memory addresses: the number that joins an object to its `.dwo`
/// file differs each time, even locally.
const LEVELS: [&str; 3] = ["-O0", "-O2 -g", "-O3 -g -gsplit-dwarf -fno-var-tracking-assignments"];

/// All combinations, or a sample in which every option occurs once.
pub(super) fn checks(full: bool) -> Vec<Check> {
    let kinds = [Kind::Redis, Kind::ZeromqNinja, Kind::ZeromqMake, Kind::ZeromqClang];
    let all = LEVELS.iter().flat_map(|level| kinds.map(|kind| (kind, *level)));
    let sampled = |(kind, level): &(Kind, &str)| match kind {
        Kind::Redis => true,
        Kind::ZeromqNinja => level.contains("split"),
        Kind::ZeromqMake => level.contains("-O0"),
        Kind::ZeromqClang => level.contains("split"),
    };
    let amount = if full { Amount::Whole } else { Amount::Sample };
    let chosen = all.filter(|one| full || sampled(one));
    let check = |(kind, level): (Kind, &'static str)| {
        let words: Vec<_> = level.split(" -f").take(1).collect();
        let name = format!("build {kind:?} {}", words.join("")).to_lowercase();
        Check::new(name, move |site| build(site, kind, amount, level))
    };
    chosen.map(check).collect()
}

fn build(site: &mut Site, kind: Kind, amount: Amount, level: &str) -> Result<()> {
    let project = Project::prepare(site, kind, amount, level)?;
    let home = project.make(site, Place::Local)?;
    expect_everything(&home, level)?;
    site.warm(SERVERS)?;
    let elsewhere = project.make(site, Place::Elsewhere)?;
    home.expect(&elsewhere)?;
    let statistics = site.statistics()?;
    statistics.locally_only_for(ORDINARY)?;
    // Build files also try compilers out.
    if statistics.remote < home.count(".o") as u64 || statistics.failed != 0 {
        bail!("{} objects, and {statistics:?}", home.count(".o"));
    }
    statistics.expect_servers(SERVERS)
}

/// Requires that every kind of output is among the compared files.
fn expect_everything(home: &Tree, level: &str) -> Result<()> {
    let mut endings = BTreeSet::from([".o", ".d", ".su", ".gcno"]);
    if level.contains("split") {
        endings.insert(".dwo");
    }
    let counts: Vec<_> = endings.iter().map(|ending| (*ending, home.count(ending))).collect();
    if counts.iter().any(|(_, count)| *count < 8) {
        bail!("the local build made too little: {counts:?}");
    }
    Ok(())
}
