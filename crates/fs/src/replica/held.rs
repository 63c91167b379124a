//! The store of a replica: what its server sends is written and committed here, and checked before.
//! Nothing else writes or commits.

use super::messages::{FollowedStore, ReplicaMessage, ShippedAnswer};
use super::stream::ReplicaError;
use crate::protocol::{BLOCK_LEN, REGION};
use crate::store::record::records;
use crate::store::superblock::Superblock;
use crate::store::{FsStore, FsStoreError, FsStoreOptions, OpenedStore, SyncMode};
use outboard_active::service::{
    FollowedRun, RegionKeeper, RegionSetup, ServedRegion, follow_region, kept_region,
};
use outboard_offcode::journal::RequestId;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// Bytes that one commit may change, as at its server.
const WRITES_MAX: usize = 8 << 20;
/// How long the disk of a replica may take.
const DISK_LIMIT: Duration = Duration::from_secs(60);
/// How long commits are gathered that nobody has asked for.
const PATIENCE: Duration = Duration::from_secs(1);

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct HeldStore {
    store: FsStore,
    served: ServedRegion,
}

impl HeldStore {
    /// Opens a replica's store: with the memory that the process before has left, or from its disk.
    pub(super) fn open(
        dir: &Path,
        mut kept: BTreeMap<String, OwnedFd>,
        keeper: &mut impl RegionKeeper,
    ) -> Result<Self, Box<dyn Error>> {
        let opened = OpenedStore::open(dir)?;
        let Superblock { region_len, incarnation, base, .. } = *opened.superblock();
        let len = usize::try_from(region_len)?;
        let setup = RegionSetup { write_max: WRITES_MAX, ..RegionSetup::new(REGION, len) };
        let sync = SyncMode::OnRequest { at_least_every: PATIENCE };
        let options = FsStoreOptions { sync, ..FsStoreOptions::default() };
        if let Some(served) = kept_region(&setup, incarnation, &mut kept)? {
            let store = opened.adopt(&served.region, incarnation, options)?;
            return Ok(Self { store, served });
        }
        let recovered = opened.recover()?;
        let seq = recovered.last_seq.wrapping_sub(base);
        let run = FollowedRun { incarnation, seq };
        let served = follow_region(setup, recovered.memory.clone(), run, keeper)?;
        let store = opened.start(recovered, &served.region, incarnation, options)?;
        Ok(Self { store, served })
    }

    pub(super) fn superblock(&self) -> &Superblock {
        self.store.superblock()
    }

    /// The last commit that it has, on its disk or soon.
    pub(super) fn last(&self) -> u64 {
        self.store.seq_of(self.served.region.seq())
    }

    /// Whether it has the sizes of a server's store.
    pub(super) fn has_shape_of(&self, followed: &FollowedStore) -> bool {
        let own = self.superblock();
        (own.block_count, own.region_len) == (followed.block_count, followed.region_len)
    }

    /// Takes blocks, or commits, that have come.
    pub(super) fn take(&self, message: &ReplicaMessage<'_>) -> Result<(), ReplicaError> {
        match message {
            ReplicaMessage::Blocks { start, bytes } => self.write(*start, bytes),
            ReplicaMessage::Commits { records, answers } => self.commit(records, answers),
            _ => Err(ReplicaError::Hostile("a message has no place here".into())),
        }
    }

    fn write(&self, start: u64, bytes: &[u8]) -> Result<(), ReplicaError> {
        check_blocks(start, bytes, self.superblock().block_count)?;
        let written = self.store.data().write(start, 0, &mut [IoSlice::new(bytes)]);
        written.map_err(|source| ReplicaError::Disk { what: "data", source })
    }

    fn commit(&self, bytes: &[u8], answers: &[ShippedAnswer<'_>]) -> Result<(), ReplicaError> {
        let mut answers = answers.iter().peekable();
        let mut len = 0;
        for record in records(bytes) {
            len += record.len;
            while answers.next_if(|answer| answer.seq < record.seq).is_some() {}
            let answer = answers.next_if(|answer| answer.seq == record.seq).map(|answer| {
                let id = RequestId { client: answer.client, number: answer.number };
                (id, answer.bytes)
            });
            if record.seq <= self.last() {
                // It was here before the connection was lost.
                continue;
            }
            let seq = record.seq.wrapping_sub(self.store.seq_of(0));
            let made = self.served.region.writer().follow(seq, record.lines, answer);
            made.map_err(|error| ReplicaError::Hostile(error.to_string()))?;
            if self.store.is_behind() {
                self.sync()?;
            }
        }
        match len == bytes.len() {
            true => Ok(()),
            false => Err(ReplicaError::Hostile("bytes are no records of a log".into())),
        }
    }

    /// Returns the last commit when all that has come is on the disk.
    pub(super) fn sync(&self) -> Result<u64, ReplicaError> {
        let last = self.last();
        let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
        match self.store.wait(last, DISK_LIMIT).map_err(FsStoreError::from)? {
            true => Ok(last),
            false => Err(ReplicaError::Disk { what: "the log", source: late() }),
        }
    }

    /// Ends in order.
    pub(super) fn close(self) -> Result<(), FsStoreError> {
        self.store.close()
    }

    /// Ends, without a checkpoint; the number of its journal.
    pub(super) fn leave(self) -> u64 {
        self.served.incarnation
    }
}

/// Whether blocks are whole ones, and inside of the store.
pub(super) fn check_blocks(start: u64, bytes: &[u8], count: u64) -> Result<(), ReplicaError> {
    let len = bytes.len() as u64;
    let end = start.checked_add(len / BLOCK_LEN);
    match len.is_multiple_of(BLOCK_LEN) && end.is_some_and(|end| end <= count) {
        true => Ok(()),
        false => {
            let what = format!("{len} bytes at block {start}, of {count} blocks");
            Err(ReplicaError::Hostile(what))
        }
    }
}
