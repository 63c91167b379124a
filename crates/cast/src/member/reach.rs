//! Dialling nodes: a thread for each attempt.

use super::{CastHub, WorkDone, WorkThreads};
use crate::sign::CastId;
use outboard_cluster::hosts::{Host, HostList};
use outboard_verbs::{Role, Secured};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// How long an attempt may take.
const DIAL_LIMIT: Duration = Duration::from_secs(5);

/// Reaches the service cast of a host: a session, or why there is none. Called by threads.
pub type DialNode = Arc<dyn Fn(&Host, Duration) -> Result<Secured, String> + Send + Sync>;

/// See the [module](self).
#[derive(Clone)]
pub(crate) struct NodeReach {
    pub(crate) dial: DialNode,
    pub(crate) threads: WorkThreads,
}

impl NodeReach {
    /// Begins an attempt; [`WorkDone::Dialled`] tells what comes of it.
    pub(crate) fn begin(&self, hub: &CastHub, cast: CastId, node: u32, host: &str) {
        let failed =
            |why: String| self.threads.answer(cast, WorkDone::Dialled { node, outcome: Err(why) });
        let hosts: HostList = match host.parse() {
            Ok(hosts) => hosts,
            Err(error) => return failed(format!("{error}")),
        };
        let admission = match hub.prepare() {
            Ok(admission) => admission,
            Err(error) => return failed(error.to_string()),
        };
        let (dial, threads, host) =
            (Arc::clone(&self.dial), self.threads.clone(), hosts.hosts()[0].clone());
        let attempt = move || {
            let outcome = dial(&host, DIAL_LIMIT).and_then(|stream| {
                let peer = stream.peer();
                let connected = admission.connect(|qp, params, channel| {
                    qp.adopt(stream, Role::Initiator, params, channel)
                });
                connected.map(|admitted| (admitted, peer)).map_err(|error| error.to_string())
            });
            threads.answer(cast, WorkDone::Dialled { node, outcome });
        };
        if let Err(error) = thread::Builder::new().name("outboard-dial".into()).spawn(attempt) {
            failed(format!("this machine starts no thread: {error}"));
        }
    }
}
