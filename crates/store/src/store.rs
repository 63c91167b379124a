//! The store itself: memory first, then the disk.
//!
//! Its locks are never held while a file is read or written.

use crate::disk;
use crate::error::StoreError;
use crate::memory::Memory;
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// BLAKE3 of contents.
pub type Hash = [u8; 32];

/// Bytes that are kept in memory, at most; one content may have a sixteenth of it.
pub const MEMORY_LEN_MAX: usize = 64 << 20;

/// What a content is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To be read.
    Data,
    /// To be executed too.
    Program,
}

/// What a store holds and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes on disk, as far as this process knows.
    pub bytes: u64,
    /// Files on disk, as far as this process knows.
    pub files: u64,
    /// Bytes on disk that are allowed.
    pub quota: u64,
    /// Bytes in memory.
    pub memory: u64,
    /// Contents that were found.
    pub hits: u64,
    /// Contents that were not.
    pub misses: u64,
    /// Files that were not what their names said.
    pub corrupt: u64,
    /// Files that were removed for others.
    pub evicted: u64,
}

#[derive(Debug)]
struct State {
    memory: Memory,
    usage: Usage,
    /// Files whose hash this process has seen to be right.
    verified: HashSet<Hash>,
    /// Bytes written since the directory was last looked through.
    unseen: u64,
}

/// Contents by their hash. See the crate's text.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    quota: u64,
    state: Mutex<State>,
}

