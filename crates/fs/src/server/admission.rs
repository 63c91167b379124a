//! Requests on their way in: those whose users are known are executed, kept, or refused.

use super::backend::FsBackend;
use super::entries::EntryKind;
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_offcode::executor::Request;
use std::time::Instant;

impl FsBackend {
    /// A request that says for whom it is; what of it is to be executed now.
    pub(super) fn admitted(
        &mut self,
        caller: BackendCaller,
        mut request: Request,
    ) -> Option<Request> {
        if request.module != self.module {
            // Anybody's code may look.
            request.may_write = false;
            return Some(request);
        }
        let Some(kind) = EntryKind::of(&request.entry) else {
            let why = format!("{:?} is no entry for clients", request.entry);
            self.answer(request.token, Outcome::Refused(why));
            return None;
        };
        if let Some(why) = self.broken.clone() {
            self.fail(request.token, libc::EIO, &why);
            return None;
        }
        let has_bytes = matches!(kind, EntryKind::Read | EntryKind::Write);
        let waits = self.must_wait() || !self.held.is_empty();
        if !self.is_ready || ((has_bytes || kind.writes()) && waits) {
            self.counters.held += 1;
            self.held.push_back((caller, request));
            return None;
        }
        self.begin(caller, kind, request)
    }

    /// Requests whose users are known since.
    pub(super) fn take_known(&mut self, now: Instant) {
        let early = if self.is_ready { std::mem::take(&mut self.early) } else { Vec::new() };
        for (caller, request) in early.into_iter().chain(self.accounts.turn(now)) {
            let request = self.accounts.admit(caller, request, (&self.grants, now));
            if let Some(request) = request.and_then(|request| self.admitted(caller, request)) {
                self.execute(request);
            }
        }
    }

    /// There is no file system, and there will be none.
    pub(super) fn give_up(&mut self, why: &str) {
        tracing::error!(why, "no file system is served");
        self.broken = Some(why.to_owned());
        let early = std::mem::take(&mut self.early);
        for (_, request) in early.into_iter().chain(std::mem::take(&mut self.held)) {
            self.fail(request.token, libc::EIO, why);
        }
    }
}
