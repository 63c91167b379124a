//! The staging directory: its name, its lock, and the state that outlives a receiver.
//!
//! A receiver holds a lock on it as long as it lives, which the kernel drops when it dies. Only a
//! directory of this user's own, that no other user can enter, is ever used.

use super::error::ReceiveError;
use super::options::{CastIdentity, Destination};
use super::remove::{remove_contents, remove_tree};
use super::shared::HELD;
use super::unlocked::UnlockedDirectories;
use crate::sign::{CastHeader, write_all_at};
use crate::tree::{HIDDEN_PREFIX, nanoseconds, open_beneath, read_exactly_at};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many names are tried: others may have taken some.
const ATTEMPTS_MAX: usize = 16;
/// Bytes in a state file, at most: an inode's number for each top-level name.
const STATE_LEN_MAX: u64 = 256 << 20;
/// Bytes that are reserved for it: enough for some hundred names.
const STATE_RESERVED: u64 = 4096;
const STATE: &str = "state";
const STATE_NEW: &str = "state.new";

/// How far a cast has come. Whatever else a killed receiver has left is checked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StagingPhase {
    /// The manifest is not complete; `tree` may be half made.
    Gathering,
    /// The tree is made, and files are written.
    Filling,
    /// All was received; names move to the destination.
    Publishing {
        /// Whether single files move.
        is_merge: bool,
        /// The inode of each top-level entry.
        tops: Vec<u64>,
    },
}

/// A staging directory that this process has locked.
#[derive(Debug)]
pub(super) struct StagingDirectory {
    destination: Arc<Destination>,
    name: String,
    directory: OwnedFd,
}

/// Whether there was one already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StagingOrigin {
    New,
    Left,
}

