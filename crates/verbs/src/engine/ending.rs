//! The end of a stream, as a table. It distinguishes a program that is done with a connection, a
//! stream that is drained, and a socket that is closed; the protocol's phases, such as which side
//! has sent FIN, are in [`outboard_iwarp::Phase`]. This file touches no socket.
//!
//! ```text
//!         SendFailed
//!   Open ────────────▶ Draining
//!    │ Over               │ Over
//!    └──────▶ Leaving ◀───┘
//!                │  │ Deserted, Impatient       Closed, Expired, Blocked
//!                │  └─────────────────────▶ Lingering ────────────────────┐
//!                │ Closed                                                 ▼
//!                └───────────────────────────────────────────────────▶ Closed
//! ```
//! The program is told on the way out of Leaving, unless it has deserted the stream.

use std::time::{Duration, Instant};

/// How long nothing may move before the program is told of the end anyway.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a stream lingers while the peer's TCP has no room for it because nobody reads there.
const BLOCKED_LIMIT: Duration = Duration::from_secs(3);
/// How long a stream lingers while nothing moves.
const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// Where a stream's end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// Messages are exchanged.
    Open,
    /// TCP takes nothing more; bytes that it has received are still read and handled.
    Draining,
    /// Requests are flushed; the program is told when the stream is closed.
    Leaving,
    /// The program no longer takes part.
    Lingering,
    /// Nothing is left but to close the socket.
    Closed,
}

/// What moves a stream towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndEvent {
    /// TCP refused to take more.
    SendFailed,
    /// The connection has flushed its requests.
    Over,
    /// The program does not wait for the end.
    Deserted,
    /// Nothing has moved for [`PATIENCE`].
    Impatient,
    /// Nothing has moved for [`IDLE_LIMIT`], or others need the room.
    Expired,
    /// The peer has taken nothing for [`BLOCKED_LIMIT`] and never may: a FIN behind bytes for which
    /// it has no room cannot reach it, a reset can.
    Blocked,
    /// Both sides have closed, or the connection is lost.
    Closed,
}

use EndEvent as E;
use StreamEnd as S;

/// Every legal transition, and whether the program is told by it.
const TRANSITIONS: &[(StreamEnd, EndEvent, StreamEnd, bool)] = &[
    (S::Open, E::SendFailed, S::Draining, false),
    (S::Open, E::Over, S::Leaving, false),
    (S::Draining, E::Over, S::Leaving, false),
    (S::Leaving, E::Deserted, S::Lingering, false),
    (S::Leaving, E::Impatient, S::Lingering, true),
    (S::Leaving, E::Closed, S::Closed, true),
    (S::Lingering, E::Closed, S::Closed, false),
    (S::Lingering, E::Expired, S::Closed, false),
    (S::Lingering, E::Blocked, S::Closed, false),
];

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stepped {
    pub(crate) to: StreamEnd,
    /// The program is to be told that the connection is over.
    pub(crate) tells: bool,
}

/// Where a stream's end stands, and since when nothing has moved.
#[derive(Debug)]
pub(crate) struct Ending {
    state: StreamEnd,
    quiet: Option<Quiet>,
}

/// The flow when something last moved, and for how long nothing may.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    since: Instant,
    limit: Duration,
    flow: Flow,
}

/// Bytes that show whether anything moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// Received so far; may wrap.
    pub(crate) received: usize,
    /// Given to TCP and not acknowledged by the peer's TCP.
    pub(crate) unacknowledged: usize,
    /// The peer's TCP has acknowledged all that was sent and has no room for the rest.
    pub(crate) blocked: bool,
}

impl Default for Ending {
    fn default() -> Self {
        Self { state: StreamEnd::Open, quiet: None }
    }
}

impl Ending {
    pub(crate) fn state(&self) -> StreamEnd {
        self.state
    }

    /// Moves along the table; `None` where it has no such row.
    pub(crate) fn step(&mut self, event: EndEvent, now: Instant) -> Option<Stepped> {
        let row =
            |row: &&(StreamEnd, EndEvent, StreamEnd, bool)| row.0 == self.state && row.1 == event;
        let &(_, _, to, tells) = TRANSITIONS.iter().find(row)?;
        self.state = to;
        if matches!(to, StreamEnd::Leaving | StreamEnd::Lingering) {
            let flow = Flow { received: 0, unacknowledged: usize::MAX, blocked: false };
            let flow = self.quiet.map_or(flow, |quiet| quiet.flow);
            self.quiet = Some(Quiet { since: now, limit: self.first_limit(), flow });
        }
        Some(Stepped { to, tells })
    }

    /// How long nothing may move before [`Self::check`] looks.
    fn first_limit(&self) -> Duration {
        if self.state == StreamEnd::Lingering { BLOCKED_LIMIT } else { PATIENCE }
    }

