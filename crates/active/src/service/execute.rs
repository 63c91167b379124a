//! Requests to execute: checked, given to the executor, answered at once or when it is done.

use super::active::{ActiveHub, ActiveService};
use super::session::{SessionRegion, tenant_of};
use crate::protocol::{
    ActiveAnswer, AnswerOutcome, ExecuteRequest, INLINE_MAX, NAME_MAX, ResultPlace,
};
use outboard_cluster::hub::PeerId;
use outboard_cluster::service::ServiceError;
use outboard_offcode::ModuleHash;
use outboard_offcode::executor::{Request, TimeLimit};
use outboard_offcode::journal::RequestId;
use outboard_offcode::store::TenantId;
use std::sync::Arc;
use std::time::Duration;

/// Where an outcome goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub(super) peer: PeerId,
    pub(super) number: u64,
    pub(super) place: ResultPlace,
    /// Which of the service's regions.
    pub(super) region: usize,
}

/// An execution that goes on elsewhere.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) asker: Asker,
    pub(super) tenant: TenantId,
    pub(super) id: RequestId,
    /// It is being killed, because its client seemed to be gone.
    pub(super) is_abandoned: bool,
    /// What its client asked for when it came back nevertheless.
    pub(super) again: Option<Request>,
}

impl ActiveService {
    pub(super) fn execute(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        execute: &ExecuteRequest<'_>,
    ) -> Result<(), ServiceError> {
        self.counters.requests += 1;
        let Some(session) = self.sessions.get(&peer) else { return Ok(()) };
        let client = session.client.ok_or("it has not said who it is")?;
        let number = execute.number;
        let Some(attached) = session.region(execute.handle) else {
            return self.refuse_call(hub, peer, number, "no region is attached under this handle");
        };
        if execute.entry.len() > NAME_MAX {
            return self.refuse_call(hub, peer, number, "the entry's name is too long");
        }
        let id = RequestId { client, number };
        let asker = Asker { peer, number, place: execute.result, region: attached.index };
        let tenant = tenant_of(session.node);
        let request = self.asked((id, tenant), attached, execute);
        if execute.retried_since.is_some() {
            self.counters.retries += 1;
            if let Some(token) = self.by_request.get(&id).copied() {
                self.join(token, asker, request);
                return Ok(());
            }
        }
        self.begin(hub, asker, request)
    }

    /// Gives a connection the answer of its client's execution that is under way.
    fn join(&mut self, token: u64, asker: Asker, request: Request) {
        let Some(running) = self.running.get_mut(&token) else { return };
        let before = std::mem::replace(&mut running.asker, asker);
        let is_backed = self.backed.as_ref().is_some_and(|backed| backed.index == asker.region);
        running.again = (running.is_abandoned || is_backed).then_some(request);
        if let Some(session) = self.sessions.get_mut(&before.peer) {
            session.deferred.remove(&token);
        }
        if let Some(session) = self.sessions.get_mut(&asker.peer) {
            session.deferred.insert(token);
        }
    }

    /// What the executor is asked for. It takes the memory that is kept for entry and arguments.
    fn asked(
        &mut self,
        (id, tenant): (RequestId, TenantId),
        attached: SessionRegion,
        execute: &ExecuteRequest<'_>,
    ) -> Request {
        let token = self.next_token;
        self.next_token += 1;
        let limit = self.limits.time;
        let (mut entry, mut args) = std::mem::take(&mut self.spare);
        entry.push_str(execute.entry);
        args.extend_from_slice(execute.args);
        Request {
            token,
            tenant,
            id: Some(id),
            retried_since: execute.retried_since,
            region: Arc::clone(&self.regions[attached.index].region),
            module: ModuleHash(execute.module),
            entry,
            args,
            out_cap: out_cap(execute.result),
            may_write: attached.may_write,
            is_at_client: false,
            limit: limit_of(execute.limit_us, limit),
            moment: self.moment(token),
        }
    }

    /// Executes a request, or begins to, and keeps its memory for the next one.
    pub(super) fn begin(
        &mut self,
        hub: &mut ActiveHub,
        asker: Asker,
        request: Request,
    ) -> Result<(), ServiceError> {
        if self.is_backed(asker.region) {
            return self.begin_backed(hub, asker, request);
        }
        let outcome = self.executor.execute(&request);
        let (token, tenant, id) = (request.token, request.tenant, request.id);
        self.reuse(request);
        match (outcome, id) {
            (Some(outcome), _) => self.answer_outcome(hub, asker, outcome),
            (None, Some(id)) => {
                self.counters.deferred += 1;
                let call = RunningCall { asker, tenant, id, is_abandoned: false, again: None };
                self.running.insert(token, call);
                self.by_request.insert(id, token);
                if let Some(session) = self.sessions.get_mut(&asker.peer) {
                    session.deferred.insert(token);
                }
                Ok(())
            }
            // Every request of a client has one.
            (None, None) => Ok(()),
        }
    }

    /// Keeps a request's memory for the next one.
    pub(super) fn reuse(&mut self, request: Request) {
        let Request { mut entry, mut args, .. } = request;
        entry.clear();
        args.clear();
        self.spare = (entry, args);
    }

    /// Answers what has been executed elsewhere.
    pub(super) fn take_outcomes(&mut self, hub: &mut ActiveHub) {
        while let Some((token, outcome)) = self.executor.poll() {
            let told = match self.is_backed_token(token) {
                true => self.after_backed(hub, token, outcome).and_then(|()| self.take_steps(hub)),
                false => self.conclude(hub, token, outcome),
            };
            if let Err(why) = told {
                tracing::error!(why = why.to_string(), "an outcome could not be handled");
            }
        }
    }

    fn refuse_call(
        &mut self,
        hub: &mut ActiveHub,
        peer: PeerId,
        number: u64,
        why: &str,
    ) -> Result<(), ServiceError> {
        let outcome = AnswerOutcome::Refused(why);
        self.answer(hub, peer, &ActiveAnswer::Executed { number, seq: 0, outcome })
    }
}

/// The shorter one of the caller's limit, if it has one, and the node's.
fn limit_of(callers_us: u32, nodes: Duration) -> TimeLimit {
    match Duration::from_micros(callers_us.into()) {
        callers if callers_us != 0 && callers < nodes => TimeLimit::Caller(callers),
        _ => TimeLimit::Executor(nodes),
    }
}

/// Bytes that a result may have.
fn out_cap(place: ResultPlace) -> u32 {
    match place {
        ResultPlace::Inline => u32::try_from(INLINE_MAX).unwrap_or(u32::MAX),
        ResultPlace::Memory(exposed) => u32::try_from(exposed.len()).unwrap_or(u32::MAX),
    }
}
