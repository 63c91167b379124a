//! `outboard offload run`: an application in the foreground, between standard input and output.

use super::show::printable;
use super::{launch_options, plan::layout};
use clap::Args;
use outboard_offload::control::{ControlServer, Hosted};
use outboard_offload::describe::application::ApplicationEnd;
use outboard_offload::device::PortSend;
use outboard_offload::launch::launch;
use outboard_offload::planning::AppLayout;
use outboard_offload::runtime::{AppEnd, ApplicationHandle, RuntimeEvent};
use serde_json::json;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often the loop looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// After the input's end the application ends when nothing has moved for so long: counters come
/// with heartbeats, which are 250 ms apart.
const QUIET: Duration = Duration::from_millis(800);
/// Bytes of a line of input, at most.
const LINE_MAX: u64 = 16 << 20;

/// Run an application: lines of standard input go to it, its messages to standard output.
///
/// Input goes to the application's end that sends, a line a message; what arrives at its ends that
/// receive is printed. After the input's end it stops when nothing moves any more; without such an
/// end, or from a terminal, when it is interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  outboard offload run app.toml < /usr/share/dict/words")]
pub(crate) struct RunOffloadArgs {
    /// The layout file.
    app: PathBuf,
    /// Print messages, ends and logs as JSON, a line each.
    #[arg(long)]
    json: bool,
    /// The application's end that input goes to, where it has several.
    #[arg(long, value_name = "END")]
    input: Option<String>,
    /// Go on after the input's end, until it is interrupted or stopped.
    #[arg(long)]
    keep: bool,
    /// End after this time: 10s, 500ms.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    limit: Option<Duration>,
}

fn time(text: &str) -> Result<Duration, String> {
    let parsed = outboard_offload::describe::quantity::parse_time(text);
    parsed.ok_or_else(|| "write a time such as 10s or 500ms".to_owned())
}

pub(super) fn run(args: &RunOffloadArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
    }
    let layout = layout(&args.app)?;
    let (inputs, outputs) = (ends(&layout, Sends::Yes), ends(&layout, Sends::No));
    let input = chosen(&inputs, args.input.as_deref())?;
    let launched = launch(&layout, &launch_options()?)?;
    let handle = launched.running.handle();
    let name = layout.application.name.to_string();
    let hosted = Arc::new(Hosted::new(handle.clone(), layout, &launched.opened));
    let _control = ControlServer::start(&name, Arc::clone(&hosted))?;
    let output = Arc::new(Output {
        as_json: args.json,
        hosted: Arc::clone(&hosted),
        stopped: AtomicBool::new(false),
    });
    let mut taken = Vec::new();
    for end in outputs.iter().filter(|end| Some(*end) != input.as_ref()) {
        taken.push((end.clone(), Arc::new(handle.end(end)?)));
    }
    let source = input.as_ref().map(|end| handle.end(end).map(Arc::new)).transpose()?;
    if let Some((end, own)) =
        input.as_ref().zip(source.as_ref()).filter(|(end, _)| outputs.contains(*end))
    {
        taken.push((end.clone(), Arc::clone(own)));
    }
    let printers: Vec<_> =
        taken.into_iter().map(|(end, own)| print(end, own, Arc::clone(&output))).collect();
    let is_fed = source.map(feed);
    let mut until = Until { args, began: Instant::now(), moved: Instant::now(), entries: 0 };
    let mut code = ExitCode::SUCCESS;
    while !interrupted.load(Ordering::Relaxed) && !hosted.is_to_stop() {
        if let Some(event) = handle.next_event(LOOK) {
            if matches!(event, RuntimeEvent::Ended { .. } | RuntimeEvent::DeviceLost { .. }) {
                code = ExitCode::FAILURE;
            }
            output.event(&event);
        }
        if until.is_over(&handle, is_fed.as_ref()) {
            break;
        }
    }
    let stopped = launched.running.stop();
    output.stopped.store(true, Ordering::Relaxed);
    printers.into_iter().for_each(|printer| drop(printer.join()));
    while let Some(event) = handle.next_event(Duration::ZERO) {
        output.event(&event);
    }
    stopped?;
    Ok(code)
}

/// Whether an end of the application sends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    Yes,
    No,
}

/// The application's ends, by their names.
fn ends(layout: &AppLayout, sends: Sends) -> BTreeSet<String> {
    let channels = layout.application.channels.iter();
    let ends = channels.flat_map(|channel| match sends {
        Sends::Yes => vec![&channel.from],
        Sends::No => channel.to.iter().collect(),
    });
    let named = ends.filter_map(|end| match end {
        ApplicationEnd::App(name) => {
            Some(name.as_ref().map_or_else(String::new, ToString::to_string))
        }
        ApplicationEnd::Port { .. } => None,
    });
    named.collect()
}

