//! What a node says of its life: lines on standard error. Strangers can make it say only so much.

use std::fmt::Display;
use std::io::Write;
use std::time::{Duration, Instant};

/// Lines about strangers in a [`PERIOD`], at most.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Log {
    since: Instant,
    said: u32,
    unsaid: u64,
}

impl Log {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, said: 0, unsaid: 0 }
    }

    /// Says something of the node's own.
    pub(super) fn say(&self, what: impl Display) {
        // Without anybody to read it, the node works on.
        let _said = writeln!(std::io::stderr(), "outboard node: {what}");
    }

    /// Says something that a stranger has brought about, unless there was much of that lately.
    pub(super) fn say_of_stranger(&mut self, now: Instant, what: impl Display) {
        if now.saturating_duration_since(self.since) >= PERIOD {
            if self.unsaid > 0 {
                self.say(format_args!("{} more like these before", self.unsaid));
            }
            *self = Self::new(now);
        }
        if self.said == LINES {
            self.unsaid += 1;
            return;
        }
        self.said += 1;
        self.say(what);
    }
}
