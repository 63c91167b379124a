//! What answers a view's reads: the tree, its open files, and the reads that wait.
//!
//! Called by the kernel's threads and by those that receive chunks. A read looks whether its chunks
//! are here while the waits are locked, and a chunk is noted as held before it is announced here:
//! so no read waits for what has come.

use super::ahead::ReadAhead;
use super::index::NameIndex;
use super::waits::{ChunkWaits, PATIENCE};
use crate::receive::{BytesHere, StagedView};
use crate::relay::DemandFrom;
use crate::tree::{TreeNode, read_exactly_at, shown};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Instant;

/// Has chunks fetched out of turn. Returns at once.
pub(crate) type DemandChunks = Arc<dyn Fn(Vec<u32>, DemandFrom) + Send + Sync>;
/// Gives a read its bytes.
pub(super) type ReadAnswer = Box<dyn FnOnce(Result<&[u8], Errno>) + Send>;

/// A tree whose manifest is here.
#[derive(Debug)]
pub(super) struct ViewTree {
    pub(super) staged: StagedView,
    pub(super) names: NameIndex,
    /// Whether any entry has an extended attribute.
    pub(super) has_xattrs: bool,
}

impl ViewTree {
    pub(super) fn new(staged: StagedView) -> Self {
        let manifest = staged.manifest();
        let names = NameIndex::new(manifest);
        let has_xattrs = (0..manifest.len()).any(|entry| !manifest.entry(entry).xattrs.is_empty());
        Self { staged, names, has_xattrs }
    }
}

/// A file that processes have open.
struct OpenedFile {
    entry: u32,
    len: u64,
    /// `None` where this process has too many: it is opened for every read.
    file: Option<Arc<OwnedFd>>,
    ahead: Mutex<ReadAhead>,
}

struct PendingRead {
    file: Arc<OpenedFile>,
    range: Range<u64>,
    answer: ReadAnswer,
}

/// By the kernel's handle, and by entry for those that several processes have open.
#[derive(Default)]
struct OpenedFiles {
    handles: HashMap<u64, Arc<OpenedFile>>,
    shared: HashMap<u32, Weak<OwnedFd>>,
    last: u64,
}

/// See the [module](self).
pub(super) struct LazyServer {
    tree: OnceLock<ViewTree>,
    files: Mutex<OpenedFiles>,
    waits: Mutex<ChunkWaits<PendingRead>>,
    /// Something waits, or all is over.
    changed: Condvar,
    demand: DemandChunks,
    is_over: AtomicBool,
}

impl LazyServer {
    pub(super) fn new(demand: DemandChunks) -> Self {
        Self {
            tree: OnceLock::new(),
            files: Mutex::default(),
            waits: Mutex::default(),
            changed: Condvar::new(),
            demand,
            is_over: AtomicBool::new(false),
        }
    }

    /// The tree; `None` while its manifest is not here.
    pub(super) fn tree(&self) -> Option<&ViewTree> {
        self.tree.get()
    }

    /// The manifest is here.
    pub(super) fn show(&self, tree: ViewTree) {
        // One thread shows it.
        let _shown = self.tree.set(tree);
    }

    /// Opens a file; returns the handle for it.
    pub(super) fn open(&self, entry: u32) -> Result<u64, Errno> {
        let tree = self.tree().ok_or(Errno::NOENT)?;
        let TreeNode::File { size: len, .. } = tree.staged.manifest().entry(entry).node else {
            return Err(Errno::INVAL);
        };
        let file = self.descriptor(tree, entry)?;
        let opened = OpenedFile { entry, len, file, ahead: Mutex::default() };
        let mut files = lock(&self.files);
        files.last += 1;
        let handle = files.last;
        files.handles.insert(handle, Arc::new(opened));
        Ok(handle)
    }

    /// A descriptor for all that have the file open, so that it can be read whatever happens to
    /// its name.
    fn descriptor(&self, tree: &ViewTree, entry: u32) -> Result<Option<Arc<OwnedFd>>, Errno> {
        let known = lock(&self.files).shared.get(&entry).and_then(Weak::upgrade);
        if known.is_some() {
            return Ok(known);
        }
        // Half of what this process may have is for connections and for receiving.
        let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        let mut files = lock(&self.files);
        files.shared.retain(|_, file| file.strong_count() > 0);
        if files.shared.len() as u64 >= most {
            return Ok(None);
        }
        let file = Arc::new(tree.staged.open(entry)?);
        files.shared.insert(entry, Arc::downgrade(&file));
        Ok(Some(file))
    }

    pub(super) fn close(&self, handle: u64) {
        lock(&self.files).handles.remove(&handle);
    }

