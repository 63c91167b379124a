//! One node dies, hangs, loses its link or becomes slow while files are cast: all other nodes get
//! the same files within three seconds of the undisturbed time, and the report is right.

use std::time::{Duration, Instant};

use std::thread::sleep;

use anyhow::{Context, Result, bail};

use super::CastCheck;
use super::contention::Contention;
use super::image::{Contents, TreeImage};
use super::plain::{NAMES, SCHEDULES, Undisturbed, expect_equal, last};
use super::run::{CAST_MAX, CastOrder, CastReport, RunningCast};
use super::sample::Sample;
use super::site::{CastSite, LINK, NODES, NodeSetup};
use super::traces::{Traces, expect_bounded_memory, forget_peaks};
use super::watch::{Watch, images};
use crate::command::signal_all;
use crate::lab::{Cable, Link};

use std::path::PathBuf;

/// How much longer than an undisturbed cast a disturbed one may take, on a machine of its own;
/// where others take a part of the processors, as much longer as they leave less.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(3);
/// Of a fault that took longer once: so often it is tried again, each time after an undisturbed
/// cast.
const TRIES: usize = 3;
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

pub(super) fn checks(undisturbed: &Undisturbed, full: bool) -> Vec<CastCheck> {
    let all = FAULTS.iter().flat_map(|fault| {
        let moments = [BEGIN, MIDDLE, END].into_iter();
        moments.flat_map(move |moment| (0..SCHEDULES.len()).map(move |s| (*fault, s, moment)))
    });
    let chosen: Vec<_> = if full { all.collect() } else { SAMPLED.to_vec() };
    let check = |(fault, schedule, moment): (Fault, usize, Moment)| {
        let undisturbed = undisturbed.clone();
        let name = format!("fault: {} {}, {}", fault.name(), moment.0, SCHEDULES[schedule]);
        CastCheck::new(name, move |site| {
            let strike = Strike { fault, moment, victim: VICTIMS[schedule] };
            let normal = undisturbed.time(site, SCHEDULES[schedule])?;
            strike.judge(site, SCHEDULES[schedule], (normal, &undisturbed))
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

/// When the last node but the victim had its files, and how far the limit is to be stretched.
#[derive(Clone, Copy, Debug)]
struct StrikeTime {
    took: Duration,
    stretch: f64,
}

impl StrikeTime {
    fn is_in_time(self, normal: Duration) -> bool {
        let (took, normal) = (self.took.as_secs_f64(), normal.as_secs_f64());
        println!("  {took:.2} s, undisturbed {normal:.2} s; stretched by {:.2}", self.stretch);
        took <= normal + DELAY_MAX.as_secs_f64() * self.stretch
    }
}

impl Strike {
    /// Requires that most tries are in time, if the first one was not.
    fn judge(
        &self,
        site: &mut CastSite,
        schedule: &str,
        (normal, undisturbed): (Duration, &Undisturbed),
    ) -> Result<()> {
        if self.run(site, schedule)?.is_in_time(normal) {
            return Ok(());
        }
        let (mut good, mut bad) = (0, 0);
        while good.max(bad) <= TRIES / 2 {
            site.clear()?;
            let normal = undisturbed.again(site, schedule)?;
            let is_in_time = self.run(site, schedule)?.is_in_time(normal);
            good += usize::from(is_in_time);
            bad += usize::from(!is_in_time);
        }
        if bad > good {
            bail!("the others had their files too late, in {} casts", bad + 1);
        }
        Ok(())
    }

    fn run(&self, site: &mut CastSite, schedule: &str) -> Result<StrikeTime> {
        let sample = Sample::prepare(site)?;
        let images = images(&sample)?;
        let (before, others) = (Traces::take(site)?, self.others());
        forget_peaks(site)?;
        let watch = Watch::start((0..NODES).map(|i| site.disk(i)).collect(), images.clone());
        let order = CastOrder::new(sample.sources.clone(), 0..NODES);
        let contention = Contention::begin(site)?;
        let mut running = order.with(&["--schedule", schedule]).start(site)?;
        let began = running.began;
        reach(site, &mut running, self.victim, self.moment.1 * sample.bytes / 100)?;
        self.fault.occur(site, self.victim)?;
        wait_for_names(site, &others, began)?;
        let stretch = contention.stretch(site)?;
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
        expect_equal(site, others.iter().copied(), &images)?;
        before.expect_no_more(site)?;
        println!("  {} MiB of memory", memory >> 20);
        let others = self.others().into_iter().map(|index| &watched[index]);
        let took = last(others, began).context("not all names were seen")?;
        Ok(StrikeTime { took, stretch })
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
