//! Parts of contents, each verified by itself, and pins, which keep contents while a process uses
//! them.

use crate::chunks::{CHUNK_LEN, Chunker, Hashed, is_chunk, root};
use crate::disk;
use crate::store::{ContentHash, Store};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// Number of contents whose chunk hashes are kept in memory.
const TREES_MAX: usize = 256;

/// Keeps a content from being removed from the store, by any process, while it is held. It ends
/// with the process.
#[derive(Debug)]
pub struct ContentPin {
    file: File,
}

impl ContentPin {
    /// The content's file. Its bytes are not verified by this call.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Store {
    /// Pins a content, if it is in the store. Its bytes are not verified.
    #[must_use]
    pub fn pin(&self, hash: &ContentHash) -> Option<ContentPin> {
        let file = disk::open(&disk::path_of(&self.dir, hash)).ok()?;
        // Other processes hold the lock only while they publish or remove the file.
        flock(&file, FlockOperation::LockShared).ok()?;
        let is_there = file.metadata().ok()?.nlink() > 0;
        is_there.then_some(ContentPin { file })
    }

    /// The bytes of a content in a range, up to the content's end. Only the chunks that the range
    /// touches are read and verified.
    #[must_use]
    pub fn range(&self, hash: &ContentHash, range: Range<u64>) -> Option<Vec<u8>> {
        let path = disk::path_of(&self.dir, hash);
        let file = self.opened(&path, hash)?;
        let chunks = self.chunks_of(&file, &path, hash)?;
        let len = file.metadata().ok()?.len();
        let range = range.start.min(len)..range.end.min(len);
        let mut bytes = Vec::new();
        let mut chunk = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let index = at / CHUNK_LEN as u64;
            let start = index * CHUNK_LEN as u64;
            let held = usize::try_from((len - start).min(CHUNK_LEN as u64)).ok()?;
            chunk.resize(held, 0);
            file.read_exact_at(&mut chunk, start).ok()?;
            if !is_chunk(&chunks, usize::try_from(index).ok()?, &chunk) {
                self.judge(hash, &path, false);
                return None;
            }
            let end = usize::try_from((range.end - start).min(held as u64)).ok()?;
            bytes.extend_from_slice(&chunk[usize::try_from(at - start).ok()?..end]);
            at = start + held as u64;
        }
        Some(bytes)
    }

    /// The hashes of a content's chunks of [`CHUNK_LEN`] bytes.
    #[must_use]
    pub fn chunks(&self, hash: &ContentHash) -> Option<Arc<[ContentHash]>> {
        let path = disk::path_of(&self.dir, hash);
        let file = self.opened(&path, hash)?;
        self.chunks_of(&file, &path, hash)
    }

    fn chunks_of(
        &self,
        file: &File,
        path: &Path,
        hash: &ContentHash,
    ) -> Option<Arc<[ContentHash]>> {
        if let Some(known) = self.state().trees.get(hash) {
            return Some(Arc::clone(known));
        }
        let len = file.metadata().ok()?.len();
        let count = usize::try_from(len.div_ceil(CHUNK_LEN as u64)).ok()?.max(1);
        let kept = if count == 1 { Some(vec![*hash]) } else { disk::read_chunks(path) };
        let right = kept.filter(|chunks| chunks.len() == count && root(chunks) == *hash);
        let chunks: Arc<[ContentHash]> = match right {
            Some(chunks) => chunks.into(),
            // The content was put as a whole, or its list was lost: it is hashed once.
            None => self.look_through(file, path, hash)?.into(),
        };
        let trees = &mut self.state().trees;
        if trees.len() >= TREES_MAX {
            trees.clear();
        }
        trees.insert(*hash, Arc::clone(&chunks));
        Some(chunks)
    }

    fn look_through(
        &self,
        mut file: &File,
        path: &Path,
        hash: &ContentHash,
    ) -> Option<Vec<ContentHash>> {
        let (mut chunker, mut room) = (Chunker::default(), vec![0; CHUNK_LEN]);
        loop {
            match file.read(&mut room).ok()? {
                0 => break,
                len => chunker.update(&room[..len]),
            }
        }
        let Hashed { hash: found, chunks } = chunker.finish();
        if !self.judge(hash, path, found == *hash) {
            return None;
        }
        // If the list cannot be written, the next process hashes the content again.
        let _kept = disk::write_chunks(path, &chunks);
        Some(chunks)
    }
}
