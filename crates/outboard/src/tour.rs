//! `outboard tour`: everything that exists, on this machine, with real input and with figures.
//!
//! It starts processes of this program on loopback, and writes into one temporary directory. Both
//! are gone when it ends, in whatever way. A stop that this machine cannot run is left out, with
//! what is missing.
//!
//! Modules in reading order: `place` (the directory), `rdma`, `compile`, `cast`, `active`, `files`
//! and `offload` (the stops), `project` (what is built), `cluster` (the servers that build it),
//! `build` (runs a build's jobs in parallel), `nodes` (which receive what is cast, and keep memory
//! and files).

mod active;
mod build;
mod cast;
mod cluster;
mod compile;
mod files;
mod idle;
mod nodes;
mod offload;
mod place;
mod project;
mod rdma;

use crate::Outcome;
use clap::Args;
use outboard_perf::Progress;
use place::TourDir;
use serde_json::{Map, Value};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::available_parallelism;
use std::time::Instant;

/// Show everything that Outboard does, on this machine, with real input and figures.
///
/// Measures RDMA beside TCP, then builds a C project on three compile servers on loopback and
/// compares the outputs with a local build, casts a tree of files to four nodes, runs code next to
/// a node's memory, searches and copies files in a node's file system, and runs a program made of
/// offcodes in two layouts. The project's sources come from cargo's registry. No root; a minute or
/// two on two processors. Nothing is left behind.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard tour
  outboard tour --json > tour.json")]
pub(crate) struct TourArgs {
    /// Print the figures as one JSON object at the end; progress goes to standard error.
    #[arg(long)]
    json: bool,
}

/// Why a stop has no figures.
#[derive(Debug)]
enum Trouble {
    /// This machine lacks something; the tour continues.
    LeftOut(String),
    /// Something that must work does not.
    Failed(String),
    /// The user has interrupted it.
    Interrupted,
}

impl Trouble {
    fn left_out(what: &str, why: impl Display) -> Self {
        Self::LeftOut(format!("{what}: {why}"))
    }

    fn failed(what: &str, why: impl Display) -> Self {
        Self::Failed(format!("{what}: {why}"))
    }
}

/// This program failed: it cannot write its directory, or start itself.
impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// What every stop is given.
struct Guide {
    place: TourDir,
    progress: Progress,
    stop: Arc<AtomicBool>,
    /// Standard output is for the JSON object.
    json: bool,
}

/// A stop: its name, what it shows, and how.
type Stop = (&'static str, &'static str, fn(&Guide) -> Result<Value, Trouble>);

const STOPS: &[Stop] = &[
    (
        "rdma",
        "RDMA beside TCP: two processes on loopback, in turns, a second each in all",
        rdma::show,
    ),
    ("compile", "A C project on three compile servers, beside a local build", compile::show),
    ("cast", "A tree of files on four nodes, which pass it on to each other", cast::show),
    ("active", "Code next to a node's memory, beside a Read for each step", active::show),
    ("fs", "A file system on a node: searched, copied and hashed where it is", files::show),
    ("offload", "A program in parts, and two layouts of them: here, and on a core", offload::show),
];

pub(crate) fn run(args: &TourArgs) -> Outcome {
    let started = Instant::now();
    let guide = Guide::new(args.json)?;
    guide.say(&format!(
        "Outboard {} on this machine: {} processors, {} {}",
        env!("CARGO_PKG_VERSION"),
        available_parallelism().map_or(1, usize::from),
        text(rustix::system::uname().sysname()),
        text(rustix::system::uname().release()),
    ));
    if cfg!(debug_assertions) {
        guide.say("(not optimized: cargo run --release gives other figures)");
    }
    let mut stops = Map::new();
    for (at, (name, about, show)) in STOPS.iter().enumerate() {
        guide.say(&format!("\n{}. {about}", at + 1));
        stops.insert((*name).to_owned(), guide.make(*show)?);
    }
    let seconds = started.elapsed().as_secs_f64();
    guide.say(&format!("\nThat took {seconds:.0} s. Nothing is left of it. Where to look next:"));
    guide.say(NEXT);
    if args.json {
        println!("{}", serde_json::json!({ "seconds": seconds, "stops": stops }));
    }
    Ok(())
}

const NEXT: &str = "   outboard perf --help       every measurement, also between machines
   outboard run PROGRAM       a program built for RDMA hardware, as it is
   outboard cast --help       files on many machines
   outboard active --help     code next to another machine's memory
   outboard fs --help         files on another machine, searched and copied there
   outboard offload --help    a program in parts, and where they run apart from it
   outboard node --help       let other machines compile here; outboard cc --help uses them
   README.md and docs/ in the sources: perf.md, run.md, node.md, cc.md,
   cast.md, active.md, fs.md, offload.md";

fn text(name: &std::ffi::CStr) -> String {
    name.to_string_lossy().into_owned()
}

impl Guide {
    /// Signals are caught from here on: the first ends the tour in order, the second at once.
    fn new(json: bool) -> Result<Self, Box<dyn Error>> {
        let progress = Progress::default();
        let stop = progress.interrupt();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
            register(signal, Arc::clone(&stop))?;
        }
        Ok(Self { place: TourDir::new()?, progress, stop, json })
    }

    fn make(&self, show: fn(&Self) -> Result<Value, Trouble>) -> Result<Value, Box<dyn Error>> {
        match show(self).and_then(|figures| self.goes_on().map(|()| figures)) {
            Ok(figures) => Ok(figures),
            Err(_) if self.is_over() => Err("interrupted; what was started has ended".into()),
            Err(Trouble::LeftOut(why)) => {
                self.say(&format!("   left out: {why}"));
                Ok(serde_json::json!({ "left_out": why }))
            }
            Err(Trouble::Failed(why)) => Err(why.into()),
            Err(Trouble::Interrupted) => Err("interrupted".into()),
        }
    }

    /// Prints a line. A reader that has gone is not an error.
    fn say(&self, line: &str) {
        let _told = if self.json {
            writeln!(io::stderr(), "{line}")
        } else {
            writeln!(io::stdout(), "{line}")
        };
    }

    /// Shows the current step on a terminal; the next line overwrites it.
    fn whisper(&self, line: &str) {
        let mut out = io::stderr().lock();
        if out.is_terminal() {
            let _told = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
        }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn goes_on(&self) -> Result<(), Trouble> {
        if self.is_over() { Err(Trouble::Interrupted) } else { Ok(()) }
    }
}