/// The end that input goes to.
fn chosen(inputs: &BTreeSet<String>, wanted: Option<&str>) -> Result<Option<String>, String> {
    let known = || inputs.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    match (wanted, inputs.len()) {
        (Some(wanted), _) if inputs.contains(wanted) => Ok(Some(wanted.to_owned())),
        (Some(wanted), 0) => Err(format!("--input {wanted}: no end of the application sends")),
        (Some(wanted), _) => {
            Err(format!("--input {wanted}: no such end; those that send: {}", known()))
        }
        (None, 0 | 1) => Ok(inputs.first().cloned()),
        (None, _) => Err(format!("several ends send: choose one by --input: {}", known())),
    }
}

/// Sends lines of standard input to an end, from a thread. The flag says when all are sent.
fn feed(end: Arc<AppEnd>) -> Arc<AtomicBool> {
    let is_done = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_done);
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        let mut line = Vec::new();
        while matches!((&mut input).take(LINE_MAX).read_until(b'\n', &mut line), Ok(1..)) {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            match end.send_within(&line, Duration::from_secs(3600)) {
                PortSend::Taken => {}
                PortSend::TooLong => {
                    eprintln!(
                        "outboard: a line of {} bytes is longer than the channel's messages",
                        line.len()
                    );
                }
                PortSend::Full | PortSend::NotConnected => break,
            }
            line.clear();
        }
        flag.store(true, Ordering::Relaxed);
    });
    is_done
}

/// Where messages, ends and logs are shown.
#[derive(Debug)]
struct Output {
    as_json: bool,
    hosted: Arc<Hosted>,
    stopped: AtomicBool,
}

impl Output {
    fn message(&self, end: &str, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        let written = match self.as_json {
            true => writeln!(
                out,
                "{}",
                json!({ "end": end, "message": String::from_utf8_lossy(bytes) })
            ),
            false => out.write_all(bytes).and_then(|()| out.write_all(b"\n")),
        };
        // Whoever reads may have enough; the application goes on.
        let _unread = written.and_then(|()| out.flush());
    }

    fn event(&self, event: &RuntimeEvent) {
        let line = match event {
            RuntimeEvent::Ended { name, why, with } if with.is_empty() => {
                format!("{name} has ended: {why}")
            }
            RuntimeEvent::Ended { name, why, with } => {
                format!("{name} has ended, and with it {}: {why}", with.join(", "))
            }
            RuntimeEvent::Told { name, bytes } => {
                format!("{name} says: {}", String::from_utf8_lossy(bytes))
            }
            RuntimeEvent::Log { name, text, .. } => format!("{name}: {text}"),
            RuntimeEvent::DeviceLost { device, why } => format!("device {device} is lost: {why}"),
            RuntimeEvent::Moved { name, device } => format!("{name} runs on {device} now"),
            RuntimeEvent::Stopped => return,
            RuntimeEvent::Missed(count) => format!("{count} messages and lines of logs were lost"),
        };
        let line = printable(&line);
        match self.as_json {
            true => eprintln!("{}", json!({ "event": line })),
            false => eprintln!("outboard: {line}"),
        }
        self.hosted.log(line);
    }
}

/// Prints what arrives at an end, from a thread, until all is over.
fn print(name: String, end: Arc<AppEnd>, output: Arc<Output>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        loop {
            let is_stopped = output.stopped.load(Ordering::Relaxed);
            match end.receive_within(LOOK) {
                Some(bytes) => output.message(&name, &bytes),
                None if is_stopped => return,
                None => {}
            }
        }
    })
}

/// When the application ends by itself.
struct Until<'a> {
    args: &'a RunOffloadArgs,
    began: Instant,
    /// When an offcode was last seen to have been entered.
    moved: Instant,
    entries: u64,
}

impl Until<'_> {
    fn is_over(&mut self, handle: &ApplicationHandle, is_fed: Option<&Arc<AtomicBool>>) -> bool {
        if self.args.limit.is_some_and(|limit| self.began.elapsed() >= limit) {
            return true;
        }
        let Ok(snapshot) = handle.snapshot() else { return true };
        if snapshot.offcodes.is_empty() {
            return true;
        }
        let entries = snapshot.offcodes.iter().map(|offcode| offcode.counters.entries).sum();
        let is_fed = is_fed.is_some_and(|fed| fed.load(Ordering::Relaxed));
        if !is_fed || self.entries != entries {
            (self.entries, self.moved) = (entries, Instant::now());
        }
        is_fed && !self.args.keep && self.moved.elapsed() > QUIET
    }
}
