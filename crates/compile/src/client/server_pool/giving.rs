//! Sends jobs to servers: describes each job, and exposes the memory that the server may read for
//! it.

use super::ServerPool;
use super::pending::{PendingJob, PendingStage};
use crate::args::{Cause, Job, Reason};
use crate::client::files::{FileRequest, PreparedJob};
use crate::client::scheduler::ServerId;
use crate::manager::{Preprocessed, Ticket, Verdict};
use crate::protocol::{Input, JobSpec, PROTOCOL, TicketNumber, ToServer};
use outboard_cluster::hub::{HubError, MESSAGE_MAX, PeerId};
use outboard_unix::names::without_dots;
use outboard_verbs::{Access, SharedRegion, VerbsError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::Instant;

/// Bytes of a job's message that are reserved for its input.
const INPUT_MAX: usize = 8 << 10;

impl ServerPool {
    pub(super) fn accept(&mut self, ticket: Ticket, job: Job, source: Option<Preprocessed>) {
        let now = Instant::now();
        self.look_at_trust(now);
        if let Some(reason) = self.refusals.of(&job, now) {
            return self.verdicts.push((ticket, Verdict::Local(reason)));
        }
        let job = Arc::new(job);
        let is_preprocessed = source.is_some();
        let pending = PendingJob {
            job: Arc::clone(&job),
            stage: PendingStage::Preparing { since: self.time.pass(now) },
            given: None,
            source,
            why: String::new(),
            is_limited: false,
        };
        self.jobs.insert(ticket.0, pending);
        self.files.ask(FileRequest::Prepare { ticket: ticket.0, job, is_preprocessed });
    }

    /// Handles the end of a job's preparation: the job may now go to a server.
    pub(super) fn prepared(
        &mut self,
        ticket: TicketNumber,
        prepared: Result<PreparedJob, Reason>,
        now: Instant,
    ) {
        let Some(pending) = self.jobs.get_mut(&ticket) else { return };
        let ready = prepared.and_then(|prepared| {
            let spec = spec_of(ticket, pending, &prepared)?;
            Ok((prepared, spec))
        });
        match ready {
            Ok((prepared, spec)) => {
                let (toolchain, position) = (spec.toolchain, prepared.position);
                pending.stage = PendingStage::Ready { spec: Box::new(spec), position };
                self.remember(&prepared.toolchain);
                self.scheduler.submit(ticket, toolchain, now, self.starting() > 0);
                self.execute(now);
            }
            Err(reason) => self.run_locally(ticket, reason),
        }
    }

    pub(super) fn assign(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        let Some(peer) = self.peer(server) else { return };
        let Some(pending) = self.jobs.get_mut(&ticket) else { return };
        let PendingStage::Ready { spec, position } = &pending.stage else { return };
        let (spec, position) = (spec.clone(), *position);
        pending.given = Some(now);
        if let Some(server_state) =
            self.servers.get_mut(&peer).filter(|_| self.scheduler.running(server) == 1)
        {
            // Without jobs it had no reason to send anything.
            server_state.heard = self.time.pass(now);
        }
        let input = match pending.source.as_ref().map(|source| source.source.clone()) {
            None => Ok(Input::Pull { position }),
            Some(source) => self.expose(peer, ticket, &source),
        };
        match input {
            Ok(input) => self.send(peer, &ToServer::Job { spec, input }, now),
            Err(error) => self.give_up(peer, &error.to_string(), now),
        }
    }

    /// Lets a server read a job's source until it reports the job's outcome.
    fn expose(
        &mut self,
        peer: PeerId,
        ticket: TicketNumber,
        source: &SharedRegion,
    ) -> Result<Input, HubError> {
        let memory = source.slice(0..source.len()).map_err(VerbsError::from)?;
        let exposed = self.hub.expose(peer, memory, Access::REMOTE_READ)?;
        if let Some(server) = self.servers.get_mut(&peer) {
            server.sources.insert(ticket, exposed);
        }
        let job = &self.jobs[&ticket].job;
        let path = without_dots(&job.absolute(&job.source)).into_os_string().into_vec();
        Ok(Input::Source { path, exposed })
    }

    /// Withdraws a job's source from a server that has read it, or never will.
    pub(super) fn take_back(&mut self, peer: PeerId, ticket: TicketNumber) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if let Some(exposed) = server.sources.remove(&ticket) {
            self.hub.withdraw(peer, exposed);
        }
    }
}

/// Describes a job for servers.
fn spec_of(
    ticket: TicketNumber,
    pending: &PendingJob,
    prepared: &PreparedJob,
) -> Result<JobSpec, Reason> {
    let job = &pending.job;
    let bytes = |word: &OsStr| word.as_bytes().to_vec();
    let pair = |(name, value): &(OsString, OsString)| (bytes(name), bytes(value));
    let argv = pending.source.as_ref().map_or(&job.argv, |source| &source.argv);
    let spec = JobSpec {
        ticket,
        compiler: bytes(job.absolute(&job.compiler).as_os_str()),
        toolchain: prepared.toolchain.hash.0,
        argv: argv.iter().map(|word| bytes(word)).collect(),
        cwd: bytes(job.cwd.as_os_str()),
        env: job.env.iter().map(pair).collect(),
        umask: job.umask,
        places: prepared.places.clone(),
    };
    let len = PROTOCOL.encode(&spec).len();
    let too_long = || Reason::with(Cause::TooLarge, format!("{len} bytes"));
    if len < MESSAGE_MAX - INPUT_MAX { Ok(spec) } else { Err(too_long()) }
}
