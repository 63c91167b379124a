//! Where a path is: HOST:/path, or a path in a mount, of which the system's list of mounts says the
//! server.

use super::ToolError;
use outboard_unix::mounts::{MOUNT_TABLE, Mount, mounts};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The type that mounts of file systems have.
const MOUNT_TYPE: &[u8] = b"fuse.outboard";

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
            None => {
                let mounts = mounts()
                    .map_err(|error| ToolError::Words(format!("{MOUNT_TABLE}: {error}")))?;
                Self::mounted(word, &mounts)
            }
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

    fn mounted(word: &OsStr, mounts: &[Mount]) -> Result<Option<Self>, ToolError> {
        let shown = word.as_bytes().to_vec();
        let fault = |why: String| ToolError::Path { path: word.as_bytes().to_vec(), why };
        let path = whole(Path::new(word)).map_err(|error| {
            fault(error.raw_os_error().map_or_else(|| error.to_string(), super::errno_words))
        })?;
        let inside = mounts.iter().filter(|mount| path.starts_with(mount.path()));
        // The last of those on one directory covers the others.
        let mount = inside.max_by_key(|mount| mount.at.len());
        let mount = mount.filter(|mount| mount.kind == MOUNT_TYPE);
        let host = |mount: &Mount| {
            let host = mount.source.strip_suffix(b":/")?;
            Some(String::from_utf8_lossy(host).into_owned())
        };
        let ours = mount.and_then(|mount| Some((mount, host(mount)?)));
        Ok(ours.map(|(mount, host)| {
            let rest = path.strip_prefix(mount.path()).unwrap_or(&path);
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

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_unix::mounts::mounts_of;

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
            2 1 0:2 / /tmp rw - tmpfs none rw\n";
        let mut mounts: Vec<_> = mounts_of(lines).collect();
        let mount = |at: &Path, source: &str, kind: &[u8]| {
            let at = at.as_os_str().as_bytes().to_vec();
            Mount { at, source: source.into(), kind: kind.to_vec(), ..mounts[1].clone() }
        };
        let directory = tempfile::tempdir().expect("a directory");
        let here = fs::canonicalize(directory.path()).expect("there");
        fs::create_dir(here.join("x")).expect("made");
        let word = here.join("x/.");
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        assert_eq!(place, None, "in no mount");
        let here_is = [mount(&here, "n02:/", MOUNT_TYPE), mount(&here.join("x"), "none", b"tmpfs")];
        let [served, covering] = here_is;
        mounts.push(served);
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        let place = place.expect("in a mount");
        assert_eq!((place.host.as_str(), &place.path[..]), ("n02", &b"/x"[..]));
        let missing = FsPlace::mounted(here.join("y").as_os_str(), &mounts);
        let missing = missing.expect_err("not there").to_string();
        assert!(missing.ends_with("y': No such file or directory"), "{missing}");
        mounts.push(covering);
        let place = FsPlace::mounted(word.as_os_str(), &mounts).expect("a path");
        assert_eq!(place, None, "covered");
    }
}
