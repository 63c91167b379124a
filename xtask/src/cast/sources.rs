//! Casts in parts: a source that dies and begins again, nodes that come late or come back, disks
//! that are full or taken away.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::statvfs;
use serde_json::Value;

use super::CastCheck;
use super::contention::Contention;
use super::faults::{DELAY_MAX, expect_whole_or_nothing, reach, wait_for_names};
use super::image::listing;
use super::plain::{Undisturbed, expect_equal, last};
use super::run::{CAST_MAX, CastOrder, CastReport, RunningCast};
use super::sample::Sample;
use super::site::{CastSite, DISK, NODES, NodeSetup};
use super::traces::{Traces, expect_names};
use super::watch::{Watch, images};
use crate::command;

/// The part of a cast, in hundredths, that a node receives again at most when it resumes one of
/// which it had half.
const AGAIN_MAX: u64 = 75;

/// What a source sends at most, in hundredths of a cast, with a node that reads by itself: its
/// schedule lets it send little more than each chunk once.
const SENT_MAX: u64 = 120;

pub(super) fn checks(undisturbed: &Undisturbed, full: bool) -> Vec<CastCheck> {
    let again = undisturbed.clone();
    let mut checks = vec![
        CastCheck::new("source: killed after half, then again", move |site| {
            source_again(site, &again)
        }),
        CastCheck::new("node: resumes what it had when it was killed", resumed),
        CastCheck::new("node: late", late),
        CastCheck::new("node: killed and started again meanwhile", restarted),
        CastCheck::new("node: fewer than all are enough", enough),
        CastCheck::new("disk: full before", full_before),
        CastCheck::new("disk: full meanwhile", full_meanwhile),
        CastCheck::new("disk: unmounted meanwhile", unmounted),
    ];
    if full {
        checks.push(CastCheck::new("source: leaves when the nodes have all", source_leaves));
    }
    checks
}

fn order(sample: &Sample) -> CastOrder {
    CastOrder::new(sample.sources.clone(), 0..NODES)
}

fn disks(site: &CastSite) -> Vec<std::path::PathBuf> {
    (0..NODES).map(|index| site.disk(index)).collect()
}

/// Bytes that all nodes have received.
fn received(site: &CastSite) -> Result<u64> {
    (0..NODES).map(|index| site.received(index)).sum()
}

fn source_again(site: &mut CastSite, undisturbed: &Undisturbed) -> Result<()> {
    let normal = undisturbed.time(site, "binomial")?;
    let sample = Sample::prepare(site)?;
    let (images, before) = (images(&sample)?, Traces::take(site)?);
    let watch = Watch::start(disks(site), images.clone());
    let mut first = order(&sample).start(site)?;
    reach(site, &mut first, 9, sample.bytes / 2)?;
    site.source_host().group.kill()?;
    drop(first);
    for index in 0..NODES {
        if !listing(&site.disk(index))?.0.is_empty() {
            bail!("node {index} has published half of a cast");
        }
    }
    let start = received(site)?;
    let contention = Contention::begin(site)?;
    let second = order(&sample).start(site)?;
    let began = second.began;
    second.finish(CAST_MAX)?.expect_success()?;
    let delay_max = DELAY_MAX.as_secs_f64() * contention.stretch(site)?;
    let again = (received(site)? - start) * 100 / (sample.bytes * NODES as u64);
    expect_equal(site, 0..NODES, &images)?;
    before.expect_no_more(site)?;
    let took = last(&watch.end()?, began).context("not all names were seen")?;
    let (took, normal) = (took.as_secs_f64(), normal.as_secs_f64());
    println!("  {took:.2} s again, undisturbed {normal:.2} s; {again} % was sent again");
    if took > normal + delay_max {
        bail!("the second cast took {took:.2} s, an undisturbed one {normal:.2} s");
    }
    if again > AGAIN_MAX {
        bail!("{again} % was sent again, though half of it was there");
    }
    Ok(())
}

