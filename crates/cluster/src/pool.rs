//! One connection to each peer of a list. Threads dial; after a failure the delay before the next
//! attempt doubles.
//!
//! The caller provides the function that reaches a peer. This module knows no messages.

use crate::hub::{Admission, Admitted, Hub};
use crate::waker::Waker;
use outboard_verbs::{Role, Secured};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a connection may take to come up.
const DIAL_LIMIT: Duration = Duration::from_secs(5);
/// After a failure a peer is not dialled for this long, and for twice as long after the next.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a peer of the list is reached, by its number: a session, or why there is none. Called by
/// threads.
pub type Dial = Arc<dyn Fn(usize, Duration) -> Result<Secured, String> + Send + Sync>;

/// The result of an attempt.
#[derive(Debug)]
pub struct Dialled {
    /// Which peer of the list.
    pub peer: usize,
    /// A connection, or why there is none.
    pub result: Result<Admitted, String>,
}

/// See the [module](self).
pub struct ConnectionPool {
    dial: Dial,
    connections: Vec<ConnectionState>,
    sender: mpsc::Sender<Dialled>,
    results: mpsc::Receiver<Dialled>,
    waker: Waker,
}

#[derive(Clone, Copy, Debug)]
enum ConnectionState {
    Down { until: Instant, pause: Duration, tried: bool },
    Dialling { pause: Duration, tried: bool },
    Up { since: Instant, pause: Duration },
}

impl fmt::Debug for ConnectionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionPool")
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl ConnectionPool {
    /// Connections to `count` peers, none of which has been dialled.
    ///
    /// # Errors
    /// This machine's: no descriptors left.
    pub fn new(count: usize, dial: Dial, now: Instant) -> rustix::io::Result<Self> {
        let waker = Waker::new()?;
        let (sender, results) = mpsc::channel();
        let connections =
            vec![ConnectionState::Down { until: now, pause: PAUSE_MIN, tried: false }; count];
        Ok(Self { dial, connections, sender, results, waker })
    }

    /// The number of peers whose first attempt has not failed yet: a caller that starts up may wait
    /// for them.
    #[must_use]
    pub fn starting(&self) -> usize {
        let starting = |connection: &&ConnectionState| {
            matches!(
                connection,
                ConnectionState::Down { tried: false, .. }
                    | ConnectionState::Dialling { tried: false, .. }
            )
        };
        self.connections.iter().filter(starting).count()
    }

    /// Starts the attempts that are due.
    pub fn dial<T>(&mut self, hub: &Hub<T>, now: Instant) {
        for at in 0..self.connections.len() {
            let ConnectionState::Down { until, pause, tried } = self.connections[at] else {
                continue;
            };
            if until > now {
                continue;
            }
            self.connections[at] = match hub.prepare() {
                Ok(admission) => {
                    self.spawn(at, admission);
                    ConnectionState::Dialling { pause, tried }
                }
                Err(_) => ConnectionState::Down { until: now + pause, pause, tried: true },
            };
        }
    }

    fn spawn(&self, peer: usize, admission: Admission) {
        let (dial, sender) = (Arc::clone(&self.dial), self.sender.clone());
        let waker = self.waker.clone();
        thread::spawn(move || {
            let result = dial(peer, DIAL_LIMIT).and_then(|stream| {
                let connected = admission.connect(|qp, params, channel| {
                    qp.adopt(stream, Role::Initiator, params, channel)
                });
                connected.map_err(|error| error.to_string())
            });
            // The pool may have gone.
            let _sent = sender.send(Dialled { peer, result });
            waker.wake();
        });
    }

    /// Makes the descriptor readable, from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The next attempt that is over.
    pub fn poll(&mut self, now: Instant) -> Option<Dialled> {
        self.waker.clear();
        let dialled = self.results.try_recv().ok()?;
        let pause = match self.connections[dialled.peer] {
            ConnectionState::Dialling { pause, .. }
            | ConnectionState::Down { pause, .. }
            | ConnectionState::Up { pause, .. } => pause,
        };
        self.connections[dialled.peer] = match dialled.result {
            Ok(_) => ConnectionState::Up { since: now, pause },
            Err(_) => {
                ConnectionState::Down { until: now + pause, pause: longer(pause), tried: true }
            }
        };
        Some(dialled)
    }

    /// A peer's connection is over.
    pub fn lost(&mut self, peer: usize, now: Instant) {
        let pause = match self.connections[peer] {
            // A connection that lasted for a while is dialled again soon.
            ConnectionState::Up { since, .. } if now - since > PAUSE_MAX => PAUSE_MIN,
            ConnectionState::Up { pause, .. }
            | ConnectionState::Down { pause, .. }
            | ConnectionState::Dialling { pause, .. } => pause,
        };
        self.connections[peer] =
            ConnectionState::Down { until: now + pause, pause: longer(pause), tried: true };
    }

    /// When the next peer is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let due = |connection: &ConnectionState| match connection {
            ConnectionState::Down { until, .. } => Some(*until),
            _ => None,
        };
        self.connections.iter().filter_map(due).min()
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

impl AsFd for ConnectionPool {
    /// Readable when an attempt is over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The next attempt that is over; sleeps on the descriptor until then.
    fn next(pool: &mut ConnectionPool, now: Instant) -> Dialled {
        let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
        poll(&mut [PollFd::new(pool, PollFlags::IN)], Some(&patience)).expect("poll");
        // The waker may fire before the result is there, never the other way round.
        pool.poll(now).expect("the waker was readable")
    }

    #[test]
    fn a_server_that_is_not_there_is_tried_ever_more_rarely() {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let dial: Dial = Arc::new(move |peer, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Err(format!("peer {peer} is not there"))
        });
        let hub: Hub = Hub::new().expect("a hub");
        let start = Instant::now();
        let mut pool = ConnectionPool::new(1, dial, start).expect("a pool");
        assert_eq!(pool.starting(), 1);
        let mut now = start;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            pool.dial(&hub, now);
            let dialled = next(&mut pool, now);
            assert_eq!(dialled.result.expect_err("no peer"), "peer 0 is not there");
            assert_eq!(pool.starting(), 0, "one failure is enough not to wait for it");
            let pause = Duration::from_secs(pause);
            assert_eq!(pool.deadline(), Some(now + pause));
            pool.dial(&hub, now + pause - Duration::from_millis(1));
            now += pause;
        }
        assert_eq!(tries.load(Ordering::SeqCst), 8);
    }
}
