//! The loop of a service: everything that all services need and that is not their own work.
//!
//! It takes sessions from the node's supervisor, has threads set their connections up, ends the
//! sessions of revoked identities, and makes reports on request. Messages are the [`Service`]'s.
//! The loop waits for nothing but descriptors and time.

use crate::arrivals::{Arrivals, Arrived};
use crate::hub::{Hub, HubError, HubEvent, HubOptions, PeerId};
use crate::node::{Arrival, Permit, ServiceLink};
use crate::waker::Waker;
use outboard_secure::NodeId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a report is waited for: after that the previous report is used.
const REPORT_MAX: Duration = Duration::from_millis(300);
/// How long a loop sleeps when nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Why a peer's session ends, as the log shows it.
pub type End = Box<dyn Error>;

/// What a service does. Nothing here waits.
pub trait Service {
    /// The type of its tags for requests to peers.
    type Tag;

    /// A peer is connected; until it is [gone](Self::gone) it may use what its permit says.
    ///
    /// # Errors
    /// Why its session ends.
    fn arrived(
        &mut self,
        hub: &mut Hub<Self::Tag>,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), End>;

    /// Something happened to a peer, but for its end.
    ///
    /// # Errors
    /// Why its session ends.
    fn handle(&mut self, hub: &mut Hub<Self::Tag>, event: HubEvent<Self::Tag>) -> Result<(), End>;

    /// A peer's session has ended.
    fn gone(&mut self, hub: &mut Hub<Self::Tag>, peer: PeerId);

    /// Called after all events were handled, once for each time that the loop woke up.
    ///
    /// # Errors
    /// This machine's: the service ends, and its node starts it again.
    fn turn(&mut self, _hub: &mut Hub<Self::Tag>, _now: Instant) -> Result<(), End> {
        Ok(())
    }

    /// When the loop must wake up at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// What else wakes the loop when it is readable.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// What `outboard status` shows: an object of names and values.
    fn report(&self) -> Value;
}

/// Runs a service until its node ends.
pub fn run<S: Service>(link: ServiceLink, options: HubOptions, service: S) -> ExitCode {
    let name = link.service().as_str().to_owned();
    match Loop::new(link, options, service).and_then(Loop::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard: service {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Loop<S: Service> {
    link: ServiceLink,
    hub: Hub<S::Tag>,
    arrivals: Arrivals,
    waker: Waker,
    permits: HashMap<PeerId, (NodeId, Option<Permit>)>,
    service: S,
    reports: Arc<Reports>,
    ended: u64,
    latest_end: String,
}

/// Reports, between the loop and the thread that reads the supervisor's requests.
#[derive(Debug, Default)]
struct Reports {
    state: Mutex<ReportState>,
    made: Condvar,
}

#[derive(Debug, Default)]
struct ReportState {
    wanted: bool,
    latest: Value,
}

impl Reports {
    /// Has the loop make a report, and waits for it.
    fn ask(&self, waker: &Waker) -> Value {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.wanted = true;
        waker.wake();
        let waited = self.made.wait_timeout_while(state, REPORT_MAX, |state| state.wanted);
        waited.unwrap_or_else(PoisonError::into_inner).0.latest.clone()
    }

    fn make(&self, report: impl FnOnce() -> Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.wanted {
            state.latest = report();
            state.wanted = false;
            self.made.notify_all();
        }
    }
}

impl<S: Service> Loop<S> {
    fn new(link: ServiceLink, options: HubOptions, service: S) -> Result<Self, End> {
        let waker = Waker::new()?;
        let reports = Arc::new(Reports::default());
        let (asked, wakes) = (Arc::clone(&reports), waker.clone());
        link.on_report(move || asked.ask(&wakes));
        Ok(Self {
            link,
            hub: Hub::with(options)?,
            arrivals: Arrivals::new(waker.clone()),
            waker,
            permits: HashMap::new(),
            service,
            reports,
            ended: 0,
            latest_end: String::new(),
        })
    }

    fn run(mut self) -> Result<(), End> {
        let mut events = Vec::new();
        loop {
            self.waker.clear();
            if !self.take_sessions()? {
                return Ok(());
            }
            while let Some(arrived) = self.arrivals.poll() {
                self.arrive(arrived)?;
            }
            self.hub.turn(&mut events)?;
            for event in events.drain(..) {
                self.handle(event);
            }
            self.service.turn(&mut self.hub, Instant::now())?;
            self.reports.make(|| {
                let mut report = self.service.report();
                if let Some(object) = report.as_object_mut() {
                    object.insert("sessions".into(), self.permits.len().into());
                    object.insert("sessions_ended".into(), self.ended.into());
                    object.insert("latest_end".into(), json!(self.latest_end));
                    object.insert("hub".into(), json!(self.hub.counters()));
                }
                report
            });
            self.sleep()?;
        }
    }

    /// Takes what the supervisor brings; false when the node ends.
    fn take_sessions(&mut self) -> Result<bool, HubError> {
        loop {
            match self.link.next(Some(Duration::ZERO)) {
                Arrival::Session(stream, permit) => {
                    self.arrivals.admit(&self.hub, stream, Some(permit))?;
                }
                Arrival::Revoked(node) => self.shut_out(node),
                Arrival::Stop => return Ok(false),
                Arrival::Nothing => return Ok(true),
            }
        }
    }

    fn shut_out(&mut self, node: NodeId) {
        self.arrivals.shut_out(node);
        let its = self.permits.iter().filter(|(_, (of, _))| *of == node);
        for peer in its.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.end(peer, "it is revoked");
        }
    }

    fn arrive(&mut self, arrived: Arrived) -> Result<(), HubError> {
        let Arrived { node, admitted, permit } = arrived;
        let peer = self.hub.enroll(admitted)?;
        let welcomed = match &permit {
            Some(permit) => self.service.arrived(&mut self.hub, peer, permit),
            None => Err("it has no permit".into()),
        };
        self.permits.insert(peer, (node, permit));
        if let Err(why) = welcomed {
            self.end(peer, &why.to_string());
        }
        Ok(())
    }

    fn handle(&mut self, event: HubEvent<S::Tag>) {
        let peer = event.peer();
        if let HubEvent::Gone { why, .. } = &event {
            return self.end(peer, why);
        }
        // What came before its end is of no more use.
        if self.permits.contains_key(&peer)
            && let Err(why) = self.service.handle(&mut self.hub, event)
        {
            self.end(peer, &why.to_string());
        }
    }

    fn end(&mut self, peer: PeerId, why: &str) {
        self.hub.dismiss(peer);
        let Some((node, permit)) = self.permits.remove(&peer) else { return };
        self.service.gone(&mut self.hub, peer);
        self.ended += 1;
        self.latest_end = format!("node {node}: {why}");
        tracing::info!(%node, why, "session ended");
        drop(permit);
    }

    fn sleep(&self) -> Result<(), End> {
        let now = Instant::now();
        let left =
            self.service.deadline().map_or(SLEEP_MAX, |at| at.saturating_duration_since(now));
        let left = Timespec::try_from(left.min(SLEEP_MAX))?;
        let own = [self.hub.as_fd(), self.link.as_fd(), self.waker.as_fd()];
        let all = own.into_iter().chain(self.service.descriptors());
        let mut fds: Vec<PollFd<'_>> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
