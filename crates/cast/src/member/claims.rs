//! Checking what may be here by itself, few chunks at a time and in the stream's order, as their
//! hashes come.

use super::{CastMember, KeepFault, MemberError, MemberResult, WorkDone};
use std::sync::Arc;

/// Chunks that are checked at once; other threads write what comes.
const CHECKS_MAX: usize = 2;

/// How far the checks are.
#[derive(Debug, Default)]
pub(super) struct ClaimChecks {
    next: u32,
    running: usize,
}

impl CastMember {
    /// Takes note of what may be here.
    pub(super) fn note_claims(&mut self) {
        if let Some(claimed) = self.setup.store.take_claims() {
            self.checks.next = 0;
            self.relay.claim(claimed);
        }
    }

    /// Checks the next chunks.
    pub(super) fn check_claims(&mut self) -> MemberResult {
        let chunks = self.setup.shape.chunks();
        while self.checks.running < CHECKS_MAX {
            let Some(chunk) = (self.checks.next..chunks).find(|at| self.relay.is_claimed(*at))
            else {
                self.checks.next = chunks;
                return Ok(());
            };
            self.checks.next = chunk;
            let store = Arc::clone(&self.setup.store);
            if !store.can_check(chunk) {
                return Ok(());
            }
            self.checks.next += 1;
            self.checks.running += 1;
            self.setup.threads.run(self.setup.session, move || WorkDone::Checked {
                chunk,
                outcome: store.check(chunk),
            })?;
        }
        Ok(())
    }

    /// A chunk was checked.
    pub(crate) fn checked(&mut self, chunk: u32, outcome: Result<bool, KeepFault>) -> MemberResult {
        self.checks.running -= 1;
        match outcome {
            Ok(is_here) => self.relay.checked(chunk, is_here),
            Err(KeepFault::Ended | KeepFault::NoRunYet) => {}
            Err(KeepFault::Forged(why) | KeepFault::Local(why)) => return Err(MemberError(why)),
        }
        self.note_claims();
        Ok(())
    }
}
