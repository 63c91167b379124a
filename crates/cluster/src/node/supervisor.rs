//! The supervisor's loop: whoever comes, what services say, signals, and time.

use super::config::Config;
use super::door::{Door, Guest, Progress};
use super::link::Welcome;
use super::lists::Lists;
use super::log::Log;
use super::process::{Service, Starter};
use super::report::Askers;
use super::setup::{self, NodeError, system, watch, watch_signals};
use super::user::User;
use crate::keys::Places;
use crate::status::STATUS;
use outboard_secure::NodeId;
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
use std::time::{Duration, Instant};

/// Callers taken from a listener at a time, so that handshakes under way get their turns.
const ACCEPTS: usize = 16;
/// Events taken from the kernel at a time.
const EVENTS: usize = 64;
/// How soon to accept again when the system could not.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often lists are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How soon to look again while somebody waits for a report, or a service for room or its end.
const SOON: Duration = Duration::from_millis(20);
/// How long services may take to end.
const ENDING: Duration = Duration::from_secs(5);

const ENDS: u64 = 0;
const CHILDREN: u64 = 1;
pub(super) const LISTENERS: u64 = 1 << 20;
const SERVICES: u64 = 2 << 20;
const STRANGERS: u64 = 1 << 32;

/// A node. See the [module](super).
#[derive(Debug)]
pub struct Supervisor {
    epoll: OwnedFd,
    ends: UnixStream,
    children: UnixStream,
    listeners: Vec<TcpListener>,
    services: Vec<Service>,
    starter: Starter,
    lists: Lists,
    door: Door,
    askers: Askers,
    log: Log,
    slots: u32,
    began: Instant,
    next_stranger: u64,
    refused: u64,
    /// Listeners are left alone until then.
    resting: Option<Instant>,
    looked: Instant,
    /// Since when it is ending.
    ending: Option<Instant>,
}

