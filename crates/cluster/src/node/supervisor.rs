//! The supervisor's loop: new connections, messages of services, signals, and timers.

use super::acceptor::{Acceptor, HandshakeProgress, Session};
use super::config::{Grants, NodeConfig, Reach, ServiceSpec};
use super::dialing::{self, Dialing};
use super::link::NOT_STARTED;
use super::lists::Lists;
use super::log::{RefusalLog, RefusalReason};
use super::process::{DialRequest, ServiceProcess, Starter};
use super::report::Askers;
use super::setup::{self, NodeError, system, watch, watch_signals};
use crate::hosts::{Host, HostList};
use crate::keys::KeyPaths;
use crate::status::STATUS;
use crate::waker::Waker;
use outboard_secure::{NodeId, ServiceName};
use outboard_verbs::Secured;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use serde_json::{Value, json};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Callers taken from a listener at a time, so that handshakes under way get their turns.
const ACCEPTS: usize = 16;
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// How soon to accept again when the system could not.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How long the loop sleeps, at most.
const SLEEP_MAX: Duration = Duration::from_secs(2);
/// How soon to look again while a status request waits for reports, or a service for socket room
/// or for its end.
const SOON: Duration = Duration::from_millis(20);

const ENDS: u64 = 0;
const CHILDREN: u64 = 1;
const DIALLED: u64 = 2;
const LISTS: u64 = 3;
const STARTED: u64 = 4;
pub(super) const LISTENERS: u64 = 1 << 20;
const SERVICES: u64 = 2 << 20;
const HANDSHAKES: u64 = 1 << 32;

/// A node. See the [module](super).
#[derive(Debug)]
pub struct Supervisor {
    epoll: OwnedFd,
    ends: UnixStream,
    children: UnixStream,
    listeners: Vec<TcpListener>,
    services: Vec<ServiceProcess>,
    starter: Arc<Starter>,
    /// Wakes the loop when a service has been started.
    started: Waker,
    lists: Lists,
    grants: Grants,
    reach: Reach,
    dialing: Dialing,
    acceptor: Acceptor,
    askers: Askers,
    log: RefusalLog,
    slots: u32,
    began: Instant,
    next_handshake: u64,
    /// No connection is accepted until then.
    resting: Option<Instant>,
    /// Wakes the loop when a list has been looked at.
    lists_waker: Waker,
    /// Since when it is ending.
    ending: Option<Instant>,
    /// What its first service that failed with the node has come to.
    failed: Option<NodeError>,
}

