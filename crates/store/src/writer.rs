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

/// A content that is being written into a store. If dropped before it is finished, it leaves
/// nothing.
#[derive(Debug)]
pub struct Writer<'a> {
    store: &'a Store,
    kind: ContentKind,
    chunker: Chunker,
    temporary: Temporary,
}

impl Store {
    /// Begins a content whose hash and length are not known yet.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`], [`StoreError::Write`].
    pub fn writer(&self, kind: ContentKind) -> Result<Writer<'_>, StoreError> {
        let temporary = Temporary::new(&self.dir.join("00"));
        let temporary =
            temporary.map_err(|source| self.write_error(self.dir.clone(), source, 0))?;
        Ok(Writer { store: self, kind, chunker: Chunker::default(), temporary })
    }
}

impl Writer<'_> {
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
        let (len, store) = (self.chunker.len(), self.store);
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

impl Write for Writer<'_> {
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
