//! What a view answers, without a word about how the kernel asks: look-ups, attributes, contents
//! and lists.
//!
//! The lock is never held while the source is asked or the kernel is notified.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fuser::Errno;

use super::Limits;
use super::nodes::{Nodes, Own, SlotId, TOP, What};
use super::pins::{Pin, Pinned, Pins, join, split};
use super::slot::{Change, Slot, TOLD_MAX, Upcalls, Why};
use super::source::{Ask, Attr, Contents, Found, Kind, Listing, NodeId, Source};

/// What comes of a request.
pub(super) enum Step<T> {
    /// The answer.
    Done(Result<T, Errno>),
    /// This has to be asked for first.
    Wait(Option<SlotId>, Ask),
}

/// What a name is: a node, or nothing.
pub(super) type Entry = Option<(u64, Shape)>;

/// What the kernel is told of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    pub(super) attr: Attr,
}

/// Octets of a file.
pub(super) enum Octets {
    Copied(Vec<u8>),
    Shared(Contents, std::ops::Range<usize>),
}

impl Octets {
    pub(super) fn get(&self) -> &[u8] {
        match self {
            Self::Copied(octets) => octets,
            Self::Shared(contents, range) => {
                (**contents).as_ref().get(range.clone()).unwrap_or_default()
            }
        }
    }
}

/// Everything that changes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) nodes: Nodes,
    pub(super) slots: Vec<Slot>,
    pub(super) upcalls: Upcalls,
    /// Threads that were told to look again, because what they want to change is shared.
    copying: HashMap<u32, Copying>,
}

/// What a thread that looks again wants to change.
#[derive(Debug, Clone, Copy)]
struct Copying {
    number: u64,
    /// It wants the file empty.
    empty: bool,
    at: Instant,
}

impl Copying {
    /// Whether a thread of the job in this slot can have said so: numbers of threads are used
    /// again, and the kernel looks again at once or never.
    fn is_of(&self, slot: &Slot) -> bool {
        slot.begun.is_some_and(|begun| begun <= self.at) && self.at.elapsed() < COPYING_TIME
    }
}

/// A view without the kernel.
pub(super) struct Core {
    pub(super) source: Arc<dyn Source>,
    pub(super) pins: Pins,
    pub(super) limits: Limits,
    state: Mutex<State>,
}

/// More threads than this do not wait for a copy at once.
const COPYING_MAX: usize = 1024;
/// How long it takes the kernel to look again, at most.
const COPYING_TIME: Duration = Duration::from_secs(2);

/// A directory that exists only to lead somewhere.
pub(super) const SYNTHETIC: Attr = Attr { dev: 0, ino: 0, mode: 0o555, size: 0, mtime_ns: 0 };

/// A directory in which a job makes files and that has none.
const PLACE: Attr = Attr { mode: 0o755, ..SYNTHETIC };

impl Core {
    /// Whether the client shows something at `path`.
    pub(super) fn is_at_client(&self, path: &[u8]) -> bool {
        let found = split(path).map(|(dir, name)| self.source.look_up(dir, name));
        matches!(found, Some(Found::File { .. } | Found::Directory { .. } | Found::Symlink { .. }))
    }

