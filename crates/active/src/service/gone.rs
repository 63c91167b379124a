//! Executions on threads whose client's connection has ended. They go on for a moment, because a
//! client that lost its connection comes back for them; then they are killed, so that they do not
//! keep threads from others, and are executed anew if their client does come back.

use super::active::ActiveService;
use outboard_cluster::hub::PeerId;
use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

/// How long they go on: clients make a new connection at once.
const GRACE: Duration = Duration::from_secs(2);

/// Connections that have ended, the oldest first: until when their executions go on, and which.
#[derive(Debug, Default)]
pub(super) struct GoneSessions {
    sessions: VecDeque<(Instant, PeerId, HashSet<u64>)>,
}

impl GoneSessions {
    pub(super) fn add(&mut self, peer: PeerId, tokens: HashSet<u64>, now: Instant) {
        if !tokens.is_empty() {
            self.sessions.push_back((now + GRACE, peer, tokens));
        }
    }

    /// When the next one's time is over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sessions.front().map(|(until, ..)| *until)
    }

    fn next(&mut self, now: Instant) -> Option<(PeerId, HashSet<u64>)> {
        let (until, ..) = self.sessions.front()?;
        if *until > now {
            return None;
        }
        self.sessions.pop_front().map(|(_, peer, tokens)| (peer, tokens))
    }
}

impl ActiveService {
    /// Kills what has gone on for long enough.
    pub(super) fn abandon_gone(&mut self, now: Instant) {
        while let Some((peer, tokens)) = self.gone.next(now) {
            for token in tokens {
                let running = self.running.get_mut(&token);
                // A new connection may have asked for it.
                if let Some(running) = running.filter(|running| running.asker.peer == peer) {
                    running.is_abandoned = true;
                    self.executor.kill(running.tenant, token);
                }
            }
        }
    }
}
