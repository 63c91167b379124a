//! What a session needs of its client's files and compilers: said to the client, read from its
//! memory, or left to threads. Never waits.

use super::{ClientSession, FetchWaiter, Out, SessionEnd};
use crate::protocol::ToClient;
use crate::server::adopt::RemoteRange;
use crate::server::background::FinishedWork;
use crate::server::toolchains::Programs;
use outboard_export::Need;
use std::time::Instant;

impl ClientSession {
    /// Handles what threads have done, and goes on with what waited for it.
    pub(super) fn finish_work(
        &mut self,
        programs: &Programs,
        now: Instant,
    ) -> Result<(), SessionEnd> {
        self.fetch_on(now)?;
        while let Some(finished) = self.background.poll() {
            self.handle_finished(finished, programs)?;
            self.fetch_on(now)?;
        }
        Ok(())
    }

    /// Says, reads and has looked up what the client's files need.
    fn fetch_on(&mut self, now: Instant) -> Result<(), SessionEnd> {
        while let Some(need) = self.fetch.poll() {
            self.meet(need, now)?;
        }
        Ok(())
    }

    pub(super) fn adopt_on(&mut self) {
        while let Some(message) = self.adoptions.poll() {
            self.queue_message(message);
        }
        while let Some(work) = self.adoptions.poll_work() {
            self.background.work(work);
        }
    }

    fn meet(&mut self, need: Need, now: Instant) -> Result<(), SessionEnd> {
        match need {
            Need::Say { ask, what } => self.queue_message(ToClient::Ask { ask, what }),
            Need::Read { at, len, tag } => {
                let range = self.export.and_then(|export| export.range(at, len));
                let len = usize::try_from(len).map_err(|_| SessionEnd::Memory)?;
                let (from, into) = (range.ok_or(SessionEnd::Memory)?, vec![0; len]);
                self.out.push_back(Out::Read { from, into, tag });
            }
            Need::Find { ask, hash } => self.background.find(ask, hash, now),
            Need::Check { ask, contents, bytes } => self.background.check(ask, contents, bytes),
        }
        Ok(())
    }

    /// Handles what a thread has done.
    fn handle_finished(
        &mut self,
        finished: FinishedWork,
        programs: &Programs,
    ) -> Result<(), SessionEnd> {
        match finished {
            FinishedWork::Found { ask, bytes } => self.fetch.handle_found(ask, bytes),
            FinishedWork::Checked { ask, bytes } => self.fetch.handle_checked(ask, bytes),
            FinishedWork::Part(done) => {
                let piece = self.adoptions.handle_work(done, programs);
                return self.read_part(piece);
            }
        }
        self.notify();
        Ok(())
    }

    /// Tells what waited for the client's files.
    pub(super) fn notify(&mut self) {
        while let Some((waiter, result)) = self.fetch.poll_done() {
            match waiter {
                FetchWaiter::Job(ticket) => self.supplied(ticket),
                FetchWaiter::View(done) => done(result),
            }
        }
    }

    pub(super) fn read_part(&mut self, piece: Option<RemoteRange>) -> Result<(), SessionEnd> {
        let Some((exposed, at, len)) = piece else { return Ok(()) };
        let from = exposed.range(at, len).ok_or(SessionEnd::Memory)?;
        let into = vec![0; usize::try_from(len).map_err(|_| SessionEnd::Memory)?];
        self.out.push_back(Out::Read { from, into, tag: super::PART_TAG });
        Ok(())
    }
}
