//! Starts jobs in slot sandboxes: with a compiler that is present or being fetched, over the
//! client's files or a preprocessed source. Nothing here waits.

use super::{ClientSession, Running, Stage, StageEvent};
use crate::protocol::{JobRefusal, TicketNumber};
use crate::sandbox::SandboxError;
use crate::server::client_sandbox::{
    ClientSandbox, ClientSandboxError, ClientSandboxSettings, Equipment, SlotReadiness,
};
use crate::server::opening::{Opening, OpeningProgress};
use crate::server::toolchains::{CompilerProgram, CompilerSearch, Programs};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

impl ClientSession {
    /// Continues the jobs whose compiler has arrived or whose sandbox is free.
    pub(super) fn wake(&mut self, programs: &Programs) {
        let settled = self.adoptions.take_settled();
        let is_empty = !self.jobs.values().any(Running::uses_sandbox);
        for (ticket, job) in &self.jobs {
            let goes_on = match job.stage {
                Stage::Identifying => !programs.is_under_way(&job.spec.toolchain),
                Stage::Equipping => settled.contains(&job.spec.toolchain),
                Stage::Held => is_empty && self.opening.is_none(),
                Stage::SettingUp => {
                    self.sandbox.as_ref().is_none_or(|sandbox| sandbox.may_go_on(job.slot))
                }
                _ => false,
            };
            if goes_on {
                self.ready.push_back(*ticket);
            }
        }
    }

    /// Starts a job, or makes it wait for its compiler or its sandbox.
    pub(super) fn start(
        &mut self,
        ticket: TicketNumber,
        settings: &ClientSandboxSettings,
        programs: &mut Programs,
        now: Instant,
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) {
        let Some(job) = self.jobs.get_mut(&ticket) else { return };
        if !job.stage.may_start() {
            return;
        }
        job.started = now;
        if job.stage != Stage::Identifying {
            job.asked = now;
        }
        let (compiler, toolchain) = (&job.spec.compiler, job.spec.toolchain);
        let search = programs.find(compiler, &toolchain, job.asked, now);
        if search == CompilerSearch::UnderWay {
            job.step(StageEvent::Unidentified);
            return;
        }
        let (program, equipment) = if let CompilerSearch::Found(program) = search {
            (program, Equipment::Installed(programs.generation()))
        } else if let Some(program) = self.adoptions.find(&toolchain) {
            (program, Equipment::Adopted(self.adoptions.generation()))
        } else if self.adoptions.want(toolchain) {
            job.step(StageEvent::Lacking);
            return;
        } else {
            return self.refuse(ticket, JobRefusal::Toolchain);
        };
        if !self.has_room(ticket, &program, equipment) {
            self.step(ticket, StageEvent::Crowded);
            return;
        }
        if let Err(error) = self.run(ticket, settings, programs, (&program, equipment), watch) {
            self.refuse(ticket, trouble(&error));
        }
    }

    /// Whether a job may run at once: in the present sandbox, or in a new one because no job runs
    /// in the present one. Jobs are admitted in the order of their arrival.
    fn has_room(
        &self,
        ticket: TicketNumber,
        program: &CompilerProgram,
        equipment: Equipment,
    ) -> bool {
        if !self.jobs.values().any(Running::uses_sandbox) {
            return true;
        }
        let mut older = self.jobs.range(..ticket);
        let is_held = older.any(|(_, job)| job.stage == Stage::Held);
        let shown = self.sandbox.as_ref().map(ClientSandbox::equipment);
        let is_fit = shown.is_some_and(|shown| shown.has(program, equipment));
        is_fit && !is_held && !self.is_broken()
    }

    fn is_broken(&self) -> bool {
        self.sandbox.as_ref().is_some_and(ClientSandbox::is_broken)
    }