impl Supervisor {
    /// Reads keys and lists, and listens; services start with [`Supervisor::run`]. `known` are the
    /// services that this program has, `words` the arguments that make it one of them when its name
    /// follows.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub fn new(
        mut config: Config,
        places: Places,
        known: &[&str],
        words: Vec<OsString>,
    ) -> Result<Self, NodeError> {
        config.check(known)?;
        // Nobody of the same user reads the key out of its memory.
        let hide = rustix::process::set_dumpable_behavior;
        hide(rustix::process::DumpableBehavior::NotDumpable)
            .map_err(system("cannot hide this process's memory"))?;
        setup::raise_open_files();
        let began = Instant::now();
        let names = setup::names(&config)?;
        let lists = setup::lists(&config, places, &names)?;
        let user = rustix::process::geteuid().is_root();
        let user = user.then(|| User::find(config.user.as_deref().unwrap_or("nobody")));
        let starter = Starter { words, user: user.transpose()? };
        let slots = config.slots_or_processors();
        let node = lists.credentials().identity.node();
        let services = names.into_iter().map(|name| {
            let welcome = Welcome {
                service: name.as_str().into(),
                node: node.to_string(),
                slots,
                config: config.table(name.as_str()),
            };
            Service::new(welcome, name, began)
        });
        let services = services.collect();
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("cannot make an epoll"))?;
        let ends = watch_signals(&epoll, &[SIGTERM, SIGINT], ENDS)?;
        let children = watch_signals(&epoll, &[SIGCHLD], CHILDREN)?;
        let listeners = setup::listen(&epoll, &config.addresses())?;
        Ok(Self {
            epoll,
            ends,
            children,
            listeners,
            services,
            starter,
            lists,
            door: Door::default(),
            askers: Askers::default(),
            log: Log::new(began),
            slots,
            began,
            next_stranger: STRANGERS,
            refused: 0,
            resting: None,
            looked: began,
            ending: None,
        })
    }

    /// Who the node is.
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
    /// [`NodeError::System`] when the kernel no longer tells what happens.
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
        Ok(())
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
        let due = self.services.iter().filter_map(Service::due);
        let times = due.chain(self.door.deadline()).chain(self.resting);
        let next = times.min().map_or(LOOK, |at| at.saturating_duration_since(now));
        next.min(if busy { SOON } else { LOOK })
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
            STRANGERS.. => self.advance(token, now),
            SERVICES.. => {
                let index = usize::try_from(token - SERVICES).unwrap_or(usize::MAX);
                if let Some(service) = self.services.get_mut(index) {
                    if !service.hear()
                        && let Some(control) = service.control()
                    {
                        // Until its end is known there is nothing new.
                        let _left = epoll::delete(&self.epoll, control);
                    }
                    service.flush();
                }
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
                    self.log.say_of_stranger(now, format_args!("cannot accept: {error}"));
                    return self.rest(now);
                }
            }
        }
    }

    fn begin(&mut self, (socket, from): (TcpStream, SocketAddr), now: Instant) {
        let token = self.next_stranger;
        self.next_stranger += 1;
        // Without it a handshake is slower, and no less right.
        let _set = socket.set_nodelay(true);
        let watched = socket.set_nonblocking(true).is_ok()
            && epoll::add(&self.epoll, &socket, EventData::new_u64(token), EventFlags::IN).is_ok();
        if !watched {
            return;
        }
        let credentials = self.lists.credentials();
        if let Some(gone) = self.door.begin(token, (socket, from), credentials, now) {
            self.refused += 1;
            let why = "gave way to others: too many handshakes are under way";
            self.log.say_of_stranger(now, format_args!("{gone}: {why}"));
        }
    }

    /// Too many descriptors are open: whoever waits in the kernel's queue waits a little more.
    fn rest(&mut self, now: Instant) {
        self.resting = Some(now + ACCEPT_RETRY);
        for listener in &self.listeners {
            let _left = epoll::delete(&self.epoll, listener);
        }
    }

    fn advance(&mut self, token: u64, now: Instant) {
        match self.door.advance(token) {
            Progress::Waits => {}
            Progress::Proven(guest) => self.admit(guest, now),
            Progress::Refused(from, error) => {
                self.refused += 1;
                self.log.say_of_stranger(now, format_args!("{from}: {error}"));
            }
        }
    }

    fn admit(&mut self, guest: Guest, now: Instant) {
        // The socket goes elsewhere, and nothing of it is news here.
        let _gone = epoll::delete(&self.epoll, &guest.socket);
        let (from, node) = (guest.from, guest.session.peer());
        if !self.lists.admits(node) {
            self.refused += 1;
            let why = "is revoked, or not on the list of those who get in";
            return self.log.say_of_stranger(now, format_args!("{from}: node {node} {why}"));
        }
        let taken = if guest.session.service().as_str() == STATUS {
            self.services.iter_mut().for_each(Service::ask);
            self.askers.push(guest, now)
        } else {
            let name = guest.session.service();
            let service = self.services.iter_mut().find(|service| service.name() == name);
            service.is_some_and(|service| service.hand_over(guest))
        };
        if !taken {
            self.refused += 1;
            self.log.say_of_stranger(now, format_args!("{from}: too many wait for its service"));
        }
    }

    fn reap(&mut self, now: Instant) {
        for service in &mut self.services {
            if let Some(status) = service.reap(now)
                && self.ending.is_none()
            {
                let name = service.name().as_str();
                self.log.say(format_args!("service {name} ended ({status}); starting it again"));
            }
        }
    }

    /// What time alone brings about.
    fn keep_time(&mut self, now: Instant) {
        for from in self.door.expire(now) {
            self.refused += 1;
            let why = "the handshake took too long";
            self.log.say_of_stranger(now, format_args!("{from}: {why}"));
        }
        if self.resting.is_some_and(|until| until <= now) {
            self.resting = None;
            for (index, listener) in self.listeners.iter().enumerate() {
                // What fails now is tried again with the next error.
                let _watched = watch(&self.epoll, listener, LISTENERS + index as u64);
            }
        }
        if let Some(since) = self.ending {
            if now.saturating_duration_since(since) >= ENDING {
                self.services.iter_mut().for_each(Service::kill);
            }
        } else {
            self.start_due(now);
        }
        if now.saturating_duration_since(self.looked) >= LOOK {
            self.looked = now;
            self.look_again();
        }
        self.services.iter_mut().for_each(Service::flush);
    }

    fn start_due(&mut self, now: Instant) {
        for (index, service) in self.services.iter_mut().enumerate() {
            if service.due().is_none_or(|due| now < due) {
                continue;
            }
            let started = service.start(&self.starter, now);
            let watched = started.and_then(|()| match service.control() {
                Some(control) => watch(&self.epoll, control, SERVICES + index as u64),
                None => Ok(()),
            });
            if let Err(error) = watched {
                self.log.say(format_args!("cannot start {}: {error}", service.name().as_str()));
            }
        }
    }

    fn look_again(&mut self) {
        let changes = self.lists.look_again();
        for fault in changes.faults {
            self.log.say(format_args!("{fault}; the list before it holds"));
        }
        for node in changes.shut_out {
            self.log.say(format_args!("node {node} is shut out"));
            self.services.iter_mut().for_each(|service| service.shut_out(node));
        }
    }

    fn end(&mut self, now: Instant) {
        if self.ending.is_some() {
            return self.services.iter_mut().for_each(Service::kill);
        }
        self.ending = Some(now);
        self.listeners.clear();
        self.services.iter_mut().for_each(Service::stop);
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
            "handshakes": self.door.len(),
            "refused": self.refused,
            "services": services,
        })
    }
}

fn drain(mut pipe: &UnixStream) {
    while pipe.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
}

/// The caller has gone again, which is its own matter.
fn is_callers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::PermissionDenied
    )
}
