//! Connections to servers: dialled by threads of their own, tried again ever more rarely.

use outboard_cluster::hub::{Admission, Admitted, Hub};
use outboard_verbs::{Role, Secured};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connection may take to come up.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// After a failure a server is left alone for this long, and twice as long after the next.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a server is reached: an encrypted session, or why there is none. Called by threads.
pub type Dial = Arc<dyn Fn(usize, Duration) -> Result<Secured, String> + Send + Sync>;

/// What became of an attempt.
pub(crate) struct Dialled {
    /// The line.
    pub(crate) line: usize,
    /// A connection, or why there is none.
    pub(crate) result: Result<Admitted, String>,
}

/// Lines to all servers of a list, in its order.
pub(crate) struct Lines {
    dial: Dial,
    lines: Vec<Line>,
    sender: mpsc::Sender<Dialled>,
    results: mpsc::Receiver<Dialled>,
    bell: Arc<OwnedFd>,
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Down { until: Instant, pause: Duration, tried: bool },
    Dialling { pause: Duration, tried: bool },
    Up { since: Instant, pause: Duration },
}

impl Lines {
    pub(crate) fn new(count: usize, dial: Dial, now: Instant) -> rustix::io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, results) = mpsc::channel();
        let lines = vec![Line::Down { until: now, pause: PAUSE_MIN, tried: false }; count];
        Ok(Self { dial, lines, sender, results, bell })
    }

    /// Lines that have not failed yet: a build that begins may wait for them.
    pub(crate) fn hopeful(&self) -> usize {
        let hopeful = |line: &&Line| {
            matches!(line, Line::Down { tried: false, .. } | Line::Dialling { tried: false, .. })
        };
        self.lines.iter().filter(hopeful).count()
    }

    /// Dials what is due.
    pub(crate) fn dial(&mut self, hub: &Hub, now: Instant) {
        for at in 0..self.lines.len() {
            let Line::Down { until, pause, tried } = self.lines[at] else { continue };
            if until > now {
                continue;
            }
            self.lines[at] = match hub.prepare() {
                Ok(admission) => {
                    self.spawn(at, admission);
                    Line::Dialling { pause, tried }
                }
                Err(_) => Line::Down { until: now + pause, pause, tried: true },
            };
        }
    }

    fn spawn(&self, line: usize, admission: Admission) {
        let (dial, sender) = (Arc::clone(&self.dial), self.sender.clone());
        let bell = Arc::clone(&self.bell);
        thread::spawn(move || {
            let result = dial(line, DIAL_LIMIT).and_then(|stream| {
                let connected = admission.connect(|qp, params, channel| {
                    qp.adopt(stream, Role::Initiator, params, channel)
                });
                connected.map_err(|error| error.to_string())
            });
            // Whoever waited may have gone.
            let _told = sender.send(Dialled { line, result });
            let _rung = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        });
    }

    /// The next attempt that is over.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<Dialled> {
        let mut rings = [0; 8];
        let _quiet = rustix::io::read(&*self.bell, &mut rings);
        let dialled = self.results.try_recv().ok()?;
        let pause = match self.lines[dialled.line] {
            Line::Dialling { pause, .. } | Line::Down { pause, .. } | Line::Up { pause, .. } => {
                pause
            }
        };
        self.lines[dialled.line] = match dialled.result {
            Ok(_) => Line::Up { since: now, pause },
            Err(_) => Line::Down { until: now + pause, pause: longer(pause), tried: true },
        };
        Some(dialled)
    }

    /// A line's connection is over.
    pub(crate) fn lost(&mut self, line: usize, now: Instant) {
        let pause = match self.lines[line] {
            // What stood for a while is worth another try soon.
            Line::Up { since, .. } if now - since > PAUSE_MAX => PAUSE_MIN,
            Line::Up { pause, .. } | Line::Down { pause, .. } | Line::Dialling { pause, .. } => {
                pause
            }
        };
        self.lines[line] = Line::Down { until: now + pause, pause: longer(pause), tried: true };
    }

    /// When the next line is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let due = |line: &Line| match line {
            Line::Down { until, .. } => Some(*until),
            _ => None,
        };
        self.lines.iter().filter_map(due).min()
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

impl AsFd for Lines {
    /// Readable when an attempt is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The next attempt that is over, asleep on the descriptor until then.
    fn next(lines: &mut Lines, now: Instant) -> Dialled {
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(lines, PollFlags::IN)], Some(&patience)).expect("poll");
        // The bell may ring before the result is there, never the other way round.
        lines.poll(now).expect("it has rung")
    }

    #[test]
    fn a_server_that_is_not_there_is_tried_ever_more_rarely() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let dial: Dial = Arc::new(move |line, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(format!("nobody is at {line}"))
        });
        let hub = Hub::new().expect("a hub");
        let start = Instant::now();
        let mut lines = Lines::new(1, dial, start).expect("lines");
        assert_eq!(lines.hopeful(), 1);
        let mut now = start;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            lines.dial(&hub, now);
            let dialled = next(&mut lines, now);
            assert_eq!(dialled.result.expect_err("nobody"), "nobody is at 0");
            assert_eq!(lines.hopeful(), 0, "one failure is enough not to wait for it");
            let pause = Duration::from_secs(pause);
            assert_eq!(lines.deadline(), Some(now + pause));
            lines.dial(&hub, now + pause - Duration::from_millis(1));
            now += pause;
        }
        assert_eq!(tries.load(Ordering::SeqCst), 8);
    }
}
