//! What the service says of itself. Plain numbers.

use super::backend::FsBackend;
use serde::Serialize;
use serde_json::Value;

/// What the service has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FsCounters {
    /// Requests that only look at metadata.
    pub looks: u64,
    /// Requests that change metadata.
    pub changes: u64,
    /// Requests with many changes of metadata.
    pub batches: u64,
    /// Requests for bytes.
    pub reads: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Requests that bring bytes.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Requests that waited for the disk.
    pub syncs: u64,
    /// Reads and writes that were begun anew, because the file had changed meanwhile.
    pub again: u64,
    /// Requests that waited because too much was under way.
    pub held: u64,
    /// Requests for locks.
    pub locks: u64,
    /// Notices that something must not be kept any longer.
    pub recalls: u64,
    /// Requests that look through files.
    pub scans: u64,
    /// Bytes that were looked through.
    pub scanned_bytes: u64,
}

/// What `outboard status` shows.
#[derive(Debug, Serialize)]
pub(super) struct FsReport {
    pub(super) open_inodes: usize,
    pub(super) locked_files: usize,
    pub(super) lock_waits: usize,
    pub(super) lock_sessions: usize,
    pub(super) leases: usize,
    pub(super) recalls_now: usize,
    pub(super) calls_now: usize,
    pub(super) reserved_blocks: u64,
    pub(super) durable: u64,
    pub(super) committed: u64,
    pub(super) store_failure: Option<String>,
    pub(super) epoch: u64,
    /// How its replica is doing.
    pub(super) replica: Option<Value>,
    #[serde(flatten)]
    pub(super) counters: FsCounters,
}

impl FsBackend {
    pub(super) fn reported(&self) -> FsReport {
        let (locked_files, lock_waits, lock_sessions) = self.locks.len();
        let (leases, recalls_now) = self.leases.len();
        FsReport {
            open_inodes: self.opens.len(),
            locked_files,
            lock_waits,
            lock_sessions,
            leases,
            recalls_now,
            calls_now: self.calls.len(),
            reserved_blocks: self.pool.len(),
            durable: self.store.last(),
            committed: self.region.seq(),
            store_failure: self.store.failure(),
            epoch: self.store.epoch(),
            replica: self.shipping.as_ref().map(|state| state.report(self.store.logged())),
            counters: self.counters,
        }
    }
}
