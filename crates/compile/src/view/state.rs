//! Answers of a view, independent of the FUSE protocol: look-ups, attributes, contents and
//! listings.
//!
//! The lock is never held while the source is asked or the kernel is notified.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::Errno;
use outboard_export::path::{join, split};
use outboard_export::{Attr, FetchRequest, FileNode, FileVersion, Listing, LookUp};

use super::ViewLimits;
use super::inodes::{FileKind, InodeBody, Inodes, OwnFile, SlotId, TOP};
use super::pins::{Pinned, PinnedNode, Pins};
use super::probes::OWN_LISTINGS;
use super::slot::{NameChange, SlotState, TOLD_MAX, UpcallCounts, Why};
use super::source::FileSource;

/// The result of a request.
pub(super) enum ViewAnswer<T> {
    /// The answer.
    Done(Result<T, Errno>),
    /// The source has to fetch this first.
    Wait(Option<SlotId>, FetchRequest),
}

/// The inode that a name stands for, if any.
pub(super) type NameEntry = Option<(u64, InodeShape)>;

/// The type and attributes of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InodeShape {
    pub(super) kind: FileKind,
    pub(super) attr: Attr,
}

/// Bytes of a file.
pub(super) enum FileBytes {
    Copied(Vec<u8>),
    Shared(Arc<[u8]>, std::ops::Range<usize>),
}

impl FileBytes {
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(contents, range) => contents.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// The mutable state of a view.
#[derive(Debug)]
pub(super) struct ViewState {
    pub(super) inodes: Inodes,
    pub(super) slots: Vec<SlotState>,
    pub(super) upcalls: UpcallCounts,
    /// Threads that were told to look a file up again, because the inode that they want to change
    /// is shared.
    copying: HashMap<u32, Copying>,
}

/// The shared file that a thread wants to change.
#[derive(Debug, Clone, Copy)]
struct Copying {
    number: u64,
    /// The thread wants the file truncated.
    empty: bool,
    at: Instant,
}

impl Copying {
    /// Whether a thread of the job in this slot can have asked for the copy: thread ids are reused,
    /// and the kernel repeats the look-up at once or never.
    fn is_of(&self, slot: &SlotState) -> bool {
        slot.begun.is_some_and(|begun| begun <= self.at) && self.at.elapsed() < COPYING_TIME
    }
}

/// A view without its connection to the kernel.
pub(super) struct ViewCore {
    pub(super) source: Arc<dyn FileSource>,
    pub(super) pins: Pins,
    pub(super) limits: ViewLimits,
    state: Mutex<ViewState>,
}

/// At most this number of threads waits for a copy at once.
const COPYING_MAX: usize = 1024;
/// How long the kernel takes to look up again, at most.
const COPYING_TIME: Duration = Duration::from_secs(2);

/// Attributes of a directory that exists only to lead to a pin.
pub(crate) const SYNTHETIC: Attr =
    Attr { dev: 0, ino: 0, mode: 0o555, size: 0, mtime_ns: 0, version: 0 };

/// Attributes of a directory in which a job makes files and that has none at the client.
const PLACE: Attr = Attr { mode: 0o755, ..SYNTHETIC };

impl ViewCore {
    /// Whether the client exports something at `path`.
    pub(super) fn is_at_client(&self, path: &[u8]) -> bool {
        let found = split(path).map(|(dir, name)| self.source.look_up(dir, name));
        matches!(found, Some(LookUp::File(_) | LookUp::Directory(_) | LookUp::Symlink { .. }))
    }

