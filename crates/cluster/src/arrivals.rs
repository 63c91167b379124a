//! Peers whose connections are being set up: threads do it, so that no peer makes a loop wait.
//!
//! A connection whose node is revoked while it is set up is dropped, and its permit is given back.
//! This module knows no protocol.

use crate::hub::{Admitted, Hub, HubError};
use crate::node::Permit;
use crate::waker::Waker;
use crate::workers::Workers;
use outboard_secure::NodeId;
use outboard_verbs::{Role, Secured};
use std::collections::{BTreeMap, HashMap};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

/// Connections being set up, at most.
pub(crate) const STARTING_MAX: usize = 256;

/// A peer whose connection is up, for [`Hub::enroll`].
#[derive(Debug)]
pub(crate) struct Arrived {
    /// Its connection.
    pub(crate) admitted: Admitted,
    /// What it may use.
    pub(crate) permit: Permit,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Arrivals {
    next: u64,
    /// Connections being set up whose node has not been revoked since, the oldest first.
    starting: BTreeMap<u64, Starting>,
    /// Those that gave way to later ones, since the beginning.
    gave_way: u64,
    threads: Workers,
    sender: mpsc::Sender<(u64, Option<Admitted>)>,
    results: mpsc::Receiver<(u64, Option<Admitted>)>,
    waker: Waker,
}

/// A connection that is being set up.
#[derive(Debug)]
struct Starting {
    permit: Permit,
    /// Its socket: shut down, its thread gives up. `None` where there was no descriptor left.
    socket: Option<TcpStream>,
}

impl Arrivals {
    /// `waker` wakes the loop when a connection is up.
    pub(crate) fn new(waker: Waker) -> Self {
        let (sender, results) = mpsc::channel();
        let threads = Workers::new("outboard-admit", STARTING_MAX);
        Self { next: 0, starting: BTreeMap::new(), gave_way: 0, threads, sender, results, waker }
    }

    /// Takes a session over. A thread sets the connection up. When too many are being set up, the
    /// oldest of the identity that has most of them gives way.
    ///
    /// # Errors
    /// This machine's.
    pub(crate) fn admit<T>(
        &mut self,
        hub: &Hub<T>,
        stream: Secured,
        permit: Permit,
    ) -> Result<(), HubError> {
        if self.starting.len() >= STARTING_MAX {
            self.give_way();
        }
        let socket = stream.socket().try_clone().ok();
        let admission = hub.prepare()?;
        let (number, sender) = (self.next, self.sender.clone());
        let waker = self.waker.clone();
        self.next += 1;
        let set_up = move || {
            let connected = admission
                .connect(|qp, params, channel| qp.adopt(stream, Role::Responder, params, channel));
            // The peer may have left, or the loop may have ended: both are fine.
            let _sent = sender.send((number, connected.ok()));
            waker.wake();
        };
        if self.threads.run(set_up) {
            self.starting.insert(number, Starting { permit, socket });
        }
        Ok(())
    }

    /// How many connections gave way to later ones while they were being set up.
    pub(crate) fn gave_way(&self) -> u64 {
        self.gave_way
    }

    fn give_way(&mut self) {
        let mut counts: HashMap<NodeId, usize> = HashMap::new();
        for starting in self.starting.values() {
            *counts.entry(starting.permit.node()).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let is_its = |starting: &&Starting| counts.get(&starting.permit.node()) == Some(&most);
        let oldest = self.starting.iter().find(|(_, starting)| is_its(starting));
        if let Some(gone) = oldest.map(|(number, _)| *number).and_then(|n| self.starting.remove(&n))
        {
            // It may have ended already.
            let _shut = gone.socket.map(|socket| socket.shutdown(Shutdown::Both));
            self.gave_way += 1;
        }
    }

    /// Drops the connections of that node that are being set up. Later sessions are accepted.
    pub(crate) fn shut_out(&mut self, node: NodeId) {
        self.starting.retain(|_, starting| starting.permit.node() != node);
    }

    /// The next peer whose connection is up.
    pub(crate) fn poll(&mut self) -> Option<Arrived> {
        while let Ok((number, admitted)) = self.results.try_recv() {
            let pending = self.starting.remove(&number);
            if let (Some(Starting { permit, .. }), Some(admitted)) = (pending, admitted) {
                return Some(Arrived { admitted, permit });
            }
        }
        None
    }
}
