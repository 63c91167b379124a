//! What a region may have beside its memory: a backend through which every request on the region
//! passes before it is executed, and every outcome before it is answered. A file system has its
//! files' bytes there.
//!
//! It executes nothing itself and knows no connection: what it wants it says in steps, which the
//! service takes in order whenever it has called the backend. A request that it keeps stays the
//! client's: asked again, it is the same one, and it is answered when the backend says so.

use super::active::{ActiveHub, ActiveService, ActiveTag};
use super::execute::{Asker, RunningCall};
use crate::protocol::{ActiveAnswer, NOTE_MAX};
use outboard_cluster::hub::{Exposed, PeerId};
use outboard_cluster::service::ServiceError;
use outboard_cluster::waker::Waker;
use outboard_offcode::Outcome;
use outboard_offcode::executor::Request;
use outboard_offcode::store::TenantId;
use outboard_secure::NodeId;
use outboard_verbs::Access;
use serde_json::Value;
use std::fmt;
use std::time::Instant;

/// Tokens of a backend's own requests have this bit; those of clients' requests do not.
pub const BACKEND_TOKEN: u64 = 1 << 63;
/// Whose a backend's own requests are: nobody's.
pub const BACKEND_TENANT: TenantId = TenantId([0xff; 32]);

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendCaller {
    /// The connection.
    pub peer: PeerId,
    /// The identity.
    pub node: NodeId,
    /// Whether it may change the region.
    pub may_write: bool,
}

/// What a backend wants.
#[derive(Debug)]
pub enum BackendStep {
    /// A request is executed: a client's that it has kept, or its own (with [`BACKEND_TOKEN`]). Its
    /// outcome comes by [`RegionBackend::after`].
    Execute(Box<Request>),
    /// A client's request has ended so.
    Answer {
        /// The request's.
        token: u64,
        /// What its client is told. After [`Outcome::Killed`] a client that has made a new
        /// connection meanwhile gets its request begun anew.
        outcome: Outcome,
    },
    /// Bytes of its client's memory are needed for a request. They come by
    /// [`RegionBackend::fetched`], unless the client is gone before.
    Fetch {
        /// The request's.
        token: u64,
        /// All of them.
        from: Exposed,
    },
    /// A client is told something that it has not asked for.
    Notice {
        /// Its connection.
        peer: PeerId,
        /// Up to [`NOTE_MAX`].
        bytes: Vec<u8>,
    },
}

/// See this file's first lines. Nothing here waits.
pub trait RegionBackend {
    /// A client's request, before it is executed; `None`: the backend keeps it.
    fn before(&mut self, caller: BackendCaller, request: Request) -> Option<Request>;

    /// What came of an execution; `None`: the backend keeps it, or it was its own.
    fn after(&mut self, token: u64, outcome: Outcome) -> Option<Outcome>;

    /// Bytes of a client's memory are there.
    fn fetched(&mut self, token: u64, bytes: Vec<u8>);

    /// A client says something that is no request.
    ///
    /// # Errors
    /// Why its session ends.
    fn note(&mut self, caller: BackendCaller, bytes: &[u8]) -> Result<(), ServiceError>;

    /// A connection has ended: no bytes of its client's memory come any more.
    fn gone(&mut self, peer: PeerId);

    /// Called once for each time that the service's loop wakes up.
    fn turn(&mut self, now: Instant);

    /// The next thing that it wants.
    fn step(&mut self) -> Option<BackendStep>;

    /// When the loop must wake up at the latest.
    fn deadline(&self) -> Option<Instant>;

    /// A client that may change the region has seen a later epoch of it: another service has it.
    fn superseded(&mut self, epoch: u64);

    /// The node ends: what must be kept is kept now.
    ///
    /// # Errors
    /// It was not kept.
    fn ended(&mut self) -> Result<(), ServiceError>;

    /// What `outboard status` shows of it.
    fn report(&self) -> Value;
}

/// A backend and which of the service's regions it is for.
pub(super) struct BackedRegion {
    pub(super) index: usize,
    pub(super) backend: Box<dyn RegionBackend>,
}

impl fmt::Debug for BackedRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackedRegion").field("index", &self.index).finish_non_exhaustive()
    }
}

impl ActiveService {
    /// Has requests on a region pass through a backend; `false`: there is no such region.
    #[must_use]
    pub fn back(&mut self, region: &str, backend: Box<dyn RegionBackend>) -> bool {
        let Some(index) = self.region_names.get(region).copied() else { return false };
        self.backed = Some(BackedRegion { index, backend });
        true
    }

    /// Wakes the service's loop from any thread.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// A client knows of a later service than this one, which then serves it nothing.
    pub(super) fn superseded(
        &mut self,
        region: usize,
        epoch: u64,
        may_write: bool,
    ) -> Result<(), ServiceError> {
        if let Some(backed) = self.backed.as_mut().filter(|one| one.index == region && may_write) {
            backed.backend.superseded(epoch);
        }
        Err(format!("it has seen epoch {epoch} of the region, which is later than this one's")
            .into())
    }

    pub(super) fn is_backed(&self, region: usize) -> bool {
        self.backed.as_ref().is_some_and(|backed| backed.index == region)
    }

