//! Which directories are exported, and how a path as it was given leads to one.
//!
//! Keeps each root open, so that what lies beneath it is found wherever the path leads later.
//! Never lets the home directory, the whole machine or hidden names be exported.

use crate::arena::FileId;
use crate::error::ExportError;
use crate::fsys::{self, Kind};
use crate::path::{
    Path, behind, components, is_hidden, is_path, join, range_beneath, split, upwards,
};
use crate::record::{Attr, Node};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, OFlags, fstat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Roots at once, at most; each costs a descriptor.
pub const ROOTS_MAX: usize = 256;
/// Gaps at once, at most; each is looked at on every submission.
pub(crate) const GAPS_MAX: usize = 64;
/// Symbolic links on one way, at most (as the kernel has it).
const LINKS_MAX: usize = 40;

#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) fd: OwnedFd,
    pub(crate) attr: Attr,
}

/// Where a given path leads.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) path: Path,
    /// The symbolic links that were followed.
    pub(crate) ways: Vec<(Path, Node)>,
    /// There is nothing at `path`, and the given path leads through it.
    pub(crate) is_gap: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Roots {
    pub(crate) held: BTreeMap<Path, Root>,
    pub(crate) ways: BTreeMap<Path, Node>,
    /// Where there is nothing.
    pub(crate) gaps: BTreeSet<Path>,
    /// What was allowed before, as it was given.
    given: HashSet<Vec<u8>>,
    home: Option<Path>,
}

pub(crate) fn to_path_buf(path: &[u8]) -> PathBuf {
    OsStr::from_bytes(path).into()
}

fn home() -> Option<Path> {
    let home = std::fs::canonicalize(std::env::var_os("HOME")?).ok()?;
    Some(home.into_os_string().into_vec().into())
}

impl Roots {
    pub(crate) fn new() -> Self {
        Self { home: home(), ..Self::default() }
    }

    /// The root above a path, and what of the path lies behind it.
    pub(crate) fn above<'a>(&self, path: &'a [u8]) -> Option<(&Path, &Root, &'a [u8])> {
        let (found, root) = upwards(path).find_map(|up| self.held.get_key_value(up))?;
        Some((found, root, behind(found, path)?))
    }

    /// Whether this very path was allowed before and still is.
    pub(crate) fn was_given(&self, path: &[u8]) -> bool {
        self.given.contains(path)
    }

    pub(crate) fn note_given(&mut self, path: &[u8]) {
        if self.given.len() >= ROOTS_MAX * 16 {
            self.given.clear();
        }
        self.given.insert(path.to_vec());
    }

    /// Opens a directory that may be a root.
    pub(crate) fn open(&self, path: &Path) -> Result<Root, ExportError> {
        let shown = || to_path_buf(path);
        let home = self.home.as_deref();
        if **path == *b"/" || home.is_some_and(|home| behind(path, home).is_some()) {
            return Err(ExportError::TooWide { path: shown() });
        }
        if self.held.len() >= ROOTS_MAX {
            return Err(ExportError::TooManyRoots { count: self.held.len() });
        }
        let refused = |errno| match errno {
            Errno::NOSYS | Errno::PERM => ExportError::NoOpenat2,
            errno => ExportError::Refused { path: shown(), errno },
        };
        let fd = fsys::open_path(path).map_err(refused)?;
        let stat = fstat(&fd).map_err(refused)?;
        match fsys::kind(&fd) {
            Kind::Pseudo => Err(ExportError::Pseudo { path: shown() }),
            _ => Ok(Root { fd, attr: fsys::attr_of(&stat) }),
        }
    }

    /// Gives up the gaps where there is something by now, and says which.
    pub(crate) fn take_filled(&mut self) -> Vec<Path> {
        let is_filled = |path: &Path| {
            let stat = statat(CWD, &**path, AtFlags::SYMLINK_NOFOLLOW);
            stat.err() != Some(Errno::NOENT)
        };
        self.gaps.extract_if(.., is_filled).collect()
    }

    /// Takes a root, and gives up those that lie beneath it.
    pub(crate) fn add(&mut self, path: &Path, root: Root) -> Vec<Path> {
        let (start, end) = range_beneath(path);
        let covered: Vec<Path> =
            self.held.range(start..end).map(|(path, _)| path.clone()).collect();
        covered.iter().for_each(|path| drop(self.held.remove(path)));
        self.held.insert(Path::clone(path), root);
        covered
    }

    /// Whether a root has been removed. The kernel tells nobody of that while it is open.
    pub(crate) fn is_any_removed(&self) -> bool {
        self.held.values().any(|root| fstat(&root.fd).is_ok_and(|stat| stat.st_nlink == 0))
    }

    /// Gives up what is not where it was. False if everything is.
    pub(crate) fn drop_lost(&mut self) -> bool {
        let before = self.held.len() + self.ways.len();
        self.held.retain(|path, root| is_still(path, root));
        self.ways.retain(|path, node| look_at_link(path).as_ref() == Some(node));
        let lost = before != self.held.len() + self.ways.len();
        if lost {
            self.given.clear();
        }
        lost
    }
}