    pub(super) fn new(source: Arc<dyn Source>, pins: Pins, limits: Limits) -> Self {
        let slots = (0..limits.slots).map(|_| Slot::default()).collect();
        let (upcalls, copying) = (Upcalls::default(), HashMap::new());
        let state = Mutex::new(State { nodes: Nodes::new(), slots, upcalls, copying });
        Self { source, pins, limits, state }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What `name` in the directory `parent` is, for the thread `pid`.
    pub(super) fn look_up(&self, parent: u64, name: &[u8], pid: u32) -> Step<Entry> {
        let Some((slot, dir, made)) = self.lock().place_of(parent) else {
            return Step::Done(self.slot_root(parent, name));
        };
        let path = join(&dir, name);
        let mut state = self.lock();
        if self.pins.leads(&dir) && !state.note_told(slot, parent, name) {
            state.slots[slot].refuse(&path, Why::TooMuch);
            return Step::Done(Err(Errno::EACCES));
        }
        if let Some(&change) = state.slots[slot].changes.get(&path) {
            return Step::Done(Ok(state.changed(change)));
        }
        if made {
            return Step::Done(Ok(None));
        }
        if let Pinned::Here(pin) = self.pins.of(&path) {
            return Step::Done(Ok(Some(state.pinned(slot, &path, pin))));
        }
        if state.slots[slot].alone {
            let attr = if state.slots[slot].places.lead(&path) { PLACE } else { SYNTHETIC };
            let is_there = attr == PLACE || self.pins.leads(&path);
            return Step::Done(Ok(is_there.then(|| state.directory(slot, &path, attr, false))));
        }
        drop(state);
        let found = self.source.look_up(&dir, name);
        if self.pins.leads(&path) {
            return Step::Done(Ok(Some(self.leading(slot, &path, &found))));
        }
        self.found(slot, &dir, &path, found, pid)
    }

    /// The root of a slot, named by its number.
    fn slot_root(&self, parent: u64, name: &[u8]) -> Result<Entry, Errno> {
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
    fn leading(&self, slot: SlotId, path: &[u8], found: &Found) -> (u64, Shape) {
        let attr = match found {
            Found::Directory { attr } => *attr,
            _ => SYNTHETIC,
        };
        self.lock().directory(slot, path, attr, false)
    }

    fn found(&self, slot: SlotId, dir: &[u8], path: &[u8], found: Found, pid: u32) -> Step<Entry> {
        let done = |entry| Step::Done(Ok(Some(entry)));
        match found {
            Found::File { attr, version } => self.file(slot, path, attr, version, pid),
            Found::Directory { attr } => done(self.lock().directory(slot, path, attr, false)),
            Found::Symlink { attr, target } => done(self.lock().link(attr, target)),
            Found::Absent => Step::Done(Ok(None)),
            Found::Unknown => Step::Wait(Some(slot), Ask::List { dir: dir.to_vec() }),
            Found::Withheld => Step::Done(self.withheld(slot, path)),
            Found::Outside if self.pins.leads_nowhere(path) => {
                done(self.lock().directory(slot, path, SYNTHETIC, false))
            }
            Found::Outside => Step::Done(self.refuse(slot, path, Why::Outside)),
        }
    }

    /// What the client has and does not show, but for places where the job makes files.
    fn withheld(&self, slot: SlotId, path: &[u8]) -> Result<Entry, Errno> {
        let mut state = self.lock();
        if state.slots[slot].places.lead(path) {
            return Ok(Some(state.directory(slot, path, PLACE, false)));
        }
        if state.slots[slot].places.is_for_the_job(path) {
            // To the next job something else may be there.
            return state.slots[slot].note_changed(path).map(|()| None);
        }
        drop(state);
        self.refuse(slot, path, Why::Withheld)
    }

    /// A path that the job may not have: the job runs at home, unless everybody looks there.
    fn refuse(&self, slot: SlotId, path: &[u8], why: Why) -> Result<Entry, Errno> {
        if self.pins.is_known_absent(path) {
            return Ok(None);
        }
        self.lock().slots[slot].refuse(path, why);
        Err(Errno::EACCES)
    }

    /// A client's file, or the slot's own copy of it if this thread is about to change it.
    fn file(&self, slot: SlotId, path: &[u8], attr: Attr, version: u64, pid: u32) -> Step<Entry> {
        let id = NodeId { dev: attr.dev, ino: attr.ino, version };
        let mut state = self.lock();
        let number = state.nodes.intern_shared(path, id, attr);
        let empty = match state.copying.get(&pid) {
            Some(at) if at.number == number && at.is_of(&state.slots[slot]) => at.empty,
            _ => {
                state.slots[slot].touch(path, version);
                return Step::Done(Ok(Some(state.tell(number, Kind::File, attr))));
            }
        };
        drop(state);
        let data = if empty { Vec::new() } else { self.copy_of(&id) };
        if data.len() as u64 != attr.size && !empty {
            return Step::Wait(Some(slot), Ask::Contents { path: path.to_vec(), node: id });
        }
        let mut state = self.lock();
        state.copying.remove(&pid);
        Step::Done(state.make(slot, path, data, attr, &self.limits).map(Some))
    }

    fn copy_of(&self, id: &NodeId) -> Vec<u8> {
        self.source.contents(id).map_or_else(Vec::new, |contents| (*contents).as_ref().to_vec())
    }

    /// Octets of a file.
    pub(super) fn read(&self, number: u64, offset: u64, size: u32) -> Step<Octets> {
        let state = self.lock();
        let (path, id) = match state.nodes.get(number) {
            Some(What::Own(own)) => {
                let range = clip(own.data.len(), offset, size);
                return Step::Done(Ok(Octets::Copied(own.data[range].to_vec())));
            }
            Some(What::Shared { path, id, .. }) => (path.clone(), *id),
            Some(What::Place { .. }) => return Step::Done(Ok(Octets::Copied(Vec::new()))),
            _ => return Step::Done(Err(Errno::EISDIR)),
        };
        drop(state);
        match self.source.contents(&id) {
            Some(contents) => {
                let range = clip((*contents).as_ref().len(), offset, size);
                Step::Done(Ok(Octets::Shared(contents, range)))
            }
            None => Step::Wait(None, Ask::Contents { path: path.to_vec(), node: id }),
        }
    }

    /// All names in a directory.
    pub(super) fn list(&self, number: u64) -> Step<Vec<(Vec<u8>, Kind)>> {
        let Some((slot, dir, made)) = self.lock().place_of(number) else {
            return Step::Done(Err(Errno::ENOTDIR));
        };
        let mut names = BTreeMap::new();
        if !made && !self.lock().slots[slot].alone {
            if self.lock().slots[slot].places.has(&dir) {
                // Nobody knows what else is there.
                return Step::Done(self.refuse(slot, &dir, Why::Withheld).map(|_| Vec::new()));
            }
            match self.source.list(&dir) {
                Listing::Entries(entries) => names.extend(entries),
                Listing::Unknown => return Step::Wait(Some(slot), Ask::List { dir }),
                Listing::Outside => {}
            }
        }
        for (name, pin) in self.pins.names_in(&dir) {
            names.insert(name, kind_of(&pin));
        }
        self.lock().apply_changes(slot, &dir, &mut names);
        Step::Done(Ok(names.into_iter().collect()))
    }

    /// The kernel's thread `pid` wants to change a node that slots share: it must look again, and
    /// then finds a copy.
    pub(super) fn copy_for(&self, number: u64, pid: u32, empty: bool) -> Errno {
        let mut state = self.lock();
        match state.nodes.get(number) {
            Some(What::Shared { attr, .. }) if attr.mode & 0o222 == 0 => Errno::EACCES,
            Some(What::Shared { .. }) => {
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

impl State {
    /// The slot, path and origin of a directory; `None` for whatever else.
    pub(super) fn place_of(&self, number: u64) -> Option<(SlotId, Vec<u8>, bool)> {
        let dir = self.nodes.dir(number)?;
        Some((dir.slot, dir.path.clone(), dir.made))
    }

    /// What the kernel is told of a node, if there is one.
    pub(super) fn shape(&self, number: u64) -> Option<Shape> {
        let (kind, attr) = match self.nodes.get(number)? {
            What::Top => (Kind::Directory, SYNTHETIC),
            What::Dir(dir) => (Kind::Directory, dir.attr),
            What::Shared { attr, .. } | What::Place { attr } => (Kind::File, *attr),
            What::Link { attr, .. } => (Kind::Symlink, *attr),
            What::Own(own) => (Kind::File, own.attr),
        };
        Some(Shape { kind, attr })
    }

    pub(super) fn tell(&mut self, number: u64, kind: Kind, attr: Attr) -> (u64, Shape) {
        self.nodes.told(number);
        (number, Shape { kind, attr })
    }

    pub(super) fn directory(
        &mut self,
        slot: SlotId,
        path: &[u8],
        attr: Attr,
        made: bool,
    ) -> (u64, Shape) {
        let number = self.nodes.intern_dir(slot, path, attr, made);
        self.tell(number, Kind::Directory, attr)
    }

    fn link(&mut self, attr: Attr, target: Arc<[u8]>) -> (u64, Shape) {
        let attr = Attr { size: target.len() as u64, ..attr };
        let number = self.nodes.add(What::Link { attr, target });
        self.tell(number, Kind::Symlink, attr)
    }

    fn pinned(&mut self, slot: SlotId, path: &[u8], pin: &Pin) -> (u64, Shape) {
        match pin {
            Pin::Directory => self.directory(slot, path, SYNTHETIC, false),
            Pin::Symlink(target) => self.link(SYNTHETIC, target.as_slice().into()),
            Pin::File => {
                let number = self.nodes.add(What::Place { attr: SYNTHETIC });
                self.tell(number, Kind::File, SYNTHETIC)
            }
        }
    }

    fn changed(&mut self, change: Change) -> Entry {
        let Change::Is(number) = change else {
            return None;
        };
        let shape = self.shape(number)?;
        Some(self.tell(number, shape.kind, shape.attr))
    }

    fn apply_changes(&self, slot: SlotId, dir: &[u8], names: &mut BTreeMap<Vec<u8>, Kind>) {
        let beneath = join(dir, b"");
        let changes = self.slots[slot].changes.range(beneath.clone()..);
        for (path, change) in changes.take_while(|(path, _)| path.starts_with(&beneath)) {
            let name = &path[beneath.len()..];
            match change {
                _ if name.contains(&b'/') => {}
                Change::Gone => {
                    names.remove(name);
                }
                Change::Is(number) => {
                    let kind = self.shape(*number).map_or(Kind::File, |shape| shape.kind);
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
        limits: &Limits,
    ) -> Result<(u64, Shape), Errno> {
        self.pay_for_name(slot, path, data.len() as u64, limits)?;
        let attr = Attr { size: data.len() as u64, ..attr };
        let number = self.nodes.add(What::Own(Own { slot, data, attr }));
        self.change(slot, path, Change::Is(number));
        Ok(self.tell(number, Kind::File, attr))
    }

    /// Puts a file of the job's own at `path` before the kernel has asked for it.
    pub(super) fn bring(&mut self, slot: SlotId, path: &[u8], data: Vec<u8>, attr: Attr) {
        let attr = Attr { size: data.len() as u64, ..attr };
        let number = self.nodes.add(What::Own(Own { slot, data, attr }));
        self.change(slot, path, Change::Is(number));
    }

    /// Notes that a name is something else now.
    pub(super) fn change(&mut self, slot: SlotId, path: &[u8], change: Change) {
        if let Change::Is(number) = change {
            self.nodes.hold(number);
        }
        let slot = &mut self.slots[slot];
        slot.changed.insert(path.to_vec());
        if let Some(Change::Is(before)) = slot.changes.insert(path.to_vec(), change) {
            self.nodes.release(before);
        }
    }

    /// Notes that the kernel is told of a name in a directory that leads to pins; false if there
    /// are too many.
    fn note_told(&mut self, slot: SlotId, parent: u64, name: &[u8]) -> bool {
        let Some(dir) = self.nodes.dir_mut(parent) else { return true };
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

    /// Takes a changed name and so many octets from the job's quota.
    pub(super) fn pay_for_name(
        &mut self,
        slot: SlotId,
        path: &[u8],
        octets: u64,
        limits: &Limits,
    ) -> Result<(), Errno> {
        self.pay(slot, octets.saturating_add(NAME_COST), limits)?;
        self.slots[slot].note_changed(path)
    }

    /// Takes octets from the job's quota.
    pub(super) fn pay(&mut self, slot: SlotId, cost: u64, limits: &Limits) -> Result<(), Errno> {
        let slot = &mut self.slots[slot];
        if slot.used.saturating_add(cost) > limits.quota {
            return Err(Errno::ENOSPC);
        }
        slot.used += cost;
        Ok(())
    }
}

/// What a name costs of a job's quota, besides its octets.
const NAME_COST: u64 = 1024;

fn clip(len: usize, offset: u64, size: u32) -> std::ops::Range<usize> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(len);
    start..start.saturating_add(size as usize).min(len)
}

fn kind_of(pin: &Pin) -> Kind {
    match pin {
        Pin::File => Kind::File,
        Pin::Directory => Kind::Directory,
        Pin::Symlink(_) => Kind::Symlink,
    }
}

#[cfg(test)]
mod tests;
