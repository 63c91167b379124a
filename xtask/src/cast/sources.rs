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
use super::faults::{expect_whole_or_nothing, reach, wait_for_names};
use super::image::listing;
use super::plain::expect_equal;
use super::run::{CAST_MAX, CastOrder, CastReport, RunningCast};
use super::sample::Sample;
use super::site::{CastSite, DISK, NODES, NodeSetup};
use super::traces::{Traces, expect_names};
use super::watch::{Watch, images};
use crate::command;

/// Bytes on the wire for a hundred bytes of chunks, at most: headers of packets and records.
const ON_THE_WIRE: u64 = 110;
/// Chunks that come twice where a plan is made anew, at most: those under way to a node.
const UNDER_WAY: u64 = 32;
/// Casts that may be over before what should happen in the middle.
const ATTEMPTS: usize = 5;

/// What a source sends at most, in hundredths of a cast, with a node that reads by itself: its
/// schedule lets it send little more than each chunk once.
const SENT_MAX: u64 = 120;

pub(super) fn checks(full: bool) -> Vec<CastCheck> {
    let mut checks = vec![
        CastCheck::new("source: killed after half, then again", source_again),
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

fn source_again(site: &mut CastSite) -> Result<()> {
    let sample = Sample::prepare(site)?;
    let (images, before) = (images(&sample)?, Traces::take(site)?);
    let watch = Watch::start(disks(site), images.clone());
    let mut attempts = 0..ATTEMPTS;
    while !killed_after_half(site, &sample)? {
        attempts.next().context("some node always had everything when the source was killed")?;
        site.restore()?;
    }
    // Nodes that have noticed that the source is gone send each other more meanwhile.
    let start = received(site)?;
    let held = (0..NODES).map(|index| held(site, index)).sum::<Result<u64>>()?;
    let report = order(&sample).start_with_log(site)?.finish(CAST_MAX)?;
    let again = received(site)? - start;
    report.expect_success()?;
    expect_equal(site, 0..NODES, &images)?;
    before.expect_no_more(site)?;
    watch.end()?;
    expect_resumed(&report, NODES as u64, held, again)
}

/// Casts, and kills the source when a node has half. False if that was noticed too late: a node has
/// published.
fn killed_after_half(site: &CastSite, sample: &Sample) -> Result<bool> {
    let mut cast = order(sample).with(&["--rate", "10M"]).start(site)?;
    reach(site, &mut cast, 9, sample.bytes / 2)?;
    site.source_host().group.kill()?;
    for index in 0..NODES {
        if !listing(&site.disk(index))?.0.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Chunks that a node has staged of a cast that has not ended.
fn held(site: &CastSite, index: usize) -> Result<u64> {
    let disk = site.disk(index);
    let (_, hidden) = listing(&disk)?;
    let bitmaps = hidden.iter().filter_map(|name| fs::read(disk.join(name).join("held")).ok());
    Ok(bitmaps.flatten().map(|byte| u64::from(byte.count_ones())).sum())
}

/// Requires that nodes that held chunks have received little more than those that they lacked.
fn expect_resumed(report: &CastReport, nodes: u64, held: u64, again: u64) -> Result<()> {
    let said: Value = serde_json::from_str(&report.said)?;
    let (chunks, len) = (number(&said, "chunks")?, number(&said, "chunk_bytes")?);
    let all = nodes * chunks;
    let twice = (1 + report.new_plans() as u64) * UNDER_WAY * nodes;
    let most = ((all - held) * ON_THE_WIRE / 100 + twice) * len;
    println!("  {held} of {all} chunks were held; {again} bytes came, {most} at most");
    if held * 4 < all {
        bail!("{held} of {all} chunks were held, though half of them had come");
    }
    if again > most {
        bail!("{again} bytes were sent again, though {held} of {all} chunks were held");
    }
    Ok(())
}

fn number(of: &Value, name: &str) -> Result<u64> {
    of[name].as_u64().with_context(|| format!("no {name}"))
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
    let (start, held) = (site.received(4)?, held(site, 4)?);
    let report = CastOrder::new(sample.sources, [4]).start_with_log(site)?.finish(CAST_MAX)?;
    let again = site.received(4)? - start;
    report.expect_success()?;
    expect_equal(site, [4], &images)?;
    expect_resumed(&report, 1, held, again)
}

/// A node that is not there at the beginning.
fn late(site: &mut CastSite) -> Result<()> {
    site.kill(8)?;
    let sample = Sample::prepare(site)?;
    let images = images(&sample)?;
    let mut running = order(&sample).start_with_log(site)?;
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
    let mut nodes = said["nodes"].as_array().into_iter().flatten();
    let node = nodes.find(|node| node["host"] == late).context("the late node is not listed")?;
    let (chunks, sent) = (number(&said, "chunks")?, number(&said, "sent_chunks")?);
    let read = number(node, "read_chunks")?;
    let plans = report.new_plans();
    // Where another node was lost, chunks under way come twice.
    let sent_max = chunks * SENT_MAX / 100 + plans as u64 * UNDER_WAY * NODES as u64;
    println!("  {read} of {chunks} chunks were read; the source sent {sent}, {plans} new plans");
    if read != chunks || sent > sent_max {
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
    let mut attempts = 0..ATTEMPTS;
    while !filled_meanwhile(site, &sample)? {
        attempts.next().context("no cast lasted until its disk was full")?;
        site.clear()?;
    }
    expect_equal(site, 0..NODES, &images)?;
    site.replace_disk(5, DISK)?;
    site.launch(5, &NodeSetup::default())?;
    site.wait_listening(5)
}

/// Fills a node's disk while files are cast to it. False if the cast was over before.
fn filled_meanwhile(site: &CastSite, sample: &Sample) -> Result<bool> {
    let mut running = order(sample).with(&["--rate", "10M"]).start(site)?;
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
    let is_meanwhile = running.is_running()?;
    let report = running.finish(CAST_MAX)?;
    fs::remove_file(&rest)?;
    report.expect_success()?;
    Ok(is_meanwhile)
}

/// Waits until node 5 has reserved space; false if it has not when the cast ends.
fn reserved(site: &CastSite, running: &mut RunningCast, bytes: u64) -> Result<bool> {
    loop {
        // What was published fills the disk as well: this is looked at last.
        let is_running = running.is_running()?;
        let disk = statvfs(site.disk(5))?;
        let is_reserved = (disk.f_blocks - disk.f_bfree) * disk.f_frsize >= bytes;
        if is_reserved || !is_running {
            return Ok(is_reserved);
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
