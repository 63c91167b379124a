//! Hashes of files, which the threads that scan make: of a file's bytes piece by piece, of a
//! symbolic link's target.
//!
//! A piece is a subtree of BLAKE3's tree of the whole file, so pieces can be joined. All of a
//! piece's bytes are of one version of the file. Holes are not read from the disk.

use super::scan::StoredBytes;
use crate::protocol::{
    FsAnswer, FsInodeArgs, FsLayout, FsRecord, SCAN_HASH_LEN, SCAN_PIECE_LEN, TARGET_MAX,
};
use crate::scan::{ScanFault, ScannedBytes};
use blake3::hazmat::HasherExt;

/// Bytes that are read at a time.
const STEP: usize = 1 << 20;
const _: () = assert!(SCAN_PIECE_LEN.is_multiple_of(STEP as u64), "whole steps");

/// A piece of a file.
#[derive(Debug)]
pub(super) struct HashedPiece {
    /// Its chaining value; if it is all that the file has, the hash.
    pub(super) hash: [u8; SCAN_HASH_LEN],
    /// The version of the file's record.
    pub(super) version: u64,
    /// Where the next piece begins; `None`: there is none.
    pub(super) end: Option<u64>,
}

impl StoredBytes<'_> {
    /// Hashes the piece that begins there.
    pub(super) fn hash_piece(&mut self, from: u64) -> Result<HashedPiece, ScanFault> {
        if !from.is_multiple_of(SCAN_PIECE_LEN) {
            return Err(ScanFault::Read(libc::EINVAL));
        }
        let record = self.record()?;
        match record.mode & libc::S_IFMT {
            libc::S_IFLNK => self.hash_target(record.version),
            _ => self.hash_bytes(from),
        }
    }

    fn record(&mut self) -> Result<FsRecord, ScanFault> {
        let args = FsInodeArgs { inode: self.file }.bytes();
        let (result, _) = self.ask("get", &args, room(FsAnswer::LEN))?;
        let answer = FsAnswer::split(&result).ok_or(ScanFault::Read(libc::EIO))?;
        Ok(answer.0.record)
    }

    fn hash_target(&mut self, version: u64) -> Result<HashedPiece, ScanFault> {
        let args = FsInodeArgs { inode: self.file }.bytes();
        let (target, _) = self.ask("target", &args, room(TARGET_MAX))?;
        Ok(HashedPiece { hash: blake3::hash(&target).into(), version, end: None })
    }

    fn hash_bytes(&mut self, from: u64) -> Result<HashedPiece, ScanFault> {
        const CHANGES: ScanFault = ScanFault::Read(libc::EAGAIN);
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(from);
        let (mut at, mut step, mut version) = (from, Vec::new(), None);
        let is_last = loop {
            step.clear();
            self.read(at, STEP, &mut step)?;
            let (found, _) = self.known.as_ref().ok_or(ScanFault::Read(libc::EIO))?;
            let now = &found.answer.record;
            if *version.get_or_insert(now.version) != now.version {
                return Err(CHANGES);
            }
            hasher.update(&step);
            at += step.len() as u64;
            if at >= now.size || at - from >= SCAN_PIECE_LEN {
                break at >= now.size;
            }
        };
        // It was longer before.
        if at == from && from > 0 {
            return Err(CHANGES);
        }
        let hash = match is_last && from == 0 {
            true => hasher.finalize().into(),
            false => hasher.finalize_non_root(),
        };
        let version = version.unwrap_or_default();
        Ok(HashedPiece { hash, version, end: (!is_last).then_some(at) })
    }
}

fn room(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
