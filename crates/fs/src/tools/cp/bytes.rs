//! What files have in them: a copy gets its file's blocks, and then its size. A file that has
//! changed meanwhile is copied anew.

use super::super::quoted;
use super::{CpExisting, CpName, TreeCopier};
use crate::client::{ChangeWhat, FsError, ManyChange, PendingChange, SyncWhen, TRANSFER_MAX};
use crate::protocol::{BLOCK_LEN, FsAnswer, FsInode, FsShareArgs, SEEK_DATA, SEEK_HOLE};
use std::collections::{HashMap, VecDeque};

/// Sizes that are set at a time.
const UNDER_WAY: usize = 48;
/// How often a file is copied that changes meanwhile.
const TRIES_MAX: u32 = 8;
/// Blocks that are read and written where they cannot be shared, at least.
const READ_BLOCKS: u64 = 1024;

/// A file and its copy.
#[derive(Clone, Copy, Debug)]
struct CpBytes {
    from: FsAnswer,
    to: FsInode,
    is_made: bool,
    /// The user owns one of both, and has no right to read it, or to write it: the server lets
    /// owners, whose mounts have asked already when they opened it.
    is_denied: bool,
}

impl CpBytes {
    fn of(name: &CpName, uid: u32) -> Option<Self> {
        let to = name.to.filter(|_| name.is_file())?;
        let is_denied = lacks(uid, &name.from, libc::S_IRUSR)
            || (!name.is_made && lacks(uid, &to, libc::S_IWUSR));
        Some(Self { from: name.from, to: to.inode, is_made: name.is_made, is_denied })
    }

    fn blocks(&self) -> u64 {
        self.from.record.size.div_ceil(BLOCK_LEN)
    }

    fn share(&self, from_block: u64, len: u64) -> FsShareArgs {
        let (from, to) = (self.from.inode, self.to);
        FsShareArgs { from, to, from_block, to_block: from_block, len, ..FsShareArgs::default() }
    }

    /// What sets the size: a new file has nothing behind it.
    fn resize(&self) -> ChangeWhat<'static> {
        match self.is_made {
            true => ChangeWhat::Write(self.from.record.size, b""),
            false => ChangeWhat::Resize(self.from.record.size),
        }
    }
}

/// What came of a file: an error number, or 0.
type Errnos = Vec<i32>;

