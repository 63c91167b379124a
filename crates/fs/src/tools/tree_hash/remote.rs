//! The hash of a tree of a file system: a walk says what there is, the server hashes what files and
//! symbolic links have in them, and the lines are put together here.
//!
//! Some requests are under way at a time; what they answer is taken in the walk's order, so no more
//! is kept than the lines of directories that the walk is in.

use super::super::program::{Characters, FindTest, Joined, program_of};
use super::super::resolve::ResolvedPath;
use super::super::trail::PathTrail;
use super::super::{ToldError, ToldFailure, ToolError};
use super::{HashedName, TreeFold, TreeHash, hash_special};
use crate::client::{FsCaller, FsClient, FsError, PendingScan, TreeWalk};
use crate::protocol::{
    FIND_ATTRIBUTES, FIND_IS_ENTERED, FIND_IS_ERROR, FindArgs, FindAttributes, FsInode,
    SCAN_FILES_MAX, SCAN_HASH, SCAN_PIECE_LEN, ScanArgs, ScanCursor, ScanRecord, ScanTold,
    WalkRecord, parse_scan,
};
use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests under way.
const UNDER_WAY: usize = 4;
/// Bytes of files of one request: it takes some milliseconds.
const BYTES: u64 = 16 << 20;
/// How often a file is hashed anew that changes meanwhile.
const TRIES_MAX: u32 = 8;

/// A name that the walk has told.
struct WalkedName {
    path: Vec<u8>,
    depth: usize,
    about: HashedName,
    /// What the server hashes.
    inode: Option<FsInode>,
    rdev: u64,
}

/// What came of a file.
type FileHash = Result<TreeHash, i32>;

struct Hashing<'a> {
    client: &'a Arc<FsClient>,
    caller: &'a FsCaller,
    shown: &'a [u8],
    fold: TreeFold,
    batch: Vec<WalkedName>,
    batch_bytes: u64,
    under_way: VecDeque<(Option<PendingScan>, Vec<WalkedName>)>,
    failed: &'a mut dyn FnMut(ToldError<'_>),
    is_whole: bool,
}

