//! A relay that sends what it has not received: bytes of chunks that it has checked change in its
//! memory before it passes them on. No other node may have them in a file, and all end in time.
//!
//! The cast file has a mark in every page, so that chunks can be found in the relay's memory. A
//! byte is changed only in a chunk that was found complete twice, with time for its check between.
//! Nodes send at a rate of less than their links', so that chunks wait in memory for their turn.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::CastCheck;
use super::image::{Contents, TreeImage};
use super::run::{CAST_MAX, CastOrder, RunningCast};
use super::sample::noise;
use super::site::{CastSite, NODES};
use super::traces::{Traces, expect_names};
use crate::command::signal_all;

/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;
const PAGE: usize = 4096;
/// What every page of the file begins with, before its number.
const MARK: &[u8; 16] = b"\xd7\x01outboard\xfe\x92\x88\x5e\xa3\xc4";
const MARK_LEN: usize = MARK.len() + 8;
/// Bytes of the file.
const FILE: usize = 40 << 20;
/// The smallest mapping that can be a window.
const WINDOW_MIN: u64 = 32 << 20;
/// A chunk that has come is checked by then.
const CHECKED: Duration = Duration::from_millis(15);
/// The node behind a relay is stopped for this long at most: a shorter time than that after which
/// it counts as one that hangs,
const STOPPED_MAX: Duration = Duration::from_millis(600);
/// and then left alone for this.
const RUNS: Duration = Duration::from_millis(800);
/// The kernel's buffers of a connection are full by then: chunks that come now wait.
const FILLED: Duration = Duration::from_millis(30);
/// What it takes, as tcp(7) has it, so that this is so: least, first and most bytes.
const BUFFERS: &str = "4096 65536 65536";
/// Where that is set, for hosts one by one.
const BUFFER_FILES: [&str; 2] = ["/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_rmem"];
/// How many bytes change in one cast.
const FLIPS_MAX: usize = 6;
/// How many casts in which a byte changed may pass without it being sent: each was sent just
/// before.
const ATTEMPTS: usize = 15;
/// And how many casts at all: on a busy machine, none of a chunk's bytes may be found in time.
const CASTS_MAX: usize = 40;

pub(super) fn checks(full: bool) -> Vec<CastCheck> {
    let sampled = [("binomial", 0), ("two-tree", 2)];
    // In a chain chunks are passed on so soon that many casts may be needed.
    let more = [("chain", 6), ("chain", 0), ("two-tree", 5), ("binomial", 7)];
    let chosen = sampled.into_iter().chain(more.into_iter().filter(move |_| full));
    let check = |(schedule, relay)| {
        CastCheck::new(format!("corruption: relay {relay} of {schedule}"), move |site| {
            corrupted(site, schedule, relay)
        })
    };
    chosen.map(check).collect()
}

fn corrupted(site: &mut CastSite, schedule: &str, relay: usize) -> Result<()> {
    let source = site.source().join("marked");
    if !source.exists() {
        fs::write(&source, marked())?;
    }
    let image = TreeImage::read(&source)?;
    let before = Traces::take(site)?;
    let (mut flipped, mut attempts) = (0, 0);
    for cast in 1..=CASTS_MAX {
        if attempts == ATTEMPTS {
            break;
        }
        site.clear()?;
        let order = CastOrder::new([source.clone()], 0..NODES);
        let rate = if schedule == "chain" { "12M" } else { "6M" };
        let order = order.with(&["--schedule", schedule, "--chunk", "1M", "--rate", rate]);
        let next = Some(relay + 1).filter(|_| schedule == "chain");
        let hosts = next.map_or(relay..relay, |next| relay..next + 1);
        let _small: Vec<SmallBuffers<'_>> =
            hosts.map(|index| SmallBuffers::new(site, index)).collect::<Result<_>>()?;
        let mut running = order.start(site)?;
        let flips = match next {
            Some(next) => flip_ahead(&mut running, site.service(relay)?, site.service(next)?)?,
            None => flip(&mut running, site.service(relay)?)?,
        };
        flipped += flips;
        attempts += usize::from(flips > 0);
        let report = running.finish(CAST_MAX)?;
        // The node that is stopped counts as lost if that takes longer than it should.
        let may_fail: Vec<String> =
            [Some(relay), next].into_iter().flatten().map(|index| site.name(index)).collect();
        let failed = report.failed();
        if report.nodes.len() != NODES
            || !failed.keys().all(|host| may_fail.iter().any(|n| n == host))
        {
            bail!("{flips} bytes of a relay changed: {report}");
        }
        let has_it = |index: &usize| !failed.contains_key(&*site.name(*index));
        for index in (0..NODES).filter(has_it) {
            expect_names(&site.disk(index), &["marked"])?;
            image.expect(&site.disk(index).join("marked"), Contents::Whole)?;
        }
        before.expect_no_more(site)?;
        // What the relay itself refuses was not checked yet, and is not what is meant.
        let others = (0..NODES).filter(|index| *index != relay);
        let refused = others.filter(|index| site.said(*index).contains("chunk refused"));
        let refused: Vec<usize> = refused.collect();
        if !refused.is_empty() {
            println!("  {flips} bytes changed, cast {cast}; refused by {refused:?}; {report}");
            return Ok(());
        }
    }
    bail!("no changed byte was sent, in {attempts} casts; {flipped} were changed")
}

