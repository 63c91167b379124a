//! From directories to a manifest: one walk in ascending order of names.
//!
//! Follows no symbolic link but one that the caller named as a source. Holds one directory's names
//! a level, and beside the manifest 16 bytes an entry.

use super::beneath::{nanoseconds, open_beneath};
use super::builder::ManifestBuilder;
use super::chown::OwnerChange;
use super::entry::{TreeEntry, TreeNode};
use super::error::{ManifestFault, TreeError};
use super::exclude::ExcludeRules;
use super::manifest::{TreeLimits, TreeManifest};
use super::name::{DEPTH_MAX, PATH_LEN_MAX, shown};
use super::owner::AccountNames;
use attributes::{OwnedXattr, extents_of, xattrs_of};
use outboard_unix::names::for_each_name;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

mod attributes;

/// How many skipped paths are kept for the report.
const SKIPPED_SHOWN_MAX: usize = 16;

/// A file or directory to be cast, and the name it gets at the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastSource {
    /// Where it lies. A symbolic link here is followed.
    pub path: PathBuf,
    /// Its name at the destination.
    pub name: Vec<u8>,
}

impl CastSource {
    /// A source that keeps its name. `.` and `..` have that of the directory they stand for.
    ///
    /// # Errors
    /// [`TreeError::Nameless`] for `/` and for what is not there.
    pub fn new(path: &Path) -> Result<Self, TreeError> {
        let nameless = || TreeError::Nameless { path: path.to_owned() };
        let name = match path.file_name() {
            Some(name) => name.as_bytes().to_vec(),
            None => {
                let whole = path.canonicalize().map_err(|_| nameless())?;
                whole.file_name().ok_or_else(nameless)?.as_bytes().to_vec()
            }
        };
        Ok(Self { path: path.to_owned(), name })
    }
}

/// Which extended attributes are cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrScope {
    /// None, for destinations whose file systems have none.
    Without,
    /// Those of users (`user.*`).
    #[default]
    User,
    /// Those and the kernel's (`security.*`), for receivers whose administrators take them.
    UserAndSecurity,
}

/// A name of attributes that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no attributes are called {found:?}: use none, user or security")]
pub struct UnknownXattrs {
    /// What was asked for.
    pub found: String,
}

impl FromStr for XattrScope {
    type Err = UnknownXattrs;

    fn from_str(name: &str) -> Result<Self, UnknownXattrs> {
        match name {
            "none" => Ok(Self::Without),
            "user" => Ok(Self::User),
            "security" => Ok(Self::UserAndSecurity),
            found => Err(UnknownXattrs { found: found.to_owned() }),
        }
    }
}

/// How to walk.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// What to leave out.
    pub exclude: ExcludeRules,
    /// Which extended attributes to carry.
    pub xattrs: XattrScope,
    /// Other owners than the files have.
    pub chown: Option<OwnerChange>,
    /// How large the tree may be.
    pub limits: TreeLimits,
    /// Where entries are counted as they are found, for those who wait for millions of them.
    pub found: Option<Arc<AtomicU64>>,
}

/// Files that are left out: devices, sockets and named pipes, which are never cast, or those that
/// the caller excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SkippedFiles {
    /// How many there are.
    pub count: u64,
    /// The paths of the first of them.
    pub first: Vec<PathBuf>,
}

impl SkippedFiles {
    fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.first.len() < SKIPPED_SHOWN_MAX {
            self.first.push(shown(path));
        }
    }
}

/// Distinguishes the states of an entry, beside its length and modification time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryStamp {
    pub(super) ino: u64,
    pub(super) changed_ns: i64,
}

impl EntryStamp {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { ino: stat.st_ino, changed_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec) }
    }
}

/// A tree as it was when it was walked.
#[derive(Debug)]
pub struct ScannedTree {
    pub(super) manifest: TreeManifest,
    pub(super) sources: Vec<CastSource>,
    pub(super) stamps: Vec<EntryStamp>,
    skipped: SkippedFiles,
    excluded: SkippedFiles,
}

impl ScannedTree {
    /// What is in it.
    #[must_use]
    pub fn manifest(&self) -> &TreeManifest {
        &self.manifest
    }

    /// What was left out because of its type.
    #[must_use]
    pub fn skipped(&self) -> &SkippedFiles {
        &self.skipped
    }

    /// What was left out by [`ScanOptions::exclude`]: a directory counts as one, whatever is in it.
    #[must_use]
    pub fn excluded(&self) -> &SkippedFiles {
        &self.excluded
    }
}

#[cfg(test)]
impl ScannedTree {
    /// The same scan with another copy of its manifest.
    pub(super) fn copy_with(&self, manifest: TreeManifest) -> Self {
        let (sources, stamps) = (self.sources.clone(), self.stamps.clone());
        let (skipped, excluded) = (self.skipped.clone(), self.excluded.clone());
        Self { manifest, sources, stamps, skipped, excluded }
    }
}

/// Walks the sources.
///
/// # Errors
/// [`TreeError`]: something cannot be read, changed meanwhile, or does not fit into a manifest.
pub fn scan(mut sources: Vec<CastSource>, options: &ScanOptions) -> Result<ScannedTree, TreeError> {
    sources.sort_by(|one, other| one.name.cmp(&other.name));
    let mut walk = Walk {
        options,
        accounts: AccountNames::of_this_machine(),
        builder: ManifestBuilder::new(options.limits),
        stamps: Vec::new(),
        skipped: SkippedFiles::default(),
        excluded: SkippedFiles::default(),
        path: Vec::new(),
        depth: 0,
    };
    for source in &sources {
        walk.visit_source(source)?;
    }
    let manifest = walk.builder.finish();
    let manifest =
        manifest.map_err(|error| TreeError::Unfit { path: error.path, fault: error.fault })?;
    let Walk { stamps, skipped, excluded, .. } = walk;
    Ok(ScannedTree { manifest, sources, stamps, skipped, excluded })
}

