//! `outboard top`: the compile servers, what is cast to them and this user's builds, again each
//! second.
//!
//! Modules in reading order: `frame` (the data of one moment, and changes since the last one),
//! `casts` (of those), `text` (how it is shown), `screen` (the terminal).

mod casts;
mod frame;
mod screen;
mod text;

use crate::{Outcome, status};
use clap::Args;
use frame::{Frame, PanelSource};
use outboard_cluster::hosts::HostList;
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);
/// Without a terminal, how late it may notice a signal.
const NAP: Duration = Duration::from_millis(50);

/// Watch nodes: slots, jobs now, rates, the casts under way, and the state of this user's builds.
///
/// Refreshes each second; `q` ends it. With `--once` the exit code is 1 if no server answers.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard top
  outboard top 'n[01-14]' --once")]
pub(crate) struct TopArgs {
    /// Which nodes [default: OUTBOARD_HOSTS, or else a Slurm job's, or else this machine's].
    hosts: Option<HostList>,
    /// Show it once.
    #[arg(long)]
    once: bool,
    /// As JSON: an object a line.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: TopArgs) -> Outcome {
    let source = PanelSource::new(status::hosts_or_own(args.hosts)?)?;
    let mut frame = source.look(None);
    if args.once {
        print(&frame, args.json)?;
        return match frame.answered {
            0 => Err(format!("none of {} servers answered", frame.servers.len()).into()),
            _ => Ok(()),
        };
    }
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&over))?;
    }
    let wants_screen = !args.json && io::stdout().is_terminal() && io::stdin().is_terminal();
    let mut screen = if wants_screen { Some(Screen::new()?) } else { None };
    loop {
        let due = Instant::now() + PERIOD;
        match &mut screen {
            Some(screen) => screen.show(&text::lines(&frame))?,
            None => print(&frame, args.json)?,
        }
        while Instant::now() < due {
            let left = due.saturating_duration_since(Instant::now());
            let quit = match &screen {
                Some(screen) => screen.wants_to_quit(left)?,
                None => {
                    thread::sleep(left.min(NAP));
                    false
                }
            };
            if quit || over.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        frame = source.look(Some(&frame));
    }
}

/// If the reader has gone, the program ends without an error.
fn print(frame: &Frame, json: bool) -> Outcome {
    let mut out = io::stdout().lock();
    let printed = if json {
        writeln!(out, "{}", frame.to_json())
    } else {
        writeln!(out, "{}", text::lines(frame).join("\n"))
    };
    match printed.and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        printed => Ok(printed?),
    }
}
