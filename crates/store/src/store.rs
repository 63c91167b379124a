//! The store itself: looks in memory first, then on disk.
//!
//! Its locks are never held while a file is read or written.

use crate::disk;
use crate::error::StoreError;
use crate::memory::MemoryCache;
use crate::queue::Queue;
use rustix::io::Errno;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// BLAKE3 hash of a content.
pub type ContentHash = [u8; 32];

/// Bytes kept in memory, at most; one content may take a sixteenth of it.
pub const MEMORY_LEN_MAX: usize = 64 << 20;

/// What a content is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Reading only.
    Data,
    /// Reading and execution.
    Program,
}

/// Size and counters of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub struct StoreUsage {
    /// Bytes on disk, as far as this process knows.
    pub disk_bytes: u64,
    /// Files on disk, as far as this process knows.
    pub disk_files: u64,
    /// The quota: bytes on disk, at most.
    pub quota_bytes: u64,
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Requests whose content was found.
    pub hits: u64,
    /// Requests whose content was absent.
    pub misses: u64,
    /// Files that were written.
    pub written: u64,
    /// Bytes of these files.
    pub written_bytes: u64,
    /// Bytes that wait now for the disk.
    pub waiting_now_bytes: u64,
    /// Contents that were not written because the disk is too slow, or failed.
    pub unwritten: u64,
    /// Files that did not have the hash in their names.
    pub corrupt: u64,
    /// Files that were removed to make room for others.
    pub evicted: u64,
    /// Bytes of these files.
    pub evicted_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct StoreState {
    memory: MemoryCache,
    usage: StoreUsage,
    /// Files whose hash this process has verified.
    verified: HashSet<ContentHash>,
    /// Bytes written since the directory was last scanned.
    unseen: u64,
    /// The chunk hashes of contents.
    pub(crate) trees: HashMap<ContentHash, Arc<[ContentHash]>>,
}

/// Contents by their hash; see the [crate].
#[derive(Debug)]
pub struct Store {
    pub(crate) dir: PathBuf,
    pub(crate) quota: u64,
    state: Mutex<StoreState>,
    pub(crate) queue: Mutex<Queue>,
}

/// The default directory of a store: `$XDG_CACHE_HOME/outboard/store`, else
/// `$HOME/.cache/outboard/store`.
///
/// # Errors
/// [`StoreError::NoPlace`].
pub fn default_directory() -> Result<PathBuf, StoreError> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let cache = absolute("XDG_CACHE_HOME");
    let cache = cache.or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    Ok(cache.ok_or(StoreError::NoPlace)?.join("outboard/store"))
}

impl Store {
    /// Opens a store of at most `quota` bytes, or makes one. Contents beyond the quota are removed.
    ///
    /// # Errors
    /// [`StoreError::Directory`], [`StoreError::Exposed`].
    pub fn open(dir: &Path, quota: u64) -> Result<Self, StoreError> {
        disk::prepare(dir)?;
        let state = StoreState {
            memory: MemoryCache::new(MEMORY_LEN_MAX),
            usage: StoreUsage { quota_bytes: quota, ..StoreUsage::default() },
            verified: HashSet::new(),
            unseen: 0,
            trees: HashMap::new(),
        };
        let (state, queue) = (Mutex::new(state), Mutex::default());
        let store = Self { dir: dir.into(), quota, state, queue };
        store.tidy().map_err(|source| StoreError::Directory { dir: dir.into(), source })?;
        Ok(store)
    }

    /// After a panic of another thread the state is still valid: it consists of counters and
    /// copies.
    pub(crate) fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content with this hash, if the store has it.
    #[must_use]
    pub fn get(&self, hash: &ContentHash) -> Option<Arc<[u8]>> {
        if let Some(held) = self.held(hash) {
            return Some(held);
        }
        let found: Option<Arc<[u8]>> = self.read(hash).map(Into::into);
        if let Some(bytes) = &found {
            self.state().memory.put(hash, bytes);
        }
        self.count(found.is_some());
        found
    }

    /// As [`Self::get`], if the content is in memory: for a loop that must not wait for a disk.
    #[must_use]
    pub fn held(&self, hash: &ContentHash) -> Option<Arc<[u8]>> {
        let mut state = self.state();
        let held = state.memory.get(hash);
        state.usage.hits += u64::from(held.is_some());
        held
    }

    /// An open file with the content that has this hash; it stays readable if the store removes it.
    #[must_use]
    pub fn file(&self, hash: &ContentHash) -> Option<File> {
        let found = self.verified_path(hash).and_then(|path| disk::open(&path).ok());
        self.count(found.is_some());
        found
    }

    /// The path of the content that has this hash, to be mounted before another use of the store
    /// may remove the file.
    #[must_use]
    pub fn path_of(&self, hash: &ContentHash) -> Option<PathBuf> {
        let found = self.verified_path(hash);
        self.count(found.is_some());
        found
    }

    /// Stores a content. After an error it may still be in memory for a while.
    ///
    /// # Errors
    /// [`StoreError::WrongHash`], [`StoreError::TooLarge`], [`StoreError::DiskFull`],
    /// [`StoreError::Write`]. None of them loses earlier contents.
    pub fn put(
        &self,
        hash: &ContentHash,
        bytes: Arc<[u8]>,
        kind: ContentKind,
    ) -> Result<(), StoreError> {
        self.remember(hash, &bytes)?;
        self.write_file(hash, &bytes, kind)
    }

