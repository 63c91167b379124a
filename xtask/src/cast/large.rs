//! Many small files, a file that is nearly all holes, and trees that change while they are cast.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use super::CastCheck;
use super::faults::reach;
use super::image::{Contents, TreeImage, listing};
use super::run::{CAST_MAX, CastOrder, CastReport};
use super::sample::noise;
use super::site::CastSite;
use super::traces::{Traces, expect_bounded_memory, expect_names, forget_peaks};
use crate::command;

/// Number of small files.
const FILES: usize = 100_000;
/// Files of a directory of them.
const DIRECTORY: usize = 1000;
/// Bytes of the file with holes.
const SPARSE: u64 = 20 << 30;
const MANY_MAX: Duration = Duration::from_secs(240);
const DENSE_MAX: Duration = Duration::from_secs(600);
/// The nodes of these checks.
const PAIR: [usize; 2] = [0, 1];
/// Bytes of each file that changes.
const CHANGING: usize = 3 << 20;
/// Bytes of a file that changes late: three seconds of a link, and more than a window.
const LATE: usize = 64 << 20;
/// Number of casts for each way to change.
const ROUNDS: usize = 3;

pub(super) fn checks(full: bool) -> Vec<CastCheck> {
    let mut checks = vec![
        CastCheck::new("large: 100,000 small files", small_files),
        CastCheck::new("large: a sparse file of 20 GiB", sparse),
        CastCheck::new(
            "large: a file of 100 GiB, data at its ends and around powers of two",
            islands,
        ),
    ];
    if full {
        for scheme in ["mmap-all", "multi-send-one-map", "multi-send-multi-map"] {
            let name = format!("large: a file of more than 2 GiB by the paper's tree, {scheme}");
            checks.push(CastCheck::new(name, move |site| dense(site, scheme)));
        }
    }
    checks
}

/// Sources that change while they are cast.
pub(super) fn changes() -> Vec<CastCheck> {
    let mut checks = Vec::new();
    for (name, change) in CHANGES {
        let name = format!("changing: {name}");
        checks.push(CastCheck::new(name, move |site| changing(site, *change)));
    }
    checks.push(CastCheck::new("changing: once, after it was signed", changed_late));
    checks
}

fn small_files(site: &mut CastSite) -> Result<()> {
    let top = site.source().join("many");
    let bytes = noise(21, FILES + 1000);
    for number in 0..FILES {
        let directory = top.join((number / DIRECTORY).to_string());
        if number % DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        // Every hundredth is empty; the others differ in length and contents.
        let content = &bytes[number..number + number % 100 * 10];
        fs::write(directory.join(format!("{number}.txt")), content)?;
    }
    let (image, before) = (TreeImage::read(&top)?, Traces::take(site)?);
    forget_peaks(site)?;
    let report = CastOrder::new([top.clone()], PAIR).start(site)?.finish(MANY_MAX)?;
    report.expect_success()?;
    let memory = expect_bounded_memory(site, &PAIR);
    for index in PAIR {
        expect_names(&site.disk(index), &["many"])?;
        image.expect(&site.disk(index).join("many"), Contents::Whole)?;
    }
    before.expect_no_more(site)?;
    let seconds = report.took.as_secs_f64();
    println!("  {} entries in {seconds:.2} s, {} MiB of memory", image.len(), memory? >> 20);
    Ok(fs::remove_dir_all(top)?)
}

/// Data here and there, also beyond 4 GiB, and a hole at the end.
fn sparse(site: &mut CastSite) -> Result<()> {
    let path = site.source().join("sparse");
    let file = File::create(&path)?;
    file.set_len(SPARSE)?;
    for place in 0..40 {
        file.write_all_at(&noise(place, 64 << 10), place * (SPARSE / 40))?;
    }
    file.write_all_at(&noise(77, 5000), SPARSE - (1 << 20))?;
    let image = TreeImage::read(&path)?;
    let report = CastOrder::new([path.clone()], PAIR).run(site)?;
    report.expect_success()?;
    for index in PAIR {
        expect_names(&site.disk(index), &["sparse"])?;
        image.expect(&site.disk(index).join("sparse"), Contents::Whole)?;
    }
    println!("  {:.2} s", report.took.as_secs_f64());
    Ok(fs::remove_file(path)?)
}