impl TreeCopier<'_> {
    /// Copies the bytes of those that are files; others stay as they are, and so do those that
    /// cannot be copied, but for new ones, which go.
    pub(super) fn copy_bytes(
        &mut self,
        dir: FsInode,
        names: &mut Vec<CpName>,
        listed: Option<(FsInode, u64)>,
    ) -> Result<(), FsError> {
        let uid = self.caller.who.uid;
        let files: Vec<CpBytes> = names.iter().filter_map(|name| CpBytes::of(name, uid)).collect();
        let mut errnos = self.share_all(&files)?;
        self.resize_all(&files, &mut errnos)?;
        self.settle_all(&files, &mut errnos, listed)?;
        let (mut errnos, mut kept) = (errnos.into_iter(), Vec::with_capacity(names.len()));
        for mut name in std::mem::take(names) {
            let errno = if name.is_file() { errnos.next().unwrap_or(0) } else { 0 };
            if errno == 0 || self.is_copied_by_force(dir, &mut name, errno)? {
                kept.push(name);
            }
        }
        *names = kept;
        Ok(())
    }

    fn share_all(&self, files: &[CpBytes]) -> Result<Errnos, FsError> {
        let shares: Vec<ManyChange> = files
            .iter()
            .filter(|file| !file.is_denied)
            .map(|file| ManyChange::share(&self.caller, &file.share(0, file.blocks())))
            .collect();
        let mut results = self.client.change_many(&self.caller, &shares)?.into_iter().peekable();
        let of = |file: &CpBytes| match results.next_if(|_| !file.is_denied) {
            Some(Ok(_)) => Ok(0),
            Some(Err(libc::E2BIG | libc::EMLINK)) => errno_of(self.share_parts(file)),
            Some(Err(errno)) => Ok(errno),
            None => Ok(libc::EACCES),
        };
        files.iter().map(of).collect()
    }

    /// Shares a file's blocks in halves, and those in halves, until each is one change.
    fn share_parts(&self, file: &CpBytes) -> Result<(), FsError> {
        let mut left = vec![(0, file.blocks())];
        while let Some((at, len)) = left.pop() {
            match self.client.share(&self.caller, &file.share(at, len)) {
                Err(FsError::Failed { errno: libc::EMLINK, .. }) if len <= READ_BLOCKS => {
                    self.copy_part(file, at * BLOCK_LEN, len * BLOCK_LEN)?;
                }
                Err(FsError::Failed { errno: libc::E2BIG | libc::EMLINK, .. }) if len > 1 => {
                    left.extend([(at + len / 2, len - len / 2), (at, len / 2)]);
                }
                shared => drop(shared?),
            }
        }
        Ok(())
    }

    /// Reads and writes what has as many users as blocks can have.
    fn copy_part(&self, file: &CpBytes, offset: u64, len: u64) -> Result<(), FsError> {
        let (client, caller) = (self.client, &self.caller);
        let hole = ChangeWhat::Punch { offset, len };
        client.change(caller, file.to, hole, SyncWhen::Later)?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            at = match client.seek(caller, file.from.inode, at, SEEK_DATA) {
                Err(FsError::Failed { errno: libc::ENXIO, .. }) => break,
                data => data?,
            };
            let hole = client.seek(caller, file.from.inode, at, SEEK_HOLE)?.min(end);
            let some = usize::try_from(hole.saturating_sub(at)).unwrap_or(usize::MAX);
            let read = client.read(caller, file.from.inode, at, some.min(TRANSFER_MAX))?;
            if read.bytes.is_empty() {
                break;
            }
            let bytes = ChangeWhat::Write(at, &read.bytes);
            client.change(caller, file.to, bytes, SyncWhen::Later)?;
            at += read.bytes.len() as u64;
        }
        Ok(())
    }

    fn resize_all(&self, files: &[CpBytes], errnos: &mut Errnos) -> Result<(), FsError> {
        let is_set = |file: &CpBytes| file.is_made && file.from.record.size == 0;
        let wanted = files.iter().enumerate().zip(&*errnos);
        let wanted = wanted.filter(|((_, file), errno)| **errno == 0 && !is_set(file));
        let wanted: Vec<(usize, &CpBytes)> = wanted.map(|(one, _)| one).collect();
        let mut under_way: VecDeque<(usize, PendingChange)> = VecDeque::new();
        let mut end = |(place, change): (usize, PendingChange)| {
            errnos_put(errnos, place, errno_of(change.end(&self.caller).map(drop)))
        };
        for (place, file) in wanted {
            if under_way.len() >= UNDER_WAY
                && let Some(first) = under_way.pop_front()
            {
                end(first)?;
            }
            let (to, what) = (file.to, file.resize());
            let change = self.client.begin_change(&self.caller, to, what, SyncWhen::Later)?;
            under_way.push_back((place, change));
        }
        under_way.into_iter().try_for_each(end)
    }

    /// Copies those anew that are not as they were when they were listed.
    fn settle_all(
        &self,
        files: &[CpBytes],
        errnos: &mut Errnos,
        listed: Option<(FsInode, u64)>,
    ) -> Result<(), FsError> {
        let versions: HashMap<FsInode, u64> = match listed {
            Some((dir, at)) if !files.is_empty() => self
                .client
                .list(&self.caller, dir, at)
                .unwrap_or_default()
                .iter()
                .map(|one| (one.head.inode, one.head.record.version))
                .collect(),
            _ => HashMap::new(),
        };
        for (file, errno) in files.iter().zip(errnos).filter(|(_, errno)| **errno == 0) {
            if versions.get(&file.from.inode) != Some(&file.from.record.version) {
                *errno = errno_of(self.settle(file))?;
            }
        }
        Ok(())
    }

    fn settle(&self, file: &CpBytes) -> Result<(), FsError> {
        let mut file = *file;
        for _ in 0..TRIES_MAX {
            let now = self.client.get(&self.caller, file.from.inode)?;
            if now.record.version == file.from.record.version {
                break;
            }
            file.from = now;
            self.share_parts(&file)?;
            let what = ChangeWhat::Resize(now.record.size);
            self.client.change(&self.caller, file.to, what, SyncWhen::Later)?;
        }
        Ok(())
    }

    /// A file could not be copied: with -f its place is taken by a new one, if it was that.
    fn is_copied_by_force(
        &mut self,
        dir: FsInode,
        name: &mut CpName,
        errno: i32,
    ) -> Result<bool, FsError> {
        let is_readable = !lacks(self.caller.who.uid, &name.from, libc::S_IRUSR)
            && self.client.read(&self.caller, name.from.inode, 0, 1).is_ok();
        let (from, to) = (quoted(&name.from_path), quoted(&name.to_path));
        if name.is_made {
            // What failed before is what is told.
            let _gone = self.client.unlink(&self.caller, dir, &name.name);
        }
        let is_forced = self.wish.existing == CpExisting::Removed && errno == libc::EACCES;
        match (is_readable, name.is_made) {
            (false, _) => self.tell_errno(&format!("cannot open {from} for reading"), errno),
            (true, true) => self.tell_errno(&format!("error writing {to}"), errno),
            (true, false) if is_forced => {
                let mut names = vec![name.clone()];
                if !self.remove(dir, &mut names[0])? {
                    return Ok(false);
                }
                self.make(dir, &mut names)?;
                names.retain(|name| name.is_made);
                self.copy_bytes(dir, &mut names, None)?;
                return Ok(names.pop().map(|made| *name = made).is_some());
            }
            (true, false) => self.tell_errno(&format!("cannot create regular file {to}"), errno),
        }
        Ok(false)
    }
}

/// Whether a user owns a file and has given himself no right to it.
fn lacks(uid: u32, file: &FsAnswer, right: u32) -> bool {
    uid != 0 && file.record.uid == uid && file.record.mode & right == 0
}

/// The error number of a file's failure; others end everything.
fn errno_of(done: Result<(), FsError>) -> Result<i32, FsError> {
    match done {
        Ok(()) => Ok(0),
        Err(FsError::Failed { errno, .. }) => Ok(errno),
        Err(error) => Err(error),
    }
}

/// The first failure of a file is what is told.
fn errnos_put(
    errnos: &mut Errnos,
    place: usize,
    errno: Result<i32, FsError>,
) -> Result<(), FsError> {
    let errno = errno?;
    if let Some(first) = errnos.get_mut(place).filter(|first| **first == 0) {
        *first = errno;
    }
    Ok(())
}
