//! A service's side: guests come in with their sessions, reports go out.
//!
//! A thread reads what the supervisor says, so that a service which is busy, or hangs, still
//! reports and still ends with its node. It holds no key but those of its guests' sessions.

use super::wire::{self, FromService, Packet, Received, ToService};
use outboard_secure::{NodeId, ServiceName};
use outboard_verbs::Secured;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a service may take to end by itself.
const ENDING: Duration = Duration::from_secs(10);

/// What may wait for a service to take it.
const ARRIVALS_MAX: usize = 1024;

/// What a service does with its life.
pub type Entry = fn(ServiceLink) -> ExitCode;

/// What a service knows of its node.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) service: String,
    pub(super) node: String,
    pub(super) slots: u32,
    pub(super) config: Value,
}

/// What the supervisor brings.
#[derive(Debug)]
pub enum Arrival {
    /// Somebody who has proven the service's key.
    Guest(Secured),
    /// A node that is revoked: end what it has here.
    Revoked(NodeId),
    /// The node ends, in some seconds by force.
    Stop,
    /// Nothing, in that time.
    Nothing,
}

/// A service's link to its supervisor.
#[derive(Debug)]
pub struct ServiceLink {
    shared: Arc<Shared>,
    service: ServiceName,
    node: NodeId,
    slots: u32,
    config: Value,
}

#[derive(Debug)]
struct Shared {
    control: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
    /// Readable while something has arrived.
    arrived: OwnedFd,
}

#[derive(Default)]
struct State {
    arrivals: VecDeque<Arrival>,
    stopped: bool,
    report: Option<Arc<dyn Fn() -> Value + Send + Sync>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("arrivals", &self.arrivals.len())
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}

/// Becomes the service `name` of `entries`; what the hidden command of a node's program calls, with
/// the supervisor's socket as standard input.
pub fn serve(name: &str, entries: &[(&str, Entry)]) -> ExitCode {
    let known = entries.iter().find(|(known, _)| *known == name);
    let link = known.ok_or_else(|| format!("there is no service {name:?}")).and_then(|(_, run)| {
        let link = ServiceLink::on_stdin().map_err(|error| error.to_string())?;
        Ok((link, run))
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
        let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let foreign = || io::Error::other("standard input is not a supervisor's socket");
        let Ok(ToService::Welcome(welcome)) = wait_for(control.as_fd()) else {
            return Err(foreign());
        };
        let welcome: Welcome = serde_json::from_slice(&welcome)?;
        let arrived = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { control, state, changed, arrived });
        let reader = Arc::clone(&shared);
        thread::Builder::new().name("outboard-link".into()).spawn(move || reader.read())?;
        Ok(Self {
            shared,
            service: welcome.service.parse().map_err(io::Error::other)?,
            node: welcome.node.parse().map_err(io::Error::other)?,
            slots: welcome.slots,
            config: welcome.config,
        })
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

    /// Jobs that the node may do at a time.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The service's own table of the configuration; empty if there is none.
    #[must_use]
    pub fn config(&self) -> &Value {
        &self.config
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
            // For ever is more than the system counts.
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

/// Readable while [`ServiceLink::next`] has something.
impl AsFd for ServiceLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.arrived.as_fd()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) {
        loop {
            match wait_for(self.control.as_fd()) {
                Ok(ToService::Guest { socket, session, early }) => {
                    if !self.tell_supervisor(&FromService::Taken) {
                        break;
                    }
                    self.push(Arrival::Guest(Secured::new(socket, session, early)));
                }
                Ok(ToService::Revoked(node)) => self.push(Arrival::Revoked(node)),
                Ok(ToService::ReportPlease) => self.report(),
                Ok(ToService::Welcome(_)) => {}
                Ok(ToService::Stop) | Err(_) => break,
            }
        }
        let mut state = self.lock();
        state.stopped = true;
        self.tell();
        drop(state);
        thread::sleep(ENDING);
        std::process::exit(1);
    }

    /// Guests beyond the bound find their connection closed.
    fn push(&self, arrival: Arrival) {
        let mut state = self.lock();
        if state.arrivals.len() < ARRIVALS_MAX || matches!(arrival, Arrival::Revoked(_)) {
            state.arrivals.push_back(arrival);
            self.tell();
        }
    }

    /// The caller holds the lock, so that the descriptor and the queue agree.
    fn tell(&self) {
        // The counter cannot overflow in any life time.
        let _wrote = rustix::io::write(&self.arrived, &1u64.to_ne_bytes());
        self.changed.notify_all();
    }

    fn report(&self) {
        let report = self.lock().report.clone();
        let value = report.map_or(Value::Null, |report| report());
        let json = serde_json::to_vec(&value).unwrap_or_default();
        let json = if json.len() > wire::REPORT_MAX { b"null".to_vec() } else { json };
        // When the supervisor is gone, that shows elsewhere.
        self.tell_supervisor(&FromService::Report(json));
    }

    /// True once it is on its way, however long that takes.
    fn tell_supervisor(&self, message: &FromService) -> bool {
        let packet = Packet::from_service(message);
        loop {
            match packet.send(self.control.as_fd()) {
                Ok(true) => return true,
                Ok(false) => {
                    let control = PollFd::new(&self.control, PollFlags::OUT);
                    // Interrupted is tried again.
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
            Received::Message(message) => return Ok(message),
            Received::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
            Received::Nothing => {
                // Interrupted is looked at again.
                let _polled = poll(&mut [PollFd::new(&control, PollFlags::IN)], None);
            }
        }
    }
}
