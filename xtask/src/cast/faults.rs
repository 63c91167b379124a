//! One node dies, hangs, loses its link or becomes slow while files are cast: all other nodes get
//! the same files before it is there again, its loss has the right cause, and the report is right.
//!
//! How long that takes is printed, and judged in simulated time only (cast's `source/watch`).

use std::time::{Duration, Instant};

use std::thread::sleep;

use anyhow::{Context, Result, bail};

use super::CastCheck;
use super::image::{Contents, TreeImage};
use super::plain::{NAMES, SCHEDULES, expect_equal, last};
use super::run::{CAST_MAX, CastOrder, CastReport, RunningCast};
use super::sample::Sample;
use super::site::{CastSite, LINK, NODES, NodeSetup};
use super::traces::{Traces, expect_bounded_memory, forget_peaks};
use super::watch::{Watch, images};
use crate::command::signal_all;
use crate::lab::{Cable, Link};

use std::path::PathBuf;

/// A node that says nothing counts as lost after 4 s at most, and after what two chunks take. The
/// source does not count time in which it did not run itself.
const SILENT_MAX_S: f32 = 6.0;
const PAUSE: Duration = Duration::from_millis(1);
const CRAWL: Link = Link::BitsPerSecond(1_000_000);

/// What happens to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    KillService,
    KillNode,
    Stop,
    Cut,
    Crawl,
}

/// When it happens: the part, in hundredths, of the bytes that the node has received by then.
#[derive(Clone, Copy, Debug)]
struct Moment(&'static str, u64);

const BEGIN: Moment = Moment("at the beginning", 4);
const MIDDLE: Moment = Moment("in the middle", 50);
const END: Moment = Moment("near the end", 93);

const FAULTS: [Fault; 5] =
    [Fault::KillService, Fault::KillNode, Fault::Stop, Fault::Cut, Fault::Crawl];

/// What is done unless everything is: each fault by several schedules, at several moments.
const SAMPLED: &[(Fault, usize, Moment)] = &[
    (Fault::KillService, 0, MIDDLE),
    (Fault::KillService, 1, BEGIN),
    (Fault::KillService, 2, END),
    (Fault::KillNode, 2, MIDDLE),
    (Fault::KillNode, 0, END),
    (Fault::Stop, 0, BEGIN),
    (Fault::Stop, 1, MIDDLE),
    (Fault::Cut, 2, BEGIN),
    (Fault::Cut, 1, END),
    (Fault::Crawl, 0, MIDDLE),
    (Fault::Crawl, 2, MIDDLE),
];

/// A relay with children, for each of the schedules.
const VICTIMS: [usize; SCHEDULES.len()] = [0, 2, 6];

pub(super) fn checks(full: bool) -> Vec<CastCheck> {
    let all = FAULTS.iter().flat_map(|fault| {
        let moments = [BEGIN, MIDDLE, END].into_iter();
        moments.flat_map(move |moment| (0..SCHEDULES.len()).map(move |s| (*fault, s, moment)))
    });
    let chosen: Vec<_> = if full { all.collect() } else { SAMPLED.to_vec() };
    let check = |(fault, schedule, moment): (Fault, usize, Moment)| {
        let name = format!("fault: {} {}, {}", fault.name(), moment.0, SCHEDULES[schedule]);
        CastCheck::new(name, move |site| {
            Strike { fault, moment, victim: VICTIMS[schedule] }.run(site, SCHEDULES[schedule])
        })
    };
    chosen.into_iter().map(check).collect()
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Self::KillService => "a service killed",
            Self::KillNode => "a node killed",
            Self::Stop => "a node stopped",
            Self::Cut => "a link cut",
            Self::Crawl => "a link slowed to a crawl",
        }
    }

    fn occur(self, site: &mut CastSite, victim: usize) -> Result<()> {
        match self {
            Self::KillService => signal_all(&[site.service(victim)?], "KILL"),
            Self::KillNode => site.kill(victim),
            Self::Stop => site.signal(victim, "STOP"),
            Self::Cut => site.cable(victim, Cable::Cut),
            Self::Crawl => site.relink(victim, CRAWL),
        }
    }

    fn heal(self, site: &mut CastSite, victim: usize) -> Result<()> {
        match self {
            Self::KillService => Ok(()),
            Self::KillNode => {
                site.launch(victim, &NodeSetup::default())?;
                site.wait_listening(victim)
            }
            Self::Stop => site.signal(victim, "CONT"),
            Self::Cut => site.cable(victim, Cable::Joined),
            Self::Crawl => site.relink(victim, LINK),
        }
    }
}

/// A fault in a cast.
struct Strike {
    fault: Fault,
    moment: Moment,
    victim: usize,
}

