//! Contents of any length, written in pieces: hashed on their way to the disk, visible once they
//! are complete.
//!
//! A process that dies while it writes leaves an unlocked file, which the next scan removes.
//! Finished contents survive a loss of power: unlike a small content, a large one is expensive to
//! fetch again.

use crate::chunks::{Chunker, Hashed};
use crate::disk::{self, Temporary};
use crate::error::StoreError;
use crate::store::{ContentHash, ContentKind, Store};
use std::io::{self, ErrorKind, Write};
use std::ops::Deref;
use std::sync::Arc;

/// A content that is being written into a store, which it borrows or shares. If dropped before it
/// is finished, it leaves nothing.
#[derive(Debug)]
pub struct Writer<S: Deref<Target = Store>> {
    store: S,
    kind: ContentKind,
    chunker: Chunker,
    temporary: Temporary,
}

impl Store {
    /// Begins a content whose hash and length are not known yet.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Write`].
    pub fn writer(&self, kind: ContentKind) -> Result<Writer<&Self>, StoreError> {
        Writer::begin(self, kind)
    }

    /// As [`Self::writer`], for a content whose pieces are written by several threads.
    ///
    /// # Errors
    /// As [`Self::writer`].
    pub fn shared_writer(
        self: &Arc<Self>,
        kind: ContentKind,
    ) -> Result<Writer<Arc<Self>>, StoreError> {
        Writer::begin(Arc::clone(self), kind)
    }
}

impl<S: Deref<Target = Store>> Writer<S> {
    fn begin(store: S, kind: ContentKind) -> Result<Self, StoreError> {
        let temporary = Temporary::new(&store.dir.join("00"));
        let temporary =
            temporary.map_err(|source| store.write_error(store.dir.clone(), source, 0))?;
        Ok(Self { store, kind, chunker: Chunker::default(), temporary })
    }

    /// Completes the content; returns its hash.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Write`].
    pub fn finish(self) -> Result<ContentHash, StoreError> {
        self.end(None)
    }

    /// Completes a content whose hash was known before.
    ///
    /// # Errors
    /// Also [`StoreError::WrongHash`].
    pub fn finish_as(self, hash: &ContentHash) -> Result<(), StoreError> {
        self.end(Some(hash)).map(drop)
    }

    fn end(self, expected: Option<&ContentHash>) -> Result<ContentHash, StoreError> {
        let (len, store) = (self.chunker.len(), &*self.store);
        let Hashed { hash, chunks } = self.chunker.finish();
        if expected.is_some_and(|expected| *expected != hash) {
            return Err(StoreError::WrongHash { len: usize::try_from(len).unwrap_or(usize::MAX) });
        }
        let path = disk::path_of(&store.dir, &hash);
        if store.is_there(&path, &hash, self.kind) {
            return Ok(hash);
        }
        let published = self.temporary.file().sync_data().and_then(|()| {
            disk::write_chunks(&path, &chunks)?;
            self.temporary.publish(&path, self.kind)
        });
        published.map_err(|source| store.write_error(path, source, len))?;
        store.note_written(&hash, len)?;
        Ok(hash)
    }
}

impl<S: Deref<Target = Store>> Write for Writer<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.chunker.len() + bytes.len() as u64 > self.store.quota {
            return Err(ErrorKind::QuotaExceeded.into());
        }
        let written = self.temporary.write(bytes)?;
        self.chunker.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.temporary.flush()
    }
}
