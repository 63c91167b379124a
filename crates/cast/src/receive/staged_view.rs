//! What a view needs of a tree that is still being received: its entries as they will be
//! published, which of their bytes are here, and their files.
//!
//! Keeps the receiver only as long as chunks may come, because with it goes the staging
//! directory's lock; files and entries stay for as long as the view does.

use super::files::StagedTree;
use super::seal::EntryRules;
use super::shared::ReceiverShared;
use crate::sign::ChunkLen;
use crate::tree::{TreeEntry, TreeManifest};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

/// Which chunks can be read.
#[derive(Debug)]
enum ChunksHere {
    /// Those that the receiver holds.
    Coming(Arc<ReceiverShared>),
    /// All.
    All,
    /// None: the cast was given up, and its files belong to the next receiver.
    GivenUp,
}

/// Whether bytes can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BytesHere {
    /// They are here, and verified.
    Here,
    /// They come.
    Coming,
    /// They never will.
    Never,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct StagedView {
    tree: Arc<StagedTree>,
    rules: EntryRules,
    chunk_len: ChunkLen,
    here: RwLock<ChunksHere>,
}

impl StagedView {
    /// `None` while the manifest is not complete.
    pub(super) fn new(shared: &Arc<ReceiverShared>) -> Option<Self> {
        let tree = shared.tree()?;
        Some(Self {
            tree,
            rules: EntryRules::new(shared.attributes()),
            chunk_len: shared.hashes.header().shape.chunk_len(),
            here: RwLock::new(ChunksHere::Coming(Arc::clone(shared))),
        })
    }

    pub(crate) fn manifest(&self) -> &TreeManifest {
        self.tree.manifest()
    }

    /// The permission bits that an entry is published with.
    pub(crate) fn mode(&self, entry: &TreeEntry<'_>) -> u16 {
        self.rules.mode(entry)
    }

    /// The user and group that own an entry when it is published; `None` for the receiver's.
    pub(crate) fn owner(&self, entry: &TreeEntry<'_>) -> Option<(u32, u32)> {
        self.rules.owner(self.manifest(), entry)
    }

    /// Whether an entry is published with this extended attribute.
    pub(crate) fn shows_xattr(&self, name: &[u8]) -> bool {
        self.rules.allows(name)
    }

    /// The chunks that a part of a file lies in, ascending; none for its holes.
    pub(crate) fn chunks_of(&self, entry: u32, range: Range<u64>) -> Vec<u32> {
        let mut chunks: Vec<u32> = Vec::new();
        for part in self.manifest().stream_parts(entry, range) {
            for chunk in self.chunk_len.chunks_over(part) {
                if chunks.last() != Some(&chunk) {
                    chunks.push(chunk);
                }
            }
        }
        chunks
    }

    pub(crate) fn is_here(&self, chunk: u32) -> BytesHere {
        match &*self.here.read().unwrap_or_else(PoisonError::into_inner) {
            ChunksHere::Coming(shared) if !shared.bitmap().is_held(chunk) => BytesHere::Coming,
            ChunksHere::Coming(_) | ChunksHere::All => BytesHere::Here,
            ChunksHere::GivenUp => BytesHere::Never,
        }
    }

    /// Opens a file for reading, wherever it lies now.
    pub(crate) fn open(&self, entry: u32) -> Result<OwnedFd, Errno> {
        self.tree.open_to_read(entry)
    }

    /// Every chunk was received and published.
    pub(crate) fn complete(&self) {
        self.set(ChunksHere::All);
    }

    /// Nothing comes any more, and what has come is not this receiver's any more.
    pub(crate) fn give_up(&self) {
        self.set(ChunksHere::GivenUp);
    }

    fn set(&self, here: ChunksHere) {
        *self.here.write().unwrap_or_else(PoisonError::into_inner) = here;
    }
}