    pub(super) fn new(source: Arc<dyn FileSource>, pins: Pins, limits: ViewLimits) -> Self {
        let slots = (0..limits.slots).map(|_| SlotState::default()).collect();
        let (upcalls, copying) = (UpcallCounts::default(), HashMap::new());
        let state = Mutex::new(ViewState { inodes: Inodes::new(), slots, upcalls, copying });
        Self { source, pins, limits, state }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `name` in the directory `parent` is, for the thread `pid`.
    pub(super) fn look_up(&self, parent: u64, name: &[u8], pid: u32) -> ViewAnswer<NameEntry> {
        let Some((slot, dir, made)) = self.lock().place_of(parent) else {
            return ViewAnswer::Done(self.slot_root(parent, name));
        };
        let path = join(&dir, name);
        let mut state = self.lock();
        if self.pins.leads(&dir) && !state.note_told(slot, parent, name) {
            state.slots[slot].refuse(&path, Why::TooMuch);
            return ViewAnswer::Done(Err(Errno::EACCES));
        }
        if let Some(&change) = state.slots[slot].changes.get(&path) {
            return ViewAnswer::Done(Ok(state.changed(change)));
        }
        if made {
            return ViewAnswer::Done(Ok(None));
        }
        if let Pinned::Here(pin) = self.pins.of(&path) {
            return ViewAnswer::Done(Ok(Some(state.pinned(slot, &path, pin))));
        }
        if let Some(link) = self.redirected(&mut state, slot, parent, name, &path) {
            return ViewAnswer::Done(link.map(Some));
        }
        if state.slots[slot].alone {
            let attr = if state.slots[slot].places.lead(&path) { PLACE } else { SYNTHETIC };
            let is_there = attr == PLACE || self.pins.leads(&path);
            return ViewAnswer::Done(Ok(
                is_there.then(|| state.directory(slot, &path, attr, false))
            ));
        }
        drop(state);
        let found = self.source.look_up(&dir, name);
        if self.pins.leads(&path) {
            return ViewAnswer::Done(Ok(Some(self.leading(slot, &path, &found))));
        }
        self.found(slot, &dir, &path, found, pid)
    }

    /// The link at the path of the file that the job writes outside the view, if a link may stand
    /// there.
    fn redirected(
        &self,
        state: &mut ViewState,
        slot: SlotId,
        parent: u64,
        name: &[u8],
        path: &[u8],
    ) -> Option<Result<(u64, InodeShape), Errno>> {
        let to = Arc::clone(&state.slots[slot].redirect.as_ref().filter(|at| at.path == path)?.to);
        let is_writable = |attr: &Attr| attr.mode & 0o222 != 0;
        let dir = state.inodes.dir(parent).filter(|dir| is_writable(&dir.attr))?;
        let is_free = state.slots[slot].alone
            || match self.source.look_up(&dir.path, name) {
                LookUp::Absent => true,
                LookUp::File(attr) => is_writable(&attr),
                LookUp::Withheld | LookUp::Outside => state.slots[slot].places.is_for_the_job(path),
                _ => false,
            };
        if !is_free {
            return None;
        }
        if let Err(errno) = state.slots[slot].note_changed(path) {
            return Some(Err(errno));
        }
        state.slots[slot].redirect.iter_mut().for_each(|redirect| redirect.told = true);
        Some(Ok(state.link(SYNTHETIC, to)))
    }

    /// The root of a slot, named by its number.
    fn slot_root(&self, parent: u64, name: &[u8]) -> Result<NameEntry, Errno> {
        if parent != TOP {
            return Err(Errno::ENOTDIR);
        }
        let number = std::str::from_utf8(name).ok().and_then(|name| name.parse::<usize>().ok());
        let Some(slot) = number.filter(|&slot| slot < self.limits.slots) else {
            return Ok(None);
        };
        Ok(Some(self.lock().directory(slot, b"/", SYNTHETIC, false)))
    }

    /// A directory above a pin, which exists whatever the source has there.
    fn leading(&self, slot: SlotId, path: &[u8], found: &LookUp) -> (u64, InodeShape) {
        let attr = match found {
            LookUp::Directory(attr) => *attr,
            _ => SYNTHETIC,
        };
        self.lock().directory(slot, path, attr, false)
    }

    fn found(
        &self,
        slot: SlotId,
        dir: &[u8],
        path: &[u8],
        found: LookUp,
        pid: u32,
    ) -> ViewAnswer<NameEntry> {
        let done = |entry| ViewAnswer::Done(Ok(Some(entry)));
        match found {
            LookUp::File(attr) => self.file(slot, path, attr, pid),
            LookUp::Directory(attr) => done(self.lock().directory(slot, path, attr, false)),
            LookUp::Symlink { target, attr } => done(self.lock().link(attr, target)),
            LookUp::Absent => ViewAnswer::Done(Ok(None)),
            LookUp::Unknown(_) => {
                ViewAnswer::Wait(Some(slot), FetchRequest::List { dir: dir.to_vec() })
            }
            LookUp::Withheld if self.pins.is_own_probe(path) => ViewAnswer::Done(Ok(None)),
            LookUp::Withheld => ViewAnswer::Done(
                self.place(slot, path).unwrap_or_else(|| self.refuse(slot, path, Why::Withheld)),
            ),
            LookUp::Outside if self.pins.leads_nowhere(path) => {
                done(self.lock().directory(slot, path, SYNTHETIC, false))
            }
            LookUp::Outside if self.pins.is_own_probe(path) => ViewAnswer::Done(Ok(None)),
            LookUp::Outside => match self.place(slot, path) {
                Some(place) => ViewAnswer::Done(place),
                None => ViewAnswer::Wait(Some(slot), FetchRequest::Name { path: path.to_vec() }),
            },
        }
    }

    /// The directory at a path that the client does not export, if the job makes files there or the
    /// path leads to such a directory.
    fn place(&self, slot: SlotId, path: &[u8]) -> Option<Result<NameEntry, Errno>> {
        let mut state = self.lock();
        if state.slots[slot].places.lead(path) {
            return Some(Ok(Some(state.directory(slot, path, PLACE, false))));
        }
        // The next job may find something else there.
        let is_for_the_job = state.slots[slot].places.is_for_the_job(path);
        is_for_the_job.then(|| state.slots[slot].note_changed(path).map(|()| None))
    }

    /// Refuses the job because of a path: it has to run at the client.
    fn refuse(&self, slot: SlotId, path: &[u8], why: Why) -> Result<NameEntry, Errno> {
        self.lock().slots[slot].refuse(path, why);
        Err(Errno::EACCES)
    }

    /// A client's file, or the slot's own copy of it if this thread is about to change it.
    fn file(&self, slot: SlotId, path: &[u8], attr: Attr, pid: u32) -> ViewAnswer<NameEntry> {
        let id = FileVersion::of(&attr);
        let mut state = self.lock();
        let number = state.inodes.intern_shared(path, id, attr);
        let empty = match state.copying.get(&pid) {
            Some(at) if at.number == number && at.is_of(&state.slots[slot]) => at.empty,
            _ => {
                state.slots[slot].touch(path, attr.version);
                return ViewAnswer::Done(Ok(Some(state.tell(number, FileKind::File, attr))));
            }
        };
        drop(state);
        let data = if empty { Vec::new() } else { self.copy_of(&id) };
        if data.len() as u64 != attr.size && !empty {
            let wanted = FetchRequest::Contents { path: path.to_vec(), file: id };
            return ViewAnswer::Wait(Some(slot), wanted);
        }
        let mut state = self.lock();
        state.copying.remove(&pid);
        ViewAnswer::Done(state.make(slot, path, data, attr, &self.limits).map(Some))
    }

    fn copy_of(&self, id: &FileVersion) -> Vec<u8> {
        self.source.contents(id).map_or_else(Vec::new, |contents| contents.to_vec())
    }

    /// Bytes of a file.
    pub(super) fn read(&self, number: u64, offset: u64, size: u32) -> ViewAnswer<FileBytes> {
        let state = self.lock();
        let (path, id) = match state.inodes.get(number) {
            Some(InodeBody::Own(own)) => {
                let range = clip(own.data.len(), offset, size);
                return ViewAnswer::Done(Ok(FileBytes::Copied(own.data[range].to_vec())));
            }
            Some(InodeBody::Shared { path, id, .. }) => (path.clone(), *id),
            Some(InodeBody::Place { .. }) => {
                return ViewAnswer::Done(Ok(FileBytes::Copied(Vec::new())));
            }
            _ => return ViewAnswer::Done(Err(Errno::EISDIR)),
        };
        drop(state);
        match self.source.contents(&id) {
            Some(contents) => {
                let range = clip(contents.len(), offset, size);
                ViewAnswer::Done(Ok(FileBytes::Shared(contents, range)))
            }
            None => {
                ViewAnswer::Wait(None, FetchRequest::Contents { path: path.to_vec(), file: id })
            }
        }
    }

    /// All names in a directory.
    pub(super) fn list(&self, number: u64) -> ViewAnswer<Vec<(Vec<u8>, FileKind)>> {
        let Some((slot, dir, made)) = self.lock().place_of(number) else {
            return ViewAnswer::Done(Err(Errno::ENOTDIR));
        };
        let mut names = BTreeMap::new();
        if !made && !self.lock().slots[slot].alone {
            if self.lock().slots[slot].places.has(&dir) {
                // The rest of the directory is unknown.
                return ViewAnswer::Done(
                    self.refuse(slot, &dir, Why::Withheld).map(|_| Vec::new()),
                );
            }
            match self.source.list(&dir) {
                Listing::Names(listed) => names.extend(
                    listed.into_iter().filter_map(|(name, node)| Some((name.into(), kind(&node)?))),
                ),
                Listing::Unknown(_) => {
                    return ViewAnswer::Wait(Some(slot), FetchRequest::List { dir });
                }
                Listing::Outside if self.lists_nothing_else(&dir) => {}
                Listing::Outside => {
                    return ViewAnswer::Done(
                        self.refuse(slot, &dir, Why::Outside).map(|_| Vec::new()),
                    );
                }
            }
        }
        for (name, pin) in self.pins.names_in(&dir) {
            names.insert(name, kind_of_pin(&pin));
        }
        self.lock().apply_changes(slot, &dir, &mut names);
        ViewAnswer::Done(Ok(names.into_iter().collect()))
    }

    /// Whether a directory that the client does not export may be listed with the sandbox's own
    /// names only, which are all that compilers look for there.
    fn lists_nothing_else(&self, dir: &[u8]) -> bool {
        self.pins.leads(dir)
            || self.pins.leads_nowhere(dir)
            || !matches!(self.pins.of(dir), Pinned::No)
            || OWN_LISTINGS.iter().any(|own| own.as_bytes() == dir)
    }

    /// The kernel's thread `pid` wants to change an inode that slots share: it is told to look
    /// again, and then finds a copy.
    pub(super) fn copy_for(&self, number: u64, pid: u32, empty: bool) -> Errno {
        let mut state = self.lock();
        match state.inodes.get(number) {
            Some(InodeBody::Shared { attr, .. }) if attr.mode & 0o222 == 0 => Errno::EACCES,
            Some(InodeBody::Shared { .. }) => {
                if state.copying.len() >= COPYING_MAX {
                    state.copying.retain(|_, copying| copying.at.elapsed() < COPYING_TIME);
                }
                if state.copying.len() >= COPYING_MAX {
                    return Errno::EAGAIN;
                }
                state.copying.insert(pid, Copying { number, empty, at: Instant::now() });
                Errno::ESTALE
            }
            _ => Errno::EPERM,
        }
    }
}

impl ViewState {
    /// The slot and path of a directory, and whether the job made it; `None` for any other inode.
    pub(super) fn place_of(&self, number: u64) -> Option<(SlotId, Vec<u8>, bool)> {
        let dir = self.inodes.dir(number)?;
        Some((dir.slot, dir.path.clone(), dir.made))
    }

