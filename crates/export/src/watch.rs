//! The kernel's notices of changes (inotify), gathered into a set of names to look at again.
//!
//! Says where to look, never what is there. It reports an error where it cannot watch; the owner
//! then polls.

use crate::path::{HiddenNames, Name, Path};
use crate::snapshot_ring::FileId;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;

/// Bytes of the buffer for one read; a name is at most 255 bytes.
const ROOM: usize = 16 << 10;
/// Watches left to other programs, if the system's limit cannot be read.
const LIMIT_UNKNOWN: usize = 4096;
/// Bytes of the shortest notice.
const NOTICE_LEN: u64 = 16;

/// What a watch descriptor stands for. One inode can have several of these roles.
#[derive(Debug, Default)]
struct Target {
    dirs: Vec<Path>,
    file: Option<FileId>,
    /// On the path to a root.
    place: bool,
}

/// How a name must be looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// The contents may have changed without a change of the attributes.
    pub(crate) touched: bool,
    /// The node that had this name may have been moved.
    pub(crate) moved: bool,
    /// Changes are not reported by inotify, and the kernel's attributes may be outdated.
    pub(crate) polled: bool,
}

/// The notices since the last call.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) names: BTreeMap<Path, BTreeMap<Name, Hint>>,
    /// Directories that were moved or removed.
    pub(crate) gone: BTreeSet<Path>,
    /// Directories whose attributes were set: their permissions may have changed.
    pub(crate) attributes: BTreeSet<Path>,
    /// Files reported without a name; true if their contents may have changed.
    pub(crate) files: BTreeMap<FileId, bool>,
    /// Something happened on the path to a root.
    pub(crate) places: bool,
    /// The kernel's queue overflowed.
    pub(crate) overflow: bool,
    /// Files that are no longer watched, because they are gone.
    pub(crate) ended: BTreeSet<FileId>,
    /// Files whose inode number may have passed to another file.
    pub(crate) suspects: BTreeSet<FileId>,
    /// Files that have got a new version since.
    pub(crate) renewed: BTreeSet<FileId>,
}

impl Notices {
    pub(crate) fn is_empty(&self) -> bool {
        let nothing = self.names.is_empty() && self.gone.is_empty() && self.files.is_empty();
        let nothing = nothing && self.attributes.is_empty() && self.ended.is_empty();
        nothing && !self.places && !self.overflow
    }

    /// Adds a name to look at.
    pub(crate) fn add(&mut self, dir: &Path, name: &[u8], hint: Hint) {
        let names = self.names.entry(Path::clone(dir)).or_default();
        let known = names.entry(name.into()).or_default();
        known.touched |= hint.touched;
        known.moved |= hint.moved;
        known.polled |= hint.polled;
    }
}

#[derive(Debug)]
pub(crate) struct Watch {
    fd: OwnedFd,
    targets: HashMap<i32, Target>,
    hidden_names: HiddenNames,
    limit: usize,
    room: Vec<MaybeUninit<u8>>,
}

fn in_contents() -> WatchFlags {
    WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB
}

fn of_itself() -> WatchFlags {
    WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF
}

/// The path of a descriptor in /proc, so that the watch is on the inode that was looked at.
fn by_descriptor(fd: BorrowedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Half of the user's limit: other programs need watches too.
fn limit() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = text.ok().and_then(|text| text.trim().parse::<usize>().ok());
    limit.map_or(LIMIT_UNKNOWN, |limit| limit / 2)
}

