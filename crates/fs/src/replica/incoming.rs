//! What a replica gets and cannot use before it is whole: a copy of everything, and what was missed
//! while it was away. Both lie in files beside the store, and take effect as a whole: a replica
//! that is killed has the state before, or goes on with the new one when it starts again.
//!
//! ```text
//! DIR/next/        a copy that comes: checkpoint.0, data, then superblock, role, whole
//! DIR/catchup      messages with what was missed, one behind the other, as they come
//! DIR/catchup.whole   the same when all is there: it is being taken
//! ```

use super::held::{HeldStore, check_blocks};
use super::messages::{CopyHead, FRAME_MAX, FollowedStore, NUMBER_MAX, PROTOCOL, ReplicaMessage};
use super::stream::ReplicaError;
use crate::protocol::BLOCK_LEN;
use crate::store::role::{self, StoreRole};
use crate::store::superblock::Superblock;
use crate::store::{SnapshotHead, blocks_in_use, complete};
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

const NEXT: &str = "next";
const WHOLE: &str = "whole";
const METADATA: &str = "checkpoint.0";
const DATA: &str = "data";
const SUPERBLOCK: &str = "superblock";
const SPOOL: &str = "catchup";
const SPOOL_WHOLE: &str = "catchup.whole";
/// Bytes of commits that a server keeps for its replica, and some more.
const COMMITS_MAX: u64 = 256 << 20;

fn disk(what: &'static str) -> impl FnOnce(io::Error) -> ReplicaError {
    move |source| ReplicaError::Disk { what, source }
}

fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

fn unless_absent(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A copy that comes.
#[derive(Debug)]
pub(super) struct IncomingCopy {
    dir: PathBuf,
    metadata: File,
    metadata_len: u64,
    data: File,
    superblock: Superblock,
    of: [u8; 16],
    seq: u64,
}

impl IncomingCopy {
    pub(super) fn begin(
        store: &Path,
        followed: &FollowedStore,
        head: &CopyHead,
    ) -> Result<Self, ReplicaError> {
        followed.check()?;
        if head.seq < followed.base || head.seq >= NUMBER_MAX {
            let what = format!("a copy of commit {}, where {} is first", head.seq, followed.base);
            return Err(ReplicaError::Hostile(what));
        }
        let dir = store.join(NEXT);
        unless_absent(fs::remove_dir_all(&dir)).map_err(disk(NEXT))?;
        DirBuilder::new().mode(0o700).create(&dir).map_err(disk(NEXT))?;
        let create = |name: &'static str| {
            let mut options = File::options();
            options.read(true).write(true).create_new(true).open(dir.join(name)).map_err(disk(name))
        };
        let (metadata, data) = (create(METADATA)?, create(DATA)?);
        data.set_len(followed.block_count * BLOCK_LEN).map_err(disk(DATA))?;
        let superblock = Superblock {
            uuid: head.uuid,
            block_count: followed.block_count,
            region_len: followed.region_len,
            epoch: followed.epoch,
            incarnation: followed.incarnation,
            base: followed.base,
            ended: Default::default(),
        };
        let (metadata_len, of, seq) = (0, followed.uuid, head.seq);
        Ok(Self { dir, metadata, metadata_len, data, superblock, of, seq })
    }

    pub(super) fn take(&mut self, message: &ReplicaMessage<'_>) -> Result<(), ReplicaError> {
        match message {
            ReplicaMessage::Metadata(bytes) => {
                let len = self.metadata_len + bytes.len() as u64;
                // Pages that change while they are copied are in it more than once.
                if len > 16 * self.superblock.region_len + (64 << 20) {
                    return Err(ReplicaError::Hostile("metadata without an end".into()));
                }
                self.metadata.write_all_at(bytes, self.metadata_len).map_err(disk(METADATA))?;
                self.metadata_len = len;
                Ok(())
            }
            ReplicaMessage::Blocks { start, bytes } => {
                check_blocks(*start, bytes, self.superblock.block_count)?;
                self.data.write_all_at(bytes, start * BLOCK_LEN).map_err(disk(DATA))
            }
            _ => Err(ReplicaError::Hostile("a message has no place in a copy".into())),
        }
    }

    /// All has come: it is checked, and brought to the disk. [`switch`] makes it the store.
    pub(super) fn finish(self) -> Result<u64, ReplicaError> {
        let head = SnapshotHead { superblock: self.superblock, seq: self.seq };
        blocks_in_use(self.metadata.try_clone().map_err(disk(METADATA))?, &head)?;
        self.metadata.sync_all().map_err(disk(METADATA))?;
        self.data.sync_all().map_err(disk(DATA))?;
        complete(&self.dir, &self.superblock)?;
        StoreRole::Replica(self.of).set(&self.dir)?;
        let whole = File::create(self.dir.join(WHOLE)).and_then(|file| file.sync_all());
        whole.and_then(|()| sync_directory(&self.dir)).map_err(disk(NEXT))?;
        Ok(self.seq)
    }
}

