//! A line on a terminal that shows a test's progress. A thread draws it, so that the timed loop
//! only stores a number for it.

use outboard_perf::{Goal, Progress, Test};
use std::io::{IsTerminal, Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the line is drawn.
const PERIOD: Duration = Duration::from_millis(250);
/// The control sequence that returns to the line's start and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// The line; it disappears when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Line {
    /// Starts to draw if standard error is a terminal.
    pub(super) fn start(test: Test, goal: Goal, done: &Progress) -> Self {
        if !stderr().is_terminal() {
            return Self { thread: None };
        }
        let (stop, stopped) = channel();
        let done = done.clone();
        let draw = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                show(&format!("{CLEAR}{test}: {}", describe(goal, done.messages())));
            }
            show(CLEAR);
        };
        let thread = std::thread::spawn(draw);
        Self { thread: Some((stop, thread)) }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _drawn = thread.join();
        }
    }
}

fn describe(goal: Goal, messages: u64) -> String {
    match goal {
        _ if messages == 0 => "warming up".to_owned(),
        Goal::Messages(all) => format!("{messages} of {all} messages"),
        Goal::Time(time) => format!("{messages} messages; {time:?} in all"),
    }
}

/// A terminal that cannot be written to needs no line.
fn show(text: &str) {
    let mut out = stderr().lock();
    let _shown = write!(out, "{text}").and_then(|()| out.flush());
}