/// The file: noise, with a mark and its number at the beginning of each page.
fn marked() -> Vec<u8> {
    let mut bytes = noise(11, FILE);
    for (number, page) in bytes.chunks_mut(PAGE).enumerate() {
        page[..MARK.len()].copy_from_slice(MARK);
        page[MARK.len()..MARK_LEN].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes
}

/// Changes bytes in chunks that a process has checked, until the cast is over; returns how many.
fn flip(running: &mut RunningCast, process: u32) -> Result<usize> {
    let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
    let mut waiting: Vec<(Instant, MarkedChunk)> = Vec::new();
    let mut done = BTreeSet::new();
    while running.is_running()? && done.len() < FLIPS_MAX {
        let found = found(&memory, process)?;
        waiting.retain(|(_, chunk)| found.contains(chunk));
        for (_, chunk) in waiting.iter().filter(|(since, _)| since.elapsed() > CHECKED) {
            if done.insert(chunk.first) {
                invert(&memory, chunk.last_byte)?;
            }
        }
        let is_new = |chunk: &MarkedChunk| !waiting.iter().any(|(_, known)| known == chunk);
        let new: Vec<_> = found.into_iter().filter(is_new).collect();
        waiting.extend(new.into_iter().map(|chunk| (Instant::now(), chunk)));
        sleep(Duration::from_millis(2));
    }
    Ok(done.len())
}

/// The same in a chain, where a chunk is passed on as soon as it is checked: the next node is
/// stopped for moments, so that chunks wait.
fn flip_ahead(running: &mut RunningCast, process: u32, next: u32) -> Result<usize> {
    let memory = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
    let mut flips = 0;
    while running.is_running()? && flips < FLIPS_MAX {
        if found(&memory, process)?.is_empty() {
            sleep(Duration::from_millis(2));
            continue;
        }
        flips += usize::from(flip_behind(&memory, process, &Stopped::new(next)?)?);
        sleep(RUNS);
    }
    Ok(flips)
}

/// Changes a byte of a chunk that has come and was checked since the next node was stopped.
fn flip_behind(memory: &File, process: u32, stopped: &Stopped) -> Result<bool> {
    let mut seen: Vec<(Instant, MarkedChunk)> = Vec::new();
    while stopped.since.elapsed() < STOPPED_MAX {
        let found = found(memory, process)?;
        seen.retain(|(_, chunk)| found.contains(chunk));
        let waits = |(at, _): &&(Instant, MarkedChunk)| {
            *at > stopped.since + FILLED && at.elapsed() > 4 * CHECKED
        };
        if let Some((_, chunk)) = seen.iter().find(waits) {
            invert(memory, chunk.last_byte)?;
            return Ok(true);
        }
        let is_new = |chunk: &MarkedChunk| !seen.iter().any(|(_, known)| known == chunk);
        let new: Vec<_> = found.into_iter().filter(is_new).collect();
        seen.extend(new.into_iter().map(|chunk| (Instant::now(), chunk)));
    }
    Ok(false)
}

/// A host on which new connections have small buffers, until this is dropped.
struct SmallBuffers<'a> {
    site: &'a CastSite,
    index: usize,
    before: Vec<String>,
}

