//! One client's files as a server knows them: the source of its view.
//!
//! Look-ups are answered from the mirror of the client's files. Requests are left for the service's
//! thread, which alone communicates with the client.

use crate::view::{self, Ask, AskError, Attr, Done, FileKind, Found, NodeId, Source};
use outboard_cluster::waker::Waker;
use outboard_export::{
    self as export, FetchError, FetchRequest, FileNode, FileVersion, Listing, LookUp, Mirror,
};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest error number of Linux: the kernel accepts no others.
const ERRNO_MAX: i32 = libc::EHWPOISON;

/// One client's files; see the [module](self).
pub(crate) struct ClientFiles {
    mirror: Arc<Mirror>,
    asks: Mutex<Vec<(Ask, Done)>>,
    /// Woken when there are requests.
    waker: Waker,
}

impl ClientFiles {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { mirror: Arc::default(), asks: Mutex::default(), waker }
    }

    /// What is known of them.
    pub(crate) fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// The pending requests of the view's threads.
    pub(crate) fn take_asks(&self) -> Vec<(Ask, Done)> {
        std::mem::take(&mut *self.asks.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known of a name outside what the client exports.
    fn outside(&self, dir: &[u8], name: &[u8]) -> Found {
        if self.mirror.is_directory(&view::join(dir, name)) {
            Found::Directory { attr: view::SYNTHETIC }
        } else {
            Found::Outside
        }
    }
}

/// A view's request, for the mirror's fetch.
pub(crate) fn request(ask: Ask) -> FetchRequest {
    match ask {
        Ask::List { dir } => FetchRequest::List { dir },
        Ask::Contents { path, node } => FetchRequest::Contents { path, file: file(&node) },
        Ask::Name { path } => FetchRequest::Name { path },
    }
}

/// Why a request of a view failed.
pub(crate) fn ask_error(error: FetchError) -> AskError {
    match error {
        FetchError::Changed => AskError::Changed,
        FetchError::Failed(errno) if (1..=ERRNO_MAX).contains(&errno) => AskError::Failed(errno),
        FetchError::Failed(_) => AskError::Failed(libc::EIO),
        FetchError::Refused(why) => AskError::Refused(why),
        FetchError::Gone => AskError::Gone,
    }
}

fn file(node: &NodeId) -> FileVersion {
    FileVersion { dev: node.dev, ino: node.ino, version: node.version }
}

impl Source for ClientFiles {
    fn look_up(&self, dir: &[u8], name: &[u8]) -> Found {
        match self.mirror.look_up(dir, name) {
            LookUp::Unknown(_) => Found::Unknown,
            LookUp::Absent => Found::Absent,
            LookUp::File(at) => Found::File { attr: attr(&at), version: at.version },
            LookUp::Directory(at) => Found::Directory { attr: attr(&at) },
            LookUp::Symlink { target, attr: at } => Found::Symlink { attr: attr(&at), target },
            LookUp::Withheld => Found::Withheld,
            LookUp::Outside => self.outside(dir, name),
        }
    }

    fn list(&self, dir: &[u8]) -> view::Listing {
        match self.mirror.list(dir) {
            Listing::Unknown(_) => view::Listing::Unknown,
            Listing::Outside => view::Listing::Outside,
            Listing::Names(names) => {
                let entry = |(name, node): (Box<[u8]>, FileNode)| Some((name.into(), kind(&node)?));
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
        Some(Arc::new(SharedBytes(self.mirror.contents(&file(node))?)))
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

fn kind(node: &FileNode) -> Option<FileKind> {
    match node {
        FileNode::File(_) => Some(FileKind::File),
        FileNode::Directory(_) => Some(FileKind::Directory),
        FileNode::Symlink { .. } => Some(FileKind::Symlink),
        FileNode::Withheld => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_that_linux_does_not_have_is_eio() {
        for (said, heard) in [(13, 13), (133, 133), (134, 5), (0, 5), (-2, 5), (i32::MIN, 5)] {
            assert_eq!(ask_error(FetchError::Failed(said)), AskError::Failed(heard), "{said}");
        }
    }
}