impl Strike {
    fn run(&self, site: &mut CastSite, schedule: &str) -> Result<()> {
        let sample = Sample::prepare(site)?;
        let images = images(&sample)?;
        let (before, others) = (Traces::take(site)?, self.others());
        forget_peaks(site)?;
        let watch = Watch::start((0..NODES).map(|i| site.disk(i)).collect(), images.clone());
        let order = CastOrder::new(sample.sources.clone(), 0..NODES);
        let mut running = order.with(&["--schedule", schedule]).start_with_log(site)?;
        let began = running.began;
        reach(site, &mut running, self.victim, self.moment.1 * sample.bytes / 100)?;
        self.fault.occur(site, self.victim)?;
        wait_for_names(site, &others, began)?;
        if self.fault == Fault::Crawl {
            self.fault.heal(site, self.victim)?;
        }
        let report = running.finish(CAST_MAX)?;
        let watched = watch.end()?;
        let memory = expect_bounded_memory(site, &others)?;
        if self.fault != Fault::Crawl {
            self.fault.heal(site, self.victim)?;
        }
        self.expect_report(site, &report, &images)?;
        self.expect_cause(&report.losses(&site.name(self.victim)))?;
        expect_equal(site, others.iter().copied(), &images)?;
        before.expect_no_more(site)?;
        let others = self.others().into_iter().map(|index| &watched[index]);
        let took = last(others, began).context("not all names were seen")?;
        println!("  {:.2} s, {} MiB of memory", took.as_secs_f64(), memory >> 20);
        Ok(())
    }

    /// Requires that the victim was lost for what happened to it, by the reasons that the source
    /// had, in order.
    fn expect_cause(&self, losses: &[&str]) -> Result<()> {
        let first = losses.first().copied().unwrap_or_default();
        let is_right = match self.fault {
            Fault::KillService | Fault::KillNode => first.contains("its connection has ended"),
            Fault::Stop | Fault::Cut => {
                let silent = first.split_once("it has said nothing for ");
                let seconds = silent.and_then(|(_, rest)| rest.split_once(' ')?.0.parse().ok());
                seconds.is_some_and(|seconds: f32| seconds <= SILENT_MAX_S)
            }
            Fault::Crawl => true,
        };
        if !is_right {
            bail!("{}: the source lost it for other reasons: {losses:?}", self.fault.name());
        }
        Ok(())
    }

    fn others(&self) -> Vec<usize> {
        (0..NODES).filter(|index| *index != self.victim).collect()
    }

    /// Every node but the victim has published; the victim has published what the report says.
    fn expect_report(
        &self,
        site: &CastSite,
        report: &CastReport,
        images: &[(PathBuf, TreeImage)],
    ) -> Result<()> {
        let victim = site.name(self.victim);
        let failed = report.failed();
        let is_right = report.nodes.len() == NODES && failed.keys().all(|host| **host == victim);
        if !is_right || report.code != Some(i32::from(!failed.is_empty())) {
            bail!("the report is wrong: {report}");
        }
        match failed.get(&*victim) {
            None => expect_equal(site, [self.victim], images),
            Some(why) => {
                println!("  the victim: {why}");
                expect_whole_or_nothing(site, self.victim, images)
            }
        }
    }
}

/// Requires that a node has each name complete or not at all.
pub(super) fn expect_whole_or_nothing(
    site: &CastSite,
    index: usize,
    images: &[(PathBuf, TreeImage)],
) -> Result<()> {
    for (name, image) in images {
        let path = site.disk(index).join(name);
        if path.exists() {
            image.expect(&path, Contents::Whole)?;
        }
    }
    Ok(())
}

/// Waits until a node has received this many bytes of a cast.
pub(super) fn reach(
    site: &CastSite,
    running: &mut RunningCast,
    node: usize,
    bytes: u64,
) -> Result<()> {
    let start = site.received(node)?;
    while site.received(node)? < start + bytes {
        if !running.is_running()? {
            bail!("the cast was over before node {node} had received {bytes} bytes");
        }
        if running.began.elapsed() > CAST_MAX {
            bail!("node {node} does not receive {bytes} bytes");
        }
        sleep(PAUSE);
    }
    Ok(())
}

/// Waits until nodes have all names of a sample.
pub(super) fn wait_for_names(site: &CastSite, nodes: &[usize], began: Instant) -> Result<()> {
    let has = |index: &usize| NAMES.iter().all(|name| site.disk(*index).join(name).exists());
    while !nodes.iter().all(has) {
        if began.elapsed() > CAST_MAX {
            let late: Vec<_> = nodes.iter().filter(|index| !has(index)).collect();
            bail!("after {} s, nodes {late:?} have no files", CAST_MAX.as_secs());
        }
        sleep(PAUSE);
    }
    Ok(())
}
