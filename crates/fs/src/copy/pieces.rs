//! A file's bytes on their way to the service: several pieces at a time, of several files.

use super::local;
use crate::client::{
    ChangeWhat, FsCaller, FsClient, FsError, PendingChange, SyncWhen, TRANSFER_MAX,
};
use crate::protocol::FsInode;
use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// Pieces under way.
const PIECES_MAX: usize = 48;
/// Those of them that borrow a buffer of the client's, until they are waited for: all threads
/// together must have fewer than there are.
const LARGE_MAX: usize = 7;
const LARGE: usize = 32 << 10;

/// Why a file was not copied.
#[derive(Debug)]
pub(super) enum PieceError {
    Local(io::Error),
    Remote(FsError),
}

/// A piece, and whose it is.
struct PieceUnderWay {
    file: usize,
    is_large: usize,
    change: PendingChange,
}

/// See this file's first lines.
pub(super) struct PieceSender<'a> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    under_way: VecDeque<PieceUnderWay>,
    large: usize,
    /// Files of which a piece has failed.
    pub(super) failed: Vec<(usize, PieceError)>,
}

impl<'a> PieceSender<'a> {
    pub(super) fn new(client: &'a Arc<FsClient>, caller: &'a FsCaller) -> Self {
        Self { client, caller, under_way: VecDeque::new(), large: 0, failed: Vec::new() }
    }

    /// Sends a file's bytes, and its size where it ends in a hole. How many bytes it has.
    pub(super) fn file(
        &mut self,
        file: usize,
        path: &Path,
        inode: FsInode,
        about: &Metadata,
    ) -> u64 {
        match self.all(file, path, inode, about) {
            Ok(len) => len,
            Err(error) => {
                self.failed.push((file, error));
                0
            }
        }
    }

    fn all(
        &mut self,
        file: usize,
        path: &Path,
        inode: FsInode,
        about: &Metadata,
    ) -> Result<u64, PieceError> {
        let source = local::open(path).map_err(PieceError::Local)?;
        let ranges = local::data_ranges(&source, about).map_err(PieceError::Local)?;
        let (mut sent, mut end) = (0, 0);
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let len = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(TRANSFER_MAX);
                let bytes = read(&source, at, len).map_err(PieceError::Local)?;
                if bytes.is_empty() {
                    // It has become shorter meanwhile.
                    return Ok(sent);
                }
                self.send(file, inode, at, &bytes)?;
                (at, sent) = (at + bytes.len() as u64, sent + bytes.len() as u64);
                end = at;
            }
        }
        if end < about.len() {
            self.wait_for_all();
            let what = ChangeWhat::Resize(about.len());
            let changed = self.client.change(self.caller, inode, what, SyncWhen::Later);
            changed.map_err(PieceError::Remote)?;
        }
        Ok(sent)
    }

    fn send(
        &mut self,
        file: usize,
        inode: FsInode,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), PieceError> {
        let is_large = usize::from(bytes.len() > LARGE);
        while self.under_way.len() >= PIECES_MAX || self.large + is_large > LARGE_MAX {
            self.wait();
        }
        let what = ChangeWhat::Write(at, bytes);
        let change = self.client.begin_change(self.caller, inode, what, SyncWhen::Later);
        let change = change.map_err(PieceError::Remote)?;
        self.large += is_large;
        self.under_way.push_back(PieceUnderWay { file, is_large, change });
        Ok(())
    }

    /// Waits for the piece that was sent first.
    fn wait(&mut self) {
        let Some(PieceUnderWay { file, is_large, change }) = self.under_way.pop_front() else {
            return;
        };
        self.large -= is_large;
        if let Err(error) = change.end(self.caller) {
            self.failed.push((file, PieceError::Remote(error)));
        }
    }

    pub(super) fn wait_for_all(&mut self) {
        while !self.under_way.is_empty() {
            self.wait();
        }
    }
}

/// Reads so many bytes, fewer at the end.
fn read(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let (mut bytes, mut done) = (vec![0; len], 0);
    while done < len {
        match file.read_at(&mut bytes[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
