//! The loop of a service: everything that all services need and that is not their own work.
//!
//! It takes sessions from the node's supervisor, has threads set their connections up, ends the
//! sessions of revoked identities, and makes reports on request. Messages are the [`Service`]'s.
//! The loop waits for nothing but descriptors and time.

mod reports;

use crate::arrivals::{Arrivals, Arrived};
use crate::hub::{Admitted, Hub, HubCounters, HubError, HubEvent, HubOptions, PeerId, PeerMap};
use crate::node::{Arrival, Permit, ServiceLink};
use crate::waker::Waker;
use outboard_secure::NodeId;
use outboard_verbs::{AdaptiveSpin, Secured};
use reports::Reports;
use rustix::event::epoll;
use serde::Serialize;
use serde_json::Value;
use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a loop sleeps when nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// How long a loop that always spins does so after a message.
const SPIN_ALWAYS: Duration = Duration::from_millis(1);

/// Why a peer's session ends, as the log shows it.
pub type ServiceError = Box<dyn Error>;

/// Whether a loop looks for messages for a while before it sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpinMode {
    /// It sleeps at once.
    #[default]
    Never,
    /// For some 50 µs, while messages, and peers' reads and writes of memory, come close together
    /// and no other thread wants its processor.
    Adaptive,
    /// For a millisecond after each of them, whatever else wants its processor.
    Always,
}

/// What a service does. Nothing here waits.
pub trait Service {
    /// The type of its tags for requests to peers.
    type Tag;
    /// What `outboard status` shows of it: an object of names and values.
    type Report: Serialize;

    /// A peer is connected; until it is [gone](Self::gone) it may use what its permit says.
    ///
    /// # Errors
    /// Why its session ends.
    fn arrived(
        &mut self,
        hub: &mut Hub<Self::Tag>,
        peer: PeerId,
        permit: &Permit,
    ) -> Result<(), ServiceError>;

    /// Handles an event of a peer, except its end.
    ///
    /// # Errors
    /// Why its session ends.
    fn handle(
        &mut self,
        hub: &mut Hub<Self::Tag>,
        event: HubEvent<Self::Tag>,
    ) -> Result<(), ServiceError>;

    /// A peer's session has ended.
    fn gone(&mut self, hub: &mut Hub<Self::Tag>, peer: PeerId);

    /// Called after all events were handled, once for each time that the loop woke up. Returns the
    /// peers whose sessions end now, and why; the loop then turns once more.
    ///
    /// # Errors
    /// This machine's: the service ends, and its node starts it again.
    fn turn(
        &mut self,
        _hub: &mut Hub<Self::Tag>,
        _now: Instant,
    ) -> Result<Vec<(PeerId, ServiceError)>, ServiceError> {
        Ok(Vec::new())
    }

    /// The next connection that the service itself has dialled, and what its peer may use. That
    /// peer [arrives](Self::arrived) next.
    fn dialled(&mut self) -> Option<(Admitted, Permit)> {
        None
    }

    /// When the loop must wake up at the latest.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// What else wakes the loop while it is readable: the same descriptor for the service's whole
    /// life. A service that has threads gives its own [`Waker`]; one that has many descriptors, an
    /// epoll instance of them.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether the loop spins before it sleeps: for services whose requests take less time than
    /// waking up does.
    fn spin(&self) -> SpinMode {
        SpinMode::Never
    }

    /// An identity is revoked. Its sessions have ended.
    fn revoked(&mut self, _node: NodeId) {}

    /// The node ends, and its peers have been told nothing: what must be kept is kept now. Some
    /// seconds later the process is killed.
    ///
    /// # Errors
    /// It was not kept: the node then says so, and fails.
    fn ended(&mut self) -> Result<(), ServiceError> {
        Ok(())
    }

    /// What it does at present.
    fn report(&self) -> Self::Report;
}

