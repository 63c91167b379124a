//! Batches: many changes of names by one request, executed one after the other, each as if its
//! client had asked for it by itself.
//!
//! A batch that is asked for again, after a connection or a service was lost, goes through all its
//! changes again: the region's journal answers for those that were made.

use super::backend::FsBackend;
use super::call::{BatchWork, FsCall, FsWork, OwnWork};
use super::entries::EntryKind;
use crate::protocol::{
    BATCH_GOES_ON, BATCH_QUIET, BatchChange, BatchDone, FsLayout, TouchedInodes, parse_batch,
};
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_offcode::executor::Request;
use outboard_offcode::journal::RequestId;

/// Where in a request's number the place in its batch is: no client counts so far.
const PLACE_SHIFT: u32 = 48;
/// Bytes of what one change answers, at most.
pub(super) const ANSWER_MAX: u32 = 1024;

impl FsBackend {
    pub(super) fn begin_batch(&mut self, caller: BackendCaller, request: Request) {
        let token = request.token;
        let is_known = |change: &BatchChange<'_>| {
            matches!(EntryKind::of(change.entry), Some(EntryKind::Change | EntryKind::Remove))
        };
        let Some((head, changes)) =
            parse_batch(&request.args).filter(|(_, changes)| changes.iter().all(is_known))
        else {
            return self.fail(token, libc::EINVAL, "these are no changes of names");
        };
        let owned = |change: &BatchChange<'_>| (change.entry.to_owned(), change.args.to_vec());
        let mut changes: Vec<_> = changes.iter().map(owned).collect();
        changes.reverse();
        let touched = TouchedInodes::default();
        let (flags, result) = (head.flags, Vec::new());
        let work = BatchWork { flags, changes, touched, result, ..BatchWork::default() };
        let (peer, request) = (caller.peer, Some(Box::new(request)));
        let work = FsWork::Batch(Box::new(work));
        self.calls.insert(token, FsCall { peer, kind: EntryKind::Batch, request, work });
        self.next_of_batch(token);
    }

    pub(super) fn next_of_batch(&mut self, token: u64) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let (Some(asked), FsWork::Batch(work)) = (&call.request, &mut call.work) else { return };
        let room = (asked.out_cap as usize).saturating_sub(work.result.len());
        let group = work.next_group().map(|args| ("unlink_many".to_owned(), args));
        let Some((entry, args)) = group.or_else(|| work.changes.pop()) else {
            return self.end_batch(token);
        };
        if room < BatchDone::LEN + ANSWER_MAX as usize && work.flags & BATCH_QUIET == 0 {
            return self.end_batch(token);
        }
        work.touched = TouchedInodes::of(&entry, &args);
        work.place += 1;
        let place = work.place << PLACE_SHIFT;
        let id = asked.id.map(|id| RequestId { number: id.number | place, ..id });
        let mut request = Request { entry, args, id, out_cap: ANSWER_MAX, ..(**asked).clone() };
        if !matches!(EntryKind::of(&request.entry), Some(EntryKind::Change)) {
            self.hold_what_is_open(&mut request);
        }
        self.execute_of(token, request);
    }

    /// One of a batch's changes is over.
    pub(super) fn done_of_batch(&mut self, (token, removes): (u64, bool), outcome: Outcome) {
        if removes {
            self.removed(&outcome);
        }
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Batch(work) = &mut call.work else { return };
        let is_executed = matches!(outcome, Outcome::Done { .. } | Outcome::Failed { .. });
        if !work.group.is_empty() && is_executed {
            return self.done_of_group(token, &outcome);
        }
        let (peer, touched) = (call.peer, std::mem::take(&mut work.touched));
        self.recall_touched((peer, token), &touched, &outcome);
        let Some(FsWork::Batch(work)) = self.calls.get_mut(&token).map(|call| &mut call.work)
        else {
            return;
        };
        let (failure, answer) = match outcome {
            Outcome::Done { result, seq } => {
                work.seq = work.seq.max(seq);
                (0, result)
            }
            Outcome::Failed { code, .. } => (u32::try_from(code).unwrap_or(u32::MAX), Vec::new()),
            // What is behind was not executed: the client may ask for it again.
            _ if !work.result.is_empty() => return self.end_batch(token),
            outcome => return self.answer(token, outcome),
        };
        let is_quiet = work.flags & BATCH_QUIET != 0;
        let answer = if is_quiet { &[][..] } else { &answer[..] };
        let len = u32::try_from(answer.len()).unwrap_or(u32::MAX);
        BatchDone { failure, len }.put(&mut work.result);
        work.result.extend_from_slice(answer);
        match failure == 0 || work.flags & BATCH_GOES_ON != 0 {
            true => self.next_of_batch(token),
            false => self.end_batch(token),
        }
    }

    fn end_batch(&mut self, token: u64) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Batch(work) = &mut call.work else { return };
        let outcome = Outcome::Done { result: std::mem::take(&mut work.result), seq: work.seq };
        self.conclude(token, outcome, false);
    }
}

impl OwnWork {
    /// The change of a batch.
    pub(super) fn of_batch(token: u64, request: &Request) -> Self {
        let removes = EntryKind::of(&request.entry) == Some(EntryKind::Remove);
        Self::Batch { of: token, removes }
    }
}
