//! Changes that jobs make to a view: files that they create, write, rename and remove. The changes
//! stay in the job's slot and in memory.

use fuser::Errno;
use outboard_export::path::join;
use outboard_export::{Attr, FileVersion, LookUp};

use super::ViewLimits;
use super::inodes::{FileKind, InodeBody, SlotId};
use super::pins::Pinned;
use super::slot::{NameChange, Why};
use super::state::{InodeShape, SYNTHETIC, ViewCore, ViewState};

/// Bytes of a path that a job makes, at most: the most that the kernel accepts in one call.
const PATH_MAX: usize = 4096;

/// The attributes of a file to be set.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct NewAttr {
    pub(super) mode: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) mtime_ns: Option<i64>,
}

impl ViewCore {
    /// Makes an empty file.
    pub(super) fn create(&self, parent: u64, name: &[u8], mode: u32) -> Result<NewInode, Errno> {
        let mut state = self.lock();
        let (slot, path) = state.writable(parent, name)?;
        let attr = Attr { mode: mode & 0o7777, ..fresh() };
        state.make(slot, &path, Vec::new(), attr, &self.limits)
    }

    /// Makes an empty directory.
    pub(super) fn make_dir(&self, parent: u64, name: &[u8], mode: u32) -> Result<NewInode, Errno> {
        let mut state = self.lock();
        let (slot, path) = state.writable(parent, name)?;
        state.pay_for_name(slot, &path, 0, &self.limits)?;
        let attr = Attr { mode: mode & 0o7777, ..fresh() };
        let entry = state.directory(slot, &path, attr, true);
        state.change(slot, &path, NameChange::Is(entry.0));
        Ok(entry)
    }

    /// Writes into a file of the job's own.
    pub(super) fn write(&self, number: u64, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut state = self.lock();
        if state.inodes.own_mut(number).is_none() {
            state.refuse_writers(number);
            return Err(Errno::EIO);
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::EFBIG)?;
        state.grow(number, end, &self.limits)?;
        let own = state.inodes.own_mut(number).ok_or(Errno::ESTALE)?;
        let start = usize::try_from(offset).map_err(|_| Errno::EFBIG)?;
        own.data[start..start + data.len()].copy_from_slice(data);
        own.attr.mtime_ns = now();
        Ok(())
    }

    /// Sets attributes. An inode that several slots share is copied for the thread `pid` first.
    pub(super) fn set_attr(
        &self,
        number: u64,
        new: NewAttr,
        pid: u32,
    ) -> Result<InodeShape, Errno> {
        let mut state = self.lock();
        if matches!(state.inodes.get(number), Some(InodeBody::Shared { .. })) {
            drop(state);
            return Err(self.copy_for(number, pid, new.size == Some(0)));
        }
        if let Some(size) = new.size {
            state.resize(number, size, &self.limits)?;
        }
        let attr = match state.inodes.own_mut(number) {
            Some(own) => &mut own.attr,
            None => {
                &mut state.inodes.dir_mut(number).filter(|dir| dir.made).ok_or(Errno::EPERM)?.attr
            }
        };
        attr.mode = new.mode.map_or(attr.mode, |mode| mode & 0o7777);
        attr.mtime_ns = new.mtime_ns.unwrap_or(attr.mtime_ns);
        state.shape(number).ok_or(Errno::ESTALE)
    }

    /// Removes a name; `dir` says whether it must be a directory.
    pub(super) fn remove(&self, parent: u64, name: &[u8], dir: bool) -> Result<(), Errno> {
        let (slot, path) = self.lock().writable(parent, name)?;
        if self.pins.of(&path) != Pinned::No {
            return Err(Errno::EBUSY);
        }
        if dir && !self.lock().is_empty_made_dir(slot, &path) {
            self.lock().slots[slot].refuse(&path, Why::Unsupported);
            return Err(Errno::EPERM);
        }
        let mut state = self.lock();
        state.slots[slot].note_changed(&path)?;
        state.change(slot, &path, NameChange::Gone);
        Ok(())
    }

    /// Renames a file, the job's own or a client's.
    pub(super) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<(), Errno> {
        let (slot, old) = self.lock().writable(from.0, from.1)?;
        let (_, new) = self.lock().writable(to.0, to.1)?;
        if self.pins.of(&old) != Pinned::No || self.pins.of(&new) != Pinned::No {
            return Err(Errno::EBUSY);
        }
        let Some(number) = self.file_at(slot, from.0, from.1, &old) else {
            self.lock().slots[slot].refuse(&old, Why::Unsupported);
            return Err(Errno::EPERM);
        };
        if old == new {
            return Ok(());
        }
        let mut state = self.lock();
        state.pay_for_name(slot, &new, 0, &self.limits)?;
        state.slots[slot].note_changed(&old)?;
        state.change(slot, &new, NameChange::Is(number));
        state.change(slot, &old, NameChange::Gone);
        Ok(())
    }