impl StagingDirectory {
    /// Makes or takes over the staging directory of this content, and removes those that dead
    /// receivers of the same identity have left of other contents.
    pub(super) fn claim(
        destination: Arc<Destination>,
        identity: &CastIdentity,
        header: &CastHeader,
    ) -> Result<(Self, StagingOrigin), ReceiveError> {
        let base = staging_name(identity, header);
        remove_stale(&destination, identity, &base);
        let path = || destination.path().to_owned();
        let mut name = base.clone();
        for attempt in 0..ATTEMPTS_MAX {
            match try_claim(destination.fd(), &name) {
                Ok(Some((directory, origin))) => {
                    return Ok((Self { destination, name, directory }, origin));
                }
                // Another removed it just now.
                Ok(None) => {}
                Err(Errno::WOULDBLOCK) => return Err(ReceiveError::Busy { path: path() }),
                // Another user's.
                Err(Errno::PERM | Errno::NOTDIR) => name = format!("{base}.{attempt}"),
                Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                    return Err(ReceiveError::write(name.as_bytes(), errno));
                }
                Err(errno) => return Err(ReceiveError::Destination { path: path(), errno }),
            }
        }
        Err(ReceiveError::Destination { path: path(), errno: Errno::EXIST })
    }

    pub(super) fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Its path for messages.
    pub(super) fn path(&self) -> PathBuf {
        self.destination.path().join(&self.name)
    }

    /// What its name has after the prefix of all hidden names.
    pub(super) fn suffix(&self) -> &str {
        self.name.strip_prefix(&*String::from_utf8_lossy(HIDDEN_PREFIX)).unwrap_or(&self.name)
    }

    /// Opens a file in it for reading and writing, made if it is not there.
    pub(super) fn open_file(&self, name: &str) -> Result<OwnedFd, ReceiveError> {
        let (flags, mode) = (OFlags::RDWR | OFlags::CREATE, Mode::RUSR | Mode::WUSR);
        let opened = open_beneath(self.fd(), name.as_bytes(), flags, mode);
        opened.map_err(|errno| ReceiveError::write(name.as_bytes(), errno))
    }

    /// What the state file says; `None` for anything but a state.
    pub(super) fn phase(&self) -> Option<StagingPhase> {
        // Whatever stands there, opening it waits for nothing.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let file = open_beneath(self.fd(), STATE.as_bytes(), flags, Mode::empty()).ok()?;
        let len = u64::try_from(fs::fstat(&file).ok()?.st_size).ok()?;
        let mut bytes = vec![0; usize::try_from(len.min(STATE_LEN_MAX)).ok()?];
        read_exactly_at(&file, &mut bytes, 0).ok()?;
        postcard::take_from_bytes(&bytes)
            .ok()
            .filter(|(_, rest)| rest.is_empty())
            .map(|(phase, _)| phase)
    }

    /// Replaces the state at once.
    pub(super) fn set_phase(&self, phase: &StagingPhase) -> Result<(), ReceiveError> {
        let failed = |errno| ReceiveError::write(STATE.as_bytes(), errno);
        let bytes = postcard::to_stdvec(phase).expect("a state is plain data");
        let file = self.open_file(STATE_NEW)?;
        write_all_at(&file, &bytes, 0).map_err(failed)?;
        fs::ftruncate(&file, bytes.len() as u64).map_err(failed)?;
        fs::renameat(self.fd(), STATE_NEW, self.fd(), STATE).map_err(failed)?;
        if *phase == StagingPhase::Filling { self.reserve_state() } else { Ok(()) }
    }

    /// Reserves space for the next state, so that a disk that others fill meanwhile does not keep
    /// back what has come.
    fn reserve_state(&self) -> Result<(), ReceiveError> {
        let file = self.open_file(STATE_NEW)?;
        match fs::fallocate(&file, fs::FallocateFlags::empty(), 0, STATE_RESERVED) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(ReceiveError::write(STATE.as_bytes(), errno)),
        }
    }

    /// Removes all that is in it. What cannot be removed is left under another name, in whose place
    /// this is an empty directory.
    pub(super) fn wipe(&mut self) -> Result<(), ReceiveError> {
        let Err(first) = remove_contents(self.fd(), &|| ()) else { return Ok(()) };
        let failed = |errno| ReceiveError::write(self.name.as_bytes(), errno);
        let left = self.set_aside().map_err(failed)?;
        tracing::warn!(path = %left.display(), error = %first, "cannot be removed");
        self.directory = match try_claim(self.destination.fd(), &self.name).map_err(failed)? {
            Some((directory, StagingOrigin::New)) => directory,
            _ => return Err(ReceiveError::Busy { path: self.destination.path().to_owned() }),
        };
        Ok(())
    }

    /// Gives it a name that is in no cast's way; later casts of this identity try to remove it.
    pub(super) fn set_aside(&self) -> Result<PathBuf, Errno> {
        let destination = self.destination.fd();
        let stat = fs::fstat(&self.directory)?;
        // No two directories of a file system have the same inode at a time.
        let name = format!("{}-left-{:x}", identity_part(&self.name), stat.st_ino);
        fs::renameat_with(destination, &self.name, destination, &name, RenameFlags::NOREPLACE)?;
        Ok(self.destination.path().join(name))
    }

    /// Removes it: what is in it by its descriptor, since another may have taken its name.
    /// `goes_on` is called after each name.
    pub(super) fn remove(&self, goes_on: &(dyn Fn() + Sync)) -> Result<(), Errno> {
        remove_contents(self.fd(), goes_on)?;
        match fs::unlinkat(self.destination.fd(), &self.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        // A process that was forked off meanwhile and has not executed its program yet holds the
        // same lock. Where this fails, the lock goes with the descriptor.
        let _ = fs::flock(&self.directory, FlockOperation::Unlock);
    }
}

/// Opens, checks and locks; `None` when it was removed meanwhile.
fn try_claim(
    destination: BorrowedFd<'_>,
    name: &str,
) -> Result<Option<(OwnedFd, StagingOrigin)>, Errno> {
    let origin = match fs::mkdirat(destination, name, Mode::RWXU) {
        Ok(()) => StagingOrigin::New,
        Err(Errno::EXIST) => StagingOrigin::Left,
        // Not to be mistaken for a name that is another user's.
        Err(Errno::PERM) => return Err(Errno::ACCESS),
        Err(errno) => return Err(errno),
    };
    match lock_own(destination, name.as_bytes()) {
        Err(Errno::NOENT) => Ok(None),
        locked => Ok(locked?.map(|directory| (directory, origin))),
    }
}

