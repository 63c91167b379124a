//! The process of a replica: sessions as they come, each on a thread of its own, few at a time.

use super::follow::ReplicaSessions;
use super::place::ReplicaPlace;
use outboard_cluster::node::{Arrival, ServiceLink};
use outboard_secure::NodeId;
use serde_json::json;
use std::collections::{BTreeMap, HashSet};
use std::error::Error;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Sessions at a time, at most: a server, and few who ask.
const SESSIONS_MAX: usize = 16;
/// How often it is looked whether the replica was promoted.
const LOOK: Duration = Duration::from_millis(50);

/// The sockets of sessions, by number, with their identities.
type Sockets = Arc<Mutex<BTreeMap<usize, (NodeId, TcpStream)>>>;

/// Runs a replica until its node ends, or until it is promoted: then the node starts the service
/// again, which finds a store to serve.
pub(crate) fn run(mut link: ServiceLink, dir: &Path, allow: Option<HashSet<NodeId>>) -> ExitCode {
    let kept = link.take_kept();
    match ReplicaPlace::open(dir, kept, link.requester()) {
        Ok(place) => serve(&link, &Arc::new(ReplicaSessions::new(place, allow))),
        Err(error) => link.not_started(&*error),
    }
}

fn serve(link: &ServiceLink, sessions: &Arc<ReplicaSessions>) -> ExitCode {
    let shown = Arc::clone(sessions);
    link.on_report(move || {
        let state = shown.place().state();
        json!({
            "role": "replica", "is_whole": state.is_whole, "is_in_step": state.is_in_step,
            "epoch": state.epoch, "commit": state.last, "behind_s": state.behind_s,
        })
    });
    let (sockets, next) = (Sockets::default(), AtomicUsize::new(0));
    // Clients that look for their server may come all the time.
    while !sessions.is_over() {
        match link.next(Some(LOOK)) {
            Arrival::Session(session, permit) => {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let socket = session.socket().try_clone();
                let mut all = sockets.lock().unwrap_or_else(PoisonError::into_inner);
                let Ok(socket) = socket else { continue };
                if all.len() >= SESSIONS_MAX {
                    continue;
                }
                all.insert(number, (session.peer(), socket));
                let (sessions, sockets) = (Arc::clone(sessions), Arc::clone(&sockets));
                let serve = move || {
                    sessions.serve(session);
                    drop(permit);
                    sockets.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                };
                // Where there is no thread the session ends.
                if thread::Builder::new().name("fs-replica".into()).spawn(serve).is_err() {
                    all.remove(&number);
                }
            }
            Arrival::Revoked(node) => shut_out(&sockets, node),
            Arrival::Stop => return stop(sessions),
            Arrival::Nothing => {}
        }
    }
    ExitCode::SUCCESS
}

fn shut_out(sockets: &Sockets, node: NodeId) {
    let all = sockets.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, socket) in all.values().filter(|(of, _)| *of == node) {
        // It may be over.
        let _shut = socket.shutdown(Shutdown::Both);
    }
}

fn stop(sessions: &ReplicaSessions) -> ExitCode {
    sessions.leave();
    let closed: Result<(), Box<dyn Error>> = sessions.place().close().map_err(Into::into);
    match closed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("outboard: service fs: {error}");
            ExitCode::FAILURE
        }
    }
}
