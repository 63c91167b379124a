//! A slot's state: whether a job runs in it, the names that the job has changed, and the names that
//! the kernel must look up again before the next job.

use super::places::Places;
use fuser::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

/// A name that a job has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameChange {
    /// Unlinked or renamed away.
    Gone,
    /// Now this inode: a file of the job's own, a client's file under another name, or a directory
    /// that the job made.
    Is(u64),
}

/// Why a job must run locally instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPath {
    /// The absolute path that it asked for.
    pub path: Vec<u8>,
    /// Why the job may not have it.
    pub why: Why,
}

/// Why a job may not have a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The client has it and does not show it.
    #[error("the client withholds it")]
    Withheld,
    /// It is not beneath anything that the client shows.
    #[error("it is outside of what the client shows")]
    Outside,
    /// The client did not hand it out, or did not answer.
    #[error("the client did not hand it out")]
    Unanswered,
    /// The job looks up or changes more names than a server records.
    #[error("it uses too many names")]
    TooMuch,
    /// Something that a view cannot do (links, renamed directories, writing in place).
    #[error("a view cannot do what was asked of it")]
    Unsupported,
}

/// Names that must be looked up again.
#[derive(Debug, Default)]
pub(super) struct Outdated {
    names: BTreeSet<(Vec<u8>, Vec<u8>)>,
    all: bool,
}

/// Beyond this number of outdated names, all names are dropped instead.
const OUTDATED_MAX: usize = 4096;

impl Outdated {
    pub(super) fn push(&mut self, dir: &[u8], name: &[u8]) {
        if self.all {
            return;
        }
        self.names.insert((dir.to_vec(), name.to_vec()));
        if self.names.len() > OUTDATED_MAX {
            self.push_all();
        }
    }

    pub(super) fn push_all(&mut self) {
        self.all = true;
        self.names.clear();
    }

    /// `None` when everything is outdated.
    pub(super) fn take(&mut self) -> Option<BTreeSet<(Vec<u8>, Vec<u8>)>> {
        let names = std::mem::take(&mut self.names);
        if std::mem::take(&mut self.all) { None } else { Some(names) }
    }
}

/// How often the kernel sent requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UpcallCounts {
    /// Names looked up.
    pub look_ups: u64,
    /// Ranges of client files read.
    pub reads: u64,
    /// Directories listed, links read, attributes requested.
    pub others: u64,
    /// Files made, written, renamed or removed.
    pub changes: u64,
    /// Look-ups and reads that had to wait for the client.
    pub waits: u64,
}

#[derive(Debug, Default)]
pub(super) struct SlotState {
    pub(super) running: bool,
    /// When its job began.
    pub(super) begun: Option<Instant>,
    /// The job's pending requests fail at once.
    pub(super) cancelled: bool,
    pub(super) changes: BTreeMap<Vec<u8>, NameChange>,
    /// Names that the job has changed at any time.
    pub(super) changed: BTreeSet<Vec<u8>>,
    /// Bytes of the job's own files.
    pub(super) used: u64,
    /// Names returned to the kernel in directories that lead to pins, since all were last dropped.
    pub(super) told: usize,
    pub(super) refused: Option<RefusedPath>,
    pub(super) stale: bool,
    pub(super) touched: Vec<(Vec<u8>, u64)>,
    pub(super) outdated: Outdated,
    /// Directories for the job's files that the client does not export.
    pub(super) places: Places,
    /// Nothing of the client is visible: names other than pins, places and the job's own are
    /// absent.
    pub(super) alone: bool,
    /// Path of the source file that was sent with the job.
    pub(super) brought: Option<Vec<u8>>,
    /// The job's file that is written outside the view.
    pub(super) redirect: Option<Redirect>,
}

/// A file that the job writes outside the view. Its path is a link to there, so that its bytes do
/// not pass through FUSE: assemblers write a few bytes at a time.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) path: Vec<u8>,
    pub(super) to: Arc<[u8]>,
    /// A look-up has returned the link to the kernel.
    pub(super) told: bool,
}

/// At most this number of touched files is recorded for a job.
pub const TOUCHED_MAX: usize = 16_384;

/// A job may change at most this number of names: its end drops each from the kernel's caches.
pub(super) const CHANGED_MAX: usize = 16_384;
/// At most this number of names that have to be dropped one by one is returned to the kernel.
pub(super) const TOLD_MAX: usize = 64 << 10;

impl SlotState {
    /// A job begins.
    pub(super) fn start(&mut self, places: Places) {
        (self.refused, self.stale, self.used) = (None, false, 0);
        self.touched.clear();
        (self.places, self.redirect) = (places, None);
        (self.running, self.cancelled, self.begun) = (true, false, Some(Instant::now()));
    }

    /// A name is to be changed.
    pub(super) fn note_changed(&mut self, path: &[u8]) -> Result<(), Errno> {
        if self.changed.contains(path) {
            return Ok(());
        }
        if self.changed.len() >= CHANGED_MAX {
            self.refuse(path, Why::TooMuch);
            return Err(Errno::ENOSPC);
        }
        self.changed.insert(path.to_vec());
        Ok(())
    }

    /// Whether the kernel should drop all names before the next job, which would else have too few
    /// left.
    pub(super) fn is_told_much(&self) -> bool {
        self.told > TOLD_MAX / 2
    }

    pub(super) fn refuse(&mut self, path: &[u8], why: Why) {
        if self.running && self.refused.is_none() {
            self.refused = Some(RefusedPath { path: path.to_vec(), why });
        }
    }

    pub(super) fn touch(&mut self, path: &[u8], version: u64) {
        if self.running && self.touched.len() < TOUCHED_MAX {
            self.touched.push((path.to_vec(), version));
        }
    }
}
