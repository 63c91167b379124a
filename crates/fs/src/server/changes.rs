//! Changes of files' bytes: fetched from the client if they are not here, planned, written into
//! reserved blocks, and mapped by the module. A plan that was made for an older state of the file
//! is made anew.

use super::backend::{FsBackend, PIECE_MAX};
use super::call::{FsCall, FsWork, OwnWork, WriteStage, WriteWork};
use super::entries::EntryKind;
use super::io::IoDone;
use super::locking::{WriteFence, client_of};
use crate::plan::{ChangeNeeds, ChangePlan, Found, Known, lay_out, module_args, needs, plan};
use crate::protocol::{
    APPEND, BLOCK_LEN, FsChangeArgs, FsExtent, FsInodeArgs, FsLayout, FsReadArgs, FsSource, FsWho,
    GROW, KEEP_TIMES, LOCK_GONE, LOCKED, MEMORY_GONE, PUNCH, RESIZE, SIZE_MAX, SYNC,
    failure_of_errno,
};
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_offcode::executor::Request;

/// How often a change is planned, while others change the file, before its client is told of a
/// conflict: it asks again as long as it may wait.
const TRIES_MAX: u32 = 64;
/// What a client may ask for.
const KNOWN: u32 = GROW | RESIZE | KEEP_TIMES | APPEND | PUNCH | SYNC | LOCKED;

/// Why a write under a lock is made later.
const STILL_SAID: &str = "clients still say which locks they had before the service started";

impl FsBackend {
    pub(super) fn begin_write(&mut self, caller: BackendCaller, request: Request) {
        let token = request.token;
        self.counters.writes += 1;
        let parsed = FsChangeArgs::parse(&request.args).filter(|(change, _)| is_sound(change));
        let Some((change, source)) = parsed else {
            return self.fail(token, libc::EINVAL, "these are no arguments of a change");
        };
        // Numbers beyond this must not be reckoned with.
        if change.offset.max(change.size) > SIZE_MAX {
            return self.fail(token, libc::EFBIG, "a file has at most 8 TiB");
        }
        if change.which & LOCKED != 0 {
            match self.locks.fence(client_of(&request), change.inode) {
                WriteFence::Open => {}
                WriteFence::Soon => return self.answer(token, Outcome::Busy(STILL_SAID.into())),
                WriteFence::Shut => {
                    let text = "the client has no lock of the file any more".to_owned();
                    return self.answer(token, Outcome::Failed { code: LOCK_GONE, text });
                }
            }
        }
        let (bytes, from) = match source {
            FsSource::Here(bytes) => (bytes.to_vec(), None),
            FsSource::Memory(memory) => (Vec::new(), Some(memory)),
        };
        if change.has_bytes() {
            self.under_way += len_of(&change);
        }
        let work = WriteWork { change, bytes, stage: WriteStage::Fetching, tries: 0 };
        let (peer, request) = (caller.peer, Some(Box::new(request)));
        let work = FsWork::Write(Box::new(work));
        self.calls.insert(token, FsCall { peer, kind: EntryKind::Write, request, work });
        match from {
            Some(memory) => self.fetch(token, memory),
            None => self.look(token, None),
        }
    }

    /// The client's bytes are here.
    pub(super) fn bytes_came(&mut self, token: u64, bytes: Vec<u8>) {
        let Some(work) = self.write_work(token) else { return };
        if !matches!(work.stage, WriteStage::Fetching) {
            return;
        }
        if bytes.len() as u64 != work.change.size {
            self.drop_bytes(token);
            let text = "the client's memory has fewer bytes than it says".to_owned();
            return self.answer(token, Outcome::Failed { code: MEMORY_GONE, text });
        }
        work.bytes = bytes;
        self.look(token, None);
    }

