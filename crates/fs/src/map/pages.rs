//! Reading the pages that somebody waits for, and some behind them.

use super::FileMapError;
use crate::client::{FileRead, FsCaller, FsClient, FsError, FsOpening, OpenedFile};
use crate::protocol::{FsAnswer, FsInode, FsRecord, MAY_READ};
use outboard_cluster::waker::Waker;
use outboard_mem::{LazyFill, MemError};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::param::page_size;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are read for one page that somebody touches: as much as costs hardly more.
const AHEAD: usize = 16 << 10;
/// Bytes at a time where pages are touched one behind the other.
pub(super) const AHEAD_MAX: usize = 512 << 10;

/// What a map has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Requests.
    pub reads: u64,
    /// Bytes.
    pub bytes: u64,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct PageReader {
    opened: OpenedMap,
    inode: FsInode,
    fill: LazyFill,
    is_over: AtomicBool,
    reads: AtomicU64,
    bytes: AtomicU64,
    state: Mutex<ReadState>,
}

/// A file that is open as long as this is.
#[derive(Debug)]
pub(super) struct OpenedMap {
    client: Arc<FsClient>,
    opening: FsOpening,
    /// Who has opened it.
    caller: FsCaller,
    /// The file as it was then.
    pub(super) record: FsRecord,
}

impl OpenedMap {
    pub(super) fn new(
        client: &Arc<FsClient>,
        caller: &FsCaller,
        inode: FsInode,
    ) -> Result<Self, FsError> {
        let OpenedFile { opening, answer, .. } = client.open(caller, inode, MAY_READ, 0)?;
        let caller = opening.used_by(caller);
        Ok(Self { client: Arc::clone(client), opening, caller, record: answer.record })
    }
}

impl Drop for OpenedMap {
    fn drop(&mut self) {
        self.client.close(&self.opening);
    }
}

#[derive(Debug)]
struct ReadState {
    /// The file's version whose pages are there, and whether one was of another.
    version: u64,
    has_changed: bool,
    failure: Option<String>,
    /// Where the last read has ended, and how long it was.
    last: (usize, usize),
}

pub(super) fn is_file(answer: &FsAnswer) -> bool {
    answer.record.mode & libc::S_IFMT == libc::S_IFREG
}

impl PageReader {
    pub(super) fn new(opened: OpenedMap, (inode, version): (FsInode, u64), fill: LazyFill) -> Self {
        let (has_changed, failure, last) = (false, None, (0, 0));
        let state = Mutex::new(ReadState { version, has_changed, failure, last });
        let (reads, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { opened, inode, fill, is_over: AtomicBool::new(false), reads, bytes, state }
    }

    fn lock(&self) -> MutexGuard<'_, ReadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fill(&self) -> &LazyFill {
        &self.fill
    }

    pub(super) fn has_changed(&self) -> bool {
        self.lock().has_changed
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    pub(super) fn counts(&self) -> PageCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PageCounts { reads: count(&self.reads), bytes: count(&self.bytes) }
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.opened.client.end();
    }

    /// Reads what threads wait for, until it is over.
    pub(super) fn run(&self, waker: &Waker) {
        while !self.is_over.load(Ordering::Acquire) {
            let (fill, waker) = (self.fill.as_fd(), waker.as_fd());
            let mut fds = [fill, waker].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // A signal is nothing.
            let _readable = poll(&mut fds, None);
            while let Some(offset) = self.fill.next() {
                self.serve(offset);
            }
        }
    }

    /// Has a page there, or has the access fail.
    fn serve(&self, offset: usize) {
        let failure = match self.fetch(offset) {
            Ok(()) => return,
            Err(failure) => failure.to_string(),
        };
        tracing::warn!(offset, why = failure, "a page of a file is not read");
        self.lock().failure = Some(failure);
        if let Err(error) = self.fill.fail(offset) {
            tracing::error!(%error, "nobody can be told that a page is not there");
        }
    }

    fn fetch(&self, offset: usize) -> Result<(), FileMapError> {
        let len = self.length_from(offset);
        let read = self.read(offset as u64, len)?;
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(read.bytes.len() as u64, Ordering::Relaxed);
        // Before the page is there: who has read it and asks then is told.
        let mut state = self.lock();
        state.has_changed |= state.version != read.answer.record.version;
        // Under the lock: a refresh that comes meanwhile forgets it.
        self.place(offset, &read.bytes)?;
        drop(state);
        Ok(())
    }

    fn read(&self, offset: u64, len: usize) -> Result<FileRead, FsError> {
        let OpenedMap { client, caller, .. } = &self.opened;
        client.read(caller, self.inode, offset, len)
    }

    /// Places pages, of which the last one may end with the file. The one that somebody waits for
    /// is there afterwards, whatever the file's length is now.
    fn place(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        let region_end = self.fill.region().len();
        let bytes = &bytes[..bytes.len().min(region_end - offset)];
        let len = page_size();
        let (first, rest) = bytes.split_at(bytes.len().min(len));
        for (at, page) in (offset + len..).step_by(len).zip(rest.chunks(len)) {
            self.fill.fill(at, page)?;
        }
        self.fill.fill(offset, first)
    }

    /// How much is read from there on: more each time where one page comes behind the other.
    fn length_from(&self, offset: usize) -> usize {
        let mut state = self.lock();
        let (end, len) = state.last;
        let len = if offset == end { (len * 2).min(AHEAD_MAX) } else { AHEAD };
        // Some machines have larger pages than 4 KiB.
        let len = len.max(AHEAD).max(page_size());
        state.last = (offset + len, len);
        len
    }

    /// See [`FileMap::refresh`](super::FileMap::refresh).
    pub(super) fn refresh(&self) -> Result<bool, FileMapError> {
        let answer = self.opened.client.get(&self.opened.caller, self.inode)?;
        if !is_file(&answer) {
            return Err(FsError::Answer { entry: "get" }.into());
        }
        let mut state = self.lock();
        let version = answer.record.version;
        if state.version == version && !state.has_changed && state.failure.is_none() {
            return Ok(false);
        }
        (state.version, state.has_changed, state.failure) = (version, false, None);
        self.fill.clear()?;
        Ok(true)
    }
}