/// Runs a service until its node ends.
pub fn run<S: Service>(link: ServiceLink, options: HubOptions, service: S) -> ExitCode {
    let name = link.service().as_str().to_owned();
    match ServiceLoop::new(options, service).and_then(|looping| serve(&link, looping)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard: service {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve<S: Service>(link: &ServiceLink, mut looping: ServiceLoop<S>) -> Result<(), ServiceError> {
    let reports = Arc::new(Reports::default());
    let (asked, waker) = (Arc::clone(&reports), looping.waker.clone());
    link.on_report(move || asked.ask(&waker));
    while take_arrivals(link, &mut looping)? {
        looping.turn(Instant::now())?;
        reports.make(|| looping.report());
        if !looping.spin() {
            let before = Instant::now();
            sleep(link, &looping);
            looping.slept(before);
        }
    }
    looping.ended()
}

/// Takes what the supervisor brings; false when the node ends.
fn take_arrivals<S: Service>(
    link: &ServiceLink,
    looping: &mut ServiceLoop<S>,
) -> Result<bool, HubError> {
    loop {
        match link.next(Some(Duration::ZERO)) {
            Arrival::Session(stream, permit) => looping.admit(stream, permit)?,
            Arrival::Revoked(node) => looping.shut_out(node),
            Arrival::Stop => return Ok(false),
            Arrival::Nothing => return Ok(true),
        }
    }
}

fn sleep<S: Service>(link: &ServiceLink, looping: &ServiceLoop<S>) {
    let left = |at: Instant| at.saturating_duration_since(Instant::now());
    let left = looping.deadline().map_or(SLEEP_MAX, left);
    let (limit, fds) = (Some(left.min(SLEEP_MAX)), [looping.as_fd(), link.as_fd()]);
    match looping.service.spin() {
        SpinMode::Never => looping.hub.wait(limit, &fds),
        SpinMode::Adaptive | SpinMode::Always => looping.hub.wait_traffic(limit, &fds),
    }
}

/// A service with its peers, as its node's process runs it. Without a node, the caller brings
/// sessions, and sleeps on the descriptor between turns.
#[derive(Debug)]
pub struct ServiceLoop<S: Service> {
    hub: Hub<S::Tag>,
    arrivals: Arrivals,
    waker: Waker,
    permits: PeerMap<Permit>,
    service: S,
    /// Readable when one of the descriptors is.
    ready: OwnedFd,
    events: Vec<HubEvent<S::Tag>>,
    ended: u64,
    latest_end: String,
    spin: AdaptiveSpin,
}

/// A service's report, and its loop's.
#[derive(Serialize)]
struct LoopReport<'a, R> {
    #[serde(flatten)]
    service: R,
    sessions_now: usize,
    sessions_ended: u64,
    /// That ended while they were being set up, because too many were.
    sessions_gave_way: u64,
    latest_end: &'a str,
    hub: HubCounters,
}

impl<S: Service> ServiceLoop<S> {
    /// A service without peers.
    ///
    /// # Errors
    /// This machine's.
    pub fn new(options: HubOptions, service: S) -> Result<Self, ServiceError> {
        let (hub, waker) = (Hub::with(options)?, Waker::new()?);
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let own = [hub.as_fd(), waker.as_fd()];
        for fd in own.into_iter().chain(service.descriptor()) {
            epoll::add(&ready, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self {
            hub,
            arrivals: Arrivals::new(waker.clone()),
            waker,
            permits: PeerMap::default(),
            service,
            ready,
            events: Vec::new(),
            ended: 0,
            latest_end: String::new(),
            spin: AdaptiveSpin::default(),
        })
    }

    /// Takes a session over. A thread sets its connection up.
    ///
    /// # Errors
    /// This machine's.
    pub fn admit(&mut self, stream: Secured, permit: Permit) -> Result<(), HubError> {
        self.arrivals.admit(&self.hub, stream, permit)
    }

    /// Ends what a node that is revoked has here.
    pub fn shut_out(&mut self, node: NodeId) {
        self.arrivals.shut_out(node);
        let its = self.permits.iter().filter(|(_, permit)| permit.node() == node);
        for peer in its.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.end(peer, "it is revoked");
        }
        self.service.revoked(node);
    }

    /// Looks for messages for a moment, if the service [spins](Service::spin); true if there are
    /// any, or if peers use memory: then there is no reason to sleep.
    pub fn spin(&mut self) -> bool {
        match self.service.spin() {
            SpinMode::Never => false,
            SpinMode::Adaptive => self.spin.is_looking() && self.spin_adaptively(),
            SpinMode::Always => {
                let until = Instant::now() + SPIN_ALWAYS;
                loop {
                    if self.hub.look() {
                        return true;
                    }
                    if Instant::now() >= until {
                        return false;
                    }
                }
            }
        }
    }

    fn spin_adaptively(&mut self) -> bool {
        let start = Instant::now();
        let (mut before, mut longest) = (start, Duration::ZERO);
        loop {
            let found = self.hub.look();
            let now = Instant::now();
            if !found {
                longest = longest.max(now - before);
            }
            if found || now - start > AdaptiveSpin::WINDOW {
                self.spin.looked(found, now, longest);
                return found;
            }
            before = now;
        }
    }

    /// The node ends: the service keeps what it must.
    ///
    /// # Errors
    /// It could not.
    pub fn ended(&mut self) -> Result<(), ServiceError> {
        self.service.ended()
    }

    /// Notes that the loop has slept since then.
    pub fn slept(&mut self, since: Instant) {
        if self.service.spin() == SpinMode::Adaptive {
            let now = Instant::now();
            self.spin.slept(now - since, now);
        }
    }

    /// When to call [`Self::turn`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.service.deadline()
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &S {
        &self.service
    }

    /// What the service does at present, and its sessions.
    #[must_use]
    pub fn report(&self) -> Value {
        let report = LoopReport {
            service: self.service.report(),
            sessions_now: self.permits.len(),
            sessions_ended: self.ended,
            sessions_gave_way: self.arrivals.gave_way(),
            latest_end: &self.latest_end,
            hub: self.hub.counters(),
        };
        // A report that is no object is not shown.
        serde_json::to_value(report).unwrap_or_default()
    }

    /// Does what there is to do. Does not wait: sleep on the descriptor, until the deadline.
    ///
    /// # Errors
    /// This machine's, or a fault of Outboard: the service is of no use any more.
    pub fn turn(&mut self, now: Instant) -> Result<(), ServiceError> {
        self.waker.clear();
        while let Some(arrived) = self.arrivals.poll() {
            self.arrive(arrived)?;
        }
        let mut events = std::mem::take(&mut self.events);
        self.hub.turn(&mut events)?;
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        for (peer, why) in self.service.turn(&mut self.hub, now)? {
            self.end(peer, &why.to_string());
            // What it had may be of use to others.
            self.waker.wake();
        }
        while let Some((admitted, permit)) = self.service.dialled() {
            self.arrive(Arrived { admitted, permit })?;
        }
        Ok(())
    }

    fn arrive(&mut self, arrived: Arrived) -> Result<(), HubError> {
        let Arrived { admitted, permit } = arrived;
        let peer = self.hub.enroll(admitted)?;
        let accepted = self.service.arrived(&mut self.hub, peer, &permit);
        self.permits.insert(peer, permit);
        if let Err(why) = accepted {
            self.end(peer, &why.to_string());
        }
        Ok(())
    }

    fn handle(&mut self, event: HubEvent<S::Tag>) {
        let peer = event.peer();
        if let HubEvent::Gone { why, .. } = &event {
            return self.end(peer, why);
        }
        // Events of a peer that has ended are dropped.
        if self.permits.contains_key(&peer)
            && let Err(why) = self.service.handle(&mut self.hub, event)
        {
            self.end(peer, &why.to_string());
        }
    }

    fn end(&mut self, peer: PeerId, why: &str) {
        self.hub.dismiss(peer);
        let Some(permit) = self.permits.remove(&peer) else { return };
        self.service.gone(&mut self.hub, peer);
        let node = permit.node();
        self.ended += 1;
        self.latest_end = format!("node {node}: {why}");
        tracing::info!(%node, why, "session ended");
    }
}

impl<S: Service> AsFd for ServiceLoop<S> {
    /// Readable when a turn has something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests;