    /// Answers a read, now or when its chunks have come.
    pub(super) fn read(&self, handle: u64, offset: u64, size: u32, answer: ReadAnswer) {
        let file = lock(&self.files).handles.get(&handle).cloned();
        let (Some(tree), Some(file)) = (self.tree(), file) else {
            return answer(Err(Errno::BADF));
        };
        let len = file.len;
        let range = offset.min(len)..offset.saturating_add(u64::from(size)).min(len);
        let ahead = lock(&file.ahead).note(&range);
        let more = tree.staged.chunks_of(file.entry, ahead.start.min(len)..ahead.end.min(len));
        self.go_on(tree, PendingRead { file, range, answer });
        self.demand_ahead(tree, &more);
    }

    fn demand_ahead(&self, tree: &ViewTree, chunks: &[u32]) {
        let coming: Vec<u32> = chunks
            .iter()
            .filter(|chunk| tree.staged.is_here(**chunk) == BytesHere::Coming)
            .copied()
            .collect();
        let new = lock(&self.waits).demand(&coming, Instant::now());
        if !new.is_empty() {
            (self.demand)(new, DemandFrom::Upstream);
        }
    }

    fn go_on(&self, tree: &ViewTree, read: PendingRead) {
        let chunks = tree.staged.chunks_of(read.file.entry, read.range.clone());
        let mut waits = lock(&self.waits);
        let here = |chunk: &u32| tree.staged.is_here(*chunk);
        if chunks.iter().any(|chunk| here(chunk) == BytesHere::Never) {
            drop(waits);
            return refuse(tree, read);
        }
        let missing: Vec<u32> =
            chunks.into_iter().filter(|chunk| here(chunk) == BytesHere::Coming).collect();
        let Some(&first) = missing.first() else {
            drop(waits);
            return answer(tree, read);
        };
        let new = waits.demand(&missing, Instant::now());
        waits.wait(first, read);
        drop(waits);
        self.changed.notify_all();
        if !new.is_empty() {
            (self.demand)(new, DemandFrom::Upstream);
        }
    }

    /// A chunk is held.
    pub(super) fn came(&self, chunk: u32) {
        let Some(tree) = self.tree() else { return };
        let reads = lock(&self.waits).came(chunk);
        reads.into_iter().for_each(|read| self.go_on(tree, read));
    }

    /// All is published: whatever waits has come.
    pub(super) fn complete(&self) {
        self.end(StagedView::complete);
    }

    /// Nothing comes any more: reads of what is missing fail.
    pub(super) fn give_up(&self) {
        self.end(StagedView::give_up);
    }

    fn end(&self, end: impl FnOnce(&StagedView)) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        let reads = {
            let mut waits = lock(&self.waits);
            if let Some(tree) = self.tree() {
                end(&tree.staged);
            }
            waits.take_all()
        };
        self.changed.notify_all();
        if let Some(tree) = self.tree() {
            reads.into_iter().for_each(|read| self.go_on(tree, read));
        }
    }

    /// Asks again for what does not come, until all is over.
    pub(super) fn watch(&self) {
        let is_over = || self.is_over.load(Ordering::SeqCst);
        loop {
            let waits = lock(&self.waits);
            let idle = |waits: &mut ChunkWaits<_>| waits.is_empty() && !is_over();
            let waits = self.changed.wait_while(waits, idle);
            let waits = waits.unwrap_or_else(PoisonError::into_inner);
            let going = |_: &mut ChunkWaits<_>| !is_over();
            drop(self.changed.wait_timeout_while(waits, PATIENCE, going));
            if is_over() {
                return;
            }
            self.look_after();
        }
    }

    fn look_after(&self) {
        let Some(tree) = self.tree() else { return };
        let awaited = lock(&self.waits).awaited();
        // What a broken cast had left is found here without being received.
        let came = awaited.iter().filter(|chunk| tree.staged.is_here(**chunk) == BytesHere::Here);
        came.for_each(|chunk| self.came(*chunk));
        let overdue = lock(&self.waits).overdue(Instant::now());
        if !overdue.is_empty() {
            tracing::debug!(chunks = overdue.len(), "demanded of the source");
            (self.demand)(overdue, DemandFrom::Source);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(tree: &ViewTree, read: PendingRead) {
    let mut bytes = vec![0; usize::try_from(read.range.end - read.range.start).unwrap_or(0)];
    let filled = match &read.file.file {
        Some(file) => read_exactly_at(&**file, &mut bytes, read.range.start),
        None => tree
            .staged
            .open(read.file.entry)
            .and_then(|file| read_exactly_at(file, &mut bytes, read.range.start)),
    };
    match filled {
        Ok(()) => (read.answer)(Ok(&bytes)),
        Err(errno) => {
            let path = shown(&tree.staged.manifest().path(read.file.entry));
            tracing::warn!(path = %path.display(), %errno, "a file of a view is not readable");
            (read.answer)(Err(Errno::IO));
        }
    }
}

fn refuse(tree: &ViewTree, read: PendingRead) {
    let path = shown(&tree.staged.manifest().path(read.file.entry));
    let path = path.display();
    tracing::warn!(%path, "read of bytes that never came: the cast was given up here");
    (read.answer)(Err(Errno::IO));
}