/// Once every chunk is held somewhere, the nodes end the cast by themselves.
fn source_leaves(site: &mut CastSite) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let sent = site.source_host().sent()?;
    let mut running = order(&sample).with(&["--schedule", "chain"]).start(site)?;
    // With headers of packets, a chain's source has then sent every chunk.
    let all = sample.bytes * 104 / 100;
    while site.source_host().sent()? < sent + all {
        if !running.is_running()? {
            bail!("the cast was over before its source could leave");
        }
    }
    site.source_host().group.kill()?;
    wait_for_names(site, &(0..NODES).collect::<Vec<_>>(), Instant::now())?;
    expect_equal(site, 0..NODES, &images)
}

/// A node that was killed after half is cast to again.
fn resumed(site: &mut CastSite) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let mut running = order(&sample).start(site)?;
    reach(site, &mut running, 4, sample.bytes / 2)?;
    site.kill(4)?;
    let report = running.finish(CAST_MAX)?;
    if report.failed().len() != 1 {
        bail!("one node was killed: {report}");
    }
    let (seen, hidden) = listing(&site.disk(4))?;
    if !seen.is_empty() || hidden.len() != 1 {
        bail!("a node that was killed has {seen:?}, and staged {hidden:?}");
    }
    site.launch(4, &NodeSetup::default())?;
    site.wait_listening(4)?;
    let start = site.received(4)?;
    CastOrder::new(sample.sources, [4]).run(site)?.expect_success()?;
    let again = (site.received(4)? - start) * 100 / sample.bytes;
    expect_equal(site, [4], &images)?;
    println!("  {again} % was sent again");
    if again > AGAIN_MAX {
        bail!("{again} % was sent again, though half of it was there");
    }
    Ok(())
}

/// A node that is not there at the beginning.
fn late(site: &mut CastSite) -> Result<()> {
    site.kill(8)?;
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let mut running = order(&sample).start(site)?;
    reach(site, &mut running, 2, sample.bytes * 3 / 10)?;
    site.launch(8, &NodeSetup::default())?;
    let report = running.finish(CAST_MAX)?;
    report.expect_success()?;
    expect_equal(site, 0..NODES, &images)?;
    expect_read(&report, &site.name(8))
}

/// Requires that a late node has read everything out of others' memory, and that the source has
/// sent no more because of it.
fn expect_read(report: &CastReport, late: &str) -> Result<()> {
    let said: Value = serde_json::from_str(&report.said)?;
    let number = |of: &Value, name: &str| of[name].as_u64().with_context(|| format!("no {name}"));
    let mut nodes = said["nodes"].as_array().into_iter().flatten();
    let node = nodes.find(|node| node["host"] == late).context("the late node is not listed")?;
    let (chunks, sent) = (number(&said, "chunks")?, number(&said, "sent_chunks")?);
    let read = number(node, "read_chunks")?;
    println!("  {read} of {chunks} chunks were read; the source sent {sent}");
    if read != chunks || sent * 100 > chunks * SENT_MAX {
        bail!("{read} of {chunks} chunks were read, and the source sent {sent}");
    }
    Ok(())
}

/// A node that is gone for a moment.
fn restarted(site: &mut CastSite) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let mut running = order(&sample).start(site)?;
    reach(site, &mut running, 3, sample.bytes * 3 / 10)?;
    site.replace(3, &NodeSetup::default())?;
    let report = running.finish(CAST_MAX)?;
    report.expect_success()?;
    expect_equal(site, 0..NODES, &images)
}

/// `--min-nodes`: success without one, and the report says which; no cast at all without more.
fn enough(site: &mut CastSite) -> Result<()> {
    site.kill(11)?;
    let source = site.source().join("few");
    fs::write(&source, "few")?;
    let cast = |fewest: usize| {
        let order = CastOrder::new([source.clone()], 0..NODES);
        order.with(&["--replace", "--min-nodes", &fewest.to_string()])
    };
    for (fewest, code) in [(NODES - 1, 0), (NODES, 1)] {
        let report = cast(fewest).run(site)?;
        let failed: Vec<_> = report.failed().into_keys().collect();
        let is_right = if code == 0 { failed == [site.name(11)] } else { failed.len() == NODES };
        if report.code != Some(code) || !is_right {
            bail!("with --min-nodes {fewest}: {report}");
        }
    }
    site.launch(11, &NodeSetup::default())?;
    site.wait_listening(11)
}

