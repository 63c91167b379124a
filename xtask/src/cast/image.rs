//! Trees of files, compared completely: kinds, lengths, modes, times, extended attributes of users,
//! holes, targets of links, contents.
//!
//! Owners and the number of links are not compared: receivers own what they receive.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{SeekFrom, lgetxattr, llistxattr, seek};
use rustix::io::Errno;

/// How many differences an error names.
const NAMED_MAX: usize = 8;
/// Bytes compared at a time, and the distance of samples.
const PIECE: usize = 1 << 20;
/// Bytes of a sample.
const SAMPLE: u64 = 256;
/// Bytes of all names, or of one value, of extended attributes.
const XATTR_MAX: usize = 4 << 10;

/// How thoroughly contents are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contents {
    /// A few bytes at every mebibyte, and the last.
    Sampled,
    /// Every byte.
    Whole,
}

/// A tree's entries by their paths in it; the top itself has the empty path.
#[derive(Clone, Debug)]
pub(super) struct TreeImage {
    at: PathBuf,
    entries: BTreeMap<PathBuf, EntryFacts>,
}

/// What a receiver notes at the top of what it has published: for which cast that was.
const RECEIVERS_NOTE: &[u8] = b"user.outboard.cast\0";

/// Everything of an entry but its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EntryFacts {
    mode: u32,
    len: u64,
    modified: (i64, i64),
    target: Option<PathBuf>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where a file has bytes.
    extents: Vec<Range<u64>>,
}

impl TreeImage {
    /// Reads all but the contents of what is at a path, a file or a directory.
    ///
    /// # Errors
    /// When something cannot be read.
    pub(super) fn read(at: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(inside) = waiting.pop() {
            let path = joined(at, &inside);
            let facts = EntryFacts::read(&path).with_context(|| format!("reading {path:?}"))?;
            if facts.is_directory() {
                for entry in fs::read_dir(&path)? {
                    waiting.push(inside.join(entry?.file_name()));
                }
            }
            entries.insert(inside, facts);
        }
        Ok(Self { at: at.to_owned(), entries })
    }

    /// Number of entries, the top among them.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Requires that what is at `copy` is equal.
    ///
    /// # Errors
    /// Names the entries that are missing, new or different.
    pub(super) fn expect(&self, copy: &Path, contents: Contents) -> Result<()> {
        let mut copied = Self::read(copy)?;
        if let Some(top) = copied.entries.get_mut(Path::new("")) {
            top.xattrs.remove(RECEIVERS_NOTE);
        }
        let mut found: Vec<String> = self.differences(&copied);
        if found.is_empty() {
            for (path, facts) in &self.entries {
                let (own, other) = (joined(&self.at, path), joined(copy, path));
                if let Some(at) = facts.first_difference(&own, &other, contents)? {
                    found.push(format!("{path:?} has another byte at {at}"));
                }
            }
        }
        if found.is_empty() {
            return Ok(());
        }
        let named = found[..found.len().min(NAMED_MAX)].join("; ");
        bail!("{} of {} entries of {copy:?}: {named}", found.len(), self.len())
    }

    fn differences(&self, copied: &Self) -> Vec<String> {
        let missing = self.entries.keys().filter(|path| !copied.entries.contains_key(*path));
        let missing = missing.map(|path| format!("{path:?} is missing"));
        let different = copied.entries.iter().filter_map(|(path, other)| {
            let Some(own) = self.entries.get(path) else {
                return Some(format!("{path:?} should not be there"));
            };
            (own != other).then(|| format!("{path:?} is {other:?}, not {own:?}"))
        });
        missing.chain(different).collect()
    }
}

impl EntryFacts {
    fn read(path: &Path) -> Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        let (is_file, is_link) = (meta.is_file(), meta.is_symlink());
        Ok(Self {
            mode: meta.mode(),
            len: if is_file { meta.len() } else { 0 },
            modified: (meta.mtime(), meta.mtime_nsec()),
            target: if is_link { Some(fs::read_link(path)?) } else { None },
            xattrs: xattrs(path)?,
            extents: if is_file { extents(&File::open(path)?, meta.len())? } else { Vec::new() },
        })
    }

    fn is_directory(&self) -> bool {
        // The type in `st_mode` (inode(7)).
        self.mode & 0o170_000 == 0o040_000
    }

    /// Where the contents of two files of equal facts differ.
    fn first_difference(&self, own: &Path, other: &Path, all: Contents) -> Result<Option<u64>> {
        if self.extents.is_empty() {
            return Ok(None);
        }
        let (own, other) = (File::open(own)?, File::open(other)?);
        for extent in &self.extents {
            if let Some(at) = difference(&own, &other, extent, all)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// A path without a final slash: one behind a file's name is an error.
fn joined(at: &Path, inside: &Path) -> PathBuf {
    if inside.as_os_str().is_empty() { at.to_owned() } else { at.join(inside) }
}

fn difference(own: &File, other: &File, range: &Range<u64>, all: Contents) -> Result<Option<u64>> {
    let mut at = range.start;
    let most = usize::try_from(range.end - range.start)?.min(PIECE);
    let (mut one, mut two) = (vec![0; most], vec![0; most]);
    while at < range.end {
        let piece = (range.end - at).min(PIECE as u64);
        let len = match all {
            Contents::Whole => piece,
            Contents::Sampled => piece.min(SAMPLE),
        };
        // The last bytes of a piece come last.
        let from = at + piece - len;
        let part = usize::try_from(len)?;
        let (one, two) = (&mut one[..part], &mut two[..part]);
        own.read_exact_at(one, from)?;
        other.read_exact_at(two, from)?;
        if one != two {
            let before = one.iter().zip(two.iter()).take_while(|(one, two)| one == two).count();
            return Ok(Some(from + before as u64));
        }
        at += piece;
    }
    Ok(None)
}

/// Where a file has bytes: the rest are holes.
fn extents(file: &File, len: u64) -> Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < len {
        let start = match seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            start => start?,
        };
        at = seek(file, SeekFrom::Hole(start))?.min(len);
        found.push(start..at);
    }
    Ok(found)
}

