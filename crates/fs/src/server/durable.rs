//! The store, by the numbers that the region gives its commits, and requests that wait for it.

use super::backend::FsBackend;
use super::call::{FsCall, FsWork};
use super::entries::EntryKind;
use crate::protocol::{FsEndedRun, FsLayout};
use crate::store::superblock::EndedRun;
use crate::store::{DataFile, FsStore, HeldBlocks, SyncMode};
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use std::sync::Arc;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct DurableCommits {
    /// `None` once it is closed.
    store: Option<FsStore>,
    data: Arc<DataFile>,
    mode: SyncMode,
}

impl DurableCommits {
    pub(super) fn new(store: FsStore, mode: SyncMode) -> Self {
        Self { data: Arc::clone(store.data()), store: Some(store), mode }
    }

    pub(super) fn data(&self) -> &Arc<DataFile> {
        &self.data
    }

    /// The last commit that is durable.
    pub(super) fn last(&self) -> u64 {
        let last = |store: &FsStore| store.durable().saturating_sub(store.seq_of(0));
        self.store.as_ref().map_or(0, last)
    }

    /// The last commit that is on the disk, whatever durable means: before it is, blocks that it
    /// has freed are not written.
    pub(super) fn on_disk(&self) -> u64 {
        let last = |store: &FsStore| store.on_disk().saturating_sub(store.seq_of(0));
        self.store.as_ref().map_or(0, last)
    }

    /// Blocks that must not be written: a snapshot has them. Asked after `on_disk`, it holds back
    /// whatever of that was freed since.
    pub(super) fn held(&self) -> Option<Arc<HeldBlocks>> {
        self.store.as_ref()?.held()
    }

    /// Has commits up to this one brought to the disk soon.
    pub(super) fn want_on_disk(&self, seq: u64) {
        match (&self.store, self.mode) {
            // Nothing else brings them there.
            (Some(store), SyncMode::Never) => store.want_checkpoint(),
            _ => self.want(seq),
        }
    }

    /// Has commits up to this one made durable soon.
    pub(super) fn want(&self, seq: u64) {
        if let Some(store) = &self.store {
            store.want(store.seq_of(seq));
        }
    }

    /// Which of the servers that have had the file system one after the other this is.
    pub(super) fn epoch(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.superblock().epoch)
    }

    /// The answer of `runs`.
    pub(super) fn ended_runs(&self) -> Vec<u8> {
        let ended = self.store.as_ref().map(|store| store.superblock().ended);
        let ended = ended.into_iter().flatten().filter(|run| run.incarnation != 0);
        let mut bytes = Vec::new();
        for EndedRun { epoch, incarnation, last } in ended {
            FsEndedRun { epoch, incarnation, last }.put(&mut bytes);
        }
        bytes
    }

    /// The last commit that the log has, as the store numbers them.
    pub(super) fn logged(&self) -> u64 {
        self.store.as_ref().map_or(0, |store| store.feed().feed().last())
    }

    /// Why nothing more becomes durable.
    pub(super) fn failure(&self) -> Option<String> {
        self.store.as_ref()?.failure().map(ToString::to_string)
    }

    /// Whether too much waits for the disk.
    pub(super) fn is_behind(&self) -> bool {
        self.store.as_ref().is_some_and(FsStore::is_behind)
    }

    /// Whether every change is answered only when it is durable.
    pub(super) fn is_always_synced(&self) -> bool {
        self.mode == SyncMode::Always
    }

    /// The node ends: everything becomes durable, and the next start finds it in order.
    pub(super) fn close(&mut self) -> Result<(), String> {
        let closed = self.store.take().map_or(Ok(()), FsStore::close);
        closed.map_err(|error| error.to_string())
    }
}

impl FsBackend {
    /// Answers a request when a commit is durable.
    pub(super) fn wait_durable(&mut self, token: u64, seq: u64, outcome: Outcome) {
        if self.store.last() >= seq {
            return self.answer(token, outcome);
        }
        if let Some(call) = self.calls.get_mut(&token) {
            (call.request, call.work) = (None, FsWork::Durable(outcome));
            self.durable.entry(seq).or_default().push(token);
            self.store.want(seq);
        }
    }

    /// Everything that the client has been told of becomes durable.
    pub(super) fn sync(&mut self, caller: BackendCaller, token: u64) {
        self.counters.syncs += 1;
        let call =
            FsCall { peer: caller.peer, kind: EntryKind::Sync, request: None, work: FsWork::None };
        self.calls.insert(token, call);
        if let Some(why) = self.store.failure() {
            return self.fail(token, libc::EIO, &why);
        }
        let seq = self.region.seq();
        self.wait_durable(token, seq, Outcome::Done { result: Vec::new(), seq });
    }

    /// Answers requests whose commits are durable by now, or never will be.
    pub(super) fn take_durable(&mut self) {
        let failure = self.store.failure();
        let durable = self.store.last();
        while let Some(entry) = self.durable.first_entry() {
            if *entry.key() > durable && failure.is_none() {
                break;
            }
            let is_durable = *entry.key() <= durable;
            for token in entry.remove() {
                match (self.calls.remove(&token).map(|call| call.work), &failure) {
                    (Some(FsWork::Durable(outcome)), _) if is_durable => {
                        self.answer(token, outcome);
                    }
                    (Some(_), Some(why)) => self.fail(token, libc::EIO, why),
                    _ => {}
                }
            }
        }
        let on_disk = self.store.on_disk();
        if self.pool.durable(on_disk, self.store.held().as_deref()) {
            self.serve_waiting();
        }
    }
}
