//! Puts outputs into their places, each job's on a thread.
//!
//! A directory that hangs stops only the job whose outputs belong there: after a time limit that
//! job is given up. A job whose outputs are already being renamed is not given up, because a local
//! compiler's outputs could be mixed with them.

use super::ServerPool;
use crate::args::{Cause, Job, Reason};
use crate::client::files::ring;
use crate::client::places;
use crate::client::result_buffer::Results;
use crate::manager::{Finished, OutputPlacement, Ticket, Trace, Verdict};
use crate::protocol::{Ran, TicketNumber};
use outboard_cluster::workers::Workers;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

/// How long outputs may take to be written.
const WRITTEN_MAX: Duration = Duration::from_secs(10);
/// A long output gets one more second for each unit of this many bytes.
const SLOWEST: u64 = 16 << 20;
/// Hung threads of jobs that were given up, at most. While there are this many, nothing is placed.
const HUNG_MAX: usize = 64;

/// Set once it is decided what happens to outputs that are written and not yet in their places. If
/// the thread sets it first, they are placed; if the loop does, they are not.
type Decided = Arc<AtomicBool>;

/// The outputs that are being placed.
pub(super) struct Placings {
    under_way: HashMap<TicketNumber, Placing>,
    /// What keeps threads busy of jobs that were given up.
    hung: Vec<Weak<AtomicBool>>,
    workers: Workers,
    reply: mpsc::Sender<(TicketNumber, Verdict)>,
    replies: mpsc::Receiver<(TicketNumber, Verdict)>,
    waker: Arc<OwnedFd>,
}

struct Placing {
    /// When it is given up, as running time.
    until: Duration,
    decided: Decided,
}

impl Placings {
    /// `waker` is made readable when outputs are in their places.
    pub(super) fn new(waker: Arc<OwnedFd>) -> Self {
        let (reply, replies) = mpsc::channel();
        let workers = Workers::new("outboard-place", HUNG_MAX + 1);
        Self { under_way: HashMap::new(), hung: Vec::new(), workers, reply, replies, waker }
    }

    pub(super) fn has(&self, ticket: TicketNumber) -> bool {
        self.under_way.contains_key(&ticket)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Has a thread place a compiler's outputs. The verdict comes later; it is returned at once if
    /// no thread can be started.
    fn begin(&mut self, ticket: TicketNumber, what: Ready, passed: Duration) -> Option<Verdict> {
        self.hung.retain(|placing| placing.strong_count() > 0);
        if self.hung.len() >= HUNG_MAX {
            return Some(Verdict::Local(Cause::Unanswered.into()));
        }
        let bytes = what.results.file_bytes();
        let until = passed + WRITTEN_MAX + Duration::from_secs(bytes / SLOWEST);
        let decided = Decided::default();
        let (reply, waker, mine) =
            (self.reply.clone(), Arc::clone(&self.waker), Arc::clone(&decided));
        let place = move || {
            // The loop may have ended, or have given this job up.
            let _sent = reply.send((ticket, what.place(&mine)));
            ring(&waker);
        };
        if !self.workers.run(place) {
            let why = "this machine refuses a thread";
            return Some(Verdict::Local(Reason::with(Cause::Placement, why)));
        }
        self.under_way.insert(ticket, Placing { until, decided });
        None
    }

    /// The next verdict from a thread.
    fn poll(&mut self) -> Option<(TicketNumber, Verdict)> {
        loop {
            let (ticket, verdict) = self.replies.try_recv().ok()?;
            if self.under_way.remove(&ticket).is_some() {
                return Some((ticket, verdict));
            }
        }
    }

    /// Stops the placing of a job's outputs. False if they are being renamed already.
    fn give_up(&mut self, ticket: TicketNumber) -> bool {
        let Some(placing) = self.under_way.get(&ticket) else { return false };
        if placing.decided.swap(true, Ordering::AcqRel) {
            return false;
        }
        let placing = self.under_way.remove(&ticket);
        self.hung.extend(placing.map(|placing| Arc::downgrade(&placing.decided)));
        true
    }

    /// Stops the placing for a cancelled job.
    pub(super) fn cancel(&mut self, ticket: TicketNumber) {
        if !self.give_up(ticket) {
            // Outputs that are being renamed are soon in their places; the verdict is dropped.
            self.under_way.remove(&ticket);
        }
    }

    /// Gives up the jobs whose outputs take too long.
    fn expire(&mut self, passed: Duration) -> Vec<TicketNumber> {
        let late = self.under_way.iter().filter(|(_, placing)| placing.until <= passed);
        let late: Vec<_> = late.map(|(ticket, _)| *ticket).collect();
        late.into_iter().filter(|ticket| self.give_up(*ticket)).collect()
    }
}

impl fmt::Debug for Placings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placings").field("hung", &self.hung.len()).finish_non_exhaustive()
    }
}

/// A job that has run, with its results.
pub(super) struct Ready {
    pub(super) job: Arc<Job>,
    pub(super) ran: Ran,
    pub(super) results: Results,
    pub(super) trace: Trace,
}

impl Ready {
    fn place(self, decided: &AtomicBool) -> Verdict {
        match self.write(decided) {
            Ok(()) => self.finished(),
            Err(reason) => Verdict::Local(reason),
        }
    }

    fn finished(self) -> Verdict {
        let Self { ran, results: Results { stdout, stderr, .. }, trace, .. } = self;
        Verdict::Done(Finished { status: ran.status, stdout, stderr, trace })
    }

    fn write(&self, decided: &AtomicBool) -> Result<(), Reason> {
        let mut placement = OutputPlacement::new(self.job.umask);
        for (made, bytes) in self.results.files() {
            let path = Path::new(OsStr::from_bytes(&made.path));
            if !places::may_hold(&self.job, path) {
                return Err(Reason::with(Cause::Placement, path));
            }
            let added = placement.add(path, made.mode, bytes);
            added.map_err(|error| Reason::with(Cause::Placement, error.to_string()))?;
        }
        if let Some(missing) = places::missing(&self.job, &self.ran) {
            return Err(Reason::with(Cause::Placement, missing));
        }
        if decided.swap(true, Ordering::AcqRel) {
            return Err(Cause::Unanswered.into());
        }
        placement.commit().map_err(|error| Reason::with(Cause::Placement, error.to_string()))
    }
}

impl ServerPool {
    /// Places a job's outputs; a compiler that failed has none to place.
    pub(super) fn place(&mut self, ticket: TicketNumber, ready: Ready, now: Instant) {
        let verdict = if ready.ran.status == 0 {
            self.placings.begin(ticket, ready, self.time.pass(now))
        } else {
            Some(ready.finished())
        };
        self.verdicts.extend(verdict.map(|verdict| (Ticket(ticket), verdict)));
    }

    /// Takes the verdicts of the threads that place outputs.
    pub(super) fn take_placed(&mut self) {
        while let Some((ticket, verdict)) = self.placings.poll() {
            self.verdicts.push((Ticket(ticket), verdict));
        }
    }

    /// Runs jobs locally whose output directories do not respond.
    pub(super) fn look_after_placings(&mut self, now: Instant) {
        for ticket in self.placings.expire(self.time.pass(now)) {
            self.verdicts.push((Ticket(ticket), Verdict::Local(Cause::Unanswered.into())));
        }
    }
}
