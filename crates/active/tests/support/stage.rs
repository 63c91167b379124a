//! A service in a thread of its own, without a node, and clients of it. What a supervisor would
//! keep is kept here, so that the service can die and come back.

use crate::sessions::{PortTurns, SessionPort, credentials, dial};
use outboard_active::service::{
    ActiveLimits, ActiveService, ActiveServiceOptions, RegionKeeper, RegionSetup, hub_options,
    open_regions,
};
use outboard_active::{ActiveClient, ActiveClientOptions, WaitMode};
use outboard_cluster::node::{Permit, RequestError};
use outboard_cluster::service::{ServiceLoop, SpinMode};
use outboard_cluster::waker::Waker;
use outboard_offcode::{ModuleStore, Wasmtime};
use outboard_secure::{ClusterKey, Credentials};
use outboard_testkit::{PATIENCE, look_until, threads};
use outboard_verbs::{Context, Secured};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Memory that outlives a service, by name.
#[derive(Clone, Default)]
pub(crate) struct Keeper(Arc<Mutex<BTreeMap<String, OwnedFd>>>);

impl Keeper {
    fn copies(&self) -> BTreeMap<String, OwnedFd> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let copy =
            |(name, fd): (&String, &OwnedFd)| (name.clone(), fd.try_clone().expect("a descriptor"));
        kept.iter().map(copy).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.copies().into_keys().collect()
    }

    pub(crate) fn lose(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name).expect("kept");
    }
}

impl RegionKeeper for Keeper {
    fn keep(&mut self, name: &str, memory: OwnedFd) -> Result<(), RequestError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), memory);
        Ok(())
    }

    fn discard(&mut self, name: &str) -> Result<(), RequestError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
}

/// What the service's thread is told.
enum Order {
    /// Ends all sessions.
    EndSessions,
    /// Ends all sessions, because their identities are revoked.
    RevokeAll,
    Report(mpsc::Sender<Value>),
    /// The node ends in order.
    End,
    /// The process is killed.
    Kill,
}

/// A service that runs.
struct Running {
    orders: mpsc::Sender<Order>,
    waker: Waker,
    thread: JoinHandle<SessionPort>,
}

/// See the [module](self).
pub(crate) struct Stage {
    pub(crate) key: ClusterKey,
    pub(crate) keeper: Keeper,
    pub(crate) setups: Vec<RegionSetup>,
    pub(crate) limits: ActiveLimits,
    address: std::net::SocketAddr,
    turns: Arc<PortTurns>,
    running: Option<Running>,
    idle_port: Option<SessionPort>,
}

impl Stage {
    /// A service with one region, `kv`.
    pub(crate) fn new() -> Self {
        Self::with(vec![RegionSetup::new("kv", 1 << 20)], ActiveLimits::default())
    }

    pub(crate) fn with(setups: Vec<RegionSetup>, limits: ActiveLimits) -> Self {
        let key = ClusterKey::generate().expect("a key");
        let port = SessionPort::open(&key, "active");
        let (address, turns, keeper) = (port.address, Arc::clone(&port.turns), Keeper::default());
        let (running, idle_port) = (None, Some(port));
        let mut stage = Self { key, keeper, setups, limits, address, turns, running, idle_port };
        stage.start();
        stage
    }

    /// The next process of the service.
    pub(crate) fn start(&mut self) {
        let mut keeper = self.keeper.clone();
        let regions = open_regions(self.setups.clone(), keeper.copies(), &mut keeper);
        let store = ModuleStore::new(engine(), self.limits.store);
        let options = ActiveServiceOptions {
            regions: regions.expect("regions"),
            store: Arc::new(store),
            operators: HashSet::new(),
            limits: self.limits,
            spin: SpinMode::Adaptive,
        };
        let port = self.idle_port.take().expect("the last process has ended");
        let (orders, ordered) = mpsc::channel();
        let waker = Waker::new().expect("a waker");
        let wakes = waker.clone();
        let thread = thread::spawn(move || serve(options, port, &ordered, &wakes));
        self.running = Some(Running { orders, waker, thread });
    }

    fn order(&self, order: Order) {
        let running = self.running.as_ref().expect("it runs");
        running.orders.send(order).expect("it runs");
        running.waker.wake();
    }

    /// Ends all sessions, as a network may.
    pub(crate) fn end_sessions(&self) {
        self.order(Order::EndSessions);
    }

    /// Revokes all identities that have come so far.
    pub(crate) fn revoke_all(&self) {
        self.order(Order::RevokeAll);
    }