/// Locks a directory that only this user can enter, and puts right what a merge has left:
/// [`Errno::PERM`] for another's, [`Errno::WOULDBLOCK`] for one in use, `None` for one that has no
/// name any more.
fn lock_own(destination: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory =
        open_beneath(destination, name, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::ACCESS | Errno::LOOP => Errno::PERM,
            errno => errno,
        })?;
    let stat = fs::fstat(&directory)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(Errno::PERM);
    }
    fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    let named = fs::statat(destination, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_same = (named.st_ino, named.st_dev) == (stat.st_ino, stat.st_dev);
    if is_same {
        // A merge that was killed had made directories writable.
        UnlockedDirectories { staging: directory.as_fd(), destination }.lock();
    }
    Ok(is_same.then_some(directory))
}

/// A receiver that is not there any more; none begins in its place while this lives.
#[derive(Debug)]
pub(crate) struct DeadStaging {
    _lock: Option<OwnedFd>,
}

/// Whether no receiver uses the staging directory with this suffix: `None` if one does, or may.
pub(crate) fn dead_staging(destination: &Destination, suffix: &[u8]) -> Option<DeadStaging> {
    match lock_own(destination.fd(), &[HIDDEN_PREFIX, suffix].concat()) {
        Ok(lock) => Some(DeadStaging { _lock: lock }),
        Err(Errno::NOENT) => Some(DeadStaging { _lock: None }),
        Err(_) => None,
    }
}

fn remove_stale(destination: &Destination, identity: &CastIdentity, base: &str) {
    let prefix = identity_prefix(identity);
    for name in hidden_names(destination, prefix.as_bytes()) {
        if !name.starts_with(base.as_bytes()) {
            remove_unlocked(destination, &name, |_| true);
        }
    }
}

/// Removes what receivers of any identity have left here, if no receiver uses it and nothing was
/// written to it for so long. Returns how many there were.
pub fn remove_abandoned(destination: &Destination, age: Duration) -> usize {
    let is_old = |directory: &OwnedFd| {
        let times = [HELD, STATE].map(|name| fs::statat(directory, name, AtFlags::empty()));
        let times = times.into_iter().chain([fs::fstat(directory)]).flatten();
        let written_ns = times.map(|stat| nanoseconds(stat.st_mtime, stat.st_mtime_nsec)).max();
        let written = u64::try_from(written_ns.unwrap_or(0)).unwrap_or(0);
        let since = SystemTime::now().duration_since(UNIX_EPOCH + Duration::from_nanos(written));
        since.is_ok_and(|since| since >= age)
    };
    let names = hidden_names(destination, HIDDEN_PREFIX);
    names.iter().filter(|name| remove_unlocked(destination, name, is_old)).count()
}

fn hidden_names(destination: &Destination, prefix: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    // A description of its own: a shared one has one place for all that list.
    let Ok(listing) = open_beneath(destination.fd(), b".", flags, Mode::empty()) else {
        return found;
    };
    let listed = for_each_name(&listing, |name| {
        if name.to_bytes().starts_with(prefix) {
            found.push(name.to_bytes().to_vec());
        }
    });
    if listed.is_ok() { found } else { Vec::new() }
}

/// Removes a staging directory of this user's that no receiver has locked.
fn remove_unlocked(
    destination: &Destination,
    name: &[u8],
    is_due: impl FnOnce(&OwnedFd) -> bool,
) -> bool {
    // What cannot be removed stays hidden, and is tried again by the next cast.
    match lock_own(destination.fd(), name) {
        Ok(Some(lock)) if is_due(&lock) => remove_tree(destination.fd(), name).is_ok(),
        _ => false,
    }
}

fn identity_prefix(identity: &CastIdentity) -> String {
    let prefix = String::from_utf8_lossy(HIDDEN_PREFIX);
    format!("{prefix}{}-", hexadecimal(identity.as_bytes()))
}

/// The part of a staging directory's name that is the same for all of an identity.
fn identity_part(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(part, _)| part)
}

fn staging_name(identity: &CastIdentity, header: &CastHeader) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&header.manifest_hash).update(&header.shape.chunk_len().bytes().to_le_bytes());
    hasher.update(&header.shape.manifest_len().to_le_bytes());
    hasher.update(&header.shape.stream_len().to_le_bytes());
    format!("{}{}", identity_prefix(identity), hexadecimal(hasher.finalize().as_bytes()))
}

/// The first eight bytes.
fn hexadecimal(hash: &[u8; 32]) -> String {
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
