//! The exported directories (roots), and how a given path leads to one.
//!
//! A root is a path and the identity of the directory there. It is opened for each use, so that its
//! file system can be unmounted, and used only while it is the same directory. Home directories,
//! directories that all users share and the root of the machine are never exported.

use crate::error::ExportError;
use crate::fsys::{self, FileSystemKind};
use crate::negative_entries::NegativeEntries;
use crate::path::{
    HiddenNames, Path, behind, components, is_path, join, range_beneath, shared, split, upwards,
};
use crate::record::{Attr, FileNode};
use crate::snapshot_ring::FileId;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Roots, at most; each is looked at on every submission. Beyond that the least recently used are
/// dropped.
pub const ROOTS_MAX: usize = 256;
/// Roots that are dropped at once: each time costs an epoch.
const ROOTS_DROPPED: usize = ROOTS_MAX / 4;
/// Links that lead to no root, at most: further ones are not reported to servers.
const ROOT_SYMLINKS_MAX: usize = 1024;
/// Directories whose contents are not reported, not even as absent: home directories, processes.
const PRIVATE: &[&[u8]] = &[b"/home", b"/root", b"/proc"];
/// Symbolic links in the resolution of one path, at most (the kernel's limit).
const LINKS_MAX: usize = 40;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) attr: Attr,
    /// When it was last used, as a value of the use counter.
    used: u64,
}

/// The result of resolving a path.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) path: Path,
    /// The symbolic links that were followed.
    pub(crate) root_symlinks: Vec<(Path, FileNode)>,
    /// There is nothing at `path`, through which the given path leads.
    pub(crate) is_absent: bool,
}

/// What a server is told about a path outside the roots.
#[derive(Debug)]
pub(crate) enum NameOutside {
    Nothing,
    Directory,
    Symlink(FileNode),
    /// Something else, or unknown.
    Untold,
}

#[derive(Debug, Default)]
pub(crate) struct Roots {
    pub(crate) held: BTreeMap<Path, Root>,
    pub(crate) root_symlinks: BTreeMap<Path, FileNode>,
    /// Paths at which there is nothing.
    pub(crate) negative_entries: NegativeEntries,
    /// The paths that were allowed, as given, and the directories that they lead to.
    given: HashMap<Vec<u8>, Path>,
    homes: BTreeSet<Path>,
    /// The use counter.
    uses: u64,
}

pub(crate) fn to_path_buf(path: &[u8]) -> PathBuf {
    OsStr::from_bytes(path).into()
}

/// Whether there is something at a path, as far as one can tell.
fn is_filled(path: &[u8]) -> bool {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).err() != Some(Errno::NOENT)
}

/// Home directories in the table of users that are directories of the system.
const SYSTEMS: &[&str] = &["/usr", "/bin", "/sbin", "/dev", "/proc", "/run", "/var"];

/// Home directories: the user's own, and those in the table of users.
fn homes() -> BTreeSet<Path> {
    let table = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = table.lines().filter_map(|line| line.split(':').nth(5).map(PathBuf::from));
    // Users of services have "/" or a directory such as /usr/sbin as home.
    let named = named.filter(|home| !SYSTEMS.iter().any(|dir| home.starts_with(dir)));
    let own = std::env::var_os("HOME").map(PathBuf::from);
    let real = |home: PathBuf| Some(home.canonicalize().ok()?.into_os_string().into_vec().into());
    own.into_iter().chain(named).filter_map(real).filter(|home: &Path| **home != *b"/").collect()
}

impl Roots {
    pub(crate) fn new() -> Self {
        Self { homes: homes(), ..Self::default() }
    }

