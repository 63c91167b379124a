//! What a cast may leave behind: no process, no descriptor, no file but those that were cast; and
//! how much memory it may take meanwhile.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::image::listing;
use super::site::{CastSite, NODES};

/// How long after a cast its sessions may take to end: a node that is cut off waits for its source
/// for 5 s, and for others for 3 s.
const SETTLE_MAX: Duration = Duration::from_secs(10);
/// For how long they stay as they are when nothing happens.
const STEADY: Duration = Duration::from_millis(300);
const PAUSE: Duration = Duration::from_millis(20);
/// What a service may have in memory at most: a window of 32 MiB, and as much again for the
/// program itself (built without optimisation), buffers of sockets and chunks under way.
pub(super) const MEMORY_MAX: u64 = (32 + 48) << 20;

/// Processes and descriptors of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Traces(Vec<NodeTraces>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NodeTraces {
    processes: usize,
    descriptors: usize,
}

impl Traces {
    /// As they are once they stay so: an earlier check may just have started a node.
    pub(super) fn take(site: &CastSite) -> Result<Self> {
        let deadline = Instant::now() + SETTLE_MAX;
        let mut before = Self::now(site)?;
        loop {
            sleep(STEADY);
            let now = Self::now(site)?;
            if now == before || Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    }

    fn now(site: &CastSite) -> Result<Self> {
        let nodes = (0..NODES).map(|index| NodeTraces::take(site, index));
        Ok(Self(nodes.collect::<Result<_>>()?))
    }

    /// Waits until there are no more than before, and nothing runs on the source's host.
    pub(super) fn expect_no_more(&self, site: &CastSite) -> Result<()> {
        let deadline = Instant::now() + SETTLE_MAX;
        loop {
            let left = self.left(site)?;
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("after the cast there are more than before: {}", left.join("; "));
            }
            sleep(PAUSE);
        }
    }

    fn left(&self, site: &CastSite) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for (index, before) in self.0.iter().enumerate() {
            let now = NodeTraces::take(site, index).unwrap_or_default();
            if now.processes != before.processes || now.descriptors > before.descriptors {
                left.push(format!("node {index} has {now:?}, before {before:?}"));
            }
        }
        let source = site.source_host().group.processes()?;
        if !source.is_empty() {
            left.push(format!("processes of the source: {source:?}"));
        }
        Ok(left)
    }
}

impl NodeTraces {
    fn take(site: &CastSite, index: usize) -> Result<Self> {
        let processes = site.host(index).group.processes()?;
        let descriptors = processes.iter().map(|process| descriptors(*process));
        let descriptors = descriptors.sum::<Result<usize>>()?;
        Ok(Self { processes: processes.len(), descriptors })
    }
}

fn descriptors(process: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

/// Begins to measure the peak memory of services anew.
pub(super) fn forget_peaks(site: &CastSite) -> Result<()> {
    let forget = |index| -> Result<()> {
        // clear_refs: 5 resets the peak (proc(5)).
        Ok(fs::write(format!("/proc/{}/clear_refs", site.service(index)?), "5")?)
    };
    (0..NODES).try_for_each(forget)
}

/// Requires that no service of these nodes has taken more memory than it may; returns the most.
pub(super) fn expect_bounded_memory(site: &CastSite, nodes: &[usize]) -> Result<u64> {
    let mut most = 0;
    for index in nodes {
        let peak = peak(site.service(*index)?)?;
        if peak > MEMORY_MAX {
            bail!("the service of node {index} took {} MiB", peak >> 20);
        }
        most = most.max(peak);
    }
    Ok(most)
}

/// Bytes of memory that a process has had at most.
pub(super) fn peak(process: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kibibytes.context("no VmHWM")?.parse::<u64>()? << 10)
}

/// Requires that nothing hidden is left at a destination, and that users see these names alone.
pub(super) fn expect_names(disk: &Path, names: &[&str]) -> Result<()> {
    let (seen, hidden) = listing(disk)?;
    if !hidden.is_empty() {
        bail!("{disk:?} still has {hidden:?}");
    }
    if seen.iter().map(|name| name.as_os_str()).ne(names.iter().map(std::ffi::OsStr::new)) {
        bail!("{disk:?} has {seen:?}, not {names:?}");
    }
    Ok(())
}
