//! A command that starts receivers, while it runs: its input is open as long as the cast lasts.
//!
//! A thread reads its output, another its complaints, which people see at once.

use super::LaunchError;
use super::announcement::Announcement;
use super::way::LaunchCommand;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of a line, at most; more are another line.
const LINE_MAX: u64 = 16 << 10;
/// How often to look whether a child has ended.
const TICK: Duration = Duration::from_millis(10);

/// What a child says.
#[derive(Debug)]
pub(super) enum ChildEvent {
    /// A receiver of it announces itself.
    Announced(usize, Announcement),
    /// A line on its standard error.
    Complained(usize, String),
    /// Its output is over.
    Ended(usize),
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct LaunchChild {
    child: Child,
    input: Option<ChildStdin>,
    /// The nodes that it starts receivers on.
    pub(super) nodes: Vec<String>,
}

impl LaunchChild {
    /// Starts a command and gives it the invitation; events carry its number.
    ///
    /// # Errors
    /// [`LaunchError::Command`], [`LaunchError::System`].
    pub(super) fn start(
        launch: LaunchCommand,
        invitation: &str,
        (number, events): (usize, &Sender<ChildEvent>),
    ) -> Result<Self, LaunchError> {
        let LaunchCommand { mut command, nodes } = launch;
        let program = command.get_program().to_string_lossy().into_owned();
        // A signal of the terminal ends the source, and its end those.
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started.map_err(|source| LaunchError::Command { program, source })?;
        let mut input = child.stdin.take();
        if let Some(input) = &mut input {
            // One that has ended already says why by itself. A pipe takes 64 KiB at once.
            let _gone = input.write_all(invitation.as_bytes()).and_then(|()| input.flush());
        }
        let prefix = match nodes.as_slice() {
            [node] => format!("{node}: "),
            _ => String::new(),
        };
        if let Some(output) = child.stdout.take() {
            let events = events.clone();
            spawn(move || read_output(output, number, &events))?;
        }
        if let Some(complaints) = child.stderr.take() {
            let events = events.clone();
            spawn(move || read_complaints(complaints, &prefix, (number, &events)))?;
        }
        Ok(Self { child, input, nodes })
    }

    /// Tells it that the cast is over.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Waits for its end, and ends it when it is late.
    pub(super) fn wait_until(&mut self, deadline: Instant) {
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                // It may end by itself meanwhile.
                let _killed = self.child.kill();
                let _status = self.child.wait();
                return;
            }
            thread::sleep(TICK);
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("outboard-launch".into()).spawn(work).map(drop)
}

fn read_output(output: impl Read, number: usize, events: &Sender<ChildEvent>) {
    each_line(output, |line| {
        if let Some(announcement) = Announcement::parse(line) {
            // The source may have gone on without it.
            let _sent = events.send(ChildEvent::Announced(number, announcement));
        }
    });
    let _sent = events.send(ChildEvent::Ended(number));
}

fn read_complaints(
    complaints: impl Read,
    prefix: &str,
    (number, events): (usize, &Sender<ChildEvent>),
) {
    each_line(complaints, |line| {
        // A host must not rewrite what others have said.
        let line: String = line.trim_end().chars().filter(|one| !one.is_control()).collect();
        eprintln!("{prefix}{line}");
        let _sent = events.send(ChildEvent::Complained(number, line));
    });
}

/// Calls `use_line` for each line until the end; a line that is no text is shown as far as it is.
fn each_line(input: impl Read, mut use_line: impl FnMut(&str)) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => use_line(&String::from_utf8_lossy(&line)),
        }
    }
}
