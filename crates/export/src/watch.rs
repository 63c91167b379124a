//! The kernel's notices of changes (inotify), gathered into what must be looked at again.
//!
//! Only says where to look, never what is there. Where it cannot watch, it says so, and the owner
//! looks by itself.

use crate::arena::FileId;
use crate::path::{Name, Path, is_hidden};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::{Errno, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem::MaybeUninit;

/// Room for what one read returns; a name is at most 255 octets.
const ROOM: usize = 16 << 10;
/// Watches that are left to others, if the system's limit cannot be read.
const LIMIT_UNKNOWN: usize = 4096;
/// The shortest notice has this many octets.
const NOTICE_LEN: u64 = 16;

/// What a watch descriptor stands for. One inode can be several of these.
#[derive(Debug, Default)]
struct Target {
    dirs: Vec<Path>,
    file: Option<FileId>,
    /// On the way to a root.
    place: bool,
}

/// How a name must be looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Its contents may have changed though nothing else shows it.
    pub(crate) touched: bool,
    /// What had this name may be elsewhere.
    pub(crate) moved: bool,
    /// Nobody tells of its changes, and the kernel may not know of others' either.
    pub(crate) polled: bool,
}

/// What happened since the last time.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    pub(crate) names: BTreeMap<Path, BTreeMap<Name, Hint>>,
    /// Directories that were moved or removed.
    pub(crate) gone: BTreeSet<Path>,
    /// Files of which it is not said under which name; true if their contents may have changed.
    pub(crate) files: BTreeMap<FileId, bool>,
    /// Something happened on the way to a root.
    pub(crate) places: bool,
    /// There was more than the kernel kept.
    pub(crate) overflow: bool,
    /// Files that are watched no more, because they are gone.
    pub(crate) ended: BTreeSet<FileId>,
    /// Files that may be others in spite of their looks.
    pub(crate) suspects: BTreeSet<FileId>,
    /// Files that have a new version since.
    pub(crate) renewed: BTreeSet<FileId>,
}

impl Notices {
    pub(crate) fn is_empty(&self) -> bool {
        let nothing = self.names.is_empty() && self.gone.is_empty() && self.files.is_empty();
        nothing && !self.places && !self.overflow && self.ended.is_empty()
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
    limit: usize,
    room: Vec<MaybeUninit<u8>>,
}

fn in_contents() -> WatchFlags {
    WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB
}

fn of_itself() -> WatchFlags {
    WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF
}

/// A descriptor's own name, so that what is watched is what was looked at.
fn by_descriptor(fd: BorrowedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Half of what the user may have: editors watch too.
fn limit() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    let limit = text.ok().and_then(|text| text.trim().parse::<usize>().ok());
    limit.map_or(LIMIT_UNKNOWN, |limit| limit / 2)
}

impl Watch {
    pub(crate) fn new() -> Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let room = vec![MaybeUninit::uninit(); ROOM];
        Ok(Self { fd, targets: HashMap::new(), limit: limit(), room })
    }

    /// As if every watch of this user were in use.
    #[cfg(test)]
    pub(crate) fn refuse(&mut self) {
        self.limit = 0;
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Watches what an open directory holds, under the path that it has.
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

    /// Watches an open file, whatever its names are.
    pub(crate) fn file(&mut self, fd: BorrowedFd, id: FileId) -> Result<i32> {
        let wd = self.add(by_descriptor(fd), in_contents() | of_itself())?;
        self.targets.entry(wd).or_default().file = Some(id);
        Ok(wd)
    }

    /// Watches whether an open directory on the way to a root stays where it is.
    pub(crate) fn place(&mut self, fd: BorrowedFd) -> Result<()> {
        let wd = self.add(by_descriptor(fd), of_itself())?;
        self.targets.entry(wd).or_default().place = true;
        Ok(())
    }

    /// Watches whether a symbolic link on the way to a root stays what it is.
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

    /// A directory's path is not watched any more.
    pub(crate) fn remove_directory(&mut self, wd: i32, path: &[u8]) {
        self.remove(wd, |target| target.dirs.retain(|dir| **dir != *path));
    }

    /// A file is not watched any more.
    pub(crate) fn remove_file(&mut self, wd: i32) {
        self.remove(wd, |target| target.file = None);
    }

    fn remove(&mut self, wd: i32, change: impl FnOnce(&mut Target)) {
        let Some(target) = self.targets.get_mut(&wd) else { return };
        change(target);
        if target.dirs.is_empty() && target.file.is_none() && !target.place {
            self.targets.remove(&wd);
            // It may be gone with its inode already.
            let _ = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// Everything goes, but the descriptor: who polls it need not know.
    pub(crate) fn clear(&mut self) {
        for (wd, _) in self.targets.drain() {
            let _ = inotify::remove_watch(&self.fd, wd);
        }
    }

    /// Takes what the kernel has by now, and no more, so that a busy writer cannot hold us up.
    pub(crate) fn drain(&mut self, notices: &mut Notices) -> Result<()> {
        let waiting = rustix::io::ioctl_fionread(&self.fd)?;
        if waiting == 0 {
            return Ok(());
        }
        let mut reader = Reader::new(&self.fd, &mut self.room);
        for _ in 0..waiting.div_ceil(NOTICE_LEN) {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            };
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            gather(&mut self.targets, event.wd(), event.events(), name, notices);
        }
        // What was read with them must not be lost.
        while !reader.is_buffer_empty() {
            let event = reader.next()?;
            let name = event.file_name().map(std::ffi::CStr::to_bytes);
            gather(&mut self.targets, event.wd(), event.events(), name, notices);
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
        Some(name) if is_hidden(name) => return,
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
    notices.places |= target.place;
    let Some(file) = target.file else { return };
    if events.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB) {
        // Other attributes, such as a link more or less, are seen in the file's ctime.
        let touched = hint(events).touched;
        *notices.files.entry(file).or_default() |= touched;
    }
}

fn hint(events: ReadFlags) -> Hint {
    let moved = events.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM);
    let written = events.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE);
    Hint { touched: moved || written, moved, polled: false }
}
