//! Jobs on their way to servers: what a server needs to know of one, and what it may read for it.

use super::{Cluster, Pending};
use crate::args::{Cause, Job, Reason};
use crate::client::board::ServerId;
use crate::client::places;
use crate::client::roots::plain;
use crate::front::{Preprocessed, Ticket, Verdict};
use crate::protocol::{Input, JobSpec, TicketNumber, ToServer};
use crate::toolchain::{Toolchain, ToolchainError};
use outboard_cluster::codec;
use outboard_cluster::hub::{HubError, MESSAGE_MAX, PeerId};
use outboard_verbs::{Access, SharedRegion, VerbsError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Instant;

/// Octets of a message about a job, besides what a server needs to know of it.
const INPUT_MAX: usize = 8 << 10;

impl Cluster {
    /// What a server needs to know of a job. Its directories are shown, unless it has a source.
    fn prepare(
        &mut self,
        ticket: Ticket,
        job: &Job,
        source: Option<&Preprocessed>,
    ) -> Result<JobSpec, Reason> {
        let compiler = job.absolute(&job.compiler);
        let identified = self.toolchains.identify(&compiler, &job.path, Instant::now());
        let toolchain = identified.map_err(unknown)?;
        self.remember(&toolchain);
        if source.is_none() {
            self.show(job, &toolchain)?;
        }
        let octets = |word: &OsStr| word.as_bytes().to_vec();
        let pair = |(name, value): &(OsString, OsString)| (octets(name), octets(value));
        let spec = JobSpec {
            ticket: ticket.0,
            compiler: octets(compiler.as_os_str()),
            toolchain: toolchain.hash.0,
            argv: source.map_or(&job.argv, |at| &at.argv).iter().map(|word| octets(word)).collect(),
            cwd: octets(job.cwd.as_os_str()),
            env: job.env.iter().map(pair).collect(),
            umask: job.umask,
            places: if source.is_some() { places::needed(job) } else { places::hidden(job) },
        };
        let len = codec::encode(&spec).len();
        let too_long = || Reason::with(Cause::TooLarge, format!("{len} octets"));
        if len < MESSAGE_MAX - INPUT_MAX { Ok(spec) } else { Err(too_long()) }
    }

    /// Shows servers the directories that a job may need.
    fn show(&mut self, job: &Job, toolchain: &Toolchain) -> Result<(), Reason> {
        let includes = self.toolchains.includes(toolchain, job).map_err(unknown)?;
        let own = toolchain.install_dirs.iter().chain(&includes.found).cloned();
        // A project may have been removed and made anew since.
        self.export.refresh();
        let absent = includes.absent.iter().cloned();
        for root in self.roots.of(job).into_iter().chain(own).chain(absent) {
            // What may not be shown sends the job home when its compiler asks for it, not before:
            // a search path often names directories that hold nothing.
            let _refused = self.export.allow(&root);
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, ticket: Ticket, job: Job, source: Option<Preprocessed>) {
        let now = Instant::now();
        match self.prepare(ticket, &job, source.as_ref()) {
            Ok(spec) => {
                let toolchain = spec.toolchain;
                let source = source.map(|at| at.source);
                self.jobs.insert(
                    ticket.0,
                    Pending { job, spec, given: None, source, why: String::new() },
                );
                self.board.submit(ticket.0, toolchain, now, self.hopeful() > 0);
                self.obey(now);
            }
            Err(reason) => self.verdicts.push((ticket, Verdict::Home(reason))),
        }
    }

    pub(super) fn give(&mut self, server: ServerId, ticket: TicketNumber, now: Instant) {
        let Some(peer) = self.peer(server) else { return };
        let Some(pending) = self.jobs.get_mut(&ticket) else { return };
        pending.given = Some(now);
        if let Some(desk) = self.servers.get_mut(&peer).filter(|_| self.board.running(server) == 1)
        {
            // Before, it had nothing to say.
            desk.heard = now;
        }
        let spec = Box::new(pending.spec.clone());
        let input = match pending.source.clone() {
            // What has changed since the job was submitted is no reason to run an old state of it.
            None => Ok(Input::Pull { position: self.export.submit() }),
            Some(source) => self.expose(peer, ticket, &source),
        };
        match input {
            Ok(input) => self.tell(peer, &ToServer::Job { spec, input }, now),
            Err(error) => self.give_up(peer, &error.to_string(), now),
        }
    }

    /// Lets a server read a job's source, until it says what came of the job.
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
        let path = plain(&job.absolute(&job.source)).into_os_string().into_vec();
        Ok(Input::Source { path, exposed })
    }

    /// A server has read a job's source, or never will.
    pub(super) fn take_back(&mut self, peer: PeerId, ticket: TicketNumber) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if let Some(exposed) = server.sources.remove(&ticket) {
            self.hub.withdraw(peer, exposed);
        }
    }
}

fn unknown(error: ToolchainError) -> Reason {
    Reason::with(Cause::NoToolchain, error.to_string())
}