    /// The service's report.
    pub(crate) fn report(&self) -> Value {
        let (sender, report) = mpsc::channel();
        self.order(Order::Report(sender));
        report.recv_timeout(PATIENCE).expect("a report")
    }

    /// Waits until the report says so.
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        look_until(what, || self.report(), is_so)
    }

    /// The process dies without a word.
    pub(crate) fn kill(&mut self) {
        self.stop(Order::Kill);
    }

    /// The node ends.
    pub(crate) fn end(&mut self) {
        self.stop(Order::End);
    }

    fn stop(&mut self, order: Order) {
        self.order(order);
        let running = self.running.take().expect("it runs");
        self.idle_port = Some(running.thread.join().expect("it ends"));
    }

    /// A new identity.
    pub(crate) fn identity(&self) -> Arc<Credentials> {
        credentials(&self.key, "active")
    }

    /// A session of that identity with the service.
    pub(crate) fn session(&self, own: &Arc<Credentials>) -> Secured {
        dial(own, "active", self.address, PATIENCE).expect("a session")
    }

    /// A client with an identity of its own.
    pub(crate) fn client(&self) -> ActiveClient {
        self.client_of(&self.identity())
    }

    pub(crate) fn client_of(&self, own: &Arc<Credentials>) -> ActiveClient {
        let options = ActiveClientOptions { limit: PATIENCE, ..ActiveClientOptions::default() };
        self.client_with(own, options)
    }

    pub(crate) fn client_with(
        &self,
        own: &Arc<Credentials>,
        options: ActiveClientOptions,
    ) -> ActiveClient {
        let (own, address) = (Arc::clone(own), self.address);
        let dial = move |limit| dial(&own, "active", address, limit);
        let context = Context::open().expect("a context");
        let connected = ActiveClient::connect(&context, Box::new(dial), options);
        let ends = || format!("{}\n{}", self.turns.describe(), threads());
        connected.unwrap_or_else(|error| panic!("{error}\n{}", ends()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            // It may have ended.
            let _sent = running.orders.send(Order::Kill);
            running.waker.wake();
        }
    }
}

/// One for all tests of a process: it has a thread.
fn engine() -> Arc<Wasmtime> {
    static ENGINE: Mutex<Option<Arc<Wasmtime>>> = Mutex::new(None);
    let mut engine = ENGINE.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || Arc::new(Wasmtime::new(None).expect("an engine"));
    Arc::clone(engine.get_or_insert_with(new))
}

fn serve(
    options: ActiveServiceOptions,
    port: SessionPort,
    orders: &mpsc::Receiver<Order>,
    waker: &Waker,
) -> SessionPort {
    let service = ActiveService::new(options).expect("a service");
    let mut looping = ServiceLoop::new(hub_options(), service).expect("a loop");
    let mut sockets: Vec<TcpStream> = Vec::new();
    let mut nodes = HashSet::new();
    loop {
        waker.clear();
        while let Ok(session) = port.arrivals.try_recv() {
            sockets.extend(session.socket().try_clone());
            nodes.insert(session.peer());
            let permit = Permit::outside_a_node(session.peer(), 1);
            looping.admit(session, permit).expect("admitted");
        }
        looping.turn(Instant::now()).expect("a turn");
        match orders.try_recv() {
            Ok(Order::EndSessions) => {
                for socket in sockets.drain(..) {
                    // It may have ended.
                    let _shut = socket.shutdown(Shutdown::Both);
                }
            }
            Ok(Order::RevokeAll) => nodes.drain().for_each(|node| looping.shut_out(node)),
            Ok(Order::Report(sender)) => sender.send(looping.report()).expect("the test waits"),
            Ok(Order::End) => {
                looping.ended().expect("kept");
                return port;
            }
            Ok(Order::Kill) | Err(mpsc::TryRecvError::Disconnected) => return port,
            Err(mpsc::TryRecvError::Empty) => {
                if looping.spin() {
                    continue;
                }
                // A session that arrives does not wake this thread.
                let limit = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
                let fds =
                    &mut [PollFd::new(&looping, PollFlags::IN), PollFd::new(waker, PollFlags::IN)];
                let before = Instant::now();
                poll(fds, Some(&limit)).expect("poll");
                looping.slept(before);
            }
        }
    }
}

/// How a client waits in tests that measure nothing.
pub(crate) const BLOCKING: ActiveClientOptions =
    ActiveClientOptions { wait: WaitMode::Block, limit: PATIENCE, in_flight: 4096, attempts: 1 };