    /// Looks at the file, as far as the change needs it.
    fn look(&mut self, token: u64, size: Option<u64>) {
        let Some(work) = self.write_work(token) else { return };
        let (inode, known) = (work.change.inode, needs(&work.change, size));
        match (known, size) {
            (ChangeNeeds::Nothing, None) => return self.planned(token, None),
            _ => work.stage = WriteStage::Looking { size },
        }
        let (entry, args) = match known {
            ChangeNeeds::Blocks(from, to) => {
                let (offset, len) = (from * BLOCK_LEN, (to - from) * BLOCK_LEN);
                ("read", FsReadArgs { who: FsWho::service(), inode, offset, len }.bytes())
            }
            ChangeNeeds::Nothing | ChangeNeeds::Record => ("get", FsInodeArgs { inode }.bytes()),
        };
        self.execute_own(entry, args, OwnWork::Look { of: token });
    }

    /// What was seen of the file.
    pub(super) fn looked(&mut self, token: u64, outcome: Outcome) {
        let Some(work) = self.write_work(token) else { return };
        let WriteStage::Looking { size } = work.stage else { return };
        let Outcome::Done { result, .. } = outcome else {
            // The inode is gone, or is no file.
            self.drop_bytes(token);
            return self.answer(token, outcome);
        };
        let Some(found) = Found::parse(&result) else {
            self.drop_bytes(token);
            return self.fail(token, libc::EIO, "the module's answer has no form");
        };
        let now = found.answer.record.size;
        let is_known = size == Some(now) || needs(&work.change, None) != ChangeNeeds::Record;
        match is_known || needs(&work.change, Some(now)) == ChangeNeeds::Nothing {
            true => self.planned(token, Some(&found)),
            false => self.look(token, Some(now)),
        }
    }

    fn planned(&mut self, token: u64, found: Option<&Found>) {
        let Some(work) = self.write_work(token) else { return };
        let known =
            found.map(|found| Known { record: &found.answer.record, extents: &found.extents });
        work.tries += 1;
        match plan(&work.change, known) {
            Ok(plan) => self.reserve_for(token, plan),
            Err(_) => {
                self.drop_bytes(token);
                self.fail(token, libc::EFBIG, "a file has at most 8 TiB");
            }
        }
    }

    /// Takes blocks for a plan, or waits for them.
    fn reserve_for(&mut self, token: u64, plan: ChangePlan) {
        let blocks = plan.blocks();
        if blocks == 0 {
            return self.map(token, plan, Vec::new(), &[]);
        }
        let runs = match self.waiting.is_empty() {
            true => self.pool.take(blocks),
            // Others came before.
            false => None,
        };
        match runs {
            Some(runs) => self.write(token, plan, runs),
            None => {
                self.pool.wait(blocks);
                if let Some(work) = self.write_work(token) {
                    work.stage = WriteStage::Waiting(plan);
                    self.waiting.push_back(token);
                }
            }
        }
        self.ask_for_blocks();
    }

    /// Blocks have come, or none will.
    pub(super) fn serve_waiting(&mut self) {
        self.pool.nobody_waits();
        while let Some(token) = self.waiting.front().copied() {
            let Some(work) = self.write_work(token) else {
                self.waiting.pop_front();
                continue;
            };
            let WriteStage::Waiting(plan) = &work.stage else {
                self.waiting.pop_front();
                continue;
            };
            let (plan, blocks) = (plan.clone(), plan.blocks());
            match self.pool.take(blocks) {
                Some(runs) => {
                    self.waiting.pop_front();
                    self.write(token, plan, runs);
                }
                None if self.pool.is_exhausted() => {
                    self.waiting.pop_front();
                    self.drop_bytes(token);
                    self.fail(token, libc::ENOSPC, "the store is full");
                }
                None => {
                    self.pool.wait(blocks);
                    break;
                }
            }
        }
        self.ask_for_blocks();
    }

    fn write(&mut self, token: u64, plan: ChangePlan, runs: Vec<crate::protocol::FsBlocksRun>) {
        let Some(work) = self.write_work(token) else { return self.pool.give(runs) };
        let extents = lay_out(&plan.pieces, &runs);
        let bytes = std::mem::take(&mut work.bytes);
        let pieces = plan.pieces.clone();
        work.stage = WriteStage::Writing(plan, runs, extents.clone());
        self.io.write(token, bytes, (pieces, extents));
    }

