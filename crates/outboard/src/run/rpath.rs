//! Libraries that the loader takes before ours: those in directories of a program's DT_RPATH, which
//! go before LD_LIBRARY_PATH. DT_RUNPATH goes behind it, and makes the loader ignore DT_RPATH.
//!
//! Looks at the program itself, and at a script's interpreter: not at libraries that it loads,
//! which may have a DT_RPATH of their own.

use super::library::LIBRARIES;
use object::elf::{DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, ReadCache};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Longer first lines of scripts the kernel does not read either.
const FIRST_LINE_MAX: u64 = 256;

/// The first library that goes before that of the same name in `ours`.
pub(super) fn before_ours(program: &Path, ours: &Path) -> Option<PathBuf> {
    // The loader knows programs without links.
    let program = interpreter(program).unwrap_or_else(|| program.to_owned()).canonicalize().ok()?;
    let directories = directories(&rpath(&program)?, program.parent()?);
    let mut found = directories
        .iter()
        .flat_map(|directory| LIBRARIES.iter().map(|name| (directory.join(name), ours.join(name))));
    let is_other = |(theirs, ours): &(PathBuf, PathBuf)| {
        theirs.is_file() && theirs.canonicalize().ok() != ours.canonicalize().ok()
    };
    found.find(is_other).map(|(theirs, _)| theirs)
}

/// What runs a script.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let file = BufReader::new(File::open(program).ok()?);
    file.take(FIRST_LINE_MAX).read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?.trim_ascii();
    let path = words.split(|byte| byte.is_ascii_whitespace()).next()?;
    (!path.is_empty()).then(|| OsStr::from_bytes(path).into())
}

/// The lists of DT_RPATH, if the loader uses them; broken files have none.
fn rpath(program: &Path) -> Option<Vec<Vec<u8>>> {
    let data = ReadCache::new(File::open(program).ok()?);
    let header = FileHeader64::<Endianness>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let (entries, link) = sections.dynamic(endian, &data).ok()??;
    let strings = sections.strings(endian, &data, link).ok()?;
    let has = |tag| entries.iter().any(|entry| entry.tag32(endian) == Some(tag));
    if has(DT_RUNPATH) {
        return None;
    }
    let lists = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_RPATH));
    let string = |at| strings.get(at).ok().map(<[u8]>::to_vec);
    Some(lists.filter_map(|entry| entry.val32(endian).and_then(string)).collect())
}

/// `$ORIGIN` is the program's directory; an empty entry is the current one.
fn directories(lists: &[Vec<u8>], origin: &Path) -> Vec<PathBuf> {
    let entries = lists.iter().flat_map(|list| list.split(|byte| *byte == b':'));
    let expand = |entry: &[u8]| {
        let behind =
            [&b"$ORIGIN"[..], b"${ORIGIN}"].iter().find_map(|word| entry.strip_prefix(*word));
        match behind {
            Some(rest) => {
                let rest = rest.strip_prefix(b"/").unwrap_or(rest);
                origin.join(OsStr::from_bytes(rest))
            }
            None if entry.is_empty() => PathBuf::from("."),
            None => PathBuf::from(OsStr::from_bytes(entry)),
        }
    };
    entries.map(expand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_become_directories() {
        let lists = [b"$ORIGIN/../lib:/opt/lib:${ORIGIN}".to_vec(), b":lib".to_vec()];
        let found = directories(&lists, Path::new("/opt/bin"));
        let found: Vec<_> = found.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(found, ["/opt/bin/../lib", "/opt/lib", "/opt/bin/", ".", "lib"]);
    }

    #[test]
    fn other_files_have_no_list() {
        assert_eq!(rpath(Path::new("/proc/self/maps")), None);
        assert_eq!(rpath(Path::new("/no/such")), None);
    }
}
