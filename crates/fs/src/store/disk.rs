//! Every call by which the store changes a file, and those by which it reads: the one place to
//! look for what a power cut can interrupt. Tests put a disk that records in the place of the real
//! one.
//!
//! Decides nothing: order and meaning are the callers'.

use rustix::fs::{AtFlags, Dir, FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};
use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Parts that one call of the system writes, at most (IOV_MAX).
const PARTS_MAX: usize = 1024;

/// A file of the store.
pub trait StoreFile: fmt::Debug + Send + Sync {
    /// Its bytes.
    ///
    /// # Errors
    /// The system's.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has none.
    ///
    /// # Errors
    /// The system's.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads all of `into`.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::UnexpectedEof`] where the file ends before.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()>;

    /// Reads all of `into` if it is in memory; false if it is not, or if that is not known. Does
    /// not wait for the disk.
    fn read_now(&self, _into: &mut [u8], _at: u64) -> bool {
        false
    }

    /// Writes all of `parts`, one behind the other.
    ///
    /// # Errors
    /// The system's; then some bytes may be written.
    fn write_at(&self, parts: &mut [IoSlice<'_>], at: u64) -> io::Result<()>;

    /// Makes it so long.
    ///
    /// # Errors
    /// The system's.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sees to it that so many bytes from its beginning have a place on the disk. The file is at
    /// least so long then. File systems that cannot are no error.
    ///
    /// # Errors
    /// The system's.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Gives the place of bytes back: they are zero. File systems that cannot are no error.
    ///
    /// # Errors
    /// The system's.
    fn punch(&self, range: Range<u64>) -> io::Result<()>;

    /// Returns when all that was written outlives a power cut.
    ///
    /// # Errors
    /// The system's; then what was written may be lost, and is not written by another call.
    fn sync(&self) -> io::Result<()>;
}

/// The directory of a store, whose files have names without a slash.
pub trait StoreDisk: fmt::Debug + Send + Sync {
    /// Opens a file that is there.
    ///
    /// # Errors
    /// The system's.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StoreFile>>;

    /// Opens a file, which is made if it is not there.
    ///
    /// # Errors
    /// The system's.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StoreFile>>;

    /// Gives a file another name; what had this name is removed.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of all files.
    ///
    /// # Errors
    /// The system's.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Returns when all names outlive a power cut.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of this machine.
#[derive(Debug)]
pub struct RealDisk {
    directory: OwnedFd,
}

impl RealDisk {
    /// Opens a directory.
    ///
    /// # Errors
    /// The system's.
    pub fn open(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::open(dir, flags, Mode::empty())? })
    }

    pub(super) fn open_with(&self, name: &str, more: OFlags) -> io::Result<File> {
        // A pipe of this name would be waited for otherwise.
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | more;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(&self.directory, name, flags, mode)?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "this is no regular file")),
        }
    }
}

impl StoreDisk for RealDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(RealFile(self.open_with(name, OFlags::empty())?)))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        Ok(Arc::new(RealFile(self.open_with(name, OFlags::CREATE)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }
}

/// A file that is open.
pub(super) fn real(file: File) -> Arc<dyn StoreFile> {
    Arc::new(RealFile(file))
}

#[derive(Debug)]
struct RealFile(File);

impl StoreFile for RealFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(into, at)
    }

    fn read_now(&self, into: &mut [u8], at: u64) -> bool {
        let len = into.len();
        let parts = &mut [IoSliceMut::new(into)];
        let flags = ReadWriteFlags::NOWAIT;
        rustix::io::preadv2(&self.0, parts, at, flags).is_ok_and(|count| count == len)
    }

    fn write_at(&self, mut parts: &mut [IoSlice<'_>], mut at: u64) -> io::Result<()> {
        // Empty parts first: a call that writes nothing is an error below.
        IoSlice::advance_slices(&mut parts, 0);
        while !parts.is_empty() {
            let some = &parts[..parts.len().min(PARTS_MAX)];
            let count = retry_on_intr(|| rustix::io::pwritev(&self.0, some, at))?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += count as u64;
            IoSlice::advance_slices(&mut parts, count);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let allocate = || rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len);
        unless_unknown(retry_on_intr(allocate))
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let (flags, len) = (
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            range.end.saturating_sub(range.start),
        );
        let punch = || rustix::fs::fallocate(&self.0, flags, range.start, len);
        unless_unknown(retry_on_intr(punch))
    }

    fn sync(&self) -> io::Result<()> {
        // Not again after an error, and not after EINTR: the kernel forgets what it has failed at.
        Ok(rustix::fs::fdatasync(&self.0)?)
    }
}

fn unless_unknown(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => Ok(other?),
    }
}