/// Nothing is received where there is no room for all of it.
fn full_before(site: &mut CastSite) -> Result<()> {
    site.replace_disk(5, "16m")?;
    site.launch(5, &NodeSetup::default())?;
    site.wait_listening(5)?;
    let sample = Sample::prepare(site)?;
    let (images, before) = (images(&sample)?, Traces::take(site)?);
    let watch = Watch::start(disks(site), images.clone());
    let report = order(&sample).run(site)?;
    watch.end()?;
    let failed = report.failed();
    let why = failed.get(&*site.name(5)).copied().unwrap_or_default();
    if failed.len() != 1 || report.code != Some(1) || !why.contains("room") {
        bail!("one disk was too small: {report}");
    }
    println!("  {why}");
    expect_equal(site, (0..NODES).filter(|index| *index != 5), &images)?;
    expect_names(&site.disk(5), &[])?;
    before.expect_no_more(site)?;
    site.replace_disk(5, DISK)?;
    site.launch(5, &NodeSetup::default())?;
    site.wait_listening(5)
}

/// What is received has its space from the beginning.
fn full_meanwhile(site: &mut CastSite) -> Result<()> {
    site.replace_disk(5, "80m")?;
    site.launch(5, &NodeSetup::default())?;
    site.wait_listening(5)?;
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let mut running = order(&sample).start(site)?;
    // The sample has a little less than its `bytes`.
    if !reserved(site, &mut running, sample.bytes / 10 * 9)? {
        let report = running.finish(CAST_MAX)?;
        bail!("a node has reserved no space for {} bytes before they came: {report}", sample.bytes);
    }
    let rest = site.disk(5).join("rest");
    if fs::write(&rest, vec![1; 80 << 20]).is_ok() {
        let said = command::output(Command::new("df").arg(site.disk(5)))?;
        bail!("the disk was not full: {said} {:?}", running.finish(CAST_MAX)?);
    }
    let report = running.finish(CAST_MAX)?;
    fs::remove_file(&rest)?;
    report.expect_success()?;
    expect_equal(site, 0..NODES, &images)?;
    site.replace_disk(5, DISK)?;
    site.launch(5, &NodeSetup::default())?;
    site.wait_listening(5)
}

/// Waits until node 5 has reserved space; false if the cast ends before.
fn reserved(site: &CastSite, running: &mut RunningCast, bytes: u64) -> Result<bool> {
    loop {
        let disk = statvfs(site.disk(5))?;
        if (disk.f_blocks - disk.f_bfree) * disk.f_frsize >= bytes {
            return Ok(true);
        }
        if !running.is_running()? {
            return Ok(false);
        }
        sleep(Duration::from_millis(1));
    }
}

/// A file system is in use while files are cast to it, and free afterwards; taking it away all the
/// same harms no other cast.
fn unmounted(site: &mut CastSite) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let before = Traces::take(site)?;
    let watch = Watch::start(disks(site), images.clone());
    let mut running = order(&sample).start(site)?;
    reach(site, &mut running, 6, sample.bytes / 3)?;
    if unmount(site, 6)?.stderr(Stdio::null()).status()?.success() {
        bail!("the destination of a cast under way can be unmounted");
    }
    command::run(unmount(site, 6)?.arg("--lazy"))?;
    let report = running.finish(CAST_MAX)?;
    watch.end()?;
    let failed = report.failed();
    if report.nodes.len() != NODES || failed.keys().any(|host| **host != site.name(6)) {
        bail!("one node's disk was taken away: {report}");
    }
    expect_equal(site, (0..NODES).filter(|index| *index != 6), &images)?;
    expect_whole_or_nothing(site, 6, &images)?;
    before.expect_no_more(site)?;
    command::run(&mut unmount(site, 7)?).context("after the cast")?;
    for index in [6, 7] {
        site.replace(index, &NodeSetup::default())?;
    }
    Ok(())
}

/// `umount` of the destination as a node sees it.
fn unmount(site: &CastSite, index: usize) -> Result<Command> {
    let mut unmount = Command::new("nsenter");
    unmount.args(["--mount", "--target", &site.node(index)?.to_string(), "umount"]);
    unmount.arg(site.destination());
    Ok(unmount)
}