    /// A request on the backend's region.
    pub(super) fn begin_backed(
        &mut self,
        hub: &mut ActiveHub,
        asker: Asker,
        request: Request,
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get_mut(&asker.peer) else { return Ok(()) };
        let (Some(id), token) = (request.id, request.token) else { return Ok(()) };
        let node = session.node;
        session.deferred.insert(token);
        let caller = self.caller(asker.peer, node);
        let tenant = request.tenant;
        let call = RunningCall { asker, tenant, id, is_abandoned: false, again: None };
        self.running.insert(token, call);
        self.by_request.insert(id, token);
        let Some(backed) = &mut self.backed else { return Ok(()) };
        if let Some(request) = backed.backend.before(caller, request) {
            self.execute_backed(hub, request)?;
        }
        self.take_steps(hub)
    }

    fn caller(&self, peer: PeerId, node: NodeId) -> BackendCaller {
        let setup = self.backed.as_ref().map(|backed| &self.regions[backed.index].setup);
        let access = setup.and_then(|setup| setup.access(node));
        let may_write = access.is_some_and(|access| access.contains(Access::REMOTE_WRITE));
        BackendCaller { peer, node, may_write }
    }

    fn execute_backed(
        &mut self,
        hub: &mut ActiveHub,
        request: Request,
    ) -> Result<(), ServiceError> {
        let outcome = self.executor.execute(&request);
        let token = request.token;
        self.reuse(request);
        match outcome {
            Some(outcome) => self.after_backed(hub, token, outcome),
            None => Ok(()),
        }
    }

    /// An execution on the backend's region is over.
    pub(super) fn after_backed(
        &mut self,
        hub: &mut ActiveHub,
        token: u64,
        outcome: Outcome,
    ) -> Result<(), ServiceError> {
        let Some(backed) = &mut self.backed else { return Ok(()) };
        match backed.backend.after(token, outcome) {
            Some(outcome) => self.conclude(hub, token, outcome),
            None => Ok(()),
        }
    }

    /// Does what the backend wants. A client's fault ends its session.
    pub(super) fn take_steps(&mut self, hub: &mut ActiveHub) -> Result<(), ServiceError> {
        while let Some(step) = self.backed.as_mut().and_then(|backed| backed.backend.step()) {
            match step {
                BackendStep::Execute(request) => self.execute_backed(hub, *request)?,
                BackendStep::Answer { token, outcome } => self.conclude(hub, token, outcome)?,
                BackendStep::Fetch { token, from } => self.fetch(hub, token, from),
                BackendStep::Notice { peer, bytes } => {
                    debug_assert!(bytes.len() <= NOTE_MAX, "notices are short");
                    self.answer_later(hub, peer, &ActiveAnswer::Notice { bytes: &bytes });
                }
            }
        }
        Ok(())
    }

    fn fetch(&mut self, hub: &mut ActiveHub, token: u64, from: Exposed) {
        let Some(peer) = self.running.get(&token).map(|call| call.asker.peer) else { return };
        let len = usize::try_from(from.len()).unwrap_or(usize::MAX);
        let read = from.range(0, from.len()).ok_or_else(|| "it names memory beyond its own".into());
        let tag = ActiveTag::Bytes { token };
        let asked = read.and_then(|remote| hub.read(peer, remote, len, tag).map_err(Into::into));
        if let Err(why) = asked {
            self.ends.push((peer, why));
            self.waker.wake();
        }
    }

    /// Bytes of a client's memory.
    pub(super) fn fetched(
        &mut self,
        hub: &mut ActiveHub,
        token: u64,
        bytes: Vec<u8>,
    ) -> Result<(), ServiceError> {
        if let Some(backed) = &mut self.backed {
            backed.backend.fetched(token, bytes);
        }
        self.take_steps(hub)
    }

    /// Something that a client says and that is no request.
    pub(super) fn note(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        bytes: &[u8],
    ) -> Result<(), ServiceError> {
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        let caller = self.caller(peer, session.node);
        match &mut self.backed {
            Some(backed) => backed.backend.note(caller, bytes)?,
            None => return Err("it says something that no region here listens to".into()),
        }
        self.take_steps(hub)
    }

    pub(super) fn turn_backed(&mut self, hub: &mut ActiveHub, now: Instant) {
        let Some(backed) = &mut self.backed else { return };
        backed.backend.turn(now);
        if let Err(why) = self.take_steps(hub) {
            tracing::error!(why = why.to_string(), "a backend's step has failed");
        }
    }

    /// Ends a client's request.
    pub(super) fn conclude(
        &mut self,
        hub: &mut ActiveHub,
        token: u64,
        outcome: Outcome,
    ) -> Result<(), ServiceError> {
        let Some(running) = self.running.remove(&token) else { return Ok(()) };
        if self.by_request.get(&running.id) == Some(&token) {
            self.by_request.remove(&running.id);
        }
        let session = self.sessions.get_mut(&running.asker.peer);
        let is_here = session.is_some();
        if let Some(session) = session {
            session.deferred.remove(&token);
        }
        let answered = match (running.again.filter(|_| is_here), &outcome) {
            (Some(request), Outcome::Killed) => self.begin(hub, running.asker, request),
            _ => self.answer_outcome(hub, running.asker, outcome),
        };
        if let Err(why) = answered {
            self.ends.push((running.asker.peer, why));
            self.waker.wake();
        }
        Ok(())
    }

    /// Whether a token is one of the backend's own requests, or of a request on its region.
    pub(super) fn is_backed_token(&self, token: u64) -> bool {
        token & BACKEND_TOKEN != 0
            || self.running.get(&token).is_some_and(|call| self.is_backed(call.asker.region))
    }
}