/// Hashes what a path stands for; a symbolic link stands for itself. `None`: a part cannot be read,
/// which is told.
///
/// # Errors
/// [`ToolError`]: it ends there.
pub fn hash_tree(
    client: &Arc<FsClient>,
    caller: &FsCaller,
    (root, shown): (&ResolvedPath, &[u8]),
    failed: &mut dyn FnMut(ToldError<'_>),
) -> Result<Option<TreeHash>, ToolError> {
    let mut hashing = Hashing {
        client,
        caller,
        shown,
        fold: TreeFold::default(),
        batch: Vec::new(),
        batch_bytes: 0,
        under_way: VecDeque::new(),
        failed,
        is_whole: true,
    };
    hashing.walk(root)?;
    hashing.send()?;
    while !hashing.under_way.is_empty() {
        hashing.take()?;
    }
    Ok(hashing.fold.end().filter(|_| hashing.is_whole))
}

impl Hashing<'_> {
    fn fault(&self, error: FsError) -> ToolError {
        ToolError::Fs { path: self.shown.to_vec(), error }
    }

    fn walk(&mut self, root: &ResolvedPath) -> Result<(), ToolError> {
        let everything = Joined::One(FindTest::Action(0));
        let program = program_of(&everything, Characters::Bytes).unwrap_or_default();
        let args = FindArgs { flags: FIND_ATTRIBUTES, max_depth: u32::MAX, ..FindArgs::default() };
        let mut walk = TreeWalk::new(root.found.inode, self.shown, program, &args);
        let (client, caller) = (self.client, self.caller);
        let mut trail = PathTrail::new(self.shown);
        while !walk.is_over() {
            let mut over = Ok(());
            let tell = |record: &WalkRecord<'_>| {
                if over.is_ok() {
                    over = self.walked(&mut trail, record);
                }
            };
            let walked = client.walk_on(caller, &mut walk, tell);
            walked.map_err(|error| self.fault(error))?;
            over?;
        }
        Ok(())
    }

    fn walked(&mut self, trail: &mut PathTrail, record: &WalkRecord<'_>) -> Result<(), ToolError> {
        if record.what & FIND_IS_ERROR != 0 {
            let (path, errno) = (record.name, record.error.into());
            self.tell(path, errno, ToldFailure::NotEntered);
            return Ok(());
        }
        let no_walk = FsError::Answer { entry: "walk" };
        let Some(path) = trail.to(record.depth, record.name) else {
            return Err(self.fault(no_walk));
        };
        let path = path.to_vec();
        let FindAttributes { inode, mode, rdev, size, .. } = record.attributes;
        if record.what & FIND_IS_ENTERED != 0 {
            trail.enter(inode);
        }
        let has_bytes = matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFLNK);
        let inode = has_bytes.then_some(inode);
        let about = HashedName { name: record.name.to_vec(), mode };
        let depth = usize::try_from(record.depth).unwrap_or(usize::MAX);
        self.batch.push(WalkedName { path, depth, about, inode, rdev });
        self.batch_bytes += if has_bytes { size } else { 0 };
        match self.batch.len() >= SCAN_FILES_MAX || self.batch_bytes >= BYTES {
            true => self.send(),
            false => Ok(()),
        }
    }

    fn tell(&mut self, path: &[u8], errno: i32, what: ToldFailure) {
        self.is_whole = false;
        (self.failed)(ToldError { path, errno, what });
    }

    /// Sends what is collected.
    fn send(&mut self) -> Result<(), ToolError> {
        let names = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        while self.under_way.len() >= UNDER_WAY {
            self.take()?;
        }
        let files: Vec<FsInode> = names.iter().filter_map(|name| name.inode).collect();
        let asked = (!files.is_empty()).then(|| self.ask(&files, 0)).transpose()?;
        self.under_way.push_back((asked, names));
        Ok(())
    }

    /// Asks for hashes, of the first file from a place on.
    fn ask(&self, files: &[FsInode], at: u64) -> Result<PendingScan, ToolError> {
        let cursor = ScanCursor { line: at, read: at, ..ScanCursor::default() };
        let args = ScanArgs { flags: SCAN_HASH, cursor, ..ScanArgs::default() };
        let pending = self.client.begin_scan(self.caller, &args, files);
        pending.map_err(|error| self.fault(error))
    }

    /// Takes what has come of the oldest request.
    fn take(&mut self) -> Result<(), ToolError> {
        let Some((pending, names)) = self.under_way.pop_front() else { return Ok(()) };
        let files: Vec<FsInode> = names.iter().filter_map(|name| name.inode).collect();
        let mut hashes = self.hashes(pending, &files)?.into_iter().zip(files);
        for name in names {
            let hash = match name.inode.and_then(|_| hashes.next()) {
                Some((hash, file)) => self.settled(hash, file)?,
                None => Ok(hash_special(name.about.mode, name.rdev)),
            };
            match (name.about.is_directory(), hash) {
                (true, _) => self.fold.directory(name.depth, name.about),
                (false, Ok(hash)) => self.fold.other(name.depth, name.about, hash),
                (false, Err(errno)) => self.tell(&name.path, errno, ToldFailure::NotRead),
            }
        }
        Ok(())
    }

    /// A file that has changed meanwhile is hashed anew.
    fn settled(&self, mut hash: FileHash, file: FsInode) -> Result<FileHash, ToolError> {
        for _ in 0..TRIES_MAX {
            if hash != Err(libc::EAGAIN) {
                break;
            }
            let pending = self.ask(&[file], 0)?;
            hash = self.hashes(Some(pending), &[file])?.pop().unwrap_or(Err(libc::EIO));
        }
        Ok(hash)
    }

    /// Of each file its hash, with further requests where one was not enough.
    fn hashes(
        &self,
        mut pending: Option<PendingScan>,
        files: &[FsInode],
    ) -> Result<Vec<FileHash>, ToolError> {
        let (mut all, mut pieces) = (Vec::with_capacity(files.len()), FilePieces::default());
        while let Some(asked) = pending.take() {
            let answer = asked.end(self.caller).map_err(|error| self.fault(error))?;
            let no_scan = || self.fault(FsError::Answer { entry: "scan" });
            for told in parse_scan(&answer, files.len() - all.len()).ok_or_else(no_scan)? {
                match told {
                    ScanTold::Piece(record, value) => pieces.add(&record, value),
                    ScanTold::Hashed(record, value) => {
                        pieces.add(&record, value);
                        all.push(std::mem::take(&mut pieces).end());
                    }
                    ScanTold::Failed(errno) => {
                        pieces = FilePieces::default();
                        all.push(Err(errno));
                    }
                    ScanTold::More(cursor) => {
                        pending = Some(self.ask(&files[all.len()..], cursor.read)?);
                    }
                    _ => return Err(no_scan()),
                }
            }
        }
        Ok(all)
    }
}

