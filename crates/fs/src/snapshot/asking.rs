//! A store's server, asked by the socket in the store's directory.

use super::SnapshotError;
use crate::server::snapshots::{BEGIN, END, HEAD_LEN, OK, place};
use crate::store::SnapshotHead;
use crate::store::superblock::Superblock;
use outboard_unix::rights;
use rustix::net::SendFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes of a refusal that are shown.
const WHY_MAX: u64 = 4096;

/// A snapshot whose blocks the server holds back while this is there.
#[derive(Debug)]
pub(super) struct HeldSnapshot(UnixStream);

impl HeldSnapshot {
    /// Has the server write its metadata to a file, and hold the blocks.
    pub(super) fn begin(store: &Path, file: File) -> Result<(Self, SnapshotHead), SnapshotError> {
        let connect = || place(store).and_then(|(_directory, path)| UnixStream::connect(path));
        let store = store.to_owned();
        let stream = connect().map_err(|source| SnapshotError::NoServer { store, source })?;
        let sent = rights::send(&stream, &[BEGIN], &[file.as_fd()], SendFlags::empty());
        sent.map_err(|_| SnapshotError::Lost)?;
        let mut head = [0; HEAD_LEN];
        let mut from = &stream;
        from.read_exact(&mut head[..1]).map_err(|_| SnapshotError::Lost)?;
        if head[0] != OK {
            return Err(SnapshotError::Refused(why(from)));
        }
        from.read_exact(&mut head[1..]).map_err(|_| SnapshotError::Lost)?;
        let superblock = Superblock::parse(&head[9..])?;
        let seq = head[1..].first_chunk().map_or(0, |seq| u64::from_le_bytes(*seq));
        Ok((Self(stream), SnapshotHead { superblock, seq }))
    }

    /// The blocks are copied: whether the server has held them until now.
    pub(super) fn end(self) -> Result<(), SnapshotError> {
        let mut answer = [0];
        let mut ask = || -> io::Result<()> {
            (&self.0).write_all(&[END])?;
            (&self.0).read_exact(&mut answer)
        };
        ask().map_err(|_| SnapshotError::Lost)
    }
}

fn why(from: &UnixStream) -> String {
    let mut why = Vec::new();
    // What came of it is shown.
    let _read = from.take(WHY_MAX).read_to_end(&mut why);
    String::from_utf8_lossy(&why).into_owned()
}