    /// Verifies a content, and keeps it in memory if it is small.
    pub(crate) fn remember(&self, hash: &ContentHash, bytes: &Arc<[u8]>) -> Result<(), StoreError> {
        if blake3::hash(bytes).as_bytes() != hash {
            return Err(StoreError::WrongHash { len: bytes.len() });
        }
        self.state().memory.put(hash, bytes);
        Ok(())
    }

    /// Writes a verified content, unless its file is there.
    pub(crate) fn write_file(
        &self,
        hash: &ContentHash,
        bytes: &[u8],
        kind: ContentKind,
    ) -> Result<(), StoreError> {
        let len = bytes.len() as u64;
        if len > self.quota {
            return Err(StoreError::TooLarge { len, quota: self.quota });
        }
        let path = disk::path_of(&self.dir, hash);
        if self.is_there(&path, hash, kind) {
            return Ok(());
        }
        disk::write(&path, bytes, kind).map_err(|source| self.write_error(path, source, len))?;
        self.note_written(hash, len)
    }

    /// Whether this process has verified the file. A program must also be executable.
    pub(crate) fn is_there(&self, path: &Path, hash: &ContentHash, kind: ContentKind) -> bool {
        let known = self.state().verified.contains(hash);
        let Some(meta) = fs::symlink_metadata(path).ok().filter(|_| known) else { return false };
        let mode = meta.permissions().mode() & 0o777;
        kind == ContentKind::Data || mode == disk::mode_of(kind)
    }

    pub(crate) fn write_error(
        &self,
        path: PathBuf,
        source: std::io::Error,
        len: u64,
    ) -> StoreError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                StoreError::DiskFull { dir: self.dir.clone(), len }
            }
            _ => StoreError::Write { path, source },
        }
    }

    /// Other processes write as well, so this process's count is exact only for a while.
    pub(crate) fn note_written(&self, hash: &ContentHash, len: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        state.verified.insert(*hash);
        state.usage.disk_bytes += len;
        state.usage.disk_files += 1;
        state.usage.written += 1;
        state.usage.written_bytes += len;
        state.unseen += len;
        let due = state.usage.disk_bytes > self.quota || state.unseen > self.quota / 16;
        drop(state);
        if due {
            let dir = || self.dir.clone();
            self.tidy().map_err(|source| StoreError::Directory { dir: dir(), source })?;
        }
        Ok(())
    }

    /// Scans the directory, and removes the least recently used files that are not pinned.
    fn tidy(&self) -> std::io::Result<()> {
        let mut found = disk::scan(&self.dir)?;
        let mut bytes = found.iter().map(|file| file.len).sum::<u64>();
        let (mut evicted, mut evicted_bytes) = (0, 0);
        if bytes > self.quota {
            found.sort_by_key(|file| std::cmp::Reverse(file.used));
            let mut pinned = Vec::new();
            // Somewhat below the quota, so that not every new file causes a scan.
            while bytes > self.quota - self.quota / 10 {
                let Some(file) = found.pop() else { break };
                if disk::remove_unless_locked(&file.path) {
                    evicted += 1;
                    evicted_bytes += file.len;
                    bytes -= file.len;
                } else {
                    pinned.push(file);
                }
            }
            found.extend(pinned);
        }
        let mut state = self.state();
        state.usage.disk_bytes = bytes;
        state.usage.disk_files = found.len() as u64;
        state.usage.evicted += evicted;
        state.usage.evicted_bytes += evicted_bytes;
        state.unseen = 0;
        let left: HashSet<ContentHash> = found.iter().map(|file| file.hash).collect();
        state.verified.retain(|hash| left.contains(hash));
        Ok(())
    }

    /// The whole of a file, if it has the hash in its name.
    fn read(&self, hash: &ContentHash) -> Option<Vec<u8>> {
        let path = disk::path_of(&self.dir, hash);
        let mut file = self.opened(&path, hash)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        // Verified on every read: disks lose bits, and hashing costs less than the read did.
        let right = blake3::hash(&bytes).as_bytes() == hash;
        self.judge(hash, &path, right).then_some(bytes)
    }

    /// The path of a file, if it has the hash in its name.
    fn verified_path(&self, hash: &ContentHash) -> Option<PathBuf> {
        let path = disk::path_of(&self.dir, hash);
        let mut file = self.opened(&path, hash)?;
        if self.state().verified.contains(hash) {
            return Some(path);
        }
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut file, &mut hasher).ok()?;
        self.judge(hash, &path, hasher.finalize().as_bytes() == hash).then_some(path)
    }

    pub(crate) fn opened(&self, path: &Path, hash: &ContentHash) -> Option<File> {
        match disk::open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                self.state().verified.remove(hash);
                if error.kind() == ErrorKind::InvalidData {
                    self.judge(hash, path, false);
                }
                None
            }
        }
    }

    /// Records that a file is right, or removes it.
    pub(crate) fn judge(&self, hash: &ContentHash, path: &Path, right: bool) -> bool {
        if !right {
            let _ = fs::remove_file(path);
            let mut state = self.state();
            state.usage.corrupt += 1;
            state.trees.remove(hash);
        } else {
            self.state().verified.insert(*hash);
        }
        right
    }

    pub(crate) fn note_unwritten(&self) {
        self.state().usage.unwritten += 1;
    }

    fn count(&self, found: bool) {
        let usage = &mut self.state().usage;
        if found { usage.hits += 1 } else { usage.misses += 1 }
    }

    /// Size and counters of the store.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        let waiting_now_bytes = self.waiting();
        let state = self.state();
        let memory_bytes = state.memory.len() as u64;
        StoreUsage { memory_bytes, waiting_now_bytes, ..state.usage }
    }
}
