//! Sends the results of jobs, part by part, into the result buffer of the client. Never waits.

use super::{ClientSession, Out, Running, SessionEnd, Stage, StageEvent};
use crate::protocol::{
    JobOutcome, JobRefusal, RESULT_BUFFER_BYTES, RESULTS_MAX, Ran, TicketNumber, ToClient,
};
use crate::server::package::{NextPart, Package};

impl ClientSession {
    /// Begins to send results that waited for others: a client holds a limited number of bytes.
    pub(super) fn send_waiting(&mut self) {
        let begun = self.jobs.values().filter_map(Running::sending).filter(|it| !it.is_whole());
        let mut under_way: u64 = begun.map(Package::in_parts).sum();
        let mut fitting = Vec::new();
        for (ticket, job) in &self.jobs {
            let Some(package) = job.sending() else { continue };
            if package.is_whole() && under_way + package.in_parts() <= RESULTS_MAX as u64 {
                under_way += package.in_parts();
                fitting.push(*ticket);
            }
        }
        fitting.into_iter().for_each(|ticket| self.send(ticket));
    }

    /// Sends the next part of a job's results.
    pub(super) fn send(&mut self, ticket: TicketNumber) {
        let (Some(job), Some(result_buffer)) = (self.jobs.get_mut(&ticket), self.result_buffer)
        else {
            return;
        };
        let slot = job.slot;
        let Some(package) = job.package.as_mut() else { return };
        let (bytes, message) = match package.next() {
            Err(error) => {
                let what = format!("its results cannot be read: {error}");
                return self.refuse(ticket, JobRefusal::Trouble { what });
            }
            Ok(NextPart::Part(bytes)) => {
                let len = u32::try_from(bytes.len()).expect("a result buffer's length fits u32");
                (bytes, ToClient::Part { ticket, slot, len })
            }
            Ok(NextPart::Last(bytes, ran)) => {
                job.package = None;
                job.step(StageEvent::AllSent);
                (bytes, outcome(ticket, ran))
            }
        };
        let at = u64::from(slot) * RESULT_BUFFER_BYTES as u64;
        // The size of the memory was checked when the client announced it.
        if let Some(to) = result_buffer.range(at, bytes.len() as u64) {
            self.out.push_back(Out::Write { to, bytes });
        }
        self.out.push_back(Out::Message(message));
    }

    /// The client has emptied its result buffer.
    pub(super) fn taken(&mut self, ticket: TicketNumber) -> Result<(), SessionEnd> {
        // Without a job, it was cancelled meanwhile.
        let Some(job) = self.jobs.get_mut(&ticket) else { return Ok(()) };
        if job.stage == Stage::Sending {
            self.send(ticket);
        } else if job.step(StageEvent::Taken) == Some(Stage::Over) {
            self.remove(ticket);
            self.send_waiting();
        } else {
            return Err(SessionEnd::OutOfTurn("an acknowledgement of results"));
        }
        Ok(())
    }
}

fn outcome(ticket: TicketNumber, ran: Ran) -> ToClient {
    ToClient::Outcome { ticket, outcome: Box::new(JobOutcome::Ran(ran)) }
}
