//! Figures 3 and 4 of the paper: the processor load of a stream at both ends, measured as in the
//! paper: by how much it slows down a background task of the lowest priority.
//!
//! Only this measure also includes the kernel's work in interrupts, and what the task loses because
//! the stream evicts its memory from the caches.

use std::fs;
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::FIGURE_ROUNDS;
use super::link::Link;
use super::ours::Outboard;
use super::section::{Runs, Section, table};
use crate::bench::measure::{Contender, alternate, number};
use crate::bench::report::{Panel, Series};
use crate::command;

/// Bytes that the background task reads repeatedly.
const FOOTPRINT: usize = 1 << 20;
/// How long the task is measured alone, how long to wait until the stream flows, and how long the
/// task is measured beside it.
const ALONE: Duration = Duration::from_millis(300);
const STARTING: Duration = Duration::from_millis(400);
const BESIDE: Duration = Duration::from_millis(700);
/// The stream lasts longer than the measurement.
const STREAM: &str = "1.2";

const PAPER: &[[&str; 4]] = &[
    ["3, 68 kB", "sender", "TCP 35 %, CRC off 50 %, CRC on 70 %, hardware under 5 %", ""],
    ["3, 68 kB", "receiver", "all software about 90 %, hardware under 5 %", ""],
    ["4, 4 kB", "sender", "10 to 20 % more than at 68 kB; over TCP: CRC off 20 %, on 40 %", ""],
    ["4, 4 kB", "receiver", "all software nearly 90 %, hardware near 0", ""],
];

/// Both figures; without root no gigabit link can be made to measure on.
pub(super) fn figures(program: &str) -> Result<Section> {
    let Some(link) = Link::new()? else {
        let note =
            "Figures 3 and 4 were not run: a gigabit link between two namespaces needs root.";
        return Ok(Section { notes: vec![note.to_owned()], ..Section::default() });
    };
    let sides = [link.on(0, program), link.on(1, program)];
    let ours = Outboard::start_at(link.server(), [&sides[0], &sides[1]], &["--pin", "1"])?;
    let tasks = [Background::start(0)?, Background::start(1)?];
    let points = &["68 KiB", "4 KiB"];
    let block = ["--seconds", STREAM, "--wait", "block"];
    let off = ["--seconds", STREAM, "--wait", "block", "--crc", "off"];
    let contender = |name, test, options| Contender {
        name,
        measure: Box::new({
            let (ours, tasks) = (&ours, &tasks);
            move |point: &str| load(&mut ours.command(test, point, options)?, tasks)
        }),
    };
    let mut contenders: [Contender<'_, Value>; 3] = [
        contender("Outboard Write, CRC on", "write-bw", &block),
        contender("Outboard Write, CRC off", "write-bw", &off),
        contender("raw TCP", "tcp-bw", &block),
    ];
    let runs = Runs { points, series: alternate(&mut contenders, points, FIGURE_ROUNDS)? };
    let figures =
        [figure(&runs, 0, "Figure 3: load at 68 kB")?, figure(&runs, 1, "Figure 4: load at 4 kB")?];
    let speed = runs.panel("Throughput of Figures 3 and 4", "MiB/s", "message", "/mib_per_s")?;
    let mut panels = Vec::from(figures);
    let paper = paper(&panels);
    panels.push(speed);
    let head = ["figure", "side", "the paper", "here"];
    let tables = vec![table("Figures 3 and 4: system load", &head, paper)];
    Ok(Section { notes: vec![NOTE.to_owned()], tables, panels, ..Section::default() })
}

const NOTE: &str = "Figures 3 and 4: a gigabit link between two network namespaces, both sides \
    blocking, FPDUs of one TCP segment; load is what a task of niceness 19 on the same processor \
    loses. The sender's processor also does the receiver's TCP, as on any virtual link.";

/// One message size: the loss of the tasks at sender and receiver, in percent.
pub(super) fn figure(runs: &Runs<'_>, point: usize, title: &str) -> Result<Panel> {
    let alone = [alone(runs, "/alone/0")?, alone(runs, "/alone/1")?];
    let series = runs.series.iter().map(|series| {
        let lost = |side: usize| {
            let beside = series.numbers(&format!("/beside/{side}"))?.samples.swap_remove(point);
            anyhow::Ok(beside.iter().map(|beside| 100.0 * (1.0 - beside / alone[side])).collect())
        };
        Ok(Series { name: series.name.clone(), samples: vec![lost(0)?, lost(1)?] })
    });
    Ok(Panel {
        title: title.to_owned(),
        unit: "% of a processor, less is better".to_owned(),
        axis: "side".to_owned(),
        points: vec!["sender".to_owned(), "receiver".to_owned()],
        series: series.collect::<Result<_>>()?,
    })
}

