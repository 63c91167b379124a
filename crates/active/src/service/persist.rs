//! A region as a file: its bytes, holes where nothing was ever written.
//!
//! The file appears whole, with the region as of one commit: a power cut costs what was written
//! after the last flush, and the file is never a mixture. One-sided writes that are under way while
//! a region is copied are in the copy or not, each byte by itself.

use outboard_offcode::ActiveRegion;
use outboard_offcode::region::COPY_PAGE;
use outboard_unix::regular::open_regular;
use outboard_unix::staged::{StagedFile, sync_directory_of};
use outboard_verbs::{MemError, SharedRegion};
use rustix::fs::{FlockOperation, SeekFrom, flock, seek};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Bytes that are copied at a time.
const COPY_LEN: usize = 1 << 20;
/// Pages that are copied while commits wait, about.
const FEW_PAGES: usize = 256;
/// The last pages that are kept in memory, so that commits do not wait for the file: 16 MiB.
const LAST_PAGES_MAX: usize = 4096;
/// How often changed pages are copied until they are few.
const ROUNDS_MAX: u32 = 8;

/// Why a region was not read from its file, or not written to it.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The file system.
    #[error("{}: {source}", path.display())]
    File {
        /// The region's file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file is longer than the region.
    #[error(
        "{} has {found} bytes, the region {len}: give the region that size, or move the file away",
        path.display()
    )]
    TooLong {
        /// The region's file.
        path: PathBuf,
        /// Its bytes.
        found: u64,
        /// The region's.
        len: usize,
    },
    /// Somebody else has it.
    #[error(
        "{} is another region's, of this node or of another one: name another file", path.display()
    )]
    Taken {
        /// The region's file.
        path: PathBuf,
    },
    /// The region's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

impl PersistError {
    /// This process has too many descriptors.
    pub(super) fn descriptor(source: io::Error) -> Self {
        Self::File { path: "a memory file".into(), source }
    }
}

/// The file of a region, which no other region has: a lock says so, on a file beside it, because
/// the file itself is replaced.
#[derive(Debug)]
pub(super) struct RegionFile {
    path: PathBuf,
    _lock: Option<File>,
    /// One writes at a time, so that an older state never replaces a newer one.
    writing: Mutex<()>,
}

impl RegionFile {
    /// Takes the file, which need not be there.
    pub(super) fn take(path: PathBuf) -> Result<Self, PersistError> {
        let failed = |source| PersistError::File { path: path.clone(), source };
        let lock = File::options().append(true).create(true).open(named(&path, "", ".lock"));
        let lock = lock.map_err(failed)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _lock: Some(lock), ..Self::unlocked(path) }),
            Err(Errno::WOULDBLOCK) => Err(PersistError::Taken { path }),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// The file of a region whose memory is there although its directory is not any more.
    pub(super) fn unlocked(path: PathBuf) -> Self {
        Self { path, _lock: None, writing: Mutex::new(()) }
    }

    fn failed(&self, source: io::Error) -> PersistError {
        PersistError::File { path: self.path.clone(), source }
    }

    /// Copies the file, if there is one, into new memory.
    pub(super) fn load_into(&self, memory: &SharedRegion) -> Result<(), PersistError> {
        let file = match open_regular(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|error| self.failed(error))?,
        };
        let found = file.metadata().map_err(|error| self.failed(error))?.len();
        if found > memory.len() as u64 {
            return Err(PersistError::TooLong {
                path: self.path.clone(),
                found,
                len: memory.len(),
            });
        }
        let mut buffer = vec![0; COPY_LEN];
        for_data(&file, found, |at, len| {
            let part = &mut buffer[..len];
            file.read_exact_at(part, at)?;
            let at = usize::try_from(at).map_err(io::Error::other)?;
            memory.copy_in(at, part).map_err(io::Error::other)
        })
        .map_err(|error| self.failed(error))
    }

    /// Writes the region, as of one commit. Waits for the disk.
    pub(super) fn write(&self, region: &ActiveRegion) -> Result<(), PersistError> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let write = || -> io::Result<()> {
            let staged = StagedFile::create_as(named(&self.path, ".", ".flush"))?;
            copy(region, staged.file())?;
            staged.file().sync_all()?;
            staged.rename_to(&self.path)?;
            sync_directory_of(&self.path)
        };
        write().map_err(|error| self.failed(error))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// A file beside another one, called like it.
