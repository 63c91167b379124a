//! What is asked of the thread that looks at files, what it replies, and what is done when it
//! hangs.

use super::ServerPool;
use super::pending::{Pending, Stage};
use crate::args::Cause;
use crate::client::files::{ASKED_MAX, FileReply, FileRequest, Files};
use crate::protocol::ToServer;
use outboard_cluster::hub::PeerId;
use outboard_export::Ask;
use std::sync::Arc;
use std::time::Instant;

/// Threads that may hang at files. Beyond that, jobs wait for the last one for their time.
const HUNG_MAX: usize = 8;
/// Questions of one server's that have no answer yet, at most.
const ASKS_MAX: usize = 8192;

impl ServerPool {
    /// A server asks for something of the files that it is shown.
    pub(super) fn look_for(&mut self, peer: PeerId, ask: u32, what: Ask, now: Instant) {
        let Some(server) = self.servers.get_mut(&peer) else { return };
        if server.asks >= ASKS_MAX {
            return self.give_up(peer, "it asks and asks", now);
        }
        server.asks += 1;
        self.files.ask(FileRequest::Ask { peer, ask, what });
    }

    /// Nobody waits for ever for a file system or a compiler.
    pub(super) fn look_after_files(&mut self, now: Instant) {
        self.hung.retain(|hung| !hung.is_over());
        if self.files.is_hung(now) && self.hung.len() < HUNG_MAX {
            self.replace_files(now);
        }
        let is_late = |pending: &Pending| match pending.stage {
            Stage::Preparing { since } => now.saturating_duration_since(since) > ASKED_MAX,
            Stage::Ready { .. } => false,
        };
        let late = self.jobs.iter().filter(|(_, pending)| is_late(pending));
        for ticket in late.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.run_locally(ticket, Cause::Unanswered.into());
        }
    }

    /// Leaves a thread behind that hangs, with all that it shows. Every server begins anew with
    /// what is shown from now on, and what they had runs locally.
    fn replace_files(&mut self, now: Instant) {
        let mut avoided: Vec<_> = self.hung.iter().map(|hung| hung.at.clone()).collect();
        avoided.extend(self.files.hangs_at());
        let started = Files::start(self.toolchains.another(), avoided, Arc::clone(&self.waker));
        let Ok(files) = started else { return };
        self.hung.extend(std::mem::replace(&mut self.files, files).leave());
        for peer in self.servers.keys().copied().collect::<Vec<_>>() {
            self.give_up(peer, "what it was shown hangs here", now);
        }
        for ticket in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.scheduler.cancel(ticket);
            self.run_locally(ticket, Cause::Unanswered.into());
        }
    }

    /// Takes what came of looking at files.
    pub(super) fn take_file_replies(&mut self, now: Instant) {
        let mut rings = [0; 8];
        let _quiet = rustix::io::read(&*self.waker, &mut rings);
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