struct Walk<'a> {
    options: &'a ScanOptions,
    accounts: AccountNames,
    builder: ManifestBuilder,
    stamps: Vec<EntryStamp>,
    skipped: SkippedFiles,
    excluded: SkippedFiles,
    /// Of the entry at hand, as it will be at the destination.
    path: Vec<u8>,
    depth: u16,
}

impl Walk<'_> {
    fn visit_source(&mut self, source: &CastSource) -> Result<(), TreeError> {
        let unreadable = |errno| TreeError::read(source.path.clone(), errno);
        self.path.clone_from(&source.name);
        // A device must not be opened to find out that it is one.
        let stat = fs::stat(&source.path).map_err(unreadable)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = || fs::open(&source.path, flags, Mode::empty()).map_err(unreadable);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.visit_directory(open()?),
            FileType::RegularFile => self.visit_file(open()?),
            _ => Err(TreeError::Special { path: source.path.clone() }),
        }
    }

    fn visit(&mut self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<(), TreeError> {
        let stat = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|errno| self.failed(errno))?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if self.options.exclude.exclude(&self.path, kind == FileType::Directory) {
            self.excluded.add(&self.path);
            return Ok(());
        }
        let open = |flags| open_beneath(directory, name, OFlags::RDONLY | flags, Mode::empty());
        match kind {
            FileType::Directory => {
                let opened = open(OFlags::DIRECTORY).map_err(|errno| self.failed(errno))?;
                self.visit_directory(opened)
            }
            FileType::RegularFile => {
                let opened = open(OFlags::NONBLOCK | OFlags::NOCTTY);
                self.visit_file(opened.map_err(|errno| self.failed(errno))?)
            }
            FileType::Symlink => self.visit_link(directory, name, &stat),
            _ => {
                self.skipped.add(&self.path);
                Ok(())
            }
        }
    }

    fn visit_directory(&mut self, directory: OwnedFd) -> Result<(), TreeError> {
        let stat = self.stat(&directory)?;
        let xattrs = xattrs_of(&directory, self.options.xattrs);
        let xattrs = xattrs.map_err(|errno| self.failed(errno))?;
        self.push(&stat, &xattrs, TreeNode::Directory)?;
        let names = self.names_in(&directory)?;
        if usize::from(self.depth) + 1 >= DEPTH_MAX && !names.is_empty() {
            return Err(self.unfit(ManifestFault::TooDeep));
        }
        let path_len = self.path.len();
        self.depth += 1;
        for name in names {
            self.path.push(b'/');
            self.path.extend_from_slice(name.to_bytes());
            self.visit(directory.as_fd(), name.to_bytes())?;
            self.path.truncate(path_len);
        }
        self.depth -= 1;
        let after = self.stat(&directory)?;
        if EntryStamp::of(&after) == EntryStamp::of(&stat) { Ok(()) } else { Err(self.changed()) }
    }

    fn names_in(&self, directory: &OwnedFd) -> Result<Vec<CString>, TreeError> {
        let mut names = Vec::new();
        let listed = for_each_name(directory, |name| names.push(name.to_owned()));
        listed.map_err(|errno| self.failed(errno))?;
        names.sort_unstable();
        Ok(names)
    }

    fn visit_file(&mut self, file: OwnedFd) -> Result<(), TreeError> {
        let stat = self.stat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.changed());
        }
        let failed = |errno| self.failed(errno);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let extents = extents_of(&file, &stat, self.options.limits).map_err(failed)?;
        let xattrs = xattrs_of(&file, self.options.xattrs).map_err(failed)?;
        self.push(&stat, &xattrs, TreeNode::File { size, extents })
    }

    fn visit_link(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        stat: &Stat,
    ) -> Result<(), TreeError> {
        let target = fs::readlinkat(directory, name, Vec::with_capacity(PATH_LEN_MAX));
        let target = target.map_err(|errno| self.failed(errno))?;
        self.push(stat, &[], TreeNode::Symlink(target.to_bytes()))
    }

    fn push(
        &mut self,
        stat: &Stat,
        xattrs: &[OwnedXattr],
        node: TreeNode<'_>,
    ) -> Result<(), TreeError> {
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        let known = || self.accounts.owner(uid, gid);
        let changed = |owner| match &self.options.chown {
            Some(change) => change.apply(owner),
            None => owner,
        };
        let owner = self.builder.owner(uid, gid, || changed(known()));
        let entry = TreeEntry {
            depth: self.depth,
            name: self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(&self.path),
            mode: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0),
            modified_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            owner,
            xattrs: xattrs.iter().map(OwnedXattr::borrow).collect(),
            node,
        };
        let pushed = self.builder.push(&entry);
        self.stamps.push(EntryStamp::of(stat));
        if let Some(found) = &self.options.found {
            found.fetch_add(1, Ordering::Relaxed);
        }
        pushed.map_err(|fault| self.unfit(fault))
    }

    fn stat(&self, file: impl AsFd) -> Result<Stat, TreeError> {
        fs::fstat(file).map_err(|errno| self.failed(errno))
    }

    /// What is listed and cannot be opened as what it was has changed meanwhile.
    fn failed(&self, errno: Errno) -> TreeError {
        match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO => self.changed(),
            errno => TreeError::read(shown(&self.path), errno),
        }
    }

    fn changed(&self) -> TreeError {
        TreeError::Changed { path: shown(&self.path) }
    }

    fn unfit(&self, fault: ManifestFault) -> TreeError {
        TreeError::Unfit { path: shown(&self.path), fault }
    }
}