fn named(path: &Path, before: &str, behind: &str) -> PathBuf {
    let mut name = OsString::from(before);
    name.push(path.file_name().unwrap_or_default());
    name.push(behind);
    path.with_file_name(name)
}

/// Writes what was ever written of a region, as of one commit, into an empty file. Commits wait
/// only while the last pages are read, the loop never does.
fn copy(region: &ActiveRegion, to: &File) -> io::Result<()> {
    let memory = region.memory();
    let from = File::from(memory.descriptor().map_err(io::Error::other)?);
    to.set_len(memory.len() as u64)?;
    let copying = region.begin_copy();
    let mut buffer = vec![0; COPY_LEN];
    for_data(&from, memory.len() as u64, |at, len| {
        from.read_exact_at(&mut buffer[..len], at)?;
        to.write_all_at(&buffer[..len], at)
    })?;
    for _ in 0..ROUNDS_MAX {
        let pages = copying.changed();
        let are_few = pages.len() <= FEW_PAGES;
        for at in pages {
            to.write_all_at(&page(&from, at)?, at)?;
        }
        if are_few {
            break;
        }
    }
    let (writer, pages) = copying.finish();
    let mut last = Vec::new();
    for at in pages {
        match last.len() {
            // More than memory is taken for, where commits outrun the copy: they wait for it.
            LAST_PAGES_MAX => to.write_all_at(&page(&from, at)?, at)?,
            _ => last.push((at, page(&from, at)?)),
        }
    }
    drop(writer);
    last.into_iter().try_for_each(|(at, bytes)| to.write_all_at(&bytes, at))
}

fn page(from: &File, at: u64) -> io::Result<[u8; COPY_PAGE]> {
    let mut bytes = [0; COPY_PAGE];
    from.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Calls `part` for all bytes of a file that are no holes, in parts.
fn for_data(
    file: &File,
    len: u64,
    mut part: impl FnMut(u64, usize) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        at = match seek(file.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data.min(len),
            Err(Errno::NXIO) => return Ok(()),
            // This file system knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error.into()),
        };
        let end = match seek(file.as_fd(), SeekFrom::Hole(at)) {
            Ok(end) => end.min(len),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => len,
            Err(error) => return Err(error.into()),
        };
        while at < end {
            let count = (end - at).min(COPY_LEN as u64);
            part(at, usize::try_from(count).map_err(io::Error::other)?)?;
            at += count;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_offcode::local::LocalRunner;
    use outboard_offcode::{Outcome, Wasmtime};
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    /// Adds one to words that are far apart.
    const BOTH: &str = r#"(module
        (import "env" "memory" (memory 1))
        (import "ob" "add64" (func $add (param i64 i64) (result i64)))
        (func (export "add") (result i64)
            (drop (call $add (i64.const 8) (i64.const 1)))
            (drop (call $add (i64.const 0x5000008) (i64.const 1)))
            (drop (call $add (i64.const 0x7f00008) (i64.const 1)))
            (i64.const 0)))"#;
    const WORDS: [u64; 3] = [8, 0x500_0008, 0x7f0_0008];

    fn word(copied: &File, at: u64) -> u64 {
        let mut bytes = [0; 8];
        copied.read_exact_at(&mut bytes, at).expect("inside");
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn a_copy_is_of_one_commit_while_commits_go_on() {
        let engine = Wasmtime::new(None).expect("an engine");
        let mut runner = LocalRunner::new(engine, 128 << 20).expect("a runner");
        let info = runner.load("both", &wat::parse_str(BOTH).expect("legal")).expect("loaded");
        // The second of the words is in a hole at first.
        let memory = runner.region().memory().clone();
        for at in (0..0x400_0000).chain(0x600_0000..128 << 20).step_by(4096) {
            memory.store_u64(at, 1).expect("inside");
        }
        let (region, is_over) = (Arc::clone(runner.region()), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let added = runner.execute(info.hash, "add", b"");
                    assert!(matches!(added, Outcome::Done { .. }), "{added:?}");
                }
            });
            let seen: Vec<_> = (0..10)
                .map(|_| {
                    let file = memfd_create(c"copy", MemfdFlags::CLOEXEC).expect("memory");
                    let file = File::from(file);
                    copy(&region, &file).expect("copied");
                    WORDS.map(|at| word(&file, at))
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            assert!(
                seen.iter().all(|found| *found == [found[0]; 3]),
                "not of one commit: {seen:?}"
            );
            assert!(seen.is_sorted() && seen[0] < seen[9], "{seen:?}");
        });
    }
}
