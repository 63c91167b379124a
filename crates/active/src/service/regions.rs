//! Regions that the service has: kept by the supervisor from the process before, read from files,
//! or new.
//!
//! A region's memory and its journal are kept apart. The journal is kept under a name that ends in
//! its incarnation, a random number: a client that knew another one learns that what it asked then
//! cannot be found any more.

use super::persist::{PersistError, RegionFile};
use outboard_cluster::node::RequestError;
use outboard_offcode::ActiveRegion;
use outboard_offcode::journal::JournalError;
use outboard_secure::NodeId;
use outboard_verbs::{Access, MemError, SharedRegion, Space};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

/// A region, as the operator wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSetup {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub len: usize,
    /// Bytes that one execution may write.
    pub write_max: usize,
    /// The file that it is read from at the start, and written to.
    pub persist: Option<PathBuf>,
    /// The identities that may read and write; `None`: every one that has the service's key.
    pub allow: Option<HashSet<NodeId>>,
    /// The identities that may only read.
    pub read: HashSet<NodeId>,
    /// Bytes from its start that clients may read by one-sided operations, if they may not reach
    /// all of it: then only executions do.
    pub shown: Option<usize>,
    /// Which of the services that have it one after the other this is. A client that has seen a
    /// later one is not served.
    pub epoch: u64,
}

/// Where a region that follows another one is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowedRun {
    /// The number of the other's journal.
    pub incarnation: u64,
    /// The last commit of it that the memory has.
    pub seq: u64,
}

impl RegionSetup {
    /// A region in memory, for every identity; an execution may write 1 MiB.
    #[must_use]
    pub fn new(name: &str, len: usize) -> Self {
        let (persist, allow, read) = (None, None, HashSet::new());
        let name = name.to_owned();
        Self { name, len, write_max: 1 << 20, persist, allow, read, shown: None, epoch: 0 }
    }

    /// What an identity may do with it; `None`: it does not see it.
    #[must_use]
    pub fn access(&self, node: NodeId) -> Option<Access> {
        if self.read.contains(&node) {
            return Some(Access::REMOTE_READ);
        }
        let may_write = self.allow.as_ref().is_none_or(|allow| allow.contains(&node));
        let all = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        may_write.then_some(all)
    }
}

/// A region that is served.
#[derive(Clone, Debug)]
pub struct ServedRegion {
    /// As the operator wants it.
    pub setup: RegionSetup,
    /// Its memory and its journal.
    pub region: Arc<ActiveRegion>,
    /// The number of its journal.
    pub incarnation: u64,
    /// Its file.
    pub(super) file: Option<Arc<RegionFile>>,
}

/// Why a region cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// Its memory or its journal.
    #[error("region {name}: {source}")]
    Journal {
        /// Its name.
        name: String,
        /// Why.
        source: JournalError,
    },
    /// Its memory.
    #[error("region {name}: {source}")]
    Memory {
        /// Its name.
        name: String,
        /// Why.
        source: MemError,
    },
    /// Its file.
    #[error("region {name}: {source}")]
    Persist {
        /// Its name.
        name: String,
        /// Why.
        source: PersistError,
    },
    /// The supervisor does not keep it.
    #[error("region {name} is not kept: {source}")]
    Keep {
        /// Its name.
        name: String,
        /// Why.
        source: RequestError,
    },
    /// This machine.
    #[error("this machine gives no random numbers")]
    Random,
}

/// Keeps memory for the next process, and discards it: the supervisor, or nothing outside a node.
pub trait RegionKeeper {
    /// Keeps it under a name.
    ///
    /// # Errors
    /// [`RequestError`].
    fn keep(&mut self, name: &str, memory: OwnedFd) -> Result<(), RequestError>;

    /// Discards what has that name.
    ///
    /// # Errors
    /// [`RequestError`].
    fn discard(&mut self, name: &str) -> Result<(), RequestError>;
}

fn memory_name(region: &str) -> String {
    format!("memory/{region}")
}

fn journal_name(region: &str, incarnation: u64) -> String {
    format!("journal/{region}/{incarnation:016x}")
}

/// Opens all regions: those that were kept, with what was committed and not applied, and new ones,
/// which are kept from now on. What was kept of others is discarded.
///
/// # Errors
/// [`RegionError`].
pub fn open_regions(
    setups: Vec<RegionSetup>,
    mut kept: BTreeMap<String, OwnedFd>,
    keeper: &mut impl RegionKeeper,
) -> Result<Vec<ServedRegion>, RegionError> {
    let mut served = Vec::new();
    for setup in setups {
        served.push(open(setup, &mut kept, keeper)?);
    }
    for name in kept.into_keys() {
        tracing::warn!(name, "memory of a region that is not served any more is discarded");
        // It is discarded with the node at the latest.
        let _discarded = keeper.discard(&name);
    }
    Ok(served)
}

fn open(
    setup: RegionSetup,
    kept: &mut BTreeMap<String, OwnedFd>,
    keeper: &mut impl RegionKeeper,
) -> Result<ServedRegion, RegionError> {
    let name = || setup.name.clone();
    let memory = kept.remove(&memory_name(&setup.name));
    let file = setup.persist.clone().map(|path| file_of(path, memory.is_some())).transpose();
    let file = file.map_err(|source| RegionError::Persist { name: name(), source })?.map(Arc::new);
    let journal = take_journal(kept, &setup.name);
    match (memory, journal) {
        (Some(memory), Some(journal)) => {
            let served = resumed(setup, memory, journal)?;
            Ok(ServedRegion { file, ..served })
        }
        (memory, _) => {
            let of_memory = |source| RegionError::Memory { name: name(), source };
            let memory = match memory {
                // The process before ended between keeping the one and the other.
                Some(memory) => SharedRegion::from_memfd(memory).map_err(of_memory)?,
                None => new_memory(&setup, file.as_deref())?,
            };
            Ok(ServedRegion { file, ..begin_region(setup, memory, keeper)? })
        }
    }
}

