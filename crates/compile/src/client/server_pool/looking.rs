//! Requests to the thread that reads files, its replies, and its replacement when it hangs.

use super::ServerPool;
use super::pending::{PendingJob, PendingStage};
use crate::args::Cause;
use crate::client::files::{ASKED_MAX, Exporter, FileReply, FileRequest};
use crate::protocol::ToServer;
use outboard_cluster::hub::PeerId;
use outboard_export::Ask;
use std::sync::Arc;
use std::time::Instant;

/// Abandoned threads that may hang, at most. Then a hung thread is no longer replaced, and jobs
/// wait until their time is over.
const HUNG_MAX: usize = 8;
/// Unanswered questions of one server, at most.
const ASKS_MAX: usize = 8192;

impl ServerPool {
    /// Passes a server's question about the exported files to the thread.
    pub(super) fn look_for(&mut self, peer: PeerId, ask: u32, what: Ask, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if server.asks >= ASKS_MAX {
            return self.give_up(peer, "it asks more questions at once than are allowed", now);
        }
        server.asks += 1;
        self.files.ask(FileRequest::Ask { peer, ask, what });
    }

    /// Replaces a hung thread, and gives up jobs whose files or compilers take too long.
    pub(super) fn look_after_files(&mut self, now: Instant) {
        self.hung.retain(|hung| !hung.is_over());
        let passed = self.time.pass(now);
        if self.files.is_hung(passed) && self.hung.len() < HUNG_MAX {
            self.replace_files(now);
        }
        let is_late = |pending: &PendingJob| match pending.stage {
            PendingStage::Preparing { since } => passed - since > ASKED_MAX,
            PendingStage::Ready { .. } => false,
        };
        let late = self.jobs.iter().filter(|(_, pending)| is_late(pending));
        for ticket in late.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.run_locally(ticket, Cause::Unanswered.into());
        }
    }

    /// Abandons a hung thread together with its export. Every server is disconnected and will see
    /// the new thread's export; their jobs run locally.
    fn replace_files(&mut self, now: Instant) {
        let mut avoided: Vec<_> = self.hung.iter().map(|hung| hung.at.clone()).collect();
        avoided.extend(self.files.hangs_at());
        let started = Exporter::start(self.toolchains.another(), avoided, Arc::clone(&self.waker));
        let Ok(files) = started else { return };
        self.hung.extend(std::mem::replace(&mut self.files, files).leave());
        for peer in self.servers.keys().copied().collect::<Vec<_>>() {
            self.give_up(peer, "a file system that this client exports hangs", now);
        }
        for ticket in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.scheduler.cancel(ticket);
            self.run_locally(ticket, Cause::Unanswered.into());
        }
    }

    /// Handles the replies of the thread that reads files.
    pub(super) fn take_file_replies(&mut self, now: Instant) {
        let mut count = [0; 8];
        let _quiet = rustix::io::read(&*self.waker, &mut count);
        while let Some(reply) = self.files.poll() {
            match reply {
                FileReply::Prepared { ticket, prepared } => self.prepared(ticket, prepared, now),
                FileReply::Answer { peer, ask, answer } => {
                    self.servers.entry(peer).and_modify(|server| server.asks -= 1);
                    self.send(peer, &ToServer::Answer { ask, answer }, now);
                }
                FileReply::Part { peer, contents } => {
                    self.expose_part(peer, contents.as_ref(), now)
                }
            }
        }
    }
}
