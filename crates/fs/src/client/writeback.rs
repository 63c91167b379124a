//! Errors of changes that were acknowledged before they failed: gathered bytes that could not be
//! written, and changes that were lost with the service. Each is reported to every open file
//! description of the inode, once; to one that is opened later if none has been told yet (fsync(2)
//! since Linux 4.13, `errseq_t`).

use super::error::FsError;
use crate::protocol::FsInode;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Inodes whose errors are remembered, at most.
const INODES_MAX: usize = 1 << 16;

/// The last error of an inode.
#[derive(Clone, Copy, Debug)]
struct WritebackError {
    number: u64,
    errno: i32,
    is_reported: bool,
}

/// Up to which error an open file description has been told.
#[derive(Debug)]
pub struct ErrorCursor(AtomicU64);

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct WritebackErrors {
    errors: Mutex<HashMap<FsInode, WritebackError>>,
    /// The last error's number.
    last: AtomicU64,
}

impl WritebackErrors {
    fn lock(&self) -> MutexGuard<'_, HashMap<FsInode, WritebackError>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A change of an inode has failed.
    pub(super) fn add(&self, inode: FsInode, errno: i32) {
        let mut errors = self.lock();
        let number = self.last.fetch_add(1, Ordering::AcqRel) + 1;
        if errors.len() >= INODES_MAX {
            errors.retain(|_, error| !error.is_reported);
        }
        if errors.len() >= INODES_MAX {
            // The older half.
            let newer = number.saturating_sub(INODES_MAX as u64 / 2);
            errors.retain(|_, error| error.number >= newer);
        }
        errors.insert(inode, WritebackError { number, errno, is_reported: false });
    }

    /// An inode is opened.
    pub(super) fn cursor(&self, inode: FsInode) -> ErrorCursor {
        let is_unreported = self.lock().get(&inode).is_some_and(|error| !error.is_reported);
        let seen = if is_unreported { 0 } else { self.last.load(Ordering::Acquire) };
        ErrorCursor(AtomicU64::new(seen))
    }

    /// The error that an open file description has not been told of.
    pub(super) fn check(&self, inode: FsInode, cursor: &ErrorCursor) -> Result<(), FsError> {
        if cursor.0.load(Ordering::Acquire) >= self.last.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut errors = self.lock();
        let seen = cursor.0.swap(self.last.load(Ordering::Acquire), Ordering::AcqRel);
        match errors.get_mut(&inode).filter(|error| error.number > seen) {
            Some(error) => {
                error.is_reported = true;
                Err(FsError::of(error.errno))
            }
            None => Ok(()),
        }
    }

    /// The error of which an open file description has not been told, for one of its closes. It
    /// stays to be told: a child of the process that writes may have closed its copy.
    pub(super) fn check_at_close(
        &self,
        inode: FsInode,
        cursor: &ErrorCursor,
    ) -> Result<(), FsError> {
        let seen = cursor.0.load(Ordering::Acquire);
        if seen >= self.last.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.lock().get_mut(&inode).filter(|error| error.number > seen) {
            Some(error) => {
                error.is_reported = true;
                Err(FsError::of(error.errno))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(number: u64) -> FsInode {
        FsInode { number, generation: 1 }
    }

    #[test]
    fn every_description_is_told_once() {
        let errors = WritebackErrors::default();
        let told = |number, cursor: &ErrorCursor| {
            errors.check(inode(number), cursor).err().map_or(0, |error| error.errno())
        };
        let (first, second, other) =
            (errors.cursor(inode(1)), errors.cursor(inode(1)), errors.cursor(inode(2)));
        assert_eq!(told(1, &first), 0);
        errors.add(inode(1), libc::EIO);
        let later = errors.cursor(inode(1));
        assert_eq!((told(1, &first), told(1, &first)), (libc::EIO, 0));
        assert_eq!((told(1, &second), told(1, &later)), (libc::EIO, libc::EIO));
        assert_eq!(told(2, &other), 0);
        assert_eq!(told(1, &errors.cursor(inode(1))), 0, "others have been told");
        errors.add(inode(1), libc::ENOSPC);
        assert_eq!((told(1, &first), told(1, &second)), (libc::ENOSPC, libc::ENOSPC));
    }

    #[test]
    fn a_close_leaves_the_error_to_others_with_the_description() {
        let errors = WritebackErrors::default();
        let cursor = errors.cursor(inode(1));
        errors.add(inode(1), libc::EIO);
        for _ in 0..2 {
            errors.check_at_close(inode(1), &cursor).expect_err("a child's, then its parent's");
        }
        let later = errors.cursor(inode(1));
        errors.check(inode(1), &later).expect("others have been told");
        errors.check(inode(1), &cursor).expect_err("fsync says it");
        errors.check_at_close(inode(1), &cursor).expect("it was said");
    }

    #[test]
    fn errors_are_bounded() {
        let errors = WritebackErrors::default();
        let first = errors.cursor(inode(0));
        for number in 0..2 * INODES_MAX as u64 {
            errors.add(inode(number), libc::EIO);
        }
        let last = 2 * INODES_MAX as u64 - 1;
        assert!(errors.check(inode(last), &first).is_err(), "the newest is known");
        assert!(errors.lock().len() <= INODES_MAX);
    }
}