/// A file without holes that a number of 31 bits does not measure, by one of the paper's schemes.
fn dense(site: &mut CastSite, scheme: &'static str) -> Result<()> {
    const BLOCK: usize = 64 << 20;
    let path = site.source().join("dense");
    let file = File::create(&path)?;
    for block in 0..35 {
        file.write_all_at(&noise(100 + block, BLOCK), block * BLOCK as u64)?;
    }
    let order = CastOrder::new([path.clone()], PAIR);
    let order = order.with(&["--schedule", "paper:2", "--buffers", scheme]);
    let report = order.start(site)?.finish(DENSE_MAX)?;
    report.expect_success()?;
    for index in PAIR {
        command::run(Command::new("cmp").arg(&path).arg(site.disk(index).join("dense")))?;
    }
    println!("  {:.2} s", report.took.as_secs_f64());
    Ok(fs::remove_file(path)?)
}

/// Data on both sides of places where a number of 32 bits or a float would err.
fn islands(site: &mut CastSite) -> Result<()> {
    const LEN: u64 = 100 << 30;
    const ISLAND: u64 = 200_000;
    let path = site.source().join("islands");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.set_len(LEN)?;
    let places = [0, 1 << 31, 1 << 32, 1 << 36, (1 << 36) + (1 << 32), LEN];
    for (seed, place) in (0..).zip(places) {
        let start = place.saturating_sub(ISLAND / 2);
        let len = (LEN - start).min(ISLAND);
        file.write_all_at(&noise(seed, usize::try_from(len)?), start)?;
    }
    let report = CastOrder::new([path.clone()], PAIR).run(site)?;
    report.expect_success()?;
    for index in PAIR {
        expect_names(&site.disk(index), &["islands"])?;
        let there = File::open(site.disk(index).join("islands"))?;
        let found = there.metadata()?;
        if found.len() != LEN || found.blocks() * 512 > (4 << 20) {
            bail!("node {index} has {} bytes in {} blocks", found.len(), found.blocks());
        }
        for place in places {
            let start = place.saturating_sub(ISLAND);
            let len = usize::try_from((LEN - start).min(2 * ISLAND))?;
            let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
            file.read_exact_at(&mut ours, start)?;
            there.read_exact_at(&mut theirs, start)?;
            if ours != theirs {
                bail!("node {index} has other bytes around {place}");
            }
        }
    }
    println!("  {:.2} s", report.took.as_secs_f64());
    Ok(fs::remove_file(path)?)
}

/// One change, to version `number`.
type Change = fn(&Path, u8) -> Result<()>;

/// Ways in which a tree changes while it is cast. It has two files, each of which has the bytes of
/// one version all over; `one` changes first.
const CHANGES: &[(&str, Change)] = &[
    ("written in place", |at, number| {
        both(at, |file| Ok(File::options().write(true).open(file)?.write_all_at(&of(number), 0)?))
    }),
    ("written in place, with the old time", |at, number| {
        both(at, |path| {
            let file = File::options().write(true).open(path)?;
            let time = file.metadata()?.modified()?;
            file.write_all_at(&of(number), 0)?;
            Ok(file.set_modified(time)?)
        })
    }),
    ("replaced by rename", |at, number| {
        both(at, |file| {
            let new = at.with_extension("new");
            fs::write(&new, of(number))?;
            Ok(fs::rename(new, file)?)
        })
    }),
    ("removed and made again", |at, number| {
        both(at, |file| {
            fs::remove_file(file)?;
            Ok(fs::write(file, of(number))?)
        })
    }),
    ("made longer and shorter", |at, number| {
        both(at, |file| {
            let file = File::options().write(true).open(file)?;
            file.set_len(1)?;
            Ok(file.write_all_at(&of(number), 0)?)
        })
    }),
    ("a directory in place of a file", |at, number| {
        both(at, |file| {
            fs::remove_file(file)?;
            fs::create_dir(file)?;
            fs::remove_dir(file)?;
            Ok(fs::write(file, of(number))?)
        })
    }),
];

fn of(number: u8) -> Vec<u8> {
    vec![number; CHANGING]
}

fn both(at: &Path, change: impl Fn(&PathBuf) -> Result<()>) -> Result<()> {
    [at.join("one"), at.join("two")].iter().try_for_each(change)
}

