//! The names in an open directory, and paths without `.` and `..`.
//!
//! Opens nothing and follows no link.

use rustix::fd::AsFd;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::{Component, Path, PathBuf};

/// Room for one call of getdents(2), bytes.
const LISTING_BYTES: usize = 32 << 10;

/// Calls `each` for every name in an open directory but `.` and `..`, in the file system's order.
/// Reads on from where the descriptor stands.
///
/// # Errors
/// The file system's, after some names perhaps.
pub fn for_each_name(directory: impl AsFd, mut each: impl FnMut(&CStr)) -> Result<(), Errno> {
    let mut room = vec![MaybeUninit::uninit(); LISTING_BYTES];
    let mut entries = RawDir::new(directory, &mut room);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") {
            each(name);
        }
    }
    Ok(())
}

/// `path` without `.` and `..`, which takes the name before it: by its text, as if no name before
/// `..` were a link.
#[must_use]
pub fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_directory_has_its_names_and_not_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut expected: Vec<_> = (0..2000).map(|name| format!("a-long-name-{name}")).collect();
        for name in &expected {
            fs::write(directory.path().join(name), "").expect("written");
        }
        let mut found = Vec::new();
        let open = File::open(directory.path()).expect("open");
        for_each_name(&open, |name| found.push(name.to_str().expect("ASCII").to_owned()))
            .expect("listed");
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        let file = File::open(directory.path().join(&expected[0])).expect("open");
        assert_eq!(for_each_name(&file, |_| ()), Err(Errno::NOTDIR));
    }

    #[test]
    fn dots_go_by_the_text() {
        for (path, plain) in
            [("/a/./b/../c", "/a/c"), ("/../a//b/", "/a/b"), ("../x", "x"), ("a/..", ""), (".", "")]
        {
            assert_eq!(without_dots(Path::new(path)), Path::new(plain), "{path}");
        }
    }
}
