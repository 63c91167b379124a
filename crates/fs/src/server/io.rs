//! What threads do for the service's loop: bytes of files from the store, and into it.

use crate::plan::{Fill, Piece, parts};
use crate::protocol::{BLOCK_BYTES as BLOCK, FsExtent};
use crate::store::DataFile;
use outboard_cluster::waker::Waker;
use outboard_cluster::workers::Workers;
use std::io::{self, IoSlice};
use std::sync::{Arc, mpsc};

/// Threads that wait for the disk.
const THREADS: usize = 16;

/// What a thread has done.
#[derive(Debug)]
pub(super) struct IoDone {
    /// For which request.
    pub(super) token: u64,
    /// Bytes that it was given, also where they are lost.
    pub(super) len: usize,
    /// The request's bytes, or what was read.
    pub(super) bytes: Vec<u8>,
    pub(super) result: io::Result<()>,
}

/// See this file's first lines.
pub(super) struct IoThreads {
    store: Arc<DataFile>,
    workers: Workers,
    sender: mpsc::Sender<IoDone>,
    finished: mpsc::Receiver<IoDone>,
    waker: Waker,
}

impl IoThreads {
    pub(super) fn new(store: Arc<DataFile>, waker: Waker) -> Self {
        let (sender, finished) = mpsc::channel();
        Self { store, workers: Workers::new("outboard-fs-io", THREADS), sender, finished, waker }
    }

    /// The next thing that is done.
    pub(super) fn next(&self) -> Option<IoDone> {
        self.finished.try_recv().ok()
    }

    /// Writes pieces into blocks.
    pub(super) fn write(&self, token: u64, bytes: Vec<u8>, work: (Vec<Piece>, Vec<FsExtent>)) {
        self.run(token, bytes, move |store, bytes| write_pieces(store, bytes, &work.0, &work.1));
    }

    /// Reads a file's bytes, from an offset on, into the memory given from `at` on.
    pub(super) fn read(
        &self,
        token: u64,
        bytes: Vec<u8>,
        (at, offset, extents): (usize, u64, Vec<FsExtent>),
    ) {
        self.run(token, bytes, move |store, bytes| {
            read_parts(store, (offset, &extents), &mut bytes[at..])
        });
    }

    /// As [`Self::read`], if all bytes are in memory; false if not.
    pub(super) fn read_now(&self, bytes: &mut [u8], (offset, extents): (u64, &[FsExtent])) -> bool {
        let len = bytes.len();
        parts(extents, offset, len)
            .all(|(block, skip, range)| self.store.read_now(block, skip as u64, &mut bytes[range]))
    }

    fn run(
        &self,
        token: u64,
        mut bytes: Vec<u8>,
        work: impl FnOnce(&DataFile, &mut Vec<u8>) -> io::Result<()> + Send + 'static,
    ) {
        let len = bytes.len();
        let (store, sender, waker) =
            (Arc::clone(&self.store), self.sender.clone(), self.waker.clone());
        let job = move || {
            let result = work(&store, &mut bytes);
            // Without a loop nobody asks.
            let _sent = sender.send(IoDone { token, len, bytes, result });
            waker.wake();
        };
        if !self.workers.run(job) {
            let result = Err(io::Error::other("too much waits for the disk"));
            // This end of the channel is here.
            let _sent = self.sender.send(IoDone { token, len, bytes: Vec::new(), result });
            self.waker.wake();
        }
    }
}

/// Reads a file's bytes from an offset on. Holes stay as they are.
pub(super) fn read_parts(
    store: &DataFile,
    (offset, extents): (u64, &[FsExtent]),
    into: &mut [u8],
) -> io::Result<()> {
    parts(extents, offset, into.len())
        .try_for_each(|(block, skip, range)| store.read(block, skip as u64, &mut into[range]))
}

fn write_pieces(
    store: &DataFile,
    bytes: &[u8],
    pieces: &[Piece],
    extents: &[FsExtent],
) -> io::Result<()> {
    for piece in pieces {
        let made;
        let all = match &piece.fill {
            Fill::Bytes(range) if piece.at == 0 && range.len() == piece.len() => {
                &bytes[range.clone()]
            }
            _ => {
                made = assemble(store, bytes, piece)?;
                &made
            }
        };
        let end = piece.file + piece.blocks;
        let its = extents.iter().filter(|one| one.file >= piece.file && one.file < end);
        for extent in its {
            let from = usize::try_from(extent.file - piece.file).unwrap_or(usize::MAX) * BLOCK;
            let len = usize::try_from(extent.len).unwrap_or(usize::MAX) * BLOCK;
            store.write(extent.block, 0, &mut [IoSlice::new(&all[from..from + len])])?;
        }
    }
    Ok(())
}

/// A piece's blocks: what stays of the old ones, with the change over it.
fn assemble(store: &DataFile, bytes: &[u8], piece: &Piece) -> io::Result<Vec<u8>> {
    let mut all = vec![0; piece.len()];
    if let Some(head) = piece.head {
        store.read(head, 0, &mut all[..BLOCK])?;
    }
    if let Some(tail) = piece.tail {
        let at = all.len() - BLOCK;
        store.read(tail, 0, &mut all[at..])?;
    }
    match &piece.fill {
        Fill::Bytes(range) => {
            all[piece.at..piece.at + range.len()].copy_from_slice(&bytes[range.clone()]);
        }
        Fill::Zeroes(len) => all[piece.at..piece.at + len].fill(0),
    }
    Ok(all)
}
