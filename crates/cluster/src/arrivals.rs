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
use std::collections::HashMap;
use std::sync::mpsc;

/// Connections being set up, at most.
const STARTING_MAX: usize = 256;

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
    /// Connections being set up whose node has not been revoked since.
    starting: HashMap<u64, Permit>,
    threads: Workers,
    sender: mpsc::Sender<(u64, Option<Admitted>)>,
    results: mpsc::Receiver<(u64, Option<Admitted>)>,
    waker: Waker,
}

impl Arrivals {
    /// `waker` wakes the loop when a connection is up.
    pub(crate) fn new(waker: Waker) -> Self {
        let (sender, results) = mpsc::channel();
        let threads = Workers::new("outboard-admit", STARTING_MAX);
        Self { next: 0, starting: HashMap::new(), threads, sender, results, waker }
    }

    /// Takes a session over. A thread sets the connection up. When too many are being set up, the
    /// session ends.
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
            return Ok(());
        }
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
            self.starting.insert(number, permit);
        }
        Ok(())
    }

    /// Drops the connections of that node that are being set up. Later sessions are accepted.
    pub(crate) fn shut_out(&mut self, node: NodeId) {
        self.starting.retain(|_, permit| permit.node() != node);
    }

    /// The next peer whose connection is up.
    pub(crate) fn poll(&mut self) -> Option<Arrived> {
        while let Ok((number, admitted)) = self.results.try_recv() {
            let pending = self.starting.remove(&number);
            if let (Some(permit), Some(admitted)) = (pending, admitted) {
                return Some(Arrived { admitted, permit });
            }
        }
        None
    }
}