    /// The root above a path, and the rest of the path below it.
    pub(crate) fn above<'a>(&self, path: &'a [u8]) -> Option<(&Path, &Root, &'a [u8])> {
        let (found, root) = upwards(path).find_map(|up| self.held.get_key_value(up))?;
        Some((found, root, behind(found, path)?))
    }

    /// Whether this very path was allowed before and still is; this counts as a use.
    pub(crate) fn was_given(&mut self, path: &[u8]) -> bool {
        let Some(leads_to) = self.given.get(path).cloned() else { return false };
        self.note_use(&leads_to)
    }

    /// Notes a use of the root above a path. False if there is none.
    pub(crate) fn note_use(&mut self, path: &[u8]) -> bool {
        let Some(root) = self.above(path).map(|(root, _, _)| Path::clone(root)) else {
            return false;
        };
        self.uses += 1;
        let used = self.uses;
        self.held.entry(root).and_modify(|root| root.used = used);
        true
    }

    pub(crate) fn note_given(&mut self, path: &[u8], leads_to: &Path) {
        if self.given.len() >= ROOTS_MAX * 16 {
            self.given.clear();
        }
        self.given.insert(path.to_vec(), Path::clone(leads_to));
    }

    /// Checks and identifies a directory that may become a root.
    pub(crate) fn open(&self, path: &Path) -> Result<Root, ExportError> {
        let shown = || to_path_buf(path);
        let refused = |errno| match errno {
            Errno::NOSYS | Errno::PERM => ExportError::NoOpenat2,
            errno => ExportError::Refused { path: shown(), errno },
        };
        if self.is_too_wide(path) {
            return Err(ExportError::TooWide { path: shown() });
        }
        let fd = fsys::open_path(path).map_err(refused)?;
        let stat = fstat(&fd).map_err(refused)?;
        if is_everybodys(stat.st_mode) {
            return Err(ExportError::Everybodys { path: shown() });
        }
        match fsys::kind(&fd) {
            FileSystemKind::Pseudo => Err(ExportError::Pseudo { path: shown() }),
            _ => Ok(Root { attr: fsys::attr_of(&stat), used: 0 }),
        }
    }

    /// Whether a directory is a home directory or above one. `/home` and the directories in it are,
    /// whatever the table of users says: the table may be kept elsewhere.
    fn is_too_wide(&self, path: &[u8]) -> bool {
        let depth = components(path).count();
        let is_home = behind(b"/home", path).is_some() && depth <= 2;
        depth == 0 || is_home || self.homes.iter().any(|home| behind(path, home).is_some())
    }

    /// Whether a path lies in a home directory or in a directory that shows processes.
    pub(crate) fn is_private(&self, path: &[u8]) -> bool {
        let homes = self.homes.iter().map(|home| &**home);
        PRIVATE
            .iter()
            .copied()
            .chain(homes)
            .any(|home| behind(home, path).is_some_and(|rest| !rest.is_empty()))
    }

    /// What a server is told about a path outside the roots.
    pub(crate) fn look_at_name(&self, path: &[u8]) -> NameOutside {
        let kind = match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => return NameOutside::Nothing,
            Err(_) => return NameOutside::Untold,
        };
        let link =
            || (self.root_symlinks.len() < ROOT_SYMLINKS_MAX).then(|| look_at_link(path)).flatten();
        match kind {
            FileType::Directory => NameOutside::Directory,
            FileType::Symlink => link().map_or(NameOutside::Untold, NameOutside::Symlink),
            _ => NameOutside::Untold,
        }
    }

    /// Removes and returns the negative entries at which there is something now.
    pub(crate) fn take_filled(&mut self) -> Vec<Path> {
        let filled = self.negative_entries.iter().filter(|path| is_filled(path));
        let filled: Vec<Path> = filled.cloned().collect();
        for path in &filled {
            self.negative_entries.remove(path);
        }
        filled
    }

    /// As [`Self::take_filled`], of those at `path` and above it.
    pub(crate) fn take_filled_above(&mut self, path: &[u8]) -> Vec<Path> {
        let above = upwards(path).filter(|path| self.negative_entries.contains(path));
        let filled: Vec<Path> = above.filter(|path| is_filled(path)).map(shared).collect();
        for path in &filled {
            self.negative_entries.remove(path);
        }
        filled
    }

    /// Makes room for another root: drops and returns the least recently used roots. Links that led
    /// to them are found again when they are used.
    pub(crate) fn make_room(&mut self) -> Vec<Path> {
        if self.held.len() < ROOTS_MAX {
            return Vec::new();
        }
        let mut by_use: Vec<(u64, Path)> =
            self.held.iter().map(|(path, root)| (root.used, Path::clone(path))).collect();
        by_use.sort_unstable();
        by_use.truncate(ROOTS_DROPPED);
        self.held.retain(|path, root| !by_use.contains(&(root.used, Path::clone(path))));
        self.given.clear();
        self.root_symlinks.clear();
        by_use.into_iter().map(|(_, path)| path).collect()
    }

    /// Adds a root, and drops and returns those that lie beneath it.
    pub(crate) fn add(&mut self, path: &Path, root: Root) -> Vec<Path> {
        let (start, end) = range_beneath(path);
        let covered: Vec<Path> =
            self.held.range(start..end).map(|(path, _)| path.clone()).collect();
        self.held.retain(|path, _| !covered.contains(path));
        self.uses += 1;
        self.held.insert(Path::clone(path), Root { used: self.uses, ..root });
        covered
    }

    /// Whether a root has been replaced by another directory. The kernel does not report the
    /// removal of a directory that a process has open.
    pub(crate) fn is_any_replaced(&self) -> bool {
        let is_same = |(path, root): (&Path, &Root)| {
            let stat = statat(CWD, &**path, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == file_id(&root.attr))
        };
        !self.held.iter().all(is_same)
    }

    /// Drops the roots that are gone. False if none is.
    pub(crate) fn drop_lost(&mut self) -> bool {
        let before = self.held.len() + self.root_symlinks.len();
        self.held.retain(|path, root| is_still(path, root));
        self.root_symlinks.retain(|path, node| look_at_link(path).as_ref() == Some(node));
        let lost = before != self.held.len() + self.root_symlinks.len();
        if lost {
            self.given.clear();
        }
        lost
    }
}

