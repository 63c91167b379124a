//! What a server knows of one client's files: the source of its view.
//!
//! Look-ups are answered from the replica of the client's catalogue and from contents that are
//! here. Everything else is left for the service's thread, which alone talks to the client.

use crate::view::{self, Ask, Attr, Done, Found, Kind, NodeId, Source};
use outboard_export::{self as export, Listing, LookUp, Node, Replica};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Octets of contents that stay here: the kernel has its own copies of what it has read.
const CONTENTS_MAX: usize = 256 << 20;

/// See the [module](self).
pub(crate) struct Files {
    known: Mutex<Known>,
    asks: Mutex<Vec<(Ask, Done)>>,
    /// Rung when there are asks.
    bell: Arc<OwnedFd>,
}

/// What is known; for the service's thread, too.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) replica: Replica,
    contents: HashMap<NodeId, Arc<[u8]>>,
    order: VecDeque<NodeId>,
    octets: usize,
}

impl Known {
    /// Keeps contents; the oldest go when there are too many.
    pub(crate) fn keep(&mut self, node: NodeId, octets: Arc<[u8]>) {
        self.octets += octets.len();
        match self.contents.insert(node, octets) {
            Some(before) => self.octets -= before.len(),
            None => self.order.push_back(node),
        }
        while self.octets > CONTENTS_MAX && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|oldest| self.contents.remove(&oldest));
            self.octets -= oldest.map_or(0, |octets| octets.len());
        }
    }
}

impl Files {
    pub(crate) fn new(bell: Arc<OwnedFd>) -> Self {
        Self { known: Mutex::default(), asks: Mutex::default(), bell }
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the view's threads want to know.
    pub(crate) fn take_asks(&self) -> Vec<(Ask, Done)> {
        std::mem::take(&mut *self.asks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Source for Files {
    fn look_up(&self, dir: &[u8], name: &[u8]) -> Found {
        match self.known().replica.look_up(dir, name) {
            LookUp::Unknown(_) => Found::Unknown,
            LookUp::Absent => Found::Absent,
            LookUp::File(at) => Found::File { attr: attr(&at), version: at.version },
            LookUp::Directory(at) => Found::Directory { attr: attr(&at) },
            LookUp::Symlink { target, attr: at } => Found::Symlink { attr: attr(&at), target },
            LookUp::Withheld => Found::Withheld,
            LookUp::Outside => Found::Outside,
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
        // Full is rung.
        let _rung = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    fn contents(&self, node: &NodeId) -> Option<view::Contents> {
        let octets = self.known().contents.get(node).cloned()?;
        Some(Arc::new(Shared(octets)))
    }
}

struct Shared(Arc<[u8]>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn attr(at: &export::Attr) -> Attr {
    let mode = at.mode & 0o7777;
    Attr { dev: at.dev, ino: at.ino, mode, size: at.size, mtime_ns: at.mtime_ns }
}

fn kind(node: &Node) -> Option<Kind> {
    match node {
        Node::File(_) => Some(Kind::File),
        Node::Directory(_) => Some(Kind::Directory),
        Node::Symlink { .. } => Some(Kind::Symlink),
        Node::Withheld => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_come_again_count_once() {
        let mut known = Known::default();
        let node = NodeId { dev: 1, ino: 2, version: 3 };
        for octets in [&b"1234"[..], b"1234", b"12"] {
            known.keep(node, octets.into());
            assert_eq!((known.octets, known.order.len()), (octets.len(), 1));
        }
    }
}
