//! Jobs into their rooms: with a compiler that is there or comes, over the client's files or a
//! source of their own. Nothing here waits.

use super::{Running, Session, Stage};
use crate::protocol::{Refusal, TicketNumber};
use crate::server::room::{Equipment, Plan, Room, RoomError};
use crate::server::toolchains::{Program, Programs};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

impl Session {
    /// Jobs go on whose compilers have come, or whose room is free.
    pub(super) fn wake(&mut self) {
        let settled = self.adoptions.take_settled();
        let is_empty = !self.jobs.values().any(Running::is_in_cell);
        for (ticket, job) in &self.jobs {
            let goes_on = match job.stage {
                Stage::Equipping => settled.contains(&job.spec.toolchain),
                Stage::Held => is_empty,
                _ => false,
            };
            if goes_on {
                self.sources.ready.push_back(*ticket);
            }
        }
    }

    /// Starts a job, or lets it wait for its compiler or its room.
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
        let (program, equipment) = if let Some(program) = programs.find(compiler, &toolchain, now) {
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

    /// Whether a job may run at once: in the room that there is, or in a new one because nobody is
    /// in the old one. Who came first is let in first.
    fn has_room(&self, ticket: TicketNumber, program: &Program, equipment: Equipment) -> bool {
        if !self.jobs.values().any(Running::is_in_cell) {
            return true;
        }
        let mut older = self.jobs.range(..ticket);
        let is_held = older.any(|(_, job)| matches!(job.stage, Stage::Held));
        let shown = self.room.as_ref().map(Room::equipment);
        shown.is_some_and(|shown| shown.has(program, equipment)) && !is_held
    }

    fn run(
        &mut self,
        ticket: TicketNumber,
        plan: &Plan,
        programs: &Programs,
        (program, equipment): (&Program, Equipment),
        watch: &mut dyn FnMut(u32, BorrowedFd<'_>),
    ) -> Result<(), RoomError> {
        let is_empty = !self.jobs.values().any(Running::is_in_cell);
        // New compilers are shown in a new room, as soon as nobody is in the old one.
        if is_empty && self.room.as_ref().map(Room::equipment) != Some(equipment) {
            let shown = match equipment {
                Equipment::Installed(_) => programs.shown(),
                Equipment::Adopted(_) => self.adoptions.shown(),
            };
            self.room = None;
            self.room = Some(Room::open(plan, Arc::clone(&self.files), shown, equipment)?);
        }
        let room = self.room.as_mut().ok_or(RoomError::NoCell)?;
        let job = self.jobs.get_mut(&ticket).ok_or(RoomError::NoCell)?;
        job.stage = Stage::InCell(true);
        let (cell, is_new) = room.cell(job.slot)?;
        if is_new {
            watch(job.slot, cell);
        }
        let source = job.source.as_mut();
        let source = source.map(|at| (at.path.clone(), std::mem::take(&mut at.octets)));
        room.start(job.slot, &job.spec, program, source)
    }
}