impl Supervisor {
    /// Checks everything, makes what services need, and listens; services start with
    /// [`Supervisor::run`]. `known` are the services that this program has, `words` the arguments
    /// that make it one of them when its name follows.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(
        config: NodeConfig,
        places: KeyPaths,
        known: &[ServiceSpec],
        words: Vec<OsString>,
    ) -> Result<Self, NodeError> {
        let needs = config.check(known)?;
        // No process of the same user reads the key out of its memory.
        let hide = rustix::process::set_dumpable_behavior;
        hide(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(system("cannot hide this process's memory"))?;
        setup::check_program(setup::OWN_PROGRAM)?;
        setup::raise_open_files();
        let began = Instant::now();
        let (names, reach) = (setup::names(&config, known)?, config.reachable()?);
        let grants = Grants { tenants: config.tenants()?, sessions: config.sessions_or_own() };
        let dialing = Dialing::new(&places).map_err(system("cannot make a descriptor"))?;
        let mut lists = setup::lists(&config, places, &names, &reach)?;
        let node = lists.credentials().identity.node();
        let services = setup::services(&config, names, &needs, (node, began))?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("cannot make an epoll"))?;
        let ends = watch_signals(&epoll, &[SIGTERM, SIGINT], ENDS)?;
        let children = watch_signals(&epoll, &[SIGCHLD], CHILDREN)?;
        watch(&epoll, &dialing, DIALLED).map_err(system("cannot watch a descriptor"))?;
        let lists_waker = Waker::new().map_err(system("cannot make a descriptor"))?;
        watch(&epoll, &lists_waker, LISTS).map_err(system("cannot watch a descriptor"))?;
        let started = Waker::new().map_err(system("cannot make a descriptor"))?;
        watch(&epoll, &started, STARTED).map_err(system("cannot watch a descriptor"))?;
        let listeners = setup::listen(&epoll, &config.addresses())?;
        lists.watch(lists_waker.clone()).map_err(system("cannot start a thread"))?;
        Ok(Self {
            epoll,
            ends,
            children,
            listeners,
            services,
            starter: Arc::new(Starter {
                program: setup::OWN_PROGRAM.into(),
                words,
                log: config.log.clone(),
            }),
            started,
            lists,
            grants,
            reach,
            dialing,
            acceptor: Acceptor::default(),
            askers: Askers::default(),
            log: RefusalLog::default(),
            slots: config.slots_or_processors(),
            began,
            next_handshake: HANDSHAKES,
            resting: None,
            lists_waker,
            ending: None,
            failed: None,
        })
    }

    /// The node's identity.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.lists.credentials().identity.node()
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves until SIGTERM or SIGINT, and ends in order; a second one ends at once.
    ///
    /// # Errors
    /// [`NodeError::System`] when the kernel no longer tells what happens;
    /// [`NodeError::ServiceNotStarted`]; [`NodeError::ServiceFailed`].
    pub fn run(mut self) -> Result<(), NodeError> {
        while !self.is_over() {
            self.keep_time(Instant::now());
            let mut ready = [0; EVENTS];
            let count = self.wait(&mut ready)?;
            let now = Instant::now();
            for token in &ready[..count] {
                self.serve(*token, now);
            }
            let mut askers = mem::take(&mut self.askers);
            askers.serve(&self.services, now, || self.describe(now));
            self.askers = askers;
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn is_over(&self) -> bool {
        self.ending.is_some() && self.services.iter().all(|service| service.control().is_none())
    }

    fn wait(&self, ready: &mut [u64; EVENTS]) -> Result<usize, NodeError> {
        let limit = self.patience(Instant::now());
        let limit = Timespec::try_from(limit).ok();
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        let found = match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
            Ok((found, _)) => found,
            Err(rustix::io::Errno::INTR) => return Ok(0),
            Err(error) => return Err(system("cannot wait")(error)),
        };
        for (slot, event) in ready.iter_mut().zip(&*found) {
            let data = event.data;
            *slot = data.u64();
        }
        Ok(found.len())
    }

    /// How long nothing needs to be done unless something happens.
    fn patience(&self, now: Instant) -> Duration {
        let busy = self.ending.is_some()
            || !self.askers.is_empty()
            || self.services.iter().any(|one| one.is_waiting() && one.control().is_some());
        let due = self.services.iter().filter_map(ServiceProcess::due);
        let times = due.chain(self.acceptor.deadline()).chain(self.resting);
        let next = times.min().map_or(SLEEP_MAX, |at| at.saturating_duration_since(now));
        next.min(if busy { SOON } else { SLEEP_MAX })
    }

    fn serve(&mut self, token: u64, now: Instant) {
        match token {
            ENDS => {
                drain(&self.ends);
                self.end(now);
            }
            CHILDREN => {
                drain(&self.children);
                self.reap(now);
            }
            DIALLED => self.dialled(),
            LISTS => self.take_lists(),
            STARTED => self.take_started(now),
            HANDSHAKES.. => self.advance(token, now),
            SERVICES.. => {
                let index = usize::try_from(token - SERVICES).unwrap_or(usize::MAX);
                if let Some(service) = self.services.get_mut(index) {
                    if !service.receive()
                        && let Some(control) = service.control()
                    {
                        // While the service runs there is nothing to do.
                        let _left = epoll::delete(&self.epoll, control);
                    }
                    service.flush();
                }
                self.dial_for(index);
            }
            LISTENERS.. => self.accept(usize::try_from(token - LISTENERS).unwrap_or(0), now),
            _ => {}
        }
    }

    fn accept(&mut self, index: usize, now: Instant) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else { return };
            match listener.accept() {
                Ok(caller) => self.begin(caller, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if is_callers(&error) => {}
                Err(error) => {
                    self.log.warn_limited(now, format_args!("cannot accept: {error}"));
                    return self.rest(now);
                }
            }
        }
    }

    fn begin(&mut self, (socket, from): (TcpStream, SocketAddr), now: Instant) {
        let token = self.next_handshake;
        self.next_handshake += 1;
        // Without this option a handshake is slower, but works.
        let _set = socket.set_nodelay(true);
        let watched = socket.set_nonblocking(true).is_ok()
            && epoll::add(&self.epoll, &socket, EventData::new_u64(token), EventFlags::IN).is_ok();
        if !watched {
            return;
        }
        let credentials = self.lists.credentials();
        if let Some(gone) = self.acceptor.begin(token, (socket, from), credentials, now) {
            let why = "gave way to others: too many handshakes are under way";
            self.log.refuse(now, RefusalReason::Unfinished, format_args!("{gone}: {why}"));
        }
    }

    /// Too many descriptors are open: callers in the kernel's queue wait a little longer.
    fn rest(&mut self, now: Instant) {
        self.resting = Some(now + ACCEPT_RETRY);
        for listener in &self.listeners {
            let _left = epoll::delete(&self.epoll, listener);
        }
    }

    fn advance(&mut self, token: u64, now: Instant) {
        match self.acceptor.advance(token) {
            HandshakeProgress::Waits => {}
            HandshakeProgress::Proven(session) => self.admit(session, now),
            HandshakeProgress::Refused(from, error) => {
                self.log.refuse(now, RefusalReason::from(&error), format_args!("{from}: {error}"));
            }
        }
    }

    fn admit(&mut self, session: Session, now: Instant) {
        let Session { from, stream } = session;
        let (socket, session, early) = stream.into_parts();
        // The socket goes to a service; its events no longer matter here.
        let _gone = epoll::delete(&self.epoll, &socket);
        let (node, name) = (session.peer(), session.service().clone());
        let stream = Secured::new(socket, session, early);
        let refuse = |log: &mut RefusalLog, refusal, why: &str| {
            log.refuse(now, refusal, format_args!("{from}: node {node}: {why}"));
        };
        if !self.lists.admits(node) {
            let why = "is revoked, or not on the list of allowed nodes";
            return refuse(&mut self.log, RefusalReason::NotAdmitted, why);
        }
        if name.as_str() == STATUS {
            self.services.iter_mut().for_each(ServiceProcess::ask);
            if !self.askers.push(stream, now) {
                refuse(&mut self.log, RefusalReason::Busy, "too many ask for the status");
            }
            return;
        }
        let Some(service) = self.services.iter_mut().find(|one| *one.name() == name) else {
            return refuse(&mut self.log, RefusalReason::NotAdmitted, "its service is not served");
        };
        let Some(grant) = self.grants.of(node, name.as_str(), service.slots()) else {
            let why = format!("as a tenant it may not use {}", name.as_str());
            return refuse(&mut self.log, RefusalReason::NotAdmitted, &why);
        };
        if !service.hand_over(stream, grant) {
            refuse(&mut self.log, RefusalReason::Busy, "too many wait for its service");
        }
    }

    /// Checks a service's requests for connections, and begins those that are allowed.
    fn dial_for(&mut self, index: usize) {
        while let Some(want) = self.services.get_mut(index).and_then(ServiceProcess::poll_want) {
            let id = want.id;
            if let Err(why) = self.begin_dial(index, want) {
                self.services[index].answer(id, Err(why));
            }
        }
    }

    fn begin_dial(&mut self, index: usize, want: DialRequest) -> Result<(), String> {
        let own = &self.services[index];
        let (host, service) = parse(&want)?;
        if !self.reach.allows(own.name().as_str(), &service, &host) {
            return Err(format!(
                "this node's configuration does not let {own} reach {service} on {host}: a line \
                 {service} = {host:?} in its table [reach.{own}] would",
                own = own.name().as_str(),
                service = service.as_str(),
                host = host.to_string(),
            ));
        }
        let asker =
            dialing::DialOrigin { service: index, generation: own.generation(), id: want.id };
        self.dialing.begin(asker, self.lists.credentials(), (host, service), want.limit)
    }

    fn dialled(&mut self) {
        while let Some((asker, outcome)) = self.dialing.poll() {
            let Some(service) = self.services.get_mut(asker.service) else { continue };
            // A process that has ended since is not waiting for it.
            if service.generation() == asker.generation {
                let outcome = outcome.and_then(|stream| match stream.peer() {
                    peer if self.lists.is_revoked(peer) => Err(format!("node {peer} is revoked")),
                    _ => Ok(Some(stream)),
                });
                service.answer(asker.id, outcome);
            }
        }
    }

    fn reap(&mut self, now: Instant) {
        let mut not_started = None;
        for service in &mut self.services {
            let is_first = service.generation() == 0;
            let Some(status) = service.reap(now) else { continue };
            let name = service.name().as_str();
            if self.ending.is_some() {
                if !status.success() {
                    tracing::warn!("service {name} ended ({status})");
                    let service = name.to_owned();
                    self.failed.get_or_insert(NodeError::ServiceFailed { service, status });
                }
            } else if is_first && status.code() == Some(NOT_STARTED.into()) {
                not_started = Some(NodeError::ServiceNotStarted { service: name.to_owned() });
            } else {
                tracing::warn!("service {name} ended ({status}); starting it again");
            }
        }
        if let Some(error) = not_started {
            self.failed.get_or_insert(error);
            self.end(now);
        }
    }

    /// Everything that is due by time alone.
    fn keep_time(&mut self, now: Instant) {
        for from in self.acceptor.expire(now) {
            let why = "the handshake took too long";
            self.log.refuse(now, RefusalReason::Unfinished, format_args!("{from}: {why}"));
        }
        if self.resting.is_some_and(|until| until <= now) {
            self.resting = None;
            for (index, listener) in self.listeners.iter().enumerate() {
                // A failure here shows again with the next error.
                let _watched = watch(&self.epoll, listener, LISTENERS + index as u64);
            }
        }
        if let Some(since) = self.ending {
            let took = now.saturating_duration_since(since);
            let late = self.services.iter_mut().filter(|service| took >= service.ending());
            late.for_each(ServiceProcess::kill);
        } else {
            self.start_due(now);
        }
        self.services.iter_mut().for_each(ServiceProcess::flush);
    }

    fn start_due(&mut self, now: Instant) {
        for service in &mut self.services {
            if service.due().is_some_and(|due| due <= now)
                && let Err(error) = service.start(&self.starter, &self.started, now)
            {
                cannot_start(service, &error);
            }
        }
    }

    /// Takes the processes that threads have started.
    fn take_started(&mut self, now: Instant) {
        self.started.clear();
        for (index, service) in self.services.iter_mut().enumerate() {
            let Some(started) = service.take_started(now) else { continue };
            let watched = started.and_then(|()| match service.control() {
                Some(control) => watch(&self.epoll, control, SERVICES + index as u64),
                None => Ok(()),
            });
            if let Err(error) = watched {
                cannot_start(service, &error);
            }
        }
        // One that has ended at once was not waited for then.
        self.reap(now);
    }

    fn take_lists(&mut self) {
        self.lists_waker.clear();
        while let Some(changes) = self.lists.poll() {
            for fault in changes.faults {
                tracing::error!("{fault}; the list before it holds");
            }
            for node in changes.shut_out {
                tracing::warn!("node {node} is revoked: its sessions end");
                self.services.iter_mut().for_each(|service| service.shut_out(node));
            }
        }
    }

    fn end(&mut self, now: Instant) {
        if self.ending.is_some() {
            return self.services.iter_mut().for_each(ServiceProcess::kill);
        }
        self.ending = Some(now);
        self.listeners.clear();
        self.services.iter_mut().for_each(ServiceProcess::stop);
    }

    fn describe(&self, now: Instant) -> Value {
        let services: Vec<Value> = self.services.iter().map(|one| one.describe(now)).collect();
        let listen: Vec<String> = self.addresses().iter().map(ToString::to_string).collect();
        json!({
            "node": self.node().to_string(),
            "version": env!("CARGO_PKG_VERSION"),
            "listen": listen,
            "uptime_s": now.saturating_duration_since(self.began).as_secs(),
            "slots": self.slots,
            "handshakes": self.acceptor.len(),
            "refused": self.log.refused().map(|(_, count)| count).sum::<u64>(),
            "refusals": self.log.refused().map(|(word, count)| (word.to_owned(), count.into()))
                .collect::<serde_json::Map<_, _>>(),
            "services": services,
        })
    }
}

fn cannot_start(service: &ServiceProcess, error: &io::Error) {
    tracing::error!("cannot start {}: {error}", service.name().as_str());
}

/// The host and the service of a request.
fn parse(want: &DialRequest) -> Result<(Host, ServiceName), String> {
    let hosts: HostList = want.host.parse().map_err(|error| format!("{error}"))?;
    let [host] = hosts.hosts() else { return Err(format!("{:?} is not one host", want.host)) };
    let service = ServiceName::parse(want.service.as_bytes()).map_err(|error| error.to_string())?;
    Ok((host.clone(), service))
}

fn drain(mut pipe: &UnixStream) {
    while pipe.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
}

/// The caller has disconnected already.
fn is_callers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::PermissionDenied
    )
}
