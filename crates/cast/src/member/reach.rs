//! Dialling nodes, some at a time; each attempt may be made of several.

use super::{CastHub, LinkPurpose, SessionId, WorkDone, WorkThreads};
use outboard_cluster::hosts::{Host, HostList};
use outboard_cluster::workers::Workers;
use outboard_verbs::{Role, Secured};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// How long an attempt may take, all tries together.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// Before the second try; before the third one twice that, and so on.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// How many nodes are dialled at a time.
const DIALS_MAX: usize = 32;

/// Reaches the service cast of a host: a session, or why there is none. Called by threads.
pub type DialNode = Arc<dyn Fn(&Host, Duration) -> Result<Secured, String> + Send + Sync>;

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct NodeReach {
    dial: DialNode,
    dials: Workers,
    tries: u32,
    pub(crate) threads: WorkThreads,
}

impl NodeReach {
    /// An attempt fails after `tries` dials, one at least.
    pub(crate) fn new(dial: DialNode, tries: u32, threads: WorkThreads) -> Self {
        Self { dial, dials: Workers::new("outboard-dial", DIALS_MAX), tries, threads }
    }

    /// The same with threads of one cast alone.
    pub(crate) fn of_session(&self) -> Self {
        Self { threads: self.threads.of_session(), ..self.clone() }
    }

    /// Begins an attempt; [`WorkDone::Dialled`] tells what comes of it.
    pub(crate) fn begin(
        &self,
        hub: &CastHub,
        session: SessionId,
        (node, purpose): (u32, LinkPurpose),
        host: &str,
    ) {
        let dialled = move |outcome| WorkDone::Dialled { node, purpose, outcome };
        let failed = |why: String| self.threads.answer(session, dialled(Err(why)));
        let hosts: HostList = match host.parse() {
            Ok(hosts) => hosts,
            Err(error) => return failed(format!("{error}")),
        };
        let admission = match hub.prepare() {
            Ok(admission) => admission,
            Err(error) => return failed(error.to_string()),
        };
        let (dial, tries) = (Arc::clone(&self.dial), self.tries);
        let (threads, host) = (self.threads.clone(), hosts.hosts()[0].clone());
        let attempt = move || {
            let outcome = dial_host(&dial, tries, &host).and_then(|stream| {
                let peer = stream.peer();
                let connected = admission.connect(|qp, params, channel| {
                    qp.adopt(stream, Role::Initiator, params, channel)
                });
                connected.map(|admitted| (admitted, peer)).map_err(|error| error.to_string())
            });
            threads.answer(session, dialled(outcome));
        };
        if !self.dials.run(attempt) {
            failed("this machine starts no thread, or dials too many nodes already".into());
        }
    }
}

fn dial_host(dial: &DialNode, tries: u32, host: &Host) -> Result<Secured, String> {
    let until = Instant::now() + DIAL_LIMIT;
    let left = || until.saturating_duration_since(Instant::now());
    let mut pause = PAUSE_FIRST;
    for _ in 1..tries {
        if let Ok(stream) = dial(host, left()) {
            return Ok(stream);
        }
        thread::sleep(pause.min(left()));
        pause *= 2;
    }
    dial(host, left().max(PAUSE_FIRST))
}