    /// The regular file that a slot has at `path`.
    fn file_at(&self, slot: SlotId, parent: u64, name: &[u8], path: &[u8]) -> Option<u64> {
        let (dir, change, made) = {
            let state = self.lock();
            let (_, dir, made) = state.place_of(parent)?;
            (dir, state.slots[slot].changes.get(path).copied(), made)
        };
        match change {
            Some(NameChange::Gone) => return None,
            Some(NameChange::Is(number)) => return self.lock().regular(number),
            None if made => return None,
            None => {}
        }
        if self.lock().slots[slot].alone {
            return None;
        }
        let LookUp::File(attr) = self.source.look_up(&dir, name) else {
            return None;
        };
        Some(self.lock().inodes.intern_shared(path, FileVersion::of(&attr), attr))
    }

    /// Notes that the job asked a directory for something that no view can do.
    pub(super) fn unsupported(&self, parent: u64, name: &[u8]) -> Errno {
        let mut state = self.lock();
        if let Some((slot, dir, _)) = state.place_of(parent) {
            state.slots[slot].refuse(&join(&dir, name), Why::Unsupported);
        }
        Errno::EPERM
    }
}

/// An inode that was just made.
type NewInode = (u64, InodeShape);

impl ViewState {
    /// The slot and path of a name in a directory that a running job may change.
    fn writable(&self, parent: u64, name: &[u8]) -> Result<(SlotId, Vec<u8>), Errno> {
        let dir = self.inodes.dir(parent).ok_or(Errno::EROFS)?;
        if dir.attr.mode & 0o222 == 0 || !self.slots[dir.slot].running {
            return Err(Errno::EACCES);
        }
        let path = join(&dir.path, name);
        if path.len() > PATH_MAX { Err(Errno::ENAMETOOLONG) } else { Ok((dir.slot, path)) }
    }

    fn regular(&self, number: u64) -> Option<u64> {
        (self.shape(number)?.kind == FileKind::File).then_some(number)
    }

    fn is_empty_made_dir(&self, slot: SlotId, path: &[u8]) -> bool {
        let Some(NameChange::Is(number)) = self.slots[slot].changes.get(path) else {
            return false;
        };
        let beneath = join(path, b"");
        let inside = self.slots[slot].changes.range(beneath.clone()..);
        let mut inside = inside.take_while(|(path, _)| path.starts_with(&beneath));
        self.inodes.dir(*number).is_some_and(|dir| dir.made)
            && inside.all(|(_, change)| *change == NameChange::Gone)
    }

    /// Makes a file at least `size` bytes long.
    fn grow(&mut self, number: u64, size: u64, limits: &ViewLimits) -> Result<(), Errno> {
        let own = self.inodes.own_mut(number).ok_or(Errno::EPERM)?;
        if size > own.data.len() as u64 { self.resize(number, size, limits) } else { Ok(()) }
    }

    fn resize(&mut self, number: u64, size: u64, limits: &ViewLimits) -> Result<(), Errno> {
        let own = self.inodes.own_mut(number).ok_or(Errno::EPERM)?;
        let (slot, before) = (own.slot, own.data.len() as u64);
        self.pay(slot, size.saturating_sub(before), limits)?;
        self.slots[slot].used -= before.saturating_sub(size).min(self.slots[slot].used);
        let len = usize::try_from(size).map_err(|_| Errno::EFBIG)?;
        let own = self.inodes.own_mut(number).ok_or(Errno::EPERM)?;
        own.data.resize(len, 0);
        own.attr.size = size;
        Ok(())
    }

    /// Refuses every job that has this client's file: one of them writes into the file without
    /// having truncated it, and the request does not say which.
    fn refuse_writers(&mut self, number: u64) {
        let Some(InodeBody::Shared { path, .. }) = self.inodes.get(number) else {
            return;
        };
        let path = path.clone();
        for slot in &mut self.slots {
            slot.refuse(&path, Why::Unsupported);
        }
    }
}

/// Attributes of a file made now.
pub(super) fn fresh() -> Attr {
    Attr { mtime_ns: now(), ..SYNTHETIC }
}

fn now() -> i64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}
