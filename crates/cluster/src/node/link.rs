//! A service's side of its supervisor's socket: sessions come in, reports and requests go out.
//!
//! A thread reads the supervisor's messages, so that a service which is busy, or hangs, still
//! reports and still ends with its node. The process holds no keys except those of its sessions.

use super::config::ServiceSpec;
use super::permit::{Permit, Permits};
use super::wire::{self, FromService, Packet, ReceivedMessage, ServiceRequest, ToService};
use crate::hosts::Host;
use outboard_secure::{NodeId, ServiceName};
use outboard_verbs::Secured;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How much longer than its supervisor waits a service's process stays at its end.
const ENDING_MORE: Duration = Duration::from_secs(5);

/// How long the supervisor may take to answer, besides the request's own limit.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Arrivals that may wait until the service takes them, at most.
const ARRIVALS_MAX: usize = 1024;

/// The function that a service's process runs.
pub type ServiceMain = fn(ServiceLink) -> ExitCode;

/// What a service knows of its node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ServiceSetup {
    pub(super) service: String,
    pub(super) node: String,
    pub(super) slots: u32,
    pub(super) config: Value,
    /// How many kept memory files follow.
    pub(super) kept: usize,
    /// Seconds that it may take to end.
    pub(super) ending_s: u64,
}

/// A message of the supervisor.
#[derive(Debug)]
pub enum Arrival {
    /// A peer that has proven the service's key, and what it may use.
    Session(Secured, Permit),
    /// A node is revoked: end its sessions.
    Revoked(NodeId),
    /// The node ends: the service must end within some seconds, or is killed.
    Stop,
    /// Nothing arrived within the time limit.
    Nothing,
}

/// A service's link to its supervisor.
#[derive(Debug)]
pub struct ServiceLink {
    shared: Arc<LinkShared>,
    service: ServiceName,
    node: NodeId,
    slots: u32,
    config: Value,
    kept: BTreeMap<String, OwnedFd>,
}

/// Sends requests to a service's supervisor for what the service itself cannot do. Any thread may
/// hold one.
#[derive(Clone, Debug)]
pub struct Requester(Arc<LinkShared>);

/// Why a supervisor did not do what a service asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It refused, with this reason.
    #[error("{0}")]
    Refused(String),
    /// It did not answer.
    #[error("the node's supervisor does not answer")]
    Silent,
    /// It is gone, or the node ends.
    #[error("the node ends")]
    Over,
}

#[derive(Debug)]
struct LinkShared {
    control: OwnedFd,
    permits: Arc<Permits>,
    /// How long it may take to end by itself.
    ending: Duration,
    state: Mutex<LinkState>,
    changed: Condvar,
    /// Readable while something has arrived.
    arrived: OwnedFd,
}

#[derive(Default)]
struct LinkState {
    arrivals: VecDeque<Arrival>,
    stopped: bool,
    report: Option<Arc<dyn Fn() -> Value + Send + Sync>>,
    next_request: u64,
    /// Threads that wait for an answer.
    waiting: HashMap<u64, mpsc::Sender<DialOutcome>>,
    /// Sessions beyond what their identity may have.
    over_limit: u64,
    /// Sessions for whose sockets this process had no descriptor left.
    lost: u64,
}

type DialOutcome = Result<Option<Secured>, String>;

impl std::fmt::Debug for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkState")
            .field("arrivals", &self.arrivals.len())
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

/// How a service's process ends that could not start, for a reason that does not pass.
pub(super) const NOT_STARTED: u8 = 78;

/// Becomes the service `name` of `entries`. The hidden command of a node's program calls this, with
/// the supervisor's socket as standard input.
pub fn serve(name: &str, services: &[ServiceSpec]) -> ExitCode {
    let known = services.iter().find(|known| known.name == name);
    let link = known.ok_or_else(|| format!("there is no service {name:?}")).and_then(|known| {
        // No process of the same user reads sessions' keys out of its memory.
        let hide = rustix::process::set_dumpable_behavior;
        let hidden = hide(rustix::process::DumpableBehavior::NotDumpable);
        hidden.map_err(|error| format!("cannot hide this process's memory: {error}"))?;
        let link = ServiceLink::on_stdin().map_err(|error| error.to_string())?;
        Ok((link, known.run))
    });
    match link {
        Ok((link, run)) => run(link),
        Err(error) => {
            eprintln!("outboard: service {name}: {error}: `outboard node` starts services");
            ExitCode::FAILURE
        }
    }
}