/// Casts a tree that changes all the time: an error that names a file, or one version.
fn changing(site: &mut CastSite, change: Change) -> Result<()> {
    let top = site.source().join("changing");
    let mut outcomes = (0, 0);
    for _ in 0..ROUNDS {
        fs::create_dir_all(&top)?;
        both(&top, |file| Ok(fs::write(file, of(0))?))?;
        let writer = ChangingTree::start(top.clone(), change);
        let report = CastOrder::new([top.clone()], PAIR).start(site)?.finish(CAST_MAX)?;
        writer.end()?;
        match is_published(site, &report)? {
            true => outcomes.0 += 1,
            false => outcomes.1 += 1,
        }
        site.clear()?;
        fs::remove_dir_all(&top)?;
    }
    println!("  {} casts of one version, {} errors", outcomes.0, outcomes.1);
    Ok(())
}

/// The end of a file changes when its beginning has been sent, and all of it has been hashed.
fn changed_late(site: &mut CastSite) -> Result<()> {
    let top = site.source().join("changing");
    fs::create_dir_all(&top)?;
    let path = top.join("large");
    fs::write(&path, noise(51, LATE))?;
    for change in [LateChange::Bytes, LateChange::Length, LateChange::Name] {
        let old = fs::read(&path)?;
        let mut running = CastOrder::new([top.clone()], PAIR).start(site)?;
        reach(site, &mut running, 0, LATE as u64 * 3 / 10)?;
        change.make(&path)?;
        let report = running.finish(CAST_MAX)?;
        fs::write(&path, &old)?;
        match report.code {
            Some(0) => {
                for index in PAIR {
                    if fs::read(site.disk(index).join("changing/large"))? != old {
                        bail!("node {index} has neither the old file nor an error: {change:?}");
                    }
                }
            }
            _ => drop(is_published(site, &report).with_context(|| format!("{change:?}"))?),
        }
        println!("  {change:?}: {report}");
        site.clear()?;
    }
    Ok(fs::remove_dir_all(&top)?)
}

/// A change of one file.
#[derive(Clone, Copy, Debug)]
enum LateChange {
    /// Of the last bytes.
    Bytes,
    /// Half of it is cut off.
    Length,
    /// It is removed.
    Name,
}

impl LateChange {
    fn make(self, path: &Path) -> Result<()> {
        let file = File::options().write(true).open(path)?;
        match self {
            Self::Bytes => file.write_all_at(b"another end", LATE as u64 - 11)?,
            Self::Length => file.set_len(LATE as u64 / 2)?,
            Self::Name => fs::remove_file(path)?,
        }
        Ok(())
    }
}

/// Whether the nodes have the tree, which is then of one version; otherwise they have nothing and
/// the error says why.
fn is_published(site: &CastSite, report: &CastReport) -> Result<bool> {
    if report.code != Some(0) {
        let said = format!("{} {:?}", report.complained, report.failed());
        if !said.contains("changed") || !said.contains("changing") || said.contains("panicked") {
            bail!("the error does not say what has changed: {report}");
        }
        for index in PAIR {
            if !listing(&site.disk(index))?.0.is_empty() {
                bail!("node {index} has published what was refused: {report}");
            }
        }
        return Ok(false);
    }
    for index in PAIR {
        let top = site.disk(index).join("changing");
        let (one, two) = (version(&top.join("one"))?, version(&top.join("two"))?);
        // Between the two changes the first file is one version ahead.
        if one != two && one != two.wrapping_add(1) {
            bail!("node {index} has version {one} of one file and {two} of the other");
        }
    }
    Ok(true)
}

/// The version of a file all of whose bytes are of one.
fn version(path: &Path) -> Result<u8> {
    let bytes = fs::read(path)?;
    let first = *bytes.first().ok_or_else(|| anyhow!("{path:?} is empty, as it never was"))?;
    if bytes.len() != CHANGING || bytes != vec![first; CHANGING] {
        bail!("{path:?} is a mix of versions, with {} bytes", bytes.len());
    }
    Ok(first)
}

/// A thread that changes a tree until it is dropped.
struct ChangingTree {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl ChangingTree {
    fn start(at: PathBuf, change: Change) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut number = 0_u8;
            while !stopped.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                change(&at, number)?;
                // So that casts begin between changes as well as in them.
                sleep(Duration::from_millis(u64::from(number % 5) * 20));
            }
            Ok(())
        });
        Self { stop, thread }
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the writer has failed"))?
    }
}