/// Where a store is when nobody says: `$XDG_CACHE_HOME/outboard/store`, else
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
    /// Opens a store of at most `quota` bytes, or makes one. What is too much is removed.
    ///
    /// # Errors
    /// [`StoreError::Directory`], [`StoreError::Exposed`].
    pub fn open(dir: &Path, quota: u64) -> Result<Self, StoreError> {
        disk::prepare(dir)?;
        let state = State {
            memory: Memory::new(MEMORY_LEN_MAX),
            usage: Usage { quota, ..Usage::default() },
            verified: HashSet::new(),
            unseen: 0,
        };
        let store = Self { dir: dir.into(), quota, state: Mutex::new(state) };
        store.tidy().map_err(|source| StoreError::Directory { dir: dir.into(), source })?;
        Ok(store)
    }

    /// A panic elsewhere leaves nothing half done that matters: these are counters and copies.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The contents that a hash names, if they are here.
    #[must_use]
    pub fn get(&self, hash: &Hash) -> Option<Arc<[u8]>> {
        let held = self.state().memory.get(hash);
        let found = held.or_else(|| {
            let bytes: Arc<[u8]> = self.read(hash)?.into();
            self.state().memory.put(hash, &bytes);
            Some(bytes)
        });
        self.count(found.is_some());
        found
    }

    /// An open file with the contents that a hash names; it stays readable if the store removes it.
    #[must_use]
    pub fn file(&self, hash: &Hash) -> Option<File> {
        let found = self.verified_path(hash).and_then(|path| disk::open(&path).ok());
        self.count(found.is_some());
        found
    }

    /// Where the contents are that a hash names: for mounting, before somebody else's use of the
    /// store removes them.
    #[must_use]
    pub fn path_of(&self, hash: &Hash) -> Option<PathBuf> {
        let found = self.verified_path(hash);
        self.count(found.is_some());
        found
    }

    /// Keeps contents. After an error they may still be in memory, for a while.
    ///
    /// # Errors
    /// [`StoreError::WrongHash`], [`StoreError::TooLarge`], [`StoreError::DiskFull`],
    /// [`StoreError::Write`]. Nothing that was there before is lost by any of them.
    pub fn put(&self, hash: &Hash, bytes: Arc<[u8]>, kind: Kind) -> Result<(), StoreError> {
        if blake3::hash(&bytes).as_bytes() != hash {
            return Err(StoreError::WrongHash { len: bytes.len() });
        }
        self.state().memory.put(hash, &bytes);
        let len = bytes.len() as u64;
        if len > self.quota {
            return Err(StoreError::TooLarge { len, quota: self.quota });
        }
        let path = disk::path_of(&self.dir, hash);
        if self.is_there(&path, hash, kind) {
            return Ok(());
        }
        disk::write(&path, &bytes, kind).map_err(|source| self.write_error(path, source, len))?;
        self.note_written(hash, len)
    }

    /// Whether this process knows that a file is there and right. A program's must be executable.
    fn is_there(&self, path: &Path, hash: &Hash, kind: Kind) -> bool {
        let known = self.state().verified.contains(hash);
        let Some(meta) = fs::symlink_metadata(path).ok().filter(|_| known) else { return false };
        let mode = meta.permissions().mode() & 0o777;
        kind == Kind::Data || mode == disk::mode_of(kind)
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

    /// Others write as well, so that a count of our own is only good for a while.
    fn note_written(&self, hash: &Hash, len: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        state.verified.insert(*hash);
        state.usage.bytes += len;
        state.usage.files += 1;
        state.unseen += len;
        let due = state.usage.bytes > self.quota || state.unseen > self.quota / 16;
        drop(state);
        if due {
            let dir = || self.dir.clone();
            self.tidy().map_err(|source| StoreError::Directory { dir: dir(), source })?;
        }
        Ok(())
    }

    /// Looks through the directory, and removes what was not used for longest.
    fn tidy(&self) -> std::io::Result<()> {
        let mut found = disk::scan(&self.dir)?;
        let mut bytes = found.iter().map(|file| file.len).sum::<u64>();
        let mut evicted = 0;
        if bytes > self.quota {
            found.sort_by_key(|file| std::cmp::Reverse(file.used));
            // Somewhat below, so that not every file that comes costs a look.
            while bytes > self.quota - self.quota / 10 {
                let Some(file) = found.pop() else { break };
                evicted += u64::from(fs::remove_file(&file.path).is_ok());
                bytes -= file.len;
            }
        }
        let mut state = self.state();
        state.usage.bytes = bytes;
        state.usage.files = found.len() as u64;
        state.usage.evicted += evicted;
        state.unseen = 0;
        let left: HashSet<Hash> = found.iter().map(|file| file.hash).collect();
        state.verified.retain(|hash| left.contains(hash));
        Ok(())
    }

    /// The whole of a file, if it is what its name says.
    fn read(&self, hash: &Hash) -> Option<Vec<u8>> {
        let path = disk::path_of(&self.dir, hash);
        let mut file = self.opened(&path, hash)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        // Looked at before or not: disks forget, and this costs less than reading did.
        let right = blake3::hash(&bytes).as_bytes() == hash;
        self.judge(hash, &path, right).then_some(bytes)
    }

    /// Where a file is, if it is what its name says.
    fn verified_path(&self, hash: &Hash) -> Option<PathBuf> {
        let path = disk::path_of(&self.dir, hash);
        let mut file = self.opened(&path, hash)?;
        if self.state().verified.contains(hash) {
            return Some(path);
        }
        let mut hasher = blake3::Hasher::new();
        std::io::copy(&mut file, &mut hasher).ok()?;
        self.judge(hash, &path, hasher.finalize().as_bytes() == hash).then_some(path)
    }

    fn opened(&self, path: &Path, hash: &Hash) -> Option<File> {
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

    /// Notes that a file is right, or removes it.
    fn judge(&self, hash: &Hash, path: &Path, right: bool) -> bool {
        if !right {
            let _ = fs::remove_file(path);
            self.state().usage.corrupt += 1;
        } else {
            self.state().verified.insert(*hash);
        }
        right
    }

    fn count(&self, found: bool) {
        let usage = &mut self.state().usage;
        if found { usage.hits += 1 } else { usage.misses += 1 }
    }

    /// What the store holds and did.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let state = self.state();
        Usage { memory: state.memory.len() as u64, ..state.usage }
    }
}
