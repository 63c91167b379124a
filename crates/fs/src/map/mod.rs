//! A file's bytes as registered memory, read when they are touched (rdistcc §6, figure 11).
//!
//! A map is a region of memory, as long as the file was, whose pages are missing. Whatever touches
//! one, be it the program or a peer's RDMA Read, sleeps until it is read from the server. Pages
//! stay as they were when they were read; [`FileMap::has_changed`] says whether the file has
//! changed meanwhile. Nothing is written back.
//!
//! Who touches pages must not be the thread that serves the connection over which they come: a
//! region is registered with another [`Context`](outboard_verbs::Context) than the client's.

mod offer;
mod pages;

pub use offer::{MapOffer, TOKEN_LEN};
pub use pages::PageCounts;

use crate::client::{FsCaller, FsClient, FsError, TRANSFER_MAX};
use crate::protocol::FsInode;
use outboard_cluster::waker::Waker;
use outboard_mem::{LazyFill, MemError, SharedRegion, Space};
use outboard_verbs::VerbsError;
use pages::{OpenedMap, PageReader, is_file};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// Threads that read pages: faults that are served at the same time.
const THREADS: usize = 4;

/// Why a file is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum FileMapError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// It is a directory, a link, a device.
    #[error("it is not a file with bytes")]
    NoFile,
    /// It has no bytes.
    #[error("the file is empty: there is nothing to map")]
    Empty,
    /// It is longer than this machine's addresses, or than files may be.
    #[error("the file has {size} bytes, more than this machine can map")]
    TooLong {
        /// Its bytes.
        size: u64,
    },
    /// No memory; or a system that has no userfaultfd, or forbids it.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// It cannot be registered or offered.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// No thread, or no descriptor.
    #[error("this machine: {0}")]
    Machine(std::io::Error),
}

/// See this module's first lines.
#[derive(Debug)]
pub struct FileMap {
    reader: Arc<PageReader>,
    threads: Vec<JoinHandle<()>>,
    waker: Waker,
}

impl FileMap {
    /// Maps a file as it is now. The client is the map's from now on, and ends with it.
    ///
    /// # Errors
    /// [`FileMapError`].
    pub fn new(
        client: &Arc<FsClient>,
        caller: FsCaller,
        inode: FsInode,
    ) -> Result<Self, FileMapError> {
        if !is_file(&client.get(&caller, inode)?) {
            return Err(FileMapError::NoFile);
        }
        let opened = OpenedMap::new(client, &caller, inode)?;
        let record = opened.record;
        let size = record.size;
        let len = usize::try_from(size).map_err(|_| FileMapError::TooLong { size })?;
        if len == 0 {
            return Err(FileMapError::Empty);
        }
        let memory = SharedRegion::memfd(c"outboard-fs-map", len, Space::OnDemand)?;
        let fill = memory.fill_lazily()?;
        let waker = Waker::new().map_err(|error| FileMapError::Machine(error.into()))?;
        let reader = PageReader::new(opened, (inode, record.version), fill);
        let mut map = Self { reader: Arc::new(reader), threads: Vec::new(), waker };
        for _ in 0..THREADS {
            map.start().map_err(FileMapError::Machine)?;
        }
        Ok(map)
    }

    fn start(&mut self) -> std::io::Result<()> {
        let (reader, waker) = (Arc::clone(&self.reader), self.waker.clone());
        let name = "outboard-fs-map".to_owned();
        self.threads.push(Builder::new().name(name).spawn(move || reader.run(&waker))?);
        Ok(())
    }

    /// The memory. Register it, or read it; a page that cannot be read is a
    /// [`MemError::Missing`], of which [`Self::failure`] says why.
    #[must_use]
    pub fn region(&self) -> &SharedRegion {
        self.fill().region()
    }

    fn fill(&self) -> &LazyFill {
        self.reader.fill()
    }

    /// Whether a page was read of a file that had changed since it was mapped, or was refreshed:
    /// pages may be of several states.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.reader.has_changed()
    }

    /// Why the last page that failed could not be read.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.reader.failure()
    }

    /// What was read so far.
    #[must_use]
    pub fn counts(&self) -> PageCounts {
        self.reader.counts()
    }

    /// Asks whether the file has changed; if so, all pages are forgotten, and read again when they
    /// are touched. Bytes behind the length that it had when it was mapped are not there; where it
    /// is shorter now, bytes are 0. True if pages were forgotten.
    ///
    /// # Errors
    /// [`FileMapError::Fs`]: the file is gone, or the server; [`FileMapError::Memory`].
    pub fn refresh(&self) -> Result<bool, FileMapError> {
        self.reader.refresh()
    }
}

impl Drop for FileMap {
    /// Whoever still has the region finds bytes of 0 in pages that were not read: deregister it
    /// before.
    fn drop(&mut self) {
        self.reader.end();
        self.waker.wake();
        for thread in self.threads.drain(..) {
            // It cannot fail.
            let _ended = thread.join();
        }
    }
}

const _: () = assert!(pages::AHEAD_MAX <= TRANSFER_MAX, "one request reads so much");