/// Extended attributes of users.
fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut buffer = vec![0; XATTR_MAX];
    let len = llistxattr(path, &mut buffer[..])?;
    let names: Vec<Vec<u8>> =
        buffer[..len].split_inclusive(|byte| *byte == 0).map(Into::into).collect();
    let mut found = BTreeMap::new();
    for name in names.into_iter().filter(|name| name.starts_with(b"user.")) {
        let len = lgetxattr(path, CStr::from_bytes_with_nul(&name)?, &mut buffer[..])?;
        found.insert(name, buffer[..len].to_vec());
    }
    Ok(found)
}

/// The names in a directory that users see, and those that are hidden.
pub(super) fn listing(directory: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(PathBuf::from(entry?.file_name())));
    let mut names = names.collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names.into_iter().partition(|name| !is_hidden(name.as_os_str())))
}

/// Whether a name is that of a receiver's staging directory.
fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".outboard-cast-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::FileTimes;
    use std::os::unix::fs::PermissionsExt;
    use std::time::{Duration, SystemTime};

    /// What an error says, and the change that causes it.
    type DifferenceCase = (&'static str, fn(&Path));

    /// Two equal trees, removed when dropped.
    struct Pair(PathBuf);

    impl Pair {
        fn new(name: &str) -> Self {
            let at =
                std::env::temp_dir().join(format!("outboard-image-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&at);
            for side in ["one", "two"] {
                let side = at.join(side);
                fs::create_dir_all(&side).unwrap();
                fs::write(side.join("file"), vec![7; 3 * PIECE]).unwrap();
                std::os::unix::fs::symlink("file", side.join("link")).unwrap();
                Self::date(&side);
            }
            Self(at)
        }

        /// Gives everything the same time.
        fn date(side: &Path) {
            let time = SystemTime::UNIX_EPOCH + Duration::new(9, 8);
            for name in ["file", ""] {
                let times = FileTimes::new().set_modified(time);
                File::open(joined(side, Path::new(name))).unwrap().set_times(times).unwrap();
            }
            let mut touch = std::process::Command::new("touch");
            let touch = touch.args(["--no-dereference", "--date=@9"]).arg(side.join("link"));
            assert!(touch.status().unwrap().success());
        }

        fn compare(&self, contents: Contents) -> String {
            Self::date(&self.0.join("two"));
            let image = TreeImage::read(&self.0.join("one")).unwrap();
            let outcome = image.expect(&self.0.join("two"), contents);
            outcome.err().map(|error| error.to_string()).unwrap_or_default()
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn equal_trees_are_equal() {
        assert_eq!(Pair::new("equal").compare(Contents::Whole), "");
    }

    #[test]
    fn a_byte_a_bit_a_hole_a_link_and_a_name_are_differences() {
        let cases: [DifferenceCase; 5] = [
            ("another byte at 1048577", |two| {
                let file = File::options().write(true).open(two.join("file")).unwrap();
                file.write_all_at(b"x", 1 + PIECE as u64).unwrap();
            }),
            ("mode", |two| {
                fs::set_permissions(two.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
            }),
            ("extents", |two| {
                let file = File::create(two.join("file")).unwrap();
                file.write_all_at(&vec![7; PIECE], 2 * PIECE as u64).unwrap();
            }),
            ("target", |two| {
                fs::remove_file(two.join("link")).unwrap();
                std::os::unix::fs::symlink("elif", two.join("link")).unwrap();
            }),
            ("should not be there", |two| fs::write(two.join("more"), "").unwrap()),
        ];
        for (number, (expected, change)) in cases.into_iter().enumerate() {
            let pair = Pair::new(&number.to_string());
            change(&pair.0.join("two"));
            let said = pair.compare(Contents::Whole);
            assert!(said.contains(expected), "{expected}: {said}");
        }
    }

    #[test]
    fn a_file_whose_end_is_not_written_yet_is_seen_by_samples() {
        let pair = Pair::new("samples");
        let file = File::options().write(true).open(pair.0.join("two/file")).unwrap();
        file.write_all_at(&[0; 4096], 3 * PIECE as u64 - 4096).unwrap();
        assert!(pair.compare(Contents::Sampled).contains("another byte"));
    }

    #[test]
    fn a_time_is_a_difference_to_the_nanosecond() {
        let pair = Pair::new("times");
        let image = TreeImage::read(&pair.0.join("one")).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(9, 9);
        let times = FileTimes::new().set_modified(time);
        File::open(pair.0.join("two/file")).unwrap().set_times(times).unwrap();
        let outcome = image.expect(&pair.0.join("two"), Contents::Whole);
        assert!(outcome.unwrap_err().to_string().contains("modified"));
    }
}