fn is_still(path: &[u8], root: &Root) -> bool {
    root.open(path).is_ok()
}

/// Whether every user may put files into a directory: `/tmp`, `/var/tmp`, `/dev/shm`.
fn is_everybodys(mode: u32) -> bool {
    Mode::from_raw_mode(mode).contains(Mode::SVTX | Mode::WOTH)
}

fn file_id(attr: &Attr) -> FileId {
    (attr.dev, attr.ino)
}

fn look_at_link(path: &[u8]) -> Option<FileNode> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let target = readlinkat(CWD, path, Vec::new()).ok()?;
    Some(FileNode::Symlink { target: target.to_bytes().into(), attr: fsys::attr_of(&stat) })
}

/// Follows a path as the kernel would, and records the symbolic links. No withheld name may be on
/// it.
pub(crate) fn resolve(given: &[u8], hidden_names: HiddenNames) -> Result<Resolved, ExportError> {
    if given.first() != Some(&b'/') {
        return Err(ExportError::Relative { path: to_path_buf(given) });
    }
    let mut ahead: VecDeque<Vec<u8>> = components(given).map(<[u8]>::to_vec).collect();
    let mut found = Resolved { path: b"/"[..].into(), root_symlinks: Vec::new(), is_absent: false };
    while !found.is_absent
        && let Some(name) = ahead.pop_front()
    {
        match &name[..] {
            b"." => {}
            b".." => {
                let above = split(&found.path).map_or(&b"/"[..], |(dir, _)| dir).into();
                found.path = above;
            }
            name if hidden_names.withhold(name) => {
                return Err(ExportError::Hidden { path: to_path_buf(given) });
            }
            name => step(&mut found, name, &mut ahead)?,
        }
    }
    Ok(found)
}

/// Appends a name, or puts a symbolic link's target in front of the remaining components.
fn step(
    found: &mut Resolved,
    name: &[u8],
    ahead: &mut VecDeque<Vec<u8>>,
) -> Result<(), ExportError> {
    let next: Path = join(&found.path, name).into();
    let refused = |errno| ExportError::Refused { path: to_path_buf(&next), errno };
    if !is_path(&next) {
        return Err(refused(Errno::NAMETOOLONG));
    }
    let stat = match statat(CWD, &*next, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {
            (found.path, found.is_absent) = (next, true);
            return Ok(());
        }
        stat => stat.map_err(refused)?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => found.path = next,
        FileType::Symlink => {
            let node = look_at_link(&next).ok_or_else(|| refused(Errno::NOENT))?;
            let FileNode::Symlink { target, .. } = &node else { return Ok(()) };
            if found.root_symlinks.len() >= LINKS_MAX {
                return Err(refused(Errno::LOOP));
            }
            if target.first() == Some(&b'/') {
                found.path = b"/"[..].into();
            }
            let names: Vec<&[u8]> = components(target).collect();
            names.iter().rev().for_each(|name| ahead.push_front(name.to_vec()));
            found.root_symlinks.push((next, node));
        }
        _ => return Err(ExportError::NotADirectory { path: to_path_buf(&next) }),
    }
    Ok(())
}

/// Flags to open a directory beneath a root to read it.
pub(crate) const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Flags to open a directory beneath a root to look at its names.
pub(crate) const LOOK_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

impl Root {
    /// Opens the directory, if it is still the same.
    fn open(&self, path: &[u8]) -> Result<OwnedFd, Errno> {
        let fd = fsys::open_path(path)?;
        let stat = fstat(&fd)?;
        let is_same = (stat.st_dev, stat.st_ino) == file_id(&self.attr);
        if is_same { Ok(fd) } else { Err(Errno::STALE) }
    }
}

impl Roots {
    /// Opens a path beneath a root.
    pub(crate) fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let (at, root, rel) = self.above(path).ok_or(Errno::ACCESS)?;
        fsys::open_beneath(root.open(at)?.as_fd(), rel, flags)
    }
}
