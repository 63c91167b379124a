//! Absolute paths as bytes, in the one form that both halves use: `/a/b`, without empty, `.` or
//! `..` components, without NUL, without a slash at the end (but `/` itself).
//!
//! Never touches the file system, and knows no encodings: a name is the kernel's bytes.

use std::sync::Arc;

/// A path with shared ownership.
pub(crate) type Path = Arc<[u8]>;
/// One name in a directory.
pub(crate) type Name = Box<[u8]>;

/// Bytes in a path, at most (PATH_MAX without its NUL).
pub const PATH_LEN_MAX: usize = 4095;
/// Bytes in a name, at most (NAME_MAX).
pub const NAME_LEN_MAX: usize = 255;

/// A path with shared ownership.
pub(crate) fn shared(path: &[u8]) -> Path {
    path.into()
}

/// Whether bytes are a path in the form described above.
pub(crate) fn is_path(path: &[u8]) -> bool {
    if path == b"/" {
        return true;
    }
    let Some(rest) = path.strip_prefix(b"/") else { return false };
    path.len() <= PATH_LEN_MAX && rest.split(|&byte| byte == b'/').all(is_name)
}

/// Whether bytes are a legal name in a directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let fits = (1..=NAME_LEN_MAX).contains(&name.len());
    fits && name != b"." && name != b".." && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// What an export does with names that begin with a dot, and with all beneath them. A server learns
/// it from the header, so that it never takes a name for absent that is withheld.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiddenNames {
    /// They are not exported, and are in no listing.
    #[default]
    Withheld,
    /// They are exported like all others.
    Exported,
}

impl HiddenNames {
    /// Whether this name is not exported.
    pub(crate) fn withhold(self, name: &[u8]) -> bool {
        self == Self::Withheld && name.first() == Some(&b'.')
    }
}

/// The path of `name` in the directory `dir`.
#[must_use]
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, slash, name].concat()
}

/// The directory of a path and its name there; `None` for `/`.
#[must_use]
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    let (dir, name) = (&path[..slash], &path[slash + 1..]);
    let dir = if dir.is_empty() { b"/" } else { dir };
    (!name.is_empty()).then_some((dir, name))
}

/// The rest of `path` below `dir`, without a slash in front: empty for `dir` itself.
pub(crate) fn behind<'a>(dir: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    if dir == b"/" {
        return path.strip_prefix(b"/");
    }
    match path.strip_prefix(dir)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// The path itself and the directories above it, the nearest first, `/` last.
pub(crate) fn upwards(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(path), |path| split(path).map(|(dir, _)| dir))
}

/// Every path that sorts at or after `start` and before `end` lies beneath `dir`, `dir` excluded.
pub(crate) fn range_beneath(dir: &[u8]) -> (Path, Path) {
    let stem = if dir == b"/" { b"" } else { dir };
    ([stem, b"/"].concat().into(), [stem, b"0"].concat().into())
}

/// The components of a path, or of the rest of a path below a root.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_form_is_a_path() {
        for path in [&b"/"[..], b"/a", b"/a/b", b"/a b\n\xff/..c", b"/.x"] {
            assert!(is_path(path), "{path:?}");
        }
        for path in [&b""[..], b"a", b"//", b"/a/", b"/a//b", b"/a/./b", b"/a/..", b"/a\0"] {
            assert!(!is_path(path), "{path:?}");
        }
        assert!(!is_path(&[b"/", &[b'a'; 256][..]].concat()));
        assert!(!is_path(&b"/a".repeat(2048)));
    }

    #[test]
    fn a_path_is_its_directory_and_name() {
        assert_eq!(split(b"/"), None);
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(join(b"/", b"a"), b"/a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/a/", b"b"), b"/a/b");
        let up: Vec<_> = upwards(b"/a/b").collect();
        assert_eq!(up, [&b"/a/b"[..], b"/a", b"/"]);
    }

    #[test]
    fn beneath_is_by_component() {
        assert_eq!(behind(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(behind(b"/a", b"/a/b/c"), Some(&b"b/c"[..]));
        assert_eq!(behind(b"/a", b"/ab"), None);
        assert_eq!(behind(b"/", b"/ab"), Some(&b"ab"[..]));
        let (start, end) = range_beneath(b"/a");
        for (path, inside) in [("/a", false), ("/a!", false), ("/a/\u{7f}", true), ("/a0", false)] {
            assert_eq!((&*start..&*end).contains(&path.as_bytes()), inside, "{path}");
        }
    }
}
