//! One file of a compiler: its real path, the hash of its contents, and how a change is noticed.

use super::premises::is_no_name;
use super::{Hash, ToolchainError};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Symbolic links in one path, at most; the kernel follows 40.
const LINKS_MAX: usize = 40;

/// A file that makes up a compiler's results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Absolute, without links, `.` and `..`.
    pub path: PathBuf,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
    /// Of the contents.
    pub hash: Hash,
    /// What it is for.
    pub role: PartRole,
}

/// What a part is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartRole {
    /// The driver, which users call.
    Driver,
    /// `cc1` and similar programs.
    Compiler,
    /// The assembler.
    Assembler,
    /// Takes objects apart, for `-gsplit-dwarf`.
    Objcopy,
    /// The linker: the driver looks for it, although nothing is linked remotely.
    Linker,
    /// A dynamic library.
    Library,
    /// The dynamic loader.
    Loader,
    /// Configuration.
    Specs,
}

/// A symbolic link in the path of a part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartSymlink {
    /// Where it is; the directories above it are no links.
    pub path: PathBuf,
    /// Its target, as written.
    pub target: PathBuf,
}

/// Attributes that change when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Stamp {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

/// A path on which a compiler's identity depends, and the state of the file there, if there was
/// one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Premise {
    path: PathBuf,
    found: Option<Stamp>,
}

impl Premise {
    /// The current state of a path.
    pub(super) fn of(path: PathBuf) -> Self {
        let found = Stamp::of(&path).ok();
        Self { path, found }
    }

    /// As [`Self::of`]; of a path in a directory that is not there, the highest part that is not
    /// there: it has to appear first, and is the same for many paths.
    pub(super) fn nearest(path: PathBuf) -> Self {
        let is_absent = |path: &&Path| fs::metadata(path).is_err();
        let absent = path.ancestors().skip(1).take_while(is_absent).last();
        Self::of(absent.map(Path::to_owned).unwrap_or(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing had this name, and nothing has it now.
    pub(super) fn is_of_an_absent_name(&self) -> bool {
        self.found.is_none() && is_no_name(&self.path)
    }

    /// Whether the state is still the same.
    pub(super) fn holds(&self) -> bool {
        Stamp::of(&self.path).ok() == self.found
    }
}

impl Stamp {
    /// Of the file behind all links.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self {
            dev: found.dev(),
            ino: found.ino(),
            size: found.size(),
            mtime: (found.mtime(), found.mtime_nsec()),
            ctime: (found.ctime(), found.ctime_nsec()),
        })
    }

    /// Whether the file was last changed before this time.
    pub(super) fn changed_before(&self, time: SystemTime) -> bool {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        self.mtime.max(self.ctime) < (seconds, i64::from(since.subsec_nanos()))
    }
}

/// The real file behind `path`, which is absolute; the links on the way are added to `links`.
pub(super) fn resolve(path: &Path, links: &mut Vec<PartSymlink>) -> io::Result<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = names(path).collect();
    let mut followed = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            real.pop();
            continue;
        }
        real.push(&name);
        if !fs::symlink_metadata(&real)?.is_symlink() {
            continue;
        }
        followed += 1;
        if followed > LINKS_MAX {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let target = fs::read_link(&real)?;
        names(&target).rev().for_each(|name| rest.push_front(name));
        links.push(PartSymlink { path: real.clone(), target: target.clone() });
        real.pop();
        if target.is_absolute() {
            real = "/".into();
        }
    }
    Ok(real)
}

/// The real program behind a compiler's name, and the links on the way to it.
pub(crate) fn behind(compiler: &Path) -> io::Result<(PathBuf, Vec<PartSymlink>)> {
    let mut links = Vec::new();
    Ok((resolve(compiler, &mut links)?, links))
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

impl Part {
    /// Reads and hashes the file at `path`, which is real.
    pub(super) fn read(path: PathBuf, role: PartRole) -> Result<Self, ToolchainError> {
        let read = || -> io::Result<(u32, u64, Hash)> {
            let mut file = File::open(&path)?;
            let found = file.metadata()?;
            let mut hasher = blake3::Hasher::new();
            io::copy(&mut file, &mut hasher)?;
            let hash = Hash(*hasher.finalize().as_bytes());
            Ok((found.mode() & 0o7777, found.size(), hash))
        };
        let (mode, size, hash) = read().map_err(ToolchainError::system(&path))?;
        Ok(Self { path, mode, size, hash, role })
    }
}

/// The hash of all parts, which are sorted.
pub(crate) fn hash_of(parts: &[Part]) -> Hash {
    use std::os::unix::ffi::OsStrExt;
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        let path = part.path.as_os_str().as_bytes();
        hasher.update(&(path.len() as u64).to_le_bytes());
        hasher.update(path);
        hasher.update(&part.mode.to_le_bytes());
        hasher.update(&part.hash.0);
    }
    Hash(*hasher.finalize().as_bytes())
}
