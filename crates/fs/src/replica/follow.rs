//! One session of a replica: a server that is followed, or somebody who asks.

use super::incoming::{IncomingCopy, IncomingSpool};
use super::messages::{FollowedStore, ReplicaAnswer, ReplicaMessage};
use super::place::ReplicaPlace;
use super::stream::{ReplicaError, ReplicaStream};
use outboard_secure::NodeId;
use outboard_verbs::Secured;
use std::collections::HashSet;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a peer may take for its first message, and to take an answer.
const ASK_LIMIT: Duration = Duration::from_secs(10);
/// How long a server may say nothing: it says something every second, but not while it copies its
/// metadata.
const QUIET_LIMIT: Duration = Duration::from_secs(120);

/// What all sessions share.
#[derive(Debug)]
pub(super) struct ReplicaSessions {
    place: Mutex<ReplicaPlace>,
    /// The socket of the server that is followed, and its number.
    follower: Mutex<(u64, Option<TcpStream>)>,
    /// Who may have it promoted; `None`: everybody who has the key.
    allow: Option<HashSet<NodeId>>,
    /// It is promoted, and whoever asked for that knows.
    is_over: AtomicBool,
}

/// What is sent at present.
enum Receiving {
    Nothing,
    Copy(Box<IncomingCopy>),
    Spool(IncomingSpool),
    Commits,
}

impl ReplicaSessions {
    pub(super) fn new(place: ReplicaPlace, allow: Option<HashSet<NodeId>>) -> Self {
        let (place, follower) = (Mutex::new(place), Mutex::default());
        Self { place, follower, allow, is_over: AtomicBool::new(false) }
    }

    /// Whether the replica is a server's from now on.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(super) fn place(&self) -> MutexGuard<'_, ReplicaPlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follower(&self) -> MutexGuard<'_, (u64, Option<TcpStream>)> {
        self.follower.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a session until it ends.
    pub(super) fn serve(&self, session: Secured) {
        let (peer, mut stream) = (session.peer(), ReplicaStream::new(session));
        match self.answer(&mut stream, peer) {
            Ok(()) => {}
            // A client of the file system, which looks for its server.
            Err(ReplicaError::Foreign) => tracing::debug!("a session that is none of a server's"),
            Err(error) => {
                tracing::warn!(%error, "a session of this replica has ended");
                let answer = match error {
                    ReplicaError::Superseded { epoch } => ReplicaAnswer::Superseded { epoch },
                    error => ReplicaAnswer::Refused(error.to_string()),
                };
                // It may be gone.
                let _sent = stream.send(&answer, ASK_LIMIT);
            }
        }
    }

    fn answer(&self, stream: &mut ReplicaStream, peer: NodeId) -> Result<(), ReplicaError> {
        match stream.receive(ASK_LIMIT)? {
            ReplicaMessage::Status => {
                let state = self.place().state();
                stream.send(&ReplicaAnswer::State(state), ASK_LIMIT)
            }
            ReplicaMessage::Promote if self.may_promote(peer) => {
                let answer = self.place().promote()?;
                tracing::warn!(?answer, "this replica is promoted");
                self.leave();
                let sent = stream.send(&answer, ASK_LIMIT);
                self.is_over.store(true, Ordering::Release);
                sent
            }
            ReplicaMessage::Promote => {
                Err(ReplicaError::Refused("this identity may change nothing".into()))
            }
            ReplicaMessage::Follow(followed) => {
                // Before the server that is followed loses its session.
                self.place().admit(&followed)?;
                let number = self.replace(stream);
                let done = self.follow(stream, &followed);
                let is_latest = self.follower().0 == number;
                if is_latest {
                    self.place().is_in_step = false;
                }
                done
            }
            _ => Err(ReplicaError::Hostile("a session begins in its midst".into())),
        }
    }

    fn may_promote(&self, peer: NodeId) -> bool {
        self.allow.as_ref().is_none_or(|allow| allow.contains(&peer))
    }

    /// Ends the session of a server before this one: it has lost it.
    fn replace(&self, stream: &ReplicaStream) -> u64 {
        self.leave();
        let mut follower = self.follower();
        *follower = (follower.0 + 1, stream.socket());
        follower.0
    }

    /// No server is followed any more.
    pub(super) fn leave(&self) {
        if let Some(socket) = self.follower().1.take() {
            // It may be over.
            let _shut = socket.shutdown(Shutdown::Both);
        }
    }

    fn follow(
        &self,
        stream: &mut ReplicaStream,
        followed: &FollowedStore,
    ) -> Result<(), ReplicaError> {
        let state = self.place().state();
        stream.send(&ReplicaAnswer::State(state), ASK_LIMIT)?;
        let mut receiving = Receiving::Nothing;
        loop {
            let message = stream.receive(QUIET_LIMIT)?;
            if let Some(answer) = self.take(&message, followed, &mut receiving)? {
                stream.send(&answer, ASK_LIMIT)?;
            }
        }
    }

    fn take(
        &self,
        message: &ReplicaMessage<'_>,
        followed: &FollowedStore,
        receiving: &mut Receiving,
    ) -> Result<Option<ReplicaAnswer>, ReplicaError> {
        match (message, &mut *receiving) {
            (ReplicaMessage::Copy(head), _) => {
                let copy = self.place().begin_copy(followed, head)?;
                *receiving = Receiving::Copy(Box::new(copy));
            }
            (ReplicaMessage::CatchUp, Receiving::Nothing | Receiving::Commits) => {
                *receiving = Receiving::Spool(self.place().begin_spool()?);
            }
            (ReplicaMessage::Copied, Receiving::Copy(_)) => {
                if let Receiving::Copy(copy) = std::mem::replace(receiving, Receiving::Nothing) {
                    return self.place().take_copy(*copy).map(|seq| Some(ReplicaAnswer::Has(seq)));
                }
            }
            (ReplicaMessage::Step(seq), Receiving::Spool(_)) => {
                if let Receiving::Spool(spool) = std::mem::replace(receiving, Receiving::Commits) {
                    let mut place = self.place();
                    let last = place.take_spool(spool)?;
                    return level(&mut place, last, *seq).map(Some);
                }
            }
            (ReplicaMessage::Step(seq), Receiving::Commits | Receiving::Nothing) => {
                let mut place = self.place();
                let last = place.held()?.sync()?;
                return level(&mut place, last, *seq).map(Some);
            }
            (message, Receiving::Copy(copy)) => copy.take(message)?,
            (message, Receiving::Spool(spool)) => spool.take(message)?,
            (message, Receiving::Commits) => self.place().held()?.take(message)?,
            (_, Receiving::Nothing) => {
                return Err(ReplicaError::Hostile("nothing was begun".into()));
            }
        }
        Ok(None)
    }
}

/// All up to a commit was sent, and is here.
fn level(place: &mut ReplicaPlace, last: u64, seq: u64) -> Result<ReplicaAnswer, ReplicaError> {
    match last == seq {
        true => {
            place.is_level();
            Ok(ReplicaAnswer::Has(seq))
        }
        false => {
            let what = format!("commit {seq} was the last one that was sent, and {last} is here");
            Err(ReplicaError::Hostile(what))
        }
    }
}