fn is_still(path: &[u8], root: &Root) -> bool {
    let now = fsys::open_path(path).and_then(fstat);
    now.is_ok_and(|stat| file_id(&fsys::attr_of(&stat)) == file_id(&root.attr))
}

fn file_id(attr: &Attr) -> FileId {
    (attr.dev, attr.ino)
}

fn look_at_link(path: &[u8]) -> Option<Node> {
    let stat = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let target = readlinkat(CWD, path, Vec::new()).ok()?;
    Some(Node::Symlink { target: target.to_bytes().into(), attr: fsys::attr_of(&stat) })
}

/// Follows a path as the kernel would, and notes the symbolic links.
pub(crate) fn resolve(given: &[u8]) -> Result<Resolved, ExportError> {
    if given.first() != Some(&b'/') {
        return Err(ExportError::Relative { path: to_path_buf(given) });
    }
    let mut ahead: VecDeque<Vec<u8>> = components(given).map(<[u8]>::to_vec).collect();
    let mut found = Resolved { path: b"/"[..].into(), ways: Vec::new(), is_gap: false };
    while !found.is_gap
        && let Some(name) = ahead.pop_front()
    {
        match &name[..] {
            b"." => {}
            b".." => {
                let above = split(&found.path).map_or(&b"/"[..], |(dir, _)| dir).into();
                found.path = above;
            }
            name if is_hidden(name) => {
                return Err(ExportError::Hidden { path: to_path_buf(given) });
            }
            name => step(&mut found, name, &mut ahead)?,
        }
    }
    Ok(found)
}

/// Goes to a name, or puts what a symbolic link says before what is still ahead.
fn step(
    found: &mut Resolved,
    name: &[u8],
    ahead: &mut VecDeque<Vec<u8>>,
) -> Result<(), ExportError> {
    let next = join(&found.path, name);
    let refused = |errno| ExportError::Refused { path: to_path_buf(&next), errno };
    if !is_path(&next) {
        return Err(refused(Errno::NAMETOOLONG));
    }
    let stat = match statat(CWD, &*next, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {
            (found.path, found.is_gap) = (next, true);
            return Ok(());
        }
        stat => stat.map_err(refused)?,
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => found.path = next,
        FileType::Symlink => {
            let node = look_at_link(&next).ok_or_else(|| refused(Errno::NOENT))?;
            let Node::Symlink { target, .. } = &node else { return Ok(()) };
            if found.ways.len() >= LINKS_MAX {
                return Err(refused(Errno::LOOP));
            }
            if target.first() == Some(&b'/') {
                found.path = b"/"[..].into();
            }
            let names: Vec<&[u8]> = components(target).collect();
            names.iter().rev().for_each(|name| ahead.push_front(name.to_vec()));
            found.ways.push((next, node));
        }
        _ => return Err(ExportError::NotADirectory { path: to_path_buf(&next) }),
    }
    Ok(())
}

/// How a directory beneath a root is opened to be read.
pub(crate) const READ_DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// How a directory beneath a root is opened to look at its names.
pub(crate) const LOOK_DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

impl Roots {
    /// Opens what has a path beneath a root.
    pub(crate) fn open_beneath(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let (_, root, rel) = self.above(path).ok_or(Errno::ACCESS)?;
        fsys::open_beneath(root.fd.as_fd(), rel, flags)
    }
}