/// Whether a whole copy waits to become the store.
pub(super) fn has_next(store: &Path) -> bool {
    store.join(NEXT).join(WHOLE).exists()
}

/// Makes a whole copy the store. Nobody has the store open, and nobody keeps its memory. A copy
/// that is not whole goes.
pub(super) fn switch(store: &Path) -> Result<(), ReplicaError> {
    let next = store.join(NEXT);
    if !has_next(store) {
        return unless_absent(fs::remove_dir_all(next)).map_err(disk(NEXT));
    }
    let switch = || -> io::Result<()> {
        // What is not in the new one must not be taken for a part of it.
        if next.join(METADATA).exists() {
            for entry in fs::read_dir(store)? {
                let name = entry?.file_name();
                let text = name.to_string_lossy();
                if ["log.", "checkpoint.", SPOOL].iter().any(|part| text.starts_with(part)) {
                    fs::remove_file(store.join(&name))?;
                }
            }
        }
        // The superblock last: until then whoever looks finds no store, or one that is damaged.
        for name in [METADATA, DATA, role::NAME, SUPERBLOCK] {
            unless_absent(fs::rename(next.join(name), store.join(name)))?;
        }
        sync_directory(store)?;
        fs::remove_file(next.join(WHOLE))?;
        fs::remove_dir_all(&next)
    };
    switch().map_err(disk(NEXT))
}

/// What was missed, as it comes.
#[derive(Debug)]
pub(super) struct IncomingSpool {
    dir: PathBuf,
    file: BufWriter<File>,
    len: u64,
    len_max: u64,
}

impl IncomingSpool {
    pub(super) fn begin(store: &Path, block_count: u64) -> Result<Self, ReplicaError> {
        let file = File::create(store.join(SPOOL)).map_err(disk(SPOOL))?;
        let len_max = block_count * BLOCK_LEN + COMMITS_MAX;
        Ok(Self { dir: store.to_owned(), file: BufWriter::new(file), len: 0, len_max })
    }

    pub(super) fn take(&mut self, message: &ReplicaMessage<'_>) -> Result<(), ReplicaError> {
        let bytes = PROTOCOL.encode(message);
        self.len += bytes.len() as u64;
        if self.len > self.len_max {
            return Err(ReplicaError::Hostile("more was missed than a store has".into()));
        }
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
        let written = self.file.write_all(&len).and_then(|()| self.file.write_all(&bytes));
        written.map_err(disk(SPOOL))
    }

    /// All has come: from now on it is taken, whatever happens.
    pub(super) fn finish(self) -> Result<(), ReplicaError> {
        let Self { dir, file, .. } = self;
        let finish = || -> io::Result<()> {
            file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
            fs::rename(dir.join(SPOOL), dir.join(SPOOL_WHOLE))?;
            sync_directory(&dir)
        };
        finish().map_err(disk(SPOOL))
    }
}

/// Takes what was missed, if all of it is here; the rest of one that is not goes.
pub(super) fn take_spool(store: &Path, held: &HeldStore) -> Result<(), ReplicaError> {
    unless_absent(fs::remove_file(store.join(SPOOL))).map_err(disk(SPOOL))?;
    let path = store.join(SPOOL_WHOLE);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => BufReader::new(opened.map_err(disk(SPOOL_WHOLE))?),
    };
    let mut bytes = Vec::new();
    while let Some(len) = next_len(&mut file).map_err(disk(SPOOL_WHOLE))? {
        bytes.resize(len, 0);
        file.read_exact(&mut bytes).map_err(disk(SPOOL_WHOLE))?;
        let message = PROTOCOL.decode::<ReplicaMessage<'_>>(&bytes);
        held.take(&message.map_err(|_| ReplicaError::Foreign)?)?;
    }
    held.sync()?;
    fs::remove_file(&path).and_then(|()| sync_directory(store)).map_err(disk(SPOOL_WHOLE))
}

fn next_len(from: &mut impl Read) -> io::Result<Option<usize>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(usize::MAX);
    match len <= FRAME_MAX {
        true => Ok(Some(len)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}