impl ServiceLink {
    /// Takes the supervisor's socket away from standard input, so that no child gets it.
    fn on_stdin() -> io::Result<Self> {
        // A signal to all of the node's processes is the supervisor's to obey: it ends its services
        // in order. Programs that they start are signalled as ever.
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::flag::register(signal, Arc::default())?;
        }
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let foreign = || io::Error::other("standard input is not a supervisor's socket");
        let Ok(ToService::ServiceSetup(setup)) = wait_for(control.as_fd()) else {
            return Err(foreign());
        };
        let setup: ServiceSetup = serde_json::from_slice(&setup)?;
        let mut kept = BTreeMap::new();
        for _ in 0..setup.kept {
            match wait_for(control.as_fd()) {
                Ok(ToService::Kept { name, memory }) => kept.insert(name, memory),
                _ => return Err(foreign()),
            };
        }
        let arrived = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let permits = Arc::default();
        let ending = Duration::from_secs(setup.ending_s).saturating_add(ENDING_MORE);
        let shared = Arc::new(LinkShared { control, permits, ending, state, changed, arrived });
        let reader = Arc::clone(&shared);
        thread::Builder::new().name("outboard-link".into()).spawn(move || reader.read())?;
        Ok(Self {
            shared,
            service: setup.service.parse().map_err(io::Error::other)?,
            node: setup.node.parse().map_err(io::Error::other)?,
            slots: setup.slots,
            config: setup.config,
            kept,
        })
    }

    /// Says why the service cannot start, for a reason that does not pass; the result is how its
    /// process must end. If it is the service's first one, the node ends, too, and fails: its
    /// operator is still there.
    #[must_use]
    pub fn not_started(&self, why: &dyn std::error::Error) -> ExitCode {
        eprintln!("outboard: service {}: {why}", self.service);
        ExitCode::from(NOT_STARTED)
    }

    /// The service's name.
    #[must_use]
    pub fn service(&self) -> &ServiceName {
        &self.service
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Jobs that the service may do at a time.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The service's own table of the configuration; empty if there is none.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.config
    }

    /// Memory that the supervisor has kept from the service's processes before this one, by name.
    /// Given once.
    pub fn take_kept(&mut self) -> BTreeMap<String, OwnedFd> {
        mem::take(&mut self.kept)
    }

    /// Asks the supervisor, from any thread.
    #[must_use]
    pub fn requester(&self) -> Requester {
        Requester(Arc::clone(&self.shared))
    }

    /// As [`Requester::dial`].
    ///
    /// # Errors
    /// See there.
    pub fn dial(
        &self,
        host: &Host,
        service: &ServiceName,
        limit: Duration,
    ) -> Result<Secured, RequestError> {
        self.requester().dial(host, service, limit)
    }

    /// Waits for what comes next; for ever without a limit.
    #[must_use]
    pub fn next(&self, limit: Option<Duration>) -> Arrival {
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut state = self.shared.lock();
        loop {
            if let Some(arrival) = state.arrivals.pop_front() {
                if state.arrivals.is_empty() && !state.stopped {
                    let _read = rustix::io::read(&self.shared.arrived, &mut [0; 8]);
                }
                return arrival;
            }
            if state.stopped {
                return Arrival::Stop;
            }
            let now = Instant::now();
            let left = deadline.map_or(Duration::MAX, |at| at.saturating_duration_since(now));
            if left.is_zero() {
                return Arrival::Nothing;
            }
            // An unlimited wait.
            let waited =
                self.shared.changed.wait_timeout(state, left.min(Duration::from_secs(3600)));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What `outboard status` shows of this service: an object with names and values. It is called
    /// from another thread, and should not wait.
    pub fn on_report(&self, report: impl Fn() -> Value + Send + Sync + 'static) {
        self.shared.lock().report = Some(Arc::new(report));
    }
}

impl Requester {
    /// Reaches a service of another node: the supervisor, which has the key, shakes hands there if
    /// the node's configuration lets this service do so, and hands the session over. Waits.
    ///
    /// # Errors
    /// [`RequestError`]; not much later than `limit`.
    pub fn dial(
        &self,
        host: &Host,
        service: &ServiceName,
        limit: Duration,
    ) -> Result<Secured, RequestError> {
        let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
        let (host, service) = (host.to_string(), service.as_str().to_owned());
        let outcome = self.ask(ServiceRequest::Dial { host, service, limit_ms }, None, limit)?;
        outcome.ok_or_else(|| RequestError::Refused("it hands no session over".into()))
    }

    /// Has the supervisor keep memory for the service's next process, instead of what it kept under
    /// that name. The memory file must be sealed against growing and shrinking. Once this returns,
    /// the memory outlives this process. Waits.
    ///
    /// # Errors
    /// [`RequestError`]: it is no such memory, or there is too much of it.
    pub fn keep(&self, name: &str, memory: OwnedFd) -> Result<(), RequestError> {
        let request = ServiceRequest::Keep { name: name.to_owned() };
        self.ask(request, Some(memory), Duration::ZERO).map(drop)
    }

    /// Has the supervisor discard that memory. Waits.
    ///
    /// # Errors
    /// [`RequestError`]: there is none of that name.
    pub fn discard(&self, name: &str) -> Result<(), RequestError> {
        let request = ServiceRequest::Discard { name: name.to_owned() };
        self.ask(request, None, Duration::ZERO).map(drop)
    }

    fn ask(
        &self,
        request: ServiceRequest,
        memory: Option<OwnedFd>,
        limit: Duration,
    ) -> Result<Option<Secured>, RequestError> {
        let (sender, answer) = mpsc::channel();
        let mut state = self.0.lock();
        if state.stopped {
            return Err(RequestError::Over);
        }
        let id = state.next_request;
        state.next_request += 1;
        state.waiting.insert(id, sender);
        drop(state);
        let asked = self.0.send_to_supervisor(FromService::Request { id, request, memory });
        let answer = asked.then(|| answer.recv_timeout(limit.saturating_add(ANSWER_LIMIT)));
        self.0.lock().waiting.remove(&id);
        match answer {
            Some(Ok(outcome)) => outcome.map_err(RequestError::Refused),
            Some(Err(mpsc::RecvTimeoutError::Timeout)) => Err(RequestError::Silent),
            Some(Err(mpsc::RecvTimeoutError::Disconnected)) | None => Err(RequestError::Over),
        }
    }
}

/// Readable while [`ServiceLink::next`] has something.
impl AsFd for ServiceLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.arrived.as_fd()
    }
}

