//! Sessions of one service on loopback, outside a node: keys, a port, who comes there; also part of
//! the tests of `cast` and `compile`.

use outboard_cluster::dial::Dialer;
use outboard_cluster::hosts::HostList;
use outboard_cluster::node::SessionListener;
use outboard_secure::{ClusterKey, Credentials, Fabric, Identity, Revoked, ServiceName};
use outboard_testkit::PATIENCE;
use outboard_verbs::Secured;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

fn name(service: &str) -> ServiceName {
    service.parse().expect("a name")
}

/// One end's: an identity of its own, and the service's key.
pub(crate) fn credentials(key: &ClusterKey, service: &str) -> Arc<Credentials> {
    Arc::new(Credentials {
        identity: Identity::generate().expect("an identity"),
        keys: [key.service(&name(service))].into_iter().collect(),
        fabric: Fabric::Untrusted,
        revoked: Revoked::default(),
    })
}

/// Dials a port with these credentials.
pub(crate) fn dial(
    own: &Arc<Credentials>,
    service: &str,
    address: SocketAddr,
    limit: Duration,
) -> Result<Secured, String> {
    let hosts: HostList = address.to_string().parse().expect("a host");
    let dialler = Dialer::new(Arc::clone(own));
    let dialled = dialler.dial(&hosts.hosts()[0], &name(service), Instant::now() + limit);
    dialled.map_err(|error| error.to_string())
}

/// A port that takes sessions, in a thread of its own, until this value is gone.
pub(crate) struct SessionPort {
    pub(crate) address: SocketAddr,
    /// The peers that have proven the key.
    pub(crate) arrivals: mpsc::Receiver<Secured>,
    pub(crate) turns: Arc<PortTurns>,
    _open: Arc<()>,
}

/// What a port's thread has done: its end of a handshake that fails.
#[derive(Debug, Default)]
pub(crate) struct PortTurns(Mutex<Turns>);

#[derive(Clone, Copy, Debug, Default)]
struct Turns {
    count: u64,
    proven: usize,
    latest: Option<Instant>,
    longest_pause: Duration,
    is_shaking_hands: bool,
}

impl PortTurns {
    fn add(&self, listener: &SessionListener, proven: usize) {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let pause = turns.latest.map_or(Duration::ZERO, |latest| now - latest);
        turns.count += 1;
        turns.proven += proven;
        turns.latest = Some(now);
        turns.longest_pause = turns.longest_pause.max(pause);
        turns.is_shaking_hands = listener.deadline().is_some();
    }

    /// For the message of a test that fails. A pause is not longer than 50 ms unless the thread had
    /// to wait for something.
    pub(crate) fn describe(&self) -> String {
        let turns = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ago = turns.latest.map(|latest| latest.elapsed());
        format!("the port, whose latest turn ended {ago:?} ago: {turns:?}")
    }
}

impl SessionPort {
    pub(crate) fn open(key: &ClusterKey, service: &str) -> Self {
        let here = "127.0.0.1:0".parse().expect("an address");
        let listener = SessionListener::bind(here, credentials(key, service)).expect("a port");
        let address = listener.address().expect("bound");
        let (sender, arrivals) = mpsc::channel();
        let (open, turns) = (Arc::new(()), Arc::<PortTurns>::default());
        let (is_open, own) = (Arc::downgrade(&open), Arc::clone(&turns));
        let thread = thread::Builder::new().name("session-port".into());
        thread.spawn(move || take(listener, &own, &sender, &is_open)).expect("a thread");
        Self { address, arrivals, turns, _open: open }
    }
}

fn take(
    mut listener: SessionListener,
    turns: &PortTurns,
    sender: &mpsc::Sender<Secured>,
    is_open: &Weak<()>,
) {
    let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    while is_open.strong_count() > 0 {
        let proven = listener.turn(Instant::now()).expect("a turn");
        turns.add(&listener, proven.len());
        if proven.into_iter().any(|session| sender.send(session).is_err()) {
            return;
        }
        poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&tick)).expect("poll");
    }
}

/// Both ends of a session: of the peer that has dialled, and of the one that was.
pub(crate) fn session(service: &str) -> (Secured, Secured) {
    let key = ClusterKey::generate().expect("a key");
    let port = SessionPort::open(&key, service);
    let dialled = dial(&credentials(&key, service), service, port.address, PATIENCE);
    let own = dialled.unwrap_or_else(|why| panic!("{why}\n{}", port.turns.describe()));
    (own, port.arrivals.recv_timeout(PATIENCE).expect("it has shaken hands"))
}