    /// The type and attributes of an inode, if it exists.
    pub(super) fn shape(&self, number: u64) -> Option<InodeShape> {
        let (kind, attr) = match self.inodes.get(number)? {
            InodeBody::Top => (FileKind::Directory, SYNTHETIC),
            InodeBody::Dir(dir) => (FileKind::Directory, dir.attr),
            InodeBody::Shared { attr, .. } | InodeBody::Place { attr } => (FileKind::File, *attr),
            InodeBody::Link { attr, .. } => (FileKind::Symlink, *attr),
            InodeBody::Own(own) => (FileKind::File, own.attr),
        };
        Some(InodeShape { kind, attr })
    }

    pub(super) fn tell(&mut self, number: u64, kind: FileKind, attr: Attr) -> (u64, InodeShape) {
        self.inodes.told(number);
        (number, InodeShape { kind, attr })
    }

    pub(super) fn directory(
        &mut self,
        slot: SlotId,
        path: &[u8],
        attr: Attr,
        made: bool,
    ) -> (u64, InodeShape) {
        let number = self.inodes.intern_dir(slot, path, attr, made);
        self.tell(number, FileKind::Directory, attr)
    }

    fn link(&mut self, attr: Attr, target: Arc<[u8]>) -> (u64, InodeShape) {
        let attr = Attr { size: target.len() as u64, ..attr };
        let number = self.inodes.add(InodeBody::Link { attr, target });
        self.tell(number, FileKind::Symlink, attr)
    }

