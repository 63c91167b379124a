//! Which names and lengths a tree may have: the kernel's bytes, in no encoding.
//!
//! Never touches the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes in a name, at most (NAME_MAX).
pub const NAME_LEN_MAX: usize = 255;
/// Bytes in a path relative to the destination, at most (PATH_MAX without its NUL).
pub const PATH_LEN_MAX: usize = 4095;
/// Names in a path, at most: a walk holds one descriptor a level.
pub const DEPTH_MAX: usize = 256;
/// How the names of staging directories begin. Nothing that is cast may have such a name at its
/// top.
pub const HIDDEN_PREFIX: &[u8] = b".outboard-cast-";

/// The extended attribute that says which identity has published something. It is not cast, and a
/// source cannot give it.
pub(crate) const MARK_XATTR: &[u8] = b"user.outboard.cast";

/// Whether bytes are a name that a directory can hold, and neither `.` nor `..`.
pub(super) fn is_name(name: &[u8]) -> bool {
    let fits = (1..=NAME_LEN_MAX).contains(&name.len());
    fits && name != b"." && name != b".." && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// A path for errors, which print it escaped.
pub(crate) fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}
