//! Work on one part of a compiler, in the store and on the disk: for a thread.

use crate::protocol::Digest;
use outboard_cluster::workers::Workers;
use outboard_store::{ContentKind, Store, Writer};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a thread is to do.
#[derive(Debug)]
pub(crate) struct PartWork {
    /// Number of the compiler among those that were fetched.
    pub(super) fetch: u64,
    pub(super) task: PartTask,
}

#[derive(Debug)]
pub(super) enum PartTask {
    /// Look for a part in the store, or copy the file of an installed compiler there.
    Look { hash: Digest, installed: Option<PathBuf> },
    /// Write the part's next bytes; the last ones come with its hash.
    Write { writer: Option<PartWriter>, bytes: Vec<u8>, last: Option<Digest> },
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct PartDone {
    pub(super) fetch: u64,
    pub(super) outcome: PartOutcome,
}

#[derive(Debug)]
pub(super) enum PartOutcome {
    /// The part is here.
    Kept(PathBuf),
    /// This server lacks it.
    Absent,
    /// It is written as far as it was read.
    Written(PartWriter),
    /// It cannot be kept, or is not what its hash says.
    Failed,
}

/// Writes a part. Dropped, it leaves the removal of the unfinished file to a thread.
#[derive(Debug)]
pub(super) struct PartWriter {
    writer: Option<Box<Writer<Arc<Store>>>>,
    disk: Workers,
}

impl PartWork {
    /// What came of it if it is not done.
    pub(crate) fn failed(&self) -> PartDone {
        PartDone { fetch: self.fetch, outcome: PartOutcome::Failed }
    }

    /// Does it; `disk` has threads for the same store.
    pub(crate) fn run(self, store: &Arc<Store>, disk: &Workers) -> PartDone {
        let outcome = match self.task {
            PartTask::Look { hash, installed } => {
                let kept = store.path_of(&hash);
                let kept = kept.or_else(|| copied(store, &installed?, &hash));
                kept.map_or(PartOutcome::Absent, PartOutcome::Kept)
            }
            PartTask::Write { writer, bytes, last } => {
                let writer = writer.or_else(|| PartWriter::begin(store, disk));
                let written = writer.and_then(|writer| writer.write(store, &bytes, last.as_ref()));
                written.unwrap_or(PartOutcome::Failed)
            }
        };
        PartDone { fetch: self.fetch, outcome }
    }
}

impl PartWriter {
    fn begin(store: &Arc<Store>, disk: &Workers) -> Option<Self> {
        let writer = store.shared_writer(ContentKind::Program).ok()?;
        Some(Self { writer: Some(Box::new(writer)), disk: disk.clone() })
    }

    fn write(mut self, store: &Store, bytes: &[u8], last: Option<&Digest>) -> Option<PartOutcome> {
        self.writer.as_mut()?.write_all(bytes).ok()?;
        let Some(hash) = last else { return Some(PartOutcome::Written(self)) };
        self.writer.take()?.finish_as(hash).ok()?;
        store.path_of(hash).map(PartOutcome::Kept)
    }
}

impl Drop for PartWriter {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.disk.run(move || drop(writer));
        }
    }
}

/// The path in the store of a copy of this machine's file, if the file has the hash: the file
/// itself may be replaced later.
fn copied(store: &Store, file: &Path, hash: &Digest) -> Option<PathBuf> {
    let mut writer = store.writer(ContentKind::Program).ok()?;
    io::copy(&mut File::open(file).ok()?, &mut writer).ok()?;
    writer.finish_as(hash).ok()?;
    store.path_of(hash)
}