    fn pinned(&mut self, slot: SlotId, path: &[u8], pin: &PinnedNode) -> (u64, InodeShape) {
        match pin {
            PinnedNode::Directory => self.directory(slot, path, SYNTHETIC, false),
            PinnedNode::Symlink(target) => self.link(SYNTHETIC, target.as_slice().into()),
            PinnedNode::File => {
                let number = self.inodes.add(InodeBody::Place { attr: SYNTHETIC });
                self.tell(number, FileKind::File, SYNTHETIC)
            }
        }
    }

    fn changed(&mut self, change: NameChange) -> NameEntry {
        let NameChange::Is(number) = change else {
            return None;
        };
        let shape = self.shape(number)?;
        Some(self.tell(number, shape.kind, shape.attr))
    }

    fn apply_changes(&self, slot: SlotId, dir: &[u8], names: &mut BTreeMap<Vec<u8>, FileKind>) {
        let beneath = join(dir, b"");
        let changes = self.slots[slot].changes.range(beneath.clone()..);
        for (path, change) in changes.take_while(|(path, _)| path.starts_with(&beneath)) {
            let name = &path[beneath.len()..];
            match change {
                _ if name.contains(&b'/') => {}
                NameChange::Gone => {
                    names.remove(name);
                }
                NameChange::Is(number) => {
                    let kind = self.shape(*number).map_or(FileKind::File, |shape| shape.kind);
                    names.insert(name.to_vec(), kind);
                }
            }
        }
    }

