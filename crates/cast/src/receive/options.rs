//! A receiver's options: where, for what identity, and what its administrator allows.

use super::error::ReceiveError;
use crate::tree::TreeLimits;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The directory in which the top-level names appear.
#[derive(Debug)]
pub struct Destination {
    directory: OwnedFd,
    path: PathBuf,
    /// The hidden directory through which links show the names, if one does.
    view: OnceLock<Vec<u8>>,
    /// Names that belong to others.
    reserved: BTreeSet<Vec<u8>>,
}

impl Destination {
    /// An open directory, with its path for errors. It is open for reading, not with `O_PATH`.
    #[must_use]
    pub fn new(directory: OwnedFd, path: PathBuf) -> Self {
        Self { directory, path, view: OnceLock::new(), reserved: BTreeSet::new() }
    }

    /// A cast that brings one of these names is refused.
    #[must_use]
    pub(crate) fn reserving(self, reserved: BTreeSet<Vec<u8>>) -> Self {
        Self { reserved, ..self }
    }

    pub(super) fn is_reserved(&self, name: &[u8]) -> bool {
        self.reserved.contains(name)
    }

    /// From now on, symbolic links to names in this hidden directory stand for what will be
    /// published, and give way to it.
    pub(crate) fn show_through(&self, view: Vec<u8>) {
        // A receiver has one view.
        let _set = self.view.set(view);
    }

    /// What the link of a name says, if links show the names.
    pub(crate) fn link_target(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.view.get().map(|view| [view, name].join(&b'/'))
    }

    /// Whether a name in a directory is the link that shows it.
    pub(crate) fn is_link(&self, directory: BorrowedFd<'_>, name: &[u8]) -> bool {
        let target = self.link_target(name);
        let found = target.as_ref().map(|_| fs::readlinkat(directory, name, Vec::new()));
        found.is_some_and(|found| found.is_ok_and(|found| Some(found.into_bytes()) == target))
    }

    /// Opens a directory by its path, whose links are followed: it is the caller's.
    ///
    /// # Errors
    /// [`ReceiveError::Destination`].
    pub fn open(path: &Path) -> Result<Self, ReceiveError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match fs::open(path, flags, Mode::empty()) {
            Ok(directory) => Ok(Self::new(directory, path.to_owned())),
            Err(errno) => Err(ReceiveError::Destination { path: path.to_owned(), errno }),
        }
    }

    /// Its path, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The identity on whose behalf files are received, as the receiver's administrator knows it. What
/// one identity has staged is never used for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastIdentity([u8; 32]);

impl CastIdentity {
    /// Named by any bytes that are this identity's alone, such as a node's id.
    #[must_use]
    pub fn new(name: &[u8]) -> Self {
        let user = rustix::process::geteuid().as_raw().to_le_bytes();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&user).update(name);
        Self(hasher.finalize().into())
    }

    pub(super) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// What to do with a name that is at the destination already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PublishMode {
    /// Refuse: nothing is replaced.
    #[default]
    New,
    /// Exchange it for the new at once, then remove the old.
    Replace,
    /// Put the files of a directory among those that are there, each at once.
    Merge,
}

/// When what was received outlives a loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlushMode {
    /// When the kernel writes it.
    #[default]
    Later,
    /// Before it is published, and the names once they are.
    BeforePublishing,
}

/// Owners of what is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// The user that the receiver runs as.
    #[default]
    Receiver,
    /// The source's numbers. Needs privileges.
    SameNumbers,
    /// The source's names, its numbers for names that are unknown here. Needs privileges.
    SameNames,
    /// These for everything. Needs privileges.
    Given {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

/// Whose owners a source asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerWish {
    /// The user that the receiver runs as.
    #[default]
    Receiver,
    /// Those that the manifest names.
    Source,
}

/// Set-user-ID and set-group-ID bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialBits {
    /// Dropped.
    #[default]
    Drop,
    /// Kept.
    Keep,
}

/// Extended attributes other than users' (`security.*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityXattrs {
    /// A tree that has some is refused.
    #[default]
    Refuse,
    /// Kept. Needs privileges.
    Keep,
}

/// Which attributes the receiver's administrator allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributePolicy {
    /// Owners.
    pub ownership: Ownership,
    /// Set-user-ID and set-group-ID bits.
    pub special_bits: SpecialBits,
    /// Security attributes.
    pub security_xattrs: SecurityXattrs,
}

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// On whose behalf.
    pub identity: CastIdentity,
    /// What to do with names that are there.
    pub publish: PublishMode,
    /// When to flush.
    pub flush: FlushMode,
    /// Which attributes are allowed.
    pub attributes: AttributePolicy,
    /// How large a tree may be.
    pub limits: TreeLimits,
    /// Files kept open for writing, and as many for reading.
    pub descriptors_max: usize,
}

impl ReceiveOptions {
    /// For an identity, everything else as it is by default.
    #[must_use]
    pub fn new(identity: CastIdentity) -> Self {
        Self {
            identity,
            publish: PublishMode::default(),
            flush: FlushMode::default(),
            attributes: AttributePolicy::default(),
            limits: TreeLimits::default(),
            descriptors_max: 32,
        }
    }
}
