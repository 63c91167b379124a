//! A replica's directory and what is in it: whom it follows, what it has, and how it becomes a
//! server's. All sessions share one; each change is made by one of them at a time.

use super::held::HeldStore;
use super::incoming::{self, IncomingCopy, IncomingSpool};
use super::messages::{CopyHead, FollowedStore, ReplicaAnswer, ReplicaState};
use super::stream::ReplicaError;
use crate::protocol::REGION;
use crate::server::LOCK_MARKER;
use crate::store::role::StoreRole;
use crate::store::{FsStoreError, OpenedStore};
use outboard_active::service::discard_region;
use outboard_cluster::node::Requester;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{DirBuilder, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The file by which one process has the directory.
const LOCK: &str = "role.lock";
/// Why nothing is done with a store that is there.
const NOT_OPEN: &str = "its store could not be opened again: see its log, and start it anew";

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct ReplicaPlace {
    dir: PathBuf,
    keeper: Requester,
    role: StoreRole,
    /// `None`: nothing that was ever whole is here.
    held: Option<HeldStore>,
    /// When it had all that its server had last.
    in_step_at: Option<Instant>,
    pub(super) is_in_step: bool,
    /// It is a server's from now on: its epoch.
    promoted: Option<u64>,
    _lock: File,
}

impl ReplicaPlace {
    /// Opens what is there.
    pub(super) fn open(
        dir: &Path,
        kept: BTreeMap<String, OwnedFd>,
        mut keeper: Requester,
    ) -> Result<Self, Box<dyn Error>> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let lock = File::options().create(true).append(true).open(dir.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| FsStoreError::Locked { dir: dir.into() })?;
        let kept = match incoming::has_next(dir) {
            // What was kept is that of the store before.
            true => {
                for name in kept.into_keys() {
                    let _discarded = keeper.discard(&name);
                }
                BTreeMap::new()
            }
            false => kept,
        };
        incoming::switch(dir)?;
        let role = StoreRole::of(dir)?;
        let held = match role {
            StoreRole::Replica(_) => Some(HeldStore::open(dir, kept, &mut keeper)?),
            _ => None,
        };
        if let Some(held) = &held {
            incoming::take_spool(dir, held)?;
        }
        let (is_in_step, in_step_at, promoted, _lock) = (false, None, None, lock);
        let dir = dir.to_owned();
        Ok(Self { dir, keeper, role, held, in_step_at, is_in_step, promoted, _lock })
    }

    fn of(&self) -> Option<[u8; 16]> {
        match self.role {
            StoreRole::Replica(of) => Some(of),
            _ => None,
        }
    }

    /// How it is.
    pub(super) fn state(&self) -> ReplicaState {
        let behind_s = self.in_step_at.map(|at| at.elapsed().as_secs());
        let (of, is_in_step) = (self.of(), self.is_in_step);
        let none = ReplicaState { of, is_in_step, behind_s, ..ReplicaState::default() };
        let Some(held) = &self.held else { return none };
        let own = held.superblock();
        let (epoch, incarnation, base) = (own.epoch, own.incarnation, own.base);
        ReplicaState { is_whole: true, epoch, last: held.last(), incarnation, base, ..none }
    }

    /// Whether a server is followed.
    pub(super) fn admit(&self, followed: &FollowedStore) -> Result<(), ReplicaError> {
        if self.promoted.is_some() {
            return Err(ReplicaError::Refused("this replica has just been promoted".into()));
        }
        followed.check()?;
        if self.of().is_some_and(|of| of != followed.uuid) {
            let why = "this replica follows another store: name an empty directory to it, to \
                have it follow this one";
            return Err(ReplicaError::Refused(why.into()));
        }
        let Some(held) = &self.held else {
            return match self.of() {
                Some(_) => Err(ReplicaError::Refused(NOT_OPEN.into())),
                None => Ok(()),
            };
        };
        let epoch = held.superblock().epoch;
        if epoch > followed.epoch {
            return Err(ReplicaError::Superseded { epoch });
        }
        match held.has_shape_of(followed) {
            true => Ok(()),
            false => Err(ReplicaError::Refused("the store has other sizes than before".into())),
        }
    }

    pub(super) fn held(&self) -> Result<&HeldStore, ReplicaError> {
        let missing = || ReplicaError::Hostile("nothing was copied before".into());
        self.held.as_ref().filter(|_| self.promoted.is_none()).ok_or_else(missing)
    }

    pub(super) fn begin_copy(
        &self,
        followed: &FollowedStore,
        head: &CopyHead,
    ) -> Result<IncomingCopy, ReplicaError> {
        IncomingCopy::begin(&self.dir, followed, head)
    }

    /// A copy is whole: it is what the replica has from now on.
    pub(super) fn take_copy(&mut self, copy: IncomingCopy) -> Result<u64, ReplicaError> {
        let seq = copy.finish()?;
        if self.promoted.is_some() {
            return Err(ReplicaError::Refused("this replica has just been promoted".into()));
        }
        if let Some(held) = self.held.take() {
            discard_region(REGION, held.leave(), &mut self.keeper);
        }
        incoming::switch(&self.dir)?;
        self.role = StoreRole::of(&self.dir)?;
        let failed = |error: Box<dyn Error>| ReplicaError::Unreachable(error.to_string());
        let kept = BTreeMap::new();
        self.held = Some(HeldStore::open(&self.dir, kept, &mut self.keeper).map_err(failed)?);
        Ok(seq)
    }

    pub(super) fn begin_spool(&self) -> Result<IncomingSpool, ReplicaError> {
        IncomingSpool::begin(&self.dir, self.held()?.superblock().block_count)
    }

    pub(super) fn take_spool(&self, spool: IncomingSpool) -> Result<u64, ReplicaError> {
        let held = self.held()?;
        spool.finish()?;
        incoming::take_spool(&self.dir, held)?;
        Ok(held.last())
    }

    /// It has all that its server had when it was asked.
    pub(super) fn is_level(&mut self) {
        (self.is_in_step, self.in_step_at) = (true, Some(Instant::now()));
    }

    /// It becomes a server's store, of the next epoch.
    pub(super) fn promote(&mut self) -> Result<ReplicaAnswer, ReplicaError> {
        if let Some(epoch) = self.promoted {
            let why = format!("it has been promoted already, to epoch {epoch}");
            return Err(ReplicaError::Refused(why));
        }
        let Some(held) = &self.held else {
            let why = "it never had a whole copy of its server's store: there is nothing to serve";
            let why = if self.of().is_some() { NOT_OPEN } else { why };
            return Err(ReplicaError::Refused(why.into()));
        };
        let commit = held.sync()?;
        let behind_s = self.in_step_at.map(|at| at.elapsed().as_secs());
        self.held.take().map(HeldStore::leave);
        match self.become_server(commit) {
            Ok(epoch) => {
                self.promoted = Some(epoch);
                Ok(ReplicaAnswer::Promoted { epoch, commit, behind_s })
            }
            Err(error) => {
                self.open_again();
                Err(error)
            }
        }
    }

    /// The next epoch's, on the disk, behind its last commit.
    fn become_server(&self, commit: u64) -> Result<u64, ReplicaError> {
        let mut opened = OpenedStore::open(&self.dir)?;
        let epoch = opened.superblock().epoch + 1;
        // Who had a lock is not known: all are waited for.
        let marker = File::create(self.dir.join(LOCK_MARKER));
        marker.map_err(|source| ReplicaError::Disk { what: LOCK_MARKER, source })?;
        opened.enter_epoch(epoch, commit)?;
        StoreRole::Promoted.set(&self.dir)?;
        Ok(epoch)
    }

    /// It stays what it was.
    fn open_again(&mut self) {
        match HeldStore::open(&self.dir, BTreeMap::new(), &mut self.keeper) {
            Ok(held) => self.held = Some(held),
            Err(error) => tracing::error!(%error, "the replica's store cannot be opened again"),
        }
    }

    /// The node ends.
    pub(super) fn close(&mut self) -> Result<(), FsStoreError> {
        self.held.take().map_or(Ok(()), HeldStore::close)
    }
}