    /// A file of the job's own at `path`.
    pub(super) fn make(
        &mut self,
        slot: SlotId,
        path: &[u8],
        data: Vec<u8>,
        attr: Attr,
        limits: &ViewLimits,
    ) -> Result<(u64, InodeShape), Errno> {
        self.pay_for_name(slot, path, data.len() as u64, limits)?;
        let attr = Attr { size: data.len() as u64, ..attr };
        let number = self.inodes.add(InodeBody::Own(OwnFile { slot, data, attr }));
        self.change(slot, path, NameChange::Is(number));
        Ok(self.tell(number, FileKind::File, attr))
    }

    /// Puts a file of the job's own at `path` before the kernel has looked it up.
    pub(super) fn bring(&mut self, slot: SlotId, path: &[u8], data: Vec<u8>, attr: Attr) {
        let attr = Attr { size: data.len() as u64, ..attr };
        let number = self.inodes.add(InodeBody::Own(OwnFile { slot, data, attr }));
        self.change(slot, path, NameChange::Is(number));
    }

    /// Records that a name stands for something else now.
    pub(super) fn change(&mut self, slot: SlotId, path: &[u8], change: NameChange) {
        if let NameChange::Is(number) = change {
            self.inodes.hold(number);
        }
        let slot = &mut self.slots[slot];
        slot.changed.insert(path.to_vec());
        if let Some(NameChange::Is(before)) = slot.changes.insert(path.to_vec(), change) {
            self.inodes.release(before);
        }
    }

    /// Records that a name in a directory that leads to pins is returned to the kernel; false if
    /// there are too many.
    fn note_told(&mut self, slot: SlotId, parent: u64, name: &[u8]) -> bool {
        let Some(dir) = self.inodes.dir_mut(parent) else { return true };
        if dir.told.contains(name) {
            return true;
        }
        let told = &mut self.slots[slot].told;
        if *told >= TOLD_MAX {
            return false;
        }
        *told += 1;
        dir.told.insert(name.to_vec())
    }

    /// Charges the job's quota for a changed name and `cost` bytes.
    pub(super) fn pay_for_name(
        &mut self,
        slot: SlotId,
        path: &[u8],
        bytes: u64,
        limits: &ViewLimits,
    ) -> Result<(), Errno> {
        self.pay(slot, bytes.saturating_add(NAME_COST), limits)?;
        self.slots[slot].note_changed(path)
    }

    /// Charges the job's quota for `cost` bytes.
    pub(super) fn pay(
        &mut self,
        slot: SlotId,
        cost: u64,
        limits: &ViewLimits,
    ) -> Result<(), Errno> {
        let slot = &mut self.slots[slot];
        if slot.used.saturating_add(cost) > limits.quota {
            return Err(Errno::ENOSPC);
        }
        slot.used += cost;
        Ok(())
    }
}

/// Bytes of a job's quota that each changed name costs.
const NAME_COST: u64 = 1024;

fn clip(len: usize, offset: u64, size: u32) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
    start..start.saturating_add(size as usize).min(len)
}

/// What a listing says of a client's file; nothing of one that the client withholds.
fn kind(node: &FileNode) -> Option<FileKind> {
    match node {
        FileNode::File(_) => Some(FileKind::File),
        FileNode::Directory(_) => Some(FileKind::Directory),
        FileNode::Symlink { .. } => Some(FileKind::Symlink),
        FileNode::Withheld => None,
    }
}

fn kind_of_pin(pin: &PinnedNode) -> FileKind {
    match pin {
        PinnedNode::File => FileKind::File,
        PinnedNode::Directory => FileKind::Directory,
        PinnedNode::Symlink(_) => FileKind::Symlink,
    }
}

#[cfg(test)]
mod tests;
