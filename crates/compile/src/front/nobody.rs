//! A farm without servers: everything runs at home.

use super::farm::{Capacity, Farm, Ticket, Verdict};
use crate::args::{Cause, Job};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// Nobody takes a job.
#[derive(Debug)]
pub struct Nobody {
    quiet: PipeReader,
    _open: PipeWriter,
    refused: Vec<Ticket>,
}

impl Nobody {
    /// A farm of nobody.
    ///
    /// # Errors
    /// This machine has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let (quiet, open) = io::pipe()?;
        Ok(Self { quiet, _open: open, refused: Vec::new() })
    }
}

impl Farm for Nobody {
    fn fd(&self) -> BorrowedFd<'_> {
        self.quiet.as_fd()
    }

    fn submit(&mut self, ticket: Ticket, _job: Job) {
        self.refused.push(ticket);
    }

    fn cancel(&mut self, ticket: Ticket) {
        self.refused.retain(|refused| *refused != ticket);
    }

    fn turn(&mut self, _now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        let home = |ticket| (ticket, Verdict::Home(Cause::NoServers.into()));
        verdicts.extend(self.refused.drain(..).map(home));
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn capacity(&self) -> Capacity {
        Capacity::default()
    }

    fn is_claimed(&self, _ticket: Ticket) -> bool {
        false
    }
}
