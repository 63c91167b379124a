//! Services of other nodes, reached for this node's own services, which have no key.
//!
//! Each is dialled by a thread of its own, so that no host makes the supervisor wait; a descriptor
//! tells the loop when one is done. The caller has checked the policy.

use crate::dial::Dialer;
use crate::hosts::Host;
use crate::keys::KeyPaths;
use crate::waker::Waker;
use outboard_secure::{Credentials, ServiceName};
use outboard_verbs::Secured;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Attempts under way, at most.
const DIALS_MAX: usize = 64;
/// How long one may take, whatever a service says.
const LIMIT_MAX: Duration = Duration::from_secs(30);

/// Which process of which service asked, and under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DialOrigin {
    pub(super) service: usize,
    pub(super) generation: u64,
    pub(super) id: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Dialing {
    known_nodes: PathBuf,
    under_way: usize,
    sender: mpsc::Sender<(DialOrigin, Result<Secured, String>)>,
    results: mpsc::Receiver<(DialOrigin, Result<Secured, String>)>,
    waker: Waker,
}

impl Dialing {
    pub(super) fn new(places: &KeyPaths) -> rustix::io::Result<Self> {
        let (sender, results) = mpsc::channel();
        let known_nodes = places.known_nodes.clone();
        Ok(Self { known_nodes, under_way: 0, sender, results, waker: Waker::new()? })
    }

    /// Begins an attempt; the error says why it cannot be begun.
    pub(super) fn begin(
        &mut self,
        origin: DialOrigin,
        credentials: &Arc<Credentials>,
        (host, service): (Host, ServiceName),
        limit: Duration,
    ) -> Result<(), String> {
        if self.under_way >= DIALS_MAX {
            return Err(format!("{DIALS_MAX} connections are being set up already"));
        }
        let dialer = Dialer::to_known(Arc::clone(credentials), &self.known_nodes);
        let (sender, waker) = (self.sender.clone(), self.waker.clone());
        let deadline = Instant::now() + limit.min(LIMIT_MAX);
        let dial = move || {
            let dialled = dialer.dial(&host, &service, deadline);
            // The node may have ended since.
            let _sent = sender.send((origin, dialled.map_err(|error| error.to_string())));
            waker.wake();
        };
        let spawned = thread::Builder::new().name("outboard-dial".into()).spawn(dial);
        spawned.map_err(|error| format!("this machine starts no thread: {error}"))?;
        self.under_way += 1;
        Ok(())
    }

    /// The next attempt that is over.
    pub(super) fn poll(&mut self) -> Option<(DialOrigin, Result<Secured, String>)> {
        self.waker.clear();
        let result = self.results.try_recv().ok()?;
        self.under_way -= 1;
        Some(result)
    }
}

impl AsFd for Dialing {
    /// Readable when an attempt is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