    fn run(
        &mut self,
        ticket: TicketNumber,
        settings: &ClientSandboxSettings,
        programs: &Programs,
        (program, equipment): (&CompilerProgram, Equipment),
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) -> Result<(), ClientSandboxError> {
        let is_empty = !self.jobs.values().any(Running::uses_sandbox);
        let shown = self.sandbox.as_ref().map(ClientSandbox::equipment);
        // New compilers are shown in a new sandbox, as soon as no job runs in the old one.
        if is_empty && (shown != Some(equipment) || self.is_broken()) {
            self.step(ticket, StageEvent::Crowded);
            return self.open(settings, programs, equipment);
        }
        let sandbox = self.sandbox.as_mut().ok_or(ClientSandboxError::NoSandbox)?;
        let job = self.jobs.get_mut(&ticket).ok_or(ClientSandboxError::NoSandbox)?;
        if let SlotReadiness::Waits(new) = sandbox.prepare(job.slot)? {
            job.step(StageEvent::Unprepared);
            new.into_iter().for_each(|new| watch(job.slot, new));
            return Ok(());
        }
        job.step(StageEvent::Started);
        let source = job.source.as_mut();
        let source = source.map(|at| (at.path.clone(), std::mem::take(&mut at.bytes)));
        sandbox.start(job.slot, &job.spec, program, source)
    }

    /// Has a thread open a sandbox, if none does so already.
    fn open(
        &mut self,
        settings: &ClientSandboxSettings,
        programs: &Programs,
        equipment: Equipment,
    ) -> Result<(), ClientSandboxError> {
        if let Some(opening) = &self.opening {
            return if opening.is_hung() { Err(SandboxError::Hung.into()) } else { Ok(()) };
        }
        let shown = match equipment {
            Equipment::Installed(_) => programs.shown(),
            Equipment::Adopted(_) => self.adoptions.shown(),
        };
        self.counters.sandboxes += 1;
        self.sandbox = None;
        let (settings, files) = (settings.clone(), Arc::clone(&self.files));
        let open = move || ClientSandbox::open(&settings, files, shown, equipment);
        self.opening = Some(Opening::begin(open, self.threads.waker.clone())?);
        Ok(())
    }

    /// Takes a sandbox that has been opened. If it could not be, the jobs that wait for it end.
    pub(super) fn take_opened(&mut self, now: Instant) {
        let Some(opening) = &mut self.opening else { return };
        let error = match opening.poll(now) {
            OpeningProgress::UnderWay => return,
            OpeningProgress::Hung => SandboxError::Hung.into(),
            OpeningProgress::Over(opened) => {
                self.opening = None;
                match *opened {
                    Ok(sandbox) => return self.sandbox = Some(sandbox),
                    Err(error) => error,
                }
            }
        };
        self.refuse_all(|job| job.stage == Stage::Held, &error);
    }

    /// Handles what a slot sandbox says of its start; false if it says something else.
    pub(super) fn handle_set_up(&mut self, slot: u32) -> bool {
        let Some(sandbox) = &mut self.sandbox else { return false };
        sandbox.handle_set_up(slot).unwrap_or_else(|error| {
            self.refuse_all(|job| waits_for(job, slot), &error);
            true
        })
    }

    /// Ends the job whose slot sandbox does not start, because its supervisor is stopped.
    pub(super) fn end_hung_set_up(&mut self, now: Instant) {
        if let Some(slot) = self.sandbox.as_mut().and_then(|sandbox| sandbox.take_hung(now)) {
            self.refuse_all(|job| waits_for(job, slot), &SandboxError::Hung.into());
        }
    }

    fn refuse_all(&mut self, which: impl Fn(&Running) -> bool, error: &ClientSandboxError) {
        let those = self.jobs.iter().filter(|(_, job)| which(job));
        for ticket in those.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.refuse(ticket, trouble(error));
        }
    }
}

fn waits_for(job: &Running, slot: u32) -> bool {
    job.slot == slot && job.stage == Stage::SettingUp
}

fn trouble(error: &ClientSandboxError) -> JobRefusal {
    JobRefusal::Trouble { what: error.to_string() }
}
