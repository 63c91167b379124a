//! Starts jobs in slot sandboxes: with a compiler that is present or being fetched, over the
//! client's files or a preprocessed source. Nothing here waits.

use super::{ClientSession, Running, Stage};
use crate::protocol::{Refusal, TicketNumber};
use crate::server::client_sandbox::{ClientSandbox, ClientSandboxError, Equipment, Plan};
use crate::server::toolchains::{Program, Programs, Search};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

impl ClientSession {
    /// Jobs go on whose compilers have come, or whose sandbox is free.
    pub(super) fn wake(&mut self, programs: &Programs, now: Instant) {
        let settled = self.adoptions.take_settled();
        let is_empty = !self.jobs.values().any(Running::is_in_sandbox);
        for (ticket, job) in &self.jobs {
            let goes_on = match job.stage {
                Stage::Identifying => !programs.is_under_way(&job.spec.toolchain, now),
                Stage::Equipping => settled.contains(&job.spec.toolchain),
                Stage::Held => is_empty,
                _ => false,
            };
            if goes_on {
                self.sources.ready.push_back(*ticket);
            }
        }
    }

    /// Starts a job, or makes it wait for its compiler or its sandbox.
    pub(super) fn start(
        &mut self,
        ticket: TicketNumber,
        plan: &Plan,
        programs: &mut Programs,
        now: Instant,
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        if !job.stage.may_start() {
            return;
        }
        job.started = now;
        let (compiler, toolchain) = (&job.spec.compiler, job.spec.toolchain);
        let search = programs.find(compiler, &toolchain, now);
        if search == Search::UnderWay {
            job.stage = Stage::Identifying;
            return;
        }
        let (program, equipment) = if let Search::Found(program) = search {
            (program, Equipment::Installed(programs.generation()))
        } else if let Some(program) = self.adoptions.find(&toolchain) {
            (program, Equipment::Adopted(self.adoptions.generation()))
        } else if self.adoptions.want(toolchain) {
            job.stage = Stage::Equipping;
            return;
        } else {
            return self.refuse(ticket, Refusal::Toolchain);
        };
        if !self.has_room(ticket, &program, equipment) {
            self.jobs.entry(ticket).and_modify(|job| job.stage = Stage::Held);
            return;
        }
        if let Err(error) = self.run(ticket, plan, programs, (&program, equipment), watch) {
            self.refuse(ticket, Refusal::Trouble { what: error.to_string() });
        }
    }

    /// Whether a job may run at once: in the present sandbox, or in a new one because no job runs
    /// in the present one. Jobs are admitted in the order of their arrival.
    fn has_room(&self, ticket: TicketNumber, program: &Program, equipment: Equipment) -> bool {
        if !self.jobs.values().any(Running::is_in_sandbox) {
            return true;
        }
        let mut older = self.jobs.range(..ticket);
        let is_held = older.any(|(_, job)| matches!(job.stage, Stage::Held));
        let shown = self.sandbox.as_ref().map(ClientSandbox::equipment);
        shown.is_some_and(|shown| shown.has(program, equipment)) && !is_held
    }

    fn run(
        &mut self,
        ticket: TicketNumber,
        plan: &Plan,
        programs: &Programs,
        (program, equipment): (&Program, Equipment),
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) -> Result<(), ClientSandboxError> {
        let is_empty = !self.jobs.values().any(Running::is_in_sandbox);
        // New compilers are shown in a new sandbox, as soon as no job runs in the old one.
        if is_empty && self.sandbox.as_ref().map(ClientSandbox::equipment) != Some(equipment) {
            let shown = match equipment {
                Equipment::Installed(_) => programs.shown(),
                Equipment::Adopted(_) => self.adoptions.shown(),
            };
            self.counters.sandboxes += 1;
            self.sandbox = None;
            self.sandbox =
                Some(ClientSandbox::open(plan, Arc::clone(&self.files), shown, equipment)?);
        }
        let sandbox = self.sandbox.as_mut().ok_or(ClientSandboxError::NoSandbox)?;
        let job = self.jobs.get_mut(&ticket).ok_or(ClientSandboxError::NoSandbox)?;
        job.stage = Stage::InSandbox(true);
        let (slot_sandbox, is_new) = sandbox.slot_sandbox(job.slot)?;
        if is_new {
            watch(job.slot, slot_sandbox);
        }
        let source = job.source.as_mut();
        let source = source.map(|at| (at.path.clone(), std::mem::take(&mut at.bytes)));
        sandbox.start(job.slot, &job.spec, program, source)
    }
}