impl<'a> SmallBuffers<'a> {
    fn new(site: &'a CastSite, index: usize) -> Result<Self> {
        let set = |file| -> Result<String> {
            let before = site.ask(site.on_node(index, "cat").arg(file))?;
            set_buffers(site, index, file, BUFFERS)?;
            Ok(before)
        };
        let before = BUFFER_FILES.into_iter().map(set).collect::<Result<_>>()?;
        Ok(Self { site, index, before })
    }
}

impl Drop for SmallBuffers<'_> {
    fn drop(&mut self) {
        for (file, before) in BUFFER_FILES.into_iter().zip(&self.before) {
            // The host ends with this suite.
            let _ = set_buffers(self.site, self.index, file, before.trim());
        }
    }
}

fn set_buffers(site: &CastSite, index: usize, file: &str, bytes: &str) -> Result<()> {
    let mut set = site.on_node(index, "sh");
    site.ask(set.args(["-c", "echo \"$1\" > \"$2\"", "sh", bytes, file])).map(drop)
}

/// A process that is stopped until this is dropped.
struct Stopped {
    process: u32,
    since: Instant,
}

impl Stopped {
    fn new(process: u32) -> Result<Self> {
        signal_all(&[process], "STOP")?;
        Ok(Self { process, since: Instant::now() })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended.
        let _ = signal_all(&[self.process], "CONT");
    }
}

fn found(memory: &File, process: u32) -> Result<Vec<MarkedChunk>> {
    let windows = windows(process)?;
    Ok(windows.iter().filter_map(|window| chunks(memory, window).ok()).flatten().collect())
}

fn invert(memory: &File, at: u64) -> Result<()> {
    let mut byte = [0];
    memory.read_exact_at(&mut byte, at)?;
    Ok(memory.write_all_at(&[!byte[0]], at)?)
}

/// A chunk of the file, complete in a slot of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MarkedChunk {
    /// The number of the first page that begins in it.
    first: u64,
    /// Where its last byte is in memory.
    last_byte: u64,
}

/// The writable mappings of a process that are large enough for a window.
fn windows(process: u32) -> Result<Vec<Range<u64>>> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps"))?;
    let large = maps.lines().filter_map(|line| {
        let (addresses, rest) = line.split_once(' ')?;
        let (start, end) = addresses.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        (rest.starts_with("rw") && range.end - range.start >= WINDOW_MIN).then_some(range)
    });
    Ok(large.collect())
}

/// The complete chunks in a mapping.
fn chunks(memory: &File, window: &Range<u64>) -> Result<Vec<MarkedChunk>> {
    let mut bytes = vec![0; usize::try_from(window.end - window.start)?];
    memory.read_exact_at(&mut bytes, window.start)?;
    let marks = marks(&bytes);
    let complete = marks.chunk_by(|one, next| next.0 == one.0 + PAGE && next.1 == one.1 + 1);
    let pages = CHUNK / PAGE;
    // As the stream begins with the manifest, each chunk begins and ends in the middle of a page.
    let complete = complete.filter(|run| run.len() == pages);
    let chunk = |run: &[(usize, u64)]| {
        let (first, last) = (run.first().context("no mark")?, run.last().context("no mark")?);
        let end = last.0 / PAGE * PAGE + PAGE - 1;
        Ok(MarkedChunk { first: first.1, last_byte: window.start + end as u64 })
    };
    complete.map(chunk).collect()
}

/// Where marks are, and the numbers of their pages.
fn marks(bytes: &[u8]) -> Vec<(usize, u64)> {
    let Some(offset) = first_mark(bytes) else { return Vec::new() };
    let pages = (offset..bytes.len().saturating_sub(MARK_LEN)).step_by(PAGE);
    let marked = pages.filter(|at| bytes[*at..].starts_with(MARK));
    let number = |at: usize| -> Option<(usize, u64)> {
        let number = bytes[at + MARK.len()..at + MARK_LEN].try_into().ok()?;
        Some((at, u64::from_le_bytes(number)))
    };
    marked.filter_map(number).collect()
}

/// How far behind the beginning of a page the marks are: the same in all slots.
fn first_mark(bytes: &[u8]) -> Option<usize> {
    let samples = bytes.chunks(CHUNK).map(|slot| &slot[..slot.len().min(2 * PAGE)]);
    let at = |sample: &[u8]| sample.windows(MARK.len()).position(|part| part == MARK);
    samples.filter(|sample| sample.contains(&MARK[0])).find_map(at).map(|at| at % PAGE)
}
