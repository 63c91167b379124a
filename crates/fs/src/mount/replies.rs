//! How the kernel is answered: error numbers, and answers that have more than one form.

use super::tree::OpenedHere;
use crate::client::FsError;
use fuser::{Errno, FopenFlags, ReplyEmpty, ReplyXattr};

pub(super) fn errno(error: &FsError) -> Errno {
    match error {
        FsError::Failed { .. } | FsError::Interrupted => {}
        other => tracing::warn!(error = %other, "a request of the file system has failed"),
    }
    Errno::from_i32(error.errno())
}

pub(super) fn reply_empty(reply: ReplyEmpty, done: Result<(), FsError>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

pub(super) fn reply_xattr(reply: ReplyXattr, size: u32, bytes: Result<Vec<u8>, FsError>) {
    match bytes {
        Err(error) => reply.error(errno(&error)),
        Ok(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        Ok(bytes) if bytes.len() as u64 > u64::from(size) => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
    }
}

pub(super) fn open_flags(opened: &OpenedHere) -> FopenFlags {
    match (opened.is_direct, opened.keeps) {
        (true, _) => FopenFlags::FOPEN_DIRECT_IO,
        (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
        (false, false) => FopenFlags::empty(),
    }
}