/// The pieces of a file that are hashed so far.
#[derive(Debug, Default)]
struct FilePieces {
    values: Vec<[u8; 32]>,
    version: Option<u64>,
    /// They are not of one version of the file, or not one behind the other.
    is_torn: bool,
}

impl FilePieces {
    fn add(&mut self, record: &ScanRecord, value: [u8; 32]) {
        let (version, offset) = (record.number, record.offset);
        let is_same = *self.version.get_or_insert(version) == version;
        let is_next = offset == self.values.len() as u64 * SCAN_PIECE_LEN;
        self.is_torn |= !is_same || !is_next;
        self.values.push(value);
    }

    /// The hash of the file.
    fn end(self) -> FileHash {
        match &self.values[..] {
            _ if self.is_torn => Err(libc::EAGAIN),
            [one] => Ok(TreeHash(*one)),
            all => {
                let (left, right) = all.split_at(left_len(all.len()));
                let (left, right) = (joined(left), joined(right));
                Ok(TreeHash(merge_subtrees_root(&left, &right, Mode::Hash).into()))
            }
        }
    }
}

/// Of so many pieces, those in the left half of BLAKE3's tree: the largest power of two below.
fn left_len(len: usize) -> usize {
    len.next_power_of_two() / 2
}

/// The chaining value of pieces.
fn joined(pieces: &[[u8; 32]]) -> [u8; 32] {
    match pieces {
        [] => [0; 32],
        [one] => *one,
        all => {
            let (left, right) = all.split_at(left_len(all.len()));
            merge_subtrees_non_root(&joined(left), &joined(right), Mode::Hash)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blake3::hazmat::HasherExt;

    fn record(number: u64, offset: u64) -> ScanRecord {
        ScanRecord { number, offset, ..ScanRecord::default() }
    }

    fn piece_len() -> usize {
        usize::try_from(SCAN_PIECE_LEN).expect("it fits")
    }

    fn file(len: usize) -> Vec<u8> {
        (0..len).map(|at| u8::try_from(at % 251).expect("small")).collect()
    }

    fn pieces(bytes: &[u8]) -> FilePieces {
        let (mut pieces, piece) = (FilePieces::default(), piece_len());
        for (at, some) in bytes.chunks(piece).enumerate() {
            let offset = at as u64 * SCAN_PIECE_LEN;
            let mut hasher = blake3::Hasher::new();
            hasher.set_input_offset(offset).update(some);
            let value = match bytes.len() <= piece {
                true => hasher.finalize().into(),
                false => hasher.finalize_non_root(),
            };
            pieces.add(&record(7, offset), value);
        }
        pieces
    }

    #[test]
    fn pieces_come_to_the_hash_of_the_whole_file() {
        let piece = piece_len();
        let bytes = file(5 * piece + 1);
        for len in [1, piece, piece + 1, 2 * piece, 3 * piece - 5, 4 * piece, 5 * piece + 1] {
            let whole = TreeHash(blake3::hash(&bytes[..len]).into());
            assert_eq!(pieces(&bytes[..len]).end(), Ok(whole), "{len}");
        }
    }

    #[test]
    fn pieces_of_two_versions_are_no_file() {
        let mut torn = FilePieces::default();
        torn.add(&record(1, 0), [0; 32]);
        torn.add(&record(2, SCAN_PIECE_LEN), [0; 32]);
        assert_eq!(torn.end(), Err(libc::EAGAIN));
        let mut gap = FilePieces::default();
        gap.add(&record(1, 0), [0; 32]);
        gap.add(&record(1, 2 * SCAN_PIECE_LEN), [0; 32]);
        assert_eq!(gap.end(), Err(libc::EAGAIN));
    }
}