impl LinkShared {
    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) {
        loop {
            match wait_for(self.control.as_fd()) {
                Ok(ToService::Session { stream, grant }) => {
                    if !self.send_to_supervisor(FromService::Taken) {
                        break;
                    }
                    match self.permits.take(stream.peer(), grant) {
                        Some(permit) => self.push(Arrival::Session(stream, permit)),
                        None => self.lock().over_limit += 1,
                    }
                }
                Ok(ToService::SessionLost) => {
                    if !self.send_to_supervisor(FromService::Taken) {
                        break;
                    }
                    self.count_lost();
                }
                Ok(ToService::Revoked(node)) => self.shut_out(node),
                Ok(ToService::ReportPlease) => self.report(),
                Ok(ToService::Answer { id, outcome }) => {
                    if let Some(waiting) = self.lock().waiting.remove(&id) {
                        // The requester may have given up.
                        let _sent = waiting.send(outcome);
                    }
                }
                Ok(ToService::ServiceSetup(_) | ToService::Kept { .. }) => {}
                Ok(ToService::Stop) | Err(_) => break,
            }
        }
        let mut state = self.lock();
        state.stopped = true;
        state.waiting.clear();
        self.notify();
        drop(state);
        thread::sleep(self.ending);
        std::process::exit(1);
    }

    fn count_lost(&self) {
        let mut state = self.lock();
        state.lost += 1;
        if state.lost == 1 {
            tracing::warn!(
                "a session was refused, and others may be: this process has as many open files as \
                 it may (see `ulimit -Hn`, or the unit's LimitNOFILE)"
            );
        }
    }

    /// Drops a revoked node's sessions that the service has not taken yet.
    fn shut_out(&self, node: NodeId) {
        let is_its =
            |arrival: &Arrival| matches!(arrival, Arrival::Session(of, _) if of.peer() == node);
        let mut state = self.lock();
        let (its, others) = mem::take(&mut state.arrivals).into_iter().partition(is_its);
        state.arrivals = others;
        drop(state);
        // Permits are given back without the lock.
        drop::<VecDeque<Arrival>>(its);
        self.push(Arrival::Revoked(node));
    }

    /// Sessions beyond the bound find their connection closed.
    fn push(&self, arrival: Arrival) {
        let mut state = self.lock();
        if state.arrivals.len() < ARRIVALS_MAX || matches!(arrival, Arrival::Revoked(_)) {
            state.arrivals.push_back(arrival);
            self.notify();
        }
    }

    /// The caller holds the lock, so that the descriptor and the queue agree.
    fn notify(&self) {
        // The counter cannot overflow in any life time.
        let _wrote = rustix::io::write(&self.arrived, &1u64.to_ne_bytes());
        self.changed.notify_all();
    }

    fn report(&self) {
        let (report, over_limit, lost) = {
            let state = self.lock();
            (state.report.clone(), state.over_limit, state.lost)
        };
        let mut value = report.map_or(Value::Null, |report| report());
        if let Some(object) = value.as_object_mut() {
            object.insert("sessions_over_limit".into(), over_limit.into());
            object.insert("sessions_without_descriptor".into(), lost.into());
        }
        let json = serde_json::to_vec(&value).unwrap_or_default();
        let json = if json.len() > wire::REPORT_MAX { b"null".to_vec() } else { json };
        // The reading thread notices if the supervisor is gone.
        self.send_to_supervisor(FromService::Report(json));
    }

    /// True once it is on its way, however long that takes.
    fn send_to_supervisor(&self, message: FromService) -> bool {
        let packet = Packet::from_service(message);
        loop {
            match packet.send(self.control.as_fd()) {
                Ok(true) => return true,
                Ok(false) => {
                    let control = PollFd::new(&self.control, PollFlags::OUT);
                    // Interrupted: try again.
                    let _polled = poll(&mut [control], None);
                }
                Err(_) => return false,
            }
        }
    }
}

/// The next message, however long it takes; an error when the supervisor is gone.
fn wait_for(control: BorrowedFd<'_>) -> io::Result<ToService> {
    loop {
        match wire::receive(control) {
            ReceivedMessage::Message(message) => return Ok(message),
            ReceivedMessage::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            ReceivedMessage::Nothing => {
                // Interrupted: try again.
                let _polled = poll(&mut [PollFd::new(&control, PollFlags::IN)], None);
            }
        }
    }
}
