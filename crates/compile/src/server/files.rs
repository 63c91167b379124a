//! One client's files as a server knows them: the source of its view.
//!
//! Look-ups are answered from the replica of the client's metadata log and from the contents held
//! here. Requests are left for the service's thread, which alone communicates with the client.

use crate::view::{self, Ask, Attr, Done, FileKind, Found, NodeId, Source};
use outboard_cluster::waker::Waker;
use outboard_export::{self as export, Listing, LookUp, Node, Replica};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of contents kept in memory: the kernel caches what it has read itself.
const CONTENTS_MAX: usize = 256 << 20;

/// Directories outside what a client exports that it has reported, at most.
const DIRECTORIES_MAX: usize = 4096;

/// One client's files; see the [module](self).
pub(crate) struct Files {
    known: Mutex<FilesState>,
    asks: Mutex<Vec<(Ask, Done)>>,
    /// Woken when there are requests.
    waker: Waker,
}

/// The replica and contents, shared with the service's thread.
#[derive(Default)]
pub(crate) struct FilesState {
    pub(crate) replica: Replica,
    contents: HashMap<NodeId, Arc<[u8]>>,
    order: VecDeque<NodeId>,
    bytes: usize,
    /// Directories that the client has and does not export.
    directories: HashSet<Vec<u8>>,
}

impl FilesState {
    /// Records that the client has a directory here and does not export it.
    pub(crate) fn note_directory(&mut self, path: &[u8]) {
        if self.directories.len() >= DIRECTORIES_MAX {
            self.directories.clear();
        }
        self.directories.insert(path.to_vec());
    }

    /// What is known of a name outside what the client exports.
    fn outside(&self, dir: &[u8], name: &[u8]) -> Found {
        if self.directories.contains(&view::join(dir, name)) {
            Found::Directory { attr: view::SYNTHETIC }
        } else {
            Found::Outside
        }
    }

    /// Keeps contents; the oldest are dropped when there are too many.
    pub(crate) fn keep(&mut self, node: NodeId, bytes: Arc<[u8]>) {
        self.bytes += bytes.len();
        match self.contents.insert(node, bytes) {
            Some(before) => self.bytes -= before.len(),
            None => self.order.push_back(node),
        }
        while self.bytes > CONTENTS_MAX && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|oldest| self.contents.remove(&oldest));
            self.bytes -= oldest.map_or(0, |bytes| bytes.len());
        }
    }
}

impl Files {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { known: Mutex::default(), asks: Mutex::default(), waker }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, FilesState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pending requests of the view's threads.
    pub(crate) fn take_asks(&self) -> Vec<(Ask, Done)> {
        std::mem::take(&mut *self.asks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Source for Files {
    fn look_up(&self, dir: &[u8], name: &[u8]) -> Found {
        let known = self.known();
        match known.replica.look_up(dir, name) {
            LookUp::Unknown(_) => Found::Unknown,
            LookUp::Absent => Found::Absent,
            LookUp::File(at) => Found::File { attr: attr(&at), version: at.version },
            LookUp::Directory(at) => Found::Directory { attr: attr(&at) },
            LookUp::Symlink { target, attr: at } => Found::Symlink { attr: attr(&at), target },
            LookUp::Withheld => Found::Withheld,
            LookUp::Outside => known.outside(dir, name),
        }
    }

    fn list(&self, dir: &[u8]) -> view::Listing {
        match self.known().replica.list(dir) {
            Listing::Unknown(_) => view::Listing::Unknown,
            Listing::Outside => view::Listing::Outside,
            Listing::Names(names) => {
                let entry = |(name, node): (Box<[u8]>, Node)| Some((name.into(), kind(&node)?));
                view::Listing::Entries(names.into_iter().filter_map(entry).collect())
            }
        }
    }

    fn ask(&self, ask: Ask, done: Done) {
        self.asks.lock().unwrap_or_else(PoisonError::into_inner).push((ask, done));
        // If the waker's descriptor is full, a wake-up is pending already.
        self.waker.wake();
    }

    fn contents(&self, node: &NodeId) -> Option<view::Contents> {
        let bytes = self.known().contents.get(node).cloned()?;
        Some(Arc::new(SharedBytes(bytes)))
    }
}

struct SharedBytes(Arc<[u8]>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn attr(at: &export::Attr) -> Attr {
    let mode = at.mode & 0o7777;
    Attr { dev: at.dev, ino: at.ino, mode, size: at.size, mtime_ns: at.mtime_ns }
}

fn kind(node: &Node) -> Option<FileKind> {
    match node {
        Node::File(_) => Some(FileKind::File),
        Node::Directory(_) => Some(FileKind::Directory),
        Node::Symlink { .. } => Some(FileKind::Symlink),
        Node::Withheld => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_come_again_count_once() {
        let mut known = FilesState::default();
        let node = NodeId { dev: 1, ino: 2, version: 3 };
        for bytes in [&b"1234"[..], b"1234", b"12"] {
            known.keep(node, bytes.into());
            assert_eq!((known.bytes, known.order.len()), (bytes.len(), 1));
        }
    }
}