    /// A thread has read or written.
    pub(super) fn io_done(&mut self, done: IoDone) {
        let IoDone { token, len, bytes, result } = done;
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Write(work) = &mut call.work else {
            return self.bytes_read(token, (len, bytes), result);
        };
        let stage = std::mem::replace(&mut work.stage, WriteStage::Mapping(Vec::new()));
        work.bytes = bytes;
        let WriteStage::Writing(plan, runs, extents) = stage else { return };
        match result {
            Ok(()) => self.map(token, plan, runs, &extents),
            Err(error) => {
                self.pool.give(runs);
                self.drop_bytes(token);
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.fail(token, errno, &format!("the store cannot be written: {error}"));
            }
        }
    }

    /// Has the module map what was written.
    fn map(
        &mut self,
        token: u64,
        plan: ChangePlan,
        runs: Vec<crate::protocol::FsBlocksRun>,
        extents: &[FsExtent],
    ) {
        let Some(call) = self.calls.get_mut(&token) else { return self.pool.give(runs) };
        let (Some(request), FsWork::Write(work)) = (&call.request, &mut call.work) else {
            return self.pool.give(runs);
        };
        let args = module_args(&work.change, &plan, extents);
        work.stage = WriteStage::Mapping(runs);
        let mut request = (**request).clone();
        request.args = args;
        self.execute(request);
    }

    /// What the module says.
    pub(super) fn mapped(&mut self, token: u64, outcome: Outcome) {
        let Some(peer) = self.calls.get(&token).map(|call| call.peer) else { return };
        let Some(work) = self.write_work(token) else { return };
        let WriteStage::Mapping(runs) = &mut work.stage else { return };
        let (runs, which) = (std::mem::take(runs), work.change.which);
        let is_stale = matches!(
            &outcome,
            Outcome::Failed { code, .. } if *code == failure_of_errno(libc::EAGAIN)
        );
        match &outcome {
            Outcome::Done { .. } => {
                let (inode, written) = (work.change.inode, len_of(&work.change) as u64);
                // As for others that set attributes.
                let waits = work.change.set.which != 0;
                self.counters.written_bytes += written;
                self.recall_bytes((peer, token), inode, waits);
            }
            // Whether the file has them now is not known: nobody gets them before the next start.
            Outcome::Machine(_) | Outcome::Unknown => {}
            _ => self.pool.give(runs),
        }
        let tries = self.write_work(token).map_or(TRIES_MAX, |work| work.tries);
        if is_stale && tries < TRIES_MAX {
            self.counters.again += 1;
            return self.look(token, None);
        }
        self.drop_bytes(token);
        let outcome = if is_stale { Outcome::Conflict } else { outcome };
        self.conclude(token, outcome, which & SYNC != 0);
    }

    fn write_work(&mut self, token: u64) -> Option<&mut WriteWork> {
        match &mut self.calls.get_mut(&token)?.work {
            FsWork::Write(work) => Some(work),
            _ => None,
        }
    }

    /// A request's bytes are not needed any more.
    pub(super) fn drop_bytes(&mut self, token: u64) {
        let Some(work) = self.write_work(token) else { return };
        work.bytes = Vec::new();
        let len = if work.change.has_bytes() { len_of(&work.change) } else { 0 };
        self.under_way -= len;
    }
}

/// Whether a client may ask for this.
fn is_sound(change: &FsChangeArgs) -> bool {
    let kinds = [RESIZE, PUNCH, APPEND].into_iter().filter(|kind| change.which & kind != 0).count();
    let fits = !change.has_bytes() || len_of(change) <= PIECE_MAX;
    change.which & !KNOWN == 0 && kinds <= 1 && fits
}

fn len_of(change: &FsChangeArgs) -> usize {
    usize::try_from(change.size).unwrap_or(usize::MAX)
}
