//! The blocks of open files: made room for, given back, and shared between files.

use super::tree::MountedTree;
use crate::client::{ChangeWhat, FsCaller, FsError};
use crate::protocol::{BLOCK_LEN, FsShareArgs};

impl MountedTree {
    pub(super) fn allocate(
        &self,
        caller: &FsCaller,
        handle: u64,
        (offset, len): (u64, u64),
        mode: i32,
    ) -> Result<(), FsError> {
        let file = self.file(handle)?;
        let (keep, punch, zero) =
            (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_ZERO_RANGE);
        let end = offset.checked_add(len).ok_or_else(|| FsError::of(libc::EFBIG))?;
        if mode & !(keep | punch | zero) != 0 {
            return Err(FsError::of(libc::EOPNOTSUPP));
        }
        let (caller, changed) = (file.used_by(caller), self.changes_here(self.ask()));
        let change = |what| file.open.change(&caller, what, file.sync_when(), &changed).map(drop);
        if mode & (punch | zero) != 0 {
            change(ChangeWhat::Punch { offset, len })?;
        }
        match mode & (keep | punch) {
            0 => change(ChangeWhat::Write(end, b"")),
            _ => Ok(()),
        }
    }

    /// Has a file another one's blocks, as far as whole blocks go; how many bytes.
    pub(super) fn share(
        &self,
        caller: &FsCaller,
        (from, from_at): (u64, u64),
        (to, to_at): (u64, u64),
        len: u64,
    ) -> Result<u64, FsError> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        let no = || FsError::of(libc::EOPNOTSUPP);
        let is_aligned = from_at % BLOCK_LEN == 0 && to_at % BLOCK_LEN == 0;
        if !is_aligned || len < BLOCK_LEN || from.open.inode == to.open.inode {
            return Err(no());
        }
        self.settle(caller, from.open.inode);
        let changed = self.changes_here(self.ask());
        let writer = to.used_by(caller);
        to.flush(&writer, &changed)?;
        let size = self.client.get(caller, from.open.inode)?.record.size;
        let whole = len.min(size.saturating_sub(from_at)) / BLOCK_LEN;
        if whole == 0 {
            return Err(no());
        }
        let share = FsShareArgs {
            who: caller.who,
            from: from.open.inode,
            to: to.open.inode,
            from_block: from_at / BLOCK_LEN,
            to_block: to_at / BLOCK_LEN,
            len: whole,
        };
        to.open.changed_elsewhere();
        let answer = match self.client.share(caller, &share) {
            // The bytes can be copied, also by those who may no longer open the files.
            Err(FsError::Failed { errno: libc::E2BIG | libc::EMLINK | libc::EACCES, .. }) => {
                return Err(no());
            }
            shared => shared?,
        };
        changed(to.open.inode, &answer.record);
        let end = to_at + whole * BLOCK_LEN;
        if answer.record.size < end {
            to.open.change(&writer, ChangeWhat::Write(end, b""), to.sync_when(), &changed)?;
        }
        Ok(whole * BLOCK_LEN)
    }
}
