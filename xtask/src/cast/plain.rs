//! Casts that nothing disturbs, by each schedule: equal trees, bounded memory, no traces.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::CastCheck;
use super::image::{Contents, TreeImage};
use super::run::{CAST_MAX, CastOrder};
use super::sample::Sample;
use super::site::{CastSite, NODES};
use super::traces::{Traces, expect_bounded_memory, expect_names, forget_peaks};
use super::watch::{Watch, WatchedNode, images};

/// The schedules of most checks.
pub(super) const SCHEDULES: [&str; 3] = ["binomial", "two-tree", "chain"];
/// Names of a sample at its destination, in order.
pub(super) const NAMES: [&str; 2] = ["single.bin", "tree"];

pub(super) fn checks(full: bool) -> Vec<CastCheck> {
    let more: &[&str] = if full { &["tree:2", "tree:4", "paper:2", "star"] } else { &[] };
    let check = |schedule: &&'static str| {
        let schedule = *schedule;
        CastCheck::new(format!("plain: {schedule}"), move |site| undisturbed(site, schedule))
    };
    SCHEDULES.iter().chain(more).map(check).collect()
}

fn undisturbed(site: &mut CastSite, schedule: &str) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let before = Traces::take(site)?;
    forget_peaks(site)?;
    let disks = (0..NODES).map(|index| site.disk(index)).collect();
    let watch = Watch::start(disks, images.clone());
    let order = CastOrder::new(sample.sources, 0..NODES).with(&["--schedule", schedule]);
    let running = order.start(site)?;
    let began = running.began;
    let report = running.finish(CAST_MAX)?;
    report.expect_success()?;
    expect_equal(site, 0..NODES, &images)?;
    let took = last(&watch.end()?, began).context("the watcher has not seen all names")?;
    before.expect_no_more(site)?;
    let memory = expect_bounded_memory(site, &(0..NODES).collect::<Vec<_>>())?;
    println!("  {:.2} s, {} MiB of memory", took.as_secs_f64(), memory >> 20);
    Ok(())
}

/// When the last of these nodes had all names of a sample.
pub(super) fn last<'a>(
    nodes: impl IntoIterator<Item = &'a WatchedNode>,
    began: Instant,
) -> Option<Duration> {
    nodes.into_iter().try_fold(Duration::ZERO, |last, node| {
        Some(last.max(node.complete_after(NAMES.len(), began)?))
    })
}

/// Requires that nodes have exactly the sample.
pub(super) fn expect_equal(
    site: &CastSite,
    nodes: impl IntoIterator<Item = usize>,
    images: &[(PathBuf, TreeImage)],
) -> Result<()> {
    for index in nodes {
        let disk = site.disk(index);
        expect_names(&disk, &NAMES)?;
        for (name, image) in images {
            image.expect(&disk.join(name), Contents::Whole)?;
        }
    }
    Ok(())
}
