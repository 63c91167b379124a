//! What a module's failure is for a program: an error number of Linux.

/// What is added to error numbers in failures of the module `fs`.
pub const ERRNO: i32 = 1000;

/// Linux has none above.
const ERRNO_MAX: i32 = 133;

/// Failures of the modules below `fs` that a program can cause; all others are damage.
const OTHERS: [(i32, i32); 8] = [
    (super::ALLOC_FULL, libc::ENOSPC),
    (super::TABLE_FULL, libc::ENOSPC),
    (super::NAMES_FULL, libc::ENOSPC),
    (super::INODE_FULL, libc::ENOSPC),
    (super::BLOCKS_FULL, libc::ENOSPC),
    (super::BLOCKS_USERS, libc::EMLINK),
    (super::INODE_RANGE, libc::EFBIG),
    (super::INODE_NONE, libc::ESTALE),
];

/// The error number of a failure; EIO for one that says nothing to a program.
#[must_use]
pub fn errno_of_failure(code: i32) -> i32 {
    let own = code.checked_sub(ERRNO).filter(|errno| (1..=ERRNO_MAX).contains(errno));
    let other = || OTHERS.iter().find(|(known, _)| *known == code).map(|(_, errno)| *errno);
    own.or_else(other).unwrap_or(libc::EIO)
}

/// The failure that says an error number.
#[must_use]
pub fn failure_of_errno(errno: i32) -> i32 {
    ERRNO + errno
}
