//! A line on a terminal that shows how far something is. A thread draws it, so that whatever works
//! only stores numbers for it.

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
pub(crate) struct StatusLine {
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl StatusLine {
    /// Starts to draw if standard error is a terminal.
    pub(crate) fn start(describe: impl Fn() -> String + Send + 'static) -> Self {
        if !stderr().is_terminal() {
            return Self { thread: None };
        }
        let (stop, stopped) = channel();
        let draw = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                show(&format!("{CLEAR}{}", describe()));
            }
            show(CLEAR);
        };
        Self { thread: Some((stop, std::thread::spawn(draw))) }
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _drawn = thread.join();
        }
    }
}

/// Says something on standard error, where such a line may stand.
pub(crate) fn say_above(text: &str) {
    let clear = if stderr().is_terminal() { CLEAR } else { "" };
    show(&format!("{clear}{text}\n"));
}

/// A terminal that cannot be written to needs no line.
fn show(text: &str) {
    let mut out = stderr().lock();
    let _shown = write!(out, "{text}").and_then(|()| out.flush());
}
