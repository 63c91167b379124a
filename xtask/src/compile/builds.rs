//! Whole projects with every kind of output: what comes back is what compilers make at home, and
//! nothing stays at home without a reason.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Check;
use super::project::{Amount, Kind, Place, Project};
use super::site::{SERVERS, Site};
use super::statistics::ORDINARY;
use super::tree::Tree;

/// What compilers are told of optimisation and debug information. Of variables in optimised code
/// gcc writes what depends on where its own memory is: the number that joins an object to its
/// `.dwo` file is another one each time, also at home.
const LEVELS: [&str; 3] = ["-O0", "-O2 -g", "-O3 -g -gsplit-dwarf -fno-var-tracking-assignments"];

/// All combinations, or some that have everything in them once.
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
    let home = project.make(site, Place::Home)?;
    expect_everything(&home, level)?;
    site.warm(SERVERS)?;
    let elsewhere = project.make(site, Place::Elsewhere)?;
    home.expect(&elsewhere)?;
    let statistics = site.statistics()?;
    statistics.at_home_only_for(ORDINARY)?;
    // Build files try compilers out beside.
    if statistics.remote < home.count(".o") as u64 || statistics.failed != 0 {
        bail!("{} objects, and {statistics:?}", home.count(".o"));
    }
    statistics.expect_servers(SERVERS)
}

/// Every kind of output is among what is compared.
fn expect_everything(home: &Tree, level: &str) -> Result<()> {
    let mut endings = BTreeSet::from([".o", ".d", ".su", ".gcno"]);
    if level.contains("split") {
        endings.insert(".dwo");
    }
    let counts: Vec<_> = endings.iter().map(|ending| (*ending, home.count(ending))).collect();
    if counts.iter().any(|(_, count)| *count < 8) {
        bail!("the build at home made too little: {counts:?}");
    }
    Ok(())
}
