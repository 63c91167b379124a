//! Where a path is: HOST:/path, or a path in a mount, of which the system's list of mounts says the
//! server.

use super::ToolError;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The type that mounts of file systems have.
const MOUNT_TYPE: &str = "fuse.outboard";

/// See this file's first lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPlace {
    /// The server, HOST or HOST:PORT.
    pub host: String,
    /// The path from the file system's root on.
    pub path: Vec<u8>,
    /// As the caller has written it.
    pub shown: Vec<u8>,
}

/// A mount of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceMount {
    /// Where.
    pub directory: PathBuf,
    /// Of what.
    pub source: String,
    /// The type.
    pub kind: String,
}

impl FsPlace {
    /// What a word of a command line says.
    ///
    /// # Errors
    /// [`ToolError::Path`]: it is no path, or in no mount.
    pub fn of(word: &OsStr) -> Result<Self, ToolError> {
        let why = "it is in no mount of outboard fs: write HOST:/path, or a path in one";
        let none = || ToolError::Path { path: word.as_bytes().to_vec(), why: why.to_owned() };
        Self::find(word)?.ok_or_else(none)
    }

    /// As [`Self::of`]; `None`: it is a path of this machine that is in no mount.
    ///
    /// # Errors
    /// [`ToolError::Path`]: it is no path.
    pub fn find(word: &OsStr) -> Result<Option<Self>, ToolError> {
        match Self::remote(word.as_bytes()) {
            Some(place) => Ok(Some(place)),
            None => Self::mounted(word, &mounts()?),
        }
    }

    fn remote(word: &[u8]) -> Option<Self> {
        let at = word.windows(2).position(|two| two == b":/")?;
        let host = std::str::from_utf8(&word[..at]).ok()?;
        let is_host = !host.is_empty() && !host.contains('/');
        let place =
            || Self { host: host.to_owned(), path: word[at + 1..].to_vec(), shown: word.to_vec() };
        is_host.then(place)
    }

    fn mounted(word: &OsStr, mounts: &[PlaceMount]) -> Result<Option<Self>, ToolError> {
        let shown = word.as_bytes().to_vec();
        let fault = |why: String| ToolError::Path { path: word.as_bytes().to_vec(), why };
        let path = whole(Path::new(word)).map_err(|error| {
            fault(error.raw_os_error().map_or_else(|| error.to_string(), super::errno_words))
        })?;
        let inside = mounts.iter().filter(|mount| path.starts_with(&mount.directory));
        // The last of those on one directory covers the others.
        let mount = inside.max_by_key(|mount| mount.directory.as_os_str().len());
        let mount = mount.filter(|mount| mount.kind == MOUNT_TYPE);
        let ours = mount.and_then(|mount| Some((mount, mount.source.strip_suffix(":/")?)));
        Ok(ours.map(|(mount, host)| {
            let rest = path.strip_prefix(&mount.directory).unwrap_or(&path);
            let path = [b"/", rest.as_os_str().as_bytes()].concat();
            // Options of mounts have commas between them: a list of hosts has none there.
            Self { host: host.replace(';', ","), path, shown }
        }))
    }
}

/// A path from the root on, without symbolic links but for its last name.
fn whole(path: &Path) -> std::io::Result<PathBuf> {
    let bytes = path.as_os_str().as_bytes();
    let ends_in_name = !bytes.ends_with(b"/") && !bytes.ends_with(b"/.");
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if ends_in_name => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let path = fs::canonicalize(parent)?.join(name);
            fs::symlink_metadata(&path)?;
            Ok(path)
        }
        _ => fs::canonicalize(path),
    }
}

/// What is mounted.
fn mounts() -> Result<Vec<PlaceMount>, ToolError> {
    const LIST: &str = "/proc/self/mountinfo";
    let list = fs::read(LIST).map_err(|error| ToolError::Words(format!("{LIST}: {error}")))?;
    Ok(list.split(|byte| *byte == b'\n').filter_map(PlaceMount::parse).collect())
}

impl PlaceMount {
    /// Of a line of mountinfo, proc(5).
    fn parse(line: &[u8]) -> Option<Self> {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let directory = PathBuf::from(std::ffi::OsString::from_vec(unescaped(words.get(4)?)));
        let end = words.iter().position(|word| *word == b"-")?;
        let text =
            |at: usize| Some(String::from_utf8_lossy(&unescaped(words.get(at)?)).into_owned());
        Some(Self { directory, kind: text(end + 1)?, source: text(end + 2)? })
    }
}

/// Bytes of which some are written as `\` and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, behind)) = rest.split_first() {
        let value =
            |digits: &[u8; 3]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        let escaped = behind.split_first_chunk().filter(|_| *first == b'\\');
        match escaped.and_then(|(digits, behind)| Some((value(digits)?, behind))) {
            Some((byte, behind)) => (bytes.push(byte), rest = behind).0,
            None => (bytes.push(*first), rest = behind).0,
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_names_a_host_and_a_path_there() {
        let remote = |word: &str| {
            FsPlace::remote(word.as_bytes())
                .map(|place| (place.host, String::from_utf8(place.path).expect("text")))
        };
        let some = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(remote("n01:/a/b"), some("n01", "/a/b"));
        assert_eq!(remote("n01:4791:/"), some("n01:4791", "/"));
        assert_eq!(remote("[::1]:4791:/a:/b"), some("[::1]:4791", "/a:/b"));
        for local in ["a", "./n01:/a", "/n01:/", ":/", "n01:a", "."] {
            assert_eq!(remote(local), None, "{local}");
        }
    }

    #[test]
    fn a_path_is_in_the_mount_that_is_nearest() {
        let lines = b"1 0 0:1 / / rw - ext4 /dev/sda rw\n\
            2 1 0:2 / /tmp rw - tmpfs none rw\n\
            3 2 0:3 / /tmp/a\\040b rw,nosuid shared:7 - fuse.outboard n01:4791:/ rw\n";
        let mut mounts: Vec<_> =
            lines.split(|byte| *byte == b'\n').filter_map(PlaceMount::parse).collect();
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[2].directory, Path::new("/tmp/a b"));
        let directory = tempfile::tempdir().expect("a directory");
        let here = fs::canonicalize(directory.path()).expect("there");
        fs::create_dir(here.join("x")).expect("made");
        let word = here.join("x/.");
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        assert_eq!(place, None, "in no mount");
        let kind = MOUNT_TYPE.to_owned();
        mounts.push(PlaceMount { directory: here.clone(), source: "n02:/".into(), kind });
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        let place = place.expect("in a mount");
        assert_eq!((place.host.as_str(), &place.path[..]), ("n02", &b"/x"[..]));
        let missing = FsPlace::mounted(here.join("y").as_os_str(), &mounts);
        let missing = missing.expect_err("not there").to_string();
        assert!(missing.ends_with("y': No such file or directory"), "{missing}");
        let kind = "tmpfs".to_owned();
        mounts.push(PlaceMount { directory: here.join("x"), source: "none".into(), kind });
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        assert_eq!(place, None, "covered");
    }
}