    /// When [`Self::check`] must be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            StreamEnd::Leaving | StreamEnd::Lingering => self.quiet.map(|q| q.since + q.limit),
            StreamEnd::Open | StreamEnd::Draining | StreamEnd::Closed => None,
        }
    }

    /// Whether nothing has moved for too long.
    pub(crate) fn check(&mut self, now: Instant, flow: impl Fn() -> Flow) -> Option<EndEvent> {
        if self.deadline().is_none_or(|at| now < at) {
            return None;
        }
        let (flow, limit) = (flow(), self.first_limit());
        let quiet = self.quiet.as_mut()?;
        let before = quiet.flow;
        if flow.received != before.received || flow.unacknowledged < before.unacknowledged {
            *quiet = Quiet { since: now, limit, flow };
            return None;
        }
        if self.state == StreamEnd::Leaving {
            return Some(EndEvent::Impatient);
        }
        if flow.blocked {
            return Some(EndEvent::Blocked);
        }
        let was = std::mem::replace(&mut quiet.limit, IDLE_LIMIT);
        (was == IDLE_LIMIT).then_some(EndEvent::Expired)
    }

    /// Remembers the flow, to see later whether anything moves.
    pub(crate) fn note(&mut self, flow: Flow) {
        if let Some(quiet) = &mut self.quiet {
            quiet.flow = flow;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [StreamEnd; 5] = [S::Open, S::Draining, S::Leaving, S::Lingering, S::Closed];
    const EVENTS: [EndEvent; 7] =
        [E::SendFailed, E::Over, E::Deserted, E::Impatient, E::Expired, E::Blocked, E::Closed];

    /// Prints every pair; the text is the specification, so a change of the table shows up here.
    #[test]
    fn every_transition() {
        let mut text = String::new();
        for state in STATES {
            for event in EVENTS {
                let mut ending = Ending { state, quiet: None };
                if let Some(Stepped { to, tells }) = ending.step(event, Instant::now()) {
                    let told = if tells { ", told" } else { "" };
                    text += &format!("{state:?} --{event:?}--> {to:?}{told}\n");
                }
            }
        }
        let expected = "\
Open --SendFailed--> Draining
Open --Over--> Leaving
Draining --Over--> Leaving
Leaving --Deserted--> Lingering
Leaving --Impatient--> Lingering, told
Leaving --Closed--> Closed, told
Lingering --Expired--> Closed
Lingering --Blocked--> Closed
Lingering --Closed--> Closed
";
        assert_eq!(text, expected, "the table has changed; now:\n{text}");
    }

    /// Whatever happens to a stream that is over, the program is told once at most.
    #[test]
    fn the_program_is_told_once_at_most() {
        for first in EVENTS {
            for second in EVENTS {
                let mut ending = Ending { state: StreamEnd::Leaving, quiet: None };
                let steps = [first, second].map(|event| ending.step(event, Instant::now()));
                let told = steps.into_iter().flatten().filter(|step| step.tells).count();
                assert!(told <= 1, "{first:?} {second:?}");
            }
        }
    }

    #[test]
    fn a_stream_that_moves_does_not_time_out() {
        let start = Instant::now();
        let mut ending = Ending::default();
        ending.step(E::Over, start);
        let flow = |received, unacknowledged| Flow { received, unacknowledged, blocked: false };
        ending.note(flow(5, 100));
        assert_eq!(ending.deadline(), Some(start + PATIENCE));
        assert_eq!(ending.check(start, || flow(5, 100)), None, "too early");
        let later = start + PATIENCE;
        assert_eq!(ending.check(later, || flow(5, 99)), None, "the peer took something");
        let later = later + PATIENCE;
        assert_eq!(ending.check(later, || flow(6, 99)), None, "the peer sent something");
        let later = later + PATIENCE;
        assert_eq!(ending.check(later, || flow(6, 99)), Some(E::Impatient));
        ending.step(E::Impatient, later);
        assert_eq!(ending.deadline(), Some(later + BLOCKED_LIMIT));
        assert_eq!(ending.check(later + BLOCKED_LIMIT, || flow(6, 99)), None, "on its way");
        assert_eq!(ending.deadline(), Some(later + IDLE_LIMIT));
        assert_eq!(ending.check(later + IDLE_LIMIT, || flow(6, 99)), Some(E::Expired));
    }

    #[test]
    fn a_peer_that_does_not_read_is_not_waited_for() {
        let start = Instant::now();
        let mut ending = Ending { state: StreamEnd::Leaving, quiet: None };
        ending.step(E::Deserted, start);
        let flow = |unacknowledged| Flow { received: 0, unacknowledged, blocked: true };
        ending.note(flow(100));
        let later = start + BLOCKED_LIMIT;
        assert_eq!(ending.check(later, || flow(99)), None, "the peer took something");
        assert_eq!(ending.check(later + BLOCKED_LIMIT, || flow(99)), Some(E::Blocked));
    }
}