/// The best speed of a task in all the periods when it ran alone: other work on this machine can
/// then make a load look larger, but never smaller.
fn alone(runs: &Runs<'_>, pointer: &str) -> Result<f64> {
    let mut best = 0.0_f64;
    for series in &runs.series {
        best = series.numbers(pointer)?.samples.concat().into_iter().fold(best, f64::max);
    }
    Ok(best)
}

/// The paper's statements beside Outboard's figures.
fn paper(panels: &[Panel]) -> Vec<Vec<String>> {
    let here = |index: usize| {
        let (panel, side) = (&panels[index / 2], index % 2);
        let say = |series: &Series| {
            let load = series.summary(side).map_or(f64::NAN, |summary| summary.median);
            format!("{} {load:.0} %", series.name)
        };
        panel.series.iter().rev().map(say).collect::<Vec<_>>().join(", ")
    };
    let row = |(index, [figure, side, theirs, _]): (usize, &[&str; 4])| {
        vec![(*figure).to_owned(), (*side).to_owned(), (*theirs).to_owned(), here(index)]
    };
    PAPER.iter().enumerate().map(row).collect()
}

/// Runs one stream; returns the tasks' speeds alone and beside it.
fn load(stream: &mut Command, tasks: &[Background; 2]) -> Result<Value> {
    let alone = speeds(tasks, ALONE);
    let child = stream.stdout(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", command::line(stream)))?;
    sleep(STARTING);
    let beside = speeds(tasks, BESIDE);
    let output = child.wait_with_output()?;
    let report: Value = serde_json::from_slice(&output.stdout).context("the stream failed")?;
    let speed = number(&report, "/mib_per_s")?;
    Ok(json!({ "alone": alone, "beside": beside, "mib_per_s": speed }))
}

/// The work of each task in a second.
fn speeds(tasks: &[Background; 2], time: Duration) -> [f64; 2] {
    let counts = || [0, 1].map(|side: usize| tasks[side].done.load(Ordering::Relaxed));
    let (start, before) = (Instant::now(), counts());
    sleep(time);
    let (after, seconds) = (counts(), start.elapsed().as_secs_f64());
    [0, 1].map(|side: usize| {
        let count = u32::try_from(after[side] - before[side]).unwrap_or(u32::MAX);
        f64::from(count) / seconds
    })
}

/// A task on one processor that yields to all others.
#[derive(Debug)]
struct Background {
    done: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    fn start(processor: usize) -> Result<Self> {
        let (done, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, ended) = (Arc::clone(&done), Arc::clone(&stop));
        let (told, ready) = std::sync::mpsc::channel();
        let work = move || {
            // The receiver exists until the message was sent.
            let _told = told.send(give_way(processor));
            work(&count, &ended);
        };
        let thread = Some(thread::spawn(work));
        let task = Self { done, stop, thread };
        ready.recv().map_err(|_| anyhow!("the background task died"))??;
        Ok(task)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Moves this thread to a processor, with a lower priority than everything else there.
fn give_way(processor: usize) -> Result<()> {
    let path = fs::read_link("/proc/thread-self")?;
    let thread = path.file_name().context("this thread has no number")?.to_string_lossy();
    let mut place = Command::new("taskset");
    place.args(["--cpu-list", "--pid", &processor.to_string(), &thread]).stdout(Stdio::null());
    command::run(&mut place)?;
    let mut yield_to_all = Command::new("renice");
    yield_to_all.args(["-n", "19", "-p", &thread]).stdout(Stdio::null());
    command::run(&mut yield_to_all)
}

/// Reads memory repeatedly, and counts the passes.
fn work(done: &AtomicU64, stop: &AtomicBool) {
    let memory = vec![1_u64; FOOTPRINT / 8];
    while !stop.load(Ordering::Relaxed) {
        for page in black_box(&memory).chunks(512) {
            black_box(page.iter().sum::<u64>());
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
}