/// The region that the process before has left, if its journal has this number.
///
/// # Errors
/// [`RegionError`].
pub fn kept_region(
    setup: &RegionSetup,
    incarnation: u64,
    kept: &mut BTreeMap<String, OwnedFd>,
) -> Result<Option<ServedRegion>, RegionError> {
    let journal = kept.remove(&journal_name(&setup.name, incarnation));
    match (kept.remove(&memory_name(&setup.name)), journal) {
        (Some(memory), Some(journal)) => {
            resumed(setup.clone(), memory, (incarnation, journal)).map(Some)
        }
        _ => Ok(None),
    }
}

fn resumed(
    setup: RegionSetup,
    memory: OwnedFd,
    (incarnation, journal): (u64, OwnedFd),
) -> Result<ServedRegion, RegionError> {
    let region = ActiveRegion::kept(&setup.name, (memory, journal), setup.write_max);
    let of_journal = |source| RegionError::Journal { name: setup.name.clone(), source };
    let region = Arc::new(region.map_err(of_journal)?);
    Ok(ServedRegion { setup, region, incarnation, file: None })
}

/// A region with memory of the caller's and a new journal, both kept from now on.
///
/// # Errors
/// [`RegionError`].
pub fn begin_region(
    setup: RegionSetup,
    memory: SharedRegion,
    keeper: &mut impl RegionKeeper,
) -> Result<ServedRegion, RegionError> {
    let of_journal = |source| RegionError::Journal { name: setup.name.clone(), source };
    let region = ActiveRegion::over(&setup.name, memory, setup.write_max).map_err(of_journal)?;
    let incarnation = random().ok_or(RegionError::Random)?;
    keep_region((setup, region, incarnation), keeper)
}

/// A region with memory of the caller's that is as another region's after a commit, and a journal
/// that goes on under that one's number; both are kept from now on.
///
/// # Errors
/// [`RegionError`].
pub fn follow_region(
    setup: RegionSetup,
    memory: SharedRegion,
    run: FollowedRun,
    keeper: &mut impl RegionKeeper,
) -> Result<ServedRegion, RegionError> {
    let of_journal = |source| RegionError::Journal { name: setup.name.clone(), source };
    let region = ActiveRegion::behind(&setup.name, memory, setup.write_max, run.seq);
    keep_region((setup.clone(), region.map_err(of_journal)?, run.incarnation), keeper)
}

/// Discards what is kept of a region: the next process begins anew.
pub fn discard_region(name: &str, incarnation: u64, keeper: &mut impl RegionKeeper) {
    // What is not there need not be discarded.
    let _discarded = keeper.discard(&memory_name(name));
    let _discarded = keeper.discard(&journal_name(name, incarnation));
}

fn keep_region(
    (setup, region, incarnation): (RegionSetup, ActiveRegion, u64),
    keeper: &mut impl RegionKeeper,
) -> Result<ServedRegion, RegionError> {
    let name = || setup.name.clone();
    let of_memory = |source| RegionError::Memory { name: name(), source };
    let (memory, journal) = region.descriptors().map_err(of_memory)?;
    let of_keeper = |source| RegionError::Keep { name: name(), source };
    keeper.keep(&memory_name(&setup.name), memory).map_err(of_keeper)?;
    keeper.keep(&journal_name(&setup.name, incarnation), journal).map_err(of_keeper)?;
    Ok(ServedRegion { setup, region: Arc::new(region), incarnation, file: None })
}

/// Takes a region's file. If the region's memory was kept, the service goes on without.
fn file_of(path: PathBuf, is_kept: bool) -> Result<RegionFile, PersistError> {
    match RegionFile::take(path.clone()) {
        Err(error @ PersistError::File { .. }) if is_kept => {
            tracing::error!("{error}: the region is served, and cannot be flushed");
            Ok(RegionFile::unlocked(path))
        }
        taken => taken,
    }
}

fn take_journal(kept: &mut BTreeMap<String, OwnedFd>, region: &str) -> Option<(u64, OwnedFd)> {
    let prefix = format!("journal/{region}/");
    let found = kept.keys().find(|name| name.starts_with(&prefix))?.clone();
    let incarnation = u64::from_str_radix(&found[prefix.len()..], 16).ok()?;
    kept.remove(&found).map(|journal| (incarnation, journal))
}

fn new_memory(setup: &RegionSetup, file: Option<&RegionFile>) -> Result<SharedRegion, RegionError> {
    let of_memory = |source| RegionError::Memory { name: setup.name.clone(), source };
    let memory = SharedRegion::memfd(c"outboard-region", setup.len, Space::OnDemand);
    let memory = memory.map_err(of_memory)?;
    if let Some(file) = file {
        let of_file = |source| RegionError::Persist { name: setup.name.clone(), source };
        file.load_into(&memory).map_err(of_file)?;
    }
    Ok(memory)
}

fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests;