impl Watch {
    pub(crate) fn new(hidden_names: HiddenNames) -> Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let room = vec![MaybeUninit::uninit(); ROOM];
        Ok(Self { fd, targets: HashMap::new(), hidden_names, limit: limit(), room })
    }

    /// Behaves as if every watch of this user were in use.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self) {
        self.limit = 0;
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Watches the entries of an open directory, recorded under its path.
    pub(crate) fn directory(&mut self, fd: BorrowedFd, path: &Path) -> Result<i32> {
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        let flags = in_contents() | names | of_itself() | WatchFlags::ONLYDIR;
        let wd = self.add(by_descriptor(fd), flags)?;
        let target = self.targets.entry(wd).or_default();
        if !target.dirs.contains(path) {
            target.dirs.push(Path::clone(path));
        }
        Ok(wd)
    }

    /// Watches an open file, whatever its names.
    pub(crate) fn file(&mut self, fd: BorrowedFd, id: FileId) -> Result<i32> {
        let wd = self.add(by_descriptor(fd), in_contents() | of_itself())?;
        self.targets.entry(wd).or_default().file = Some(id);
        Ok(wd)
    }

    /// Watches an open directory on the path to a root for being moved.
    pub(crate) fn place(&mut self, fd: BorrowedFd) -> Result<()> {
        let wd = self.add(by_descriptor(fd), of_itself())?;
        self.targets.entry(wd).or_default().place = true;
        Ok(())
    }

    /// Watches a symbolic link on the path to a root for changes.
    pub(crate) fn link(&mut self, path: &[u8]) -> Result<()> {
        let flags = of_itself() | WatchFlags::ATTRIB | WatchFlags::DONT_FOLLOW;
        let wd = self.add(path, flags)?;
        self.targets.entry(wd).or_default().place = true;
        Ok(())
    }

    fn add(&mut self, path: impl rustix::path::Arg, flags: WatchFlags) -> Result<i32> {
        if self.targets.len() >= self.limit {
            return Err(Errno::NOSPC);
        }
        inotify::add_watch(&self.fd, path, flags | WatchFlags::MASK_ADD)
    }

    /// Ends the watch of a directory's path.
    pub(crate) fn remove_directory(&mut self, wd: i32, path: &[u8]) {
        self.remove(wd, |target| target.dirs.retain(|dir| **dir != *path));
    }

    /// Ends the watch of a file.
    pub(crate) fn remove_file(&mut self, wd: i32) {
        self.remove(wd, |target| target.file = None);
    }

    fn remove(&mut self, wd: i32, change: impl FnOnce(&mut Target)) {
        let Some(target) = self.targets.get_mut(&wd) else { return };
        change(target);
        if target.dirs.is_empty() && target.file.is_none() && !target.place {
            self.targets.remove(&wd);
            // It may have ended with its inode already.
            let _ = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// Ends all watches; the descriptor stays, so that pollers of it are not affected.
    pub(crate) fn clear(&mut self) {
        for (wd, _) in self.targets.drain() {
            let _ = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// Takes the notices that the kernel has at present, and no more, so that a busy writer cannot
    /// delay the caller for ever.
    pub(crate) fn drain(&mut self, notices: &mut Notices) -> Result<()> {
        let waiting = rustix::io::ioctl_fionread(&self.fd)?;
        if waiting == 0 {
            return Ok(());
        }
        let hidden_names = self.hidden_names;
        let is_shown = |name: &Option<&[u8]>| !name.is_some_and(|name| hidden_names.withhold(name));
        let mut reader = Reader::new(&self.fd, &mut self.room);
        for _ in 0..waiting.div_ceil(NOTICE_LEN) {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            if is_shown(&name) {
                gather(&mut self.targets, event.wd(), event.events(), name, notices);
            }
        }
        // The other notices of that read must not be lost.
        while !reader.is_buffer_empty() {
            let event = reader.next()?;
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            if is_shown(&name) {
                gather(&mut self.targets, event.wd(), event.events(), name, notices);
            }
        }
        Ok(())
    }
}

fn gather(
    targets: &mut HashMap<i32, Target>,
    wd: i32,
    events: ReadFlags,
    name: Option<&[u8]>,
    notices: &mut Notices,
) {
    notices.overflow |= events.contains(ReadFlags::QUEUE_OVERFLOW);
    let Some(target) = targets.get(&wd) else { return };
    match name {
        Some(name) => target.dirs.iter().for_each(|dir| notices.add(dir, name, hint(events))),
        None => gather_itself(target, events, notices),
    }
    if events.contains(ReadFlags::IGNORED) {
        notices.ended.extend(target.file);
        targets.remove(&wd);
    }
}

fn gather_itself(target: &Target, events: ReadFlags, notices: &mut Notices) {
    let ends = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::UNMOUNT;
    if events.intersects(ends | ReadFlags::IGNORED) {
        notices.gone.extend(target.dirs.iter().cloned());
    }
    if events.contains(ReadFlags::ATTRIB) {
        notices.attributes.extend(target.dirs.iter().cloned());
    }
    notices.places |= target.place;
    let Some(file) = target.file else { return };
    if events.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB) {
        // Other attributes, such as the link count, show in the file's ctime.
        let touched = hint(events).touched;
        *notices.files.entry(file).or_default() |= touched;
    }
}

fn hint(events: ReadFlags) -> Hint {
    let moved = events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
    let written = events.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE);
    Hint { touched: moved || written, moved, polled: false }
}
