//! A disk of memory: it records what was asked of it, says what a power cut may leave of that, and
//! can be full or fail.
//!
//! Of what was not synced, each sector of 512 bytes has any of the contents that it had since, and
//! each change of a length and each hole was made or not, all independently. Names change in order.

use super::Random;
use crate::store::disk::{StoreDisk, StoreFile};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SECTOR: usize = 512;

/// What was asked, in order.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Write {
        file: usize,
        at: usize,
        bytes: Arc<[u8]>,
    },
    SetLen {
        file: usize,
        len: usize,
    },
    Punch {
        file: usize,
        range: Range<usize>,
    },
    Sync {
        file: usize,
    },
    Create {
        name: String,
        file: usize,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        name: String,
    },
    SyncNames,
    /// The store has said that a commit is durable.
    Told {
        durable: u64,
    },
}

#[derive(Clone, Debug, Default)]
struct Contents {
    names: BTreeMap<String, usize>,
    files: BTreeMap<usize, Vec<u8>>,
}

impl Contents {
    fn apply(&mut self, asked: &Asked) {
        match asked {
            Asked::Write { file, at, bytes } => self.write(*file, *at, bytes),
            Asked::SetLen { file, len } => self.file(*file).resize(*len, 0),
            Asked::Punch { file, range } => {
                let file = self.file(*file);
                let end = range.end.min(file.len());
                file[range.start.min(end)..end].fill(0);
            }
            Asked::Create { name, file } => {
                self.names.insert(name.clone(), *file);
                self.file(*file);
            }
            Asked::Rename { from, to } => {
                if let Some(file) = self.names.remove(from) {
                    self.names.insert(to.clone(), file);
                }
            }
            Asked::Remove { name } => drop(self.names.remove(name)),
            Asked::Sync { .. } | Asked::SyncNames | Asked::Told { .. } => {}
        }
    }

    fn file(&mut self, file: usize) -> &mut Vec<u8> {
        self.files.entry(file).or_default()
    }

    fn write(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let file = self.file(file);
        if file.len() < at + bytes.len() {
            file.resize(at + bytes.len(), 0);
        }
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// What a power cut leaves of calls that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Luck {
    /// All: the process was killed, the machine goes on.
    All,
    None,
    /// Any.
    Some {
        seed: u64,
    },
}

/// A disk up to a call: what is certain, and what is not.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    certain: Contents,
    /// By file; names are those of no file.
    open: BTreeMap<Option<usize>, Vec<Asked>>,
    pub(super) told: u64,
    /// The store was made before, and was told of.
    pub(super) is_made: bool,
}

impl Cut {
    /// One call later.
    pub(super) fn follow(&mut self, asked: &Asked) {
        match asked {
            Asked::Sync { file } => self.settle(Some(*file)),
            Asked::SyncNames => self.settle(None),
            Asked::Told { durable } => {
                (self.told, self.is_made) = (self.told.max(*durable), true);
            }
            Asked::Write { file, .. } | Asked::SetLen { file, .. } | Asked::Punch { file, .. } => {
                self.open.entry(Some(*file)).or_default().push(asked.clone());
            }
            Asked::Create { .. } | Asked::Rename { .. } | Asked::Remove { .. } => {
                self.open.entry(None).or_default().push(asked.clone());
            }
        }
    }

    fn settle(&mut self, what: Option<usize>) {
        let open = self.open.remove(&what).unwrap_or_default();
        open.iter().for_each(|asked| self.certain.apply(asked));
    }

    /// A disk that a power cut here may leave.
    pub(super) fn disk(&self, luck: Luck) -> Arc<RecordedDisk> {
        let mut contents = self.certain.clone();
        for open in self.open.values() {
            match luck {
                Luck::None => {}
                Luck::All => open.iter().for_each(|asked| contents.apply(asked)),
                Luck::Some { seed } => apply_some(&mut contents, open, seed),
            }
        }
        let next = contents.files.keys().last().map_or(0, |last| last + 1);
        let cut = Self { certain: contents.clone(), open: BTreeMap::new(), ..self.clone() };
        let state = DiskState { contents, next, base: cut, ..DiskState::default() };
        Arc::new(RecordedDisk { state: Arc::new(Mutex::new(state)) })
    }
}

fn apply_some(contents: &mut Contents, open: &[Asked], seed: u64) {
    let names = Random::new(seed).index(open.len() + 1);
    for (index, asked) in open.iter().enumerate() {
        // What is drawn for a sector is the same for all calls that write it.
        let is_drawn = |file: usize, place: usize| {
            let mut random = Random::new(seed ^ (file * 1_000_003 + place) as u64);
            let (kind, until) = (random.below(3), random.index(open.len() + 1));
            kind == 0 || kind == 1 && index < until
        };
        match asked {
            Asked::Write { file, at, bytes } => {
                let mut from = 0;
                while from < bytes.len() {
                    let place = at + from;
                    let to = bytes.len().min(from + SECTOR - place % SECTOR);
                    if is_drawn(*file, place / SECTOR) {
                        contents.write(*file, place, &bytes[from..to]);
                    }
                    from = to;
                }
            }
            Asked::SetLen { file, .. } | Asked::Punch { file, .. } => {
                if is_drawn(*file, usize::MAX / 2 + index) {
                    contents.apply(asked);
                }
            }
            _ if index < names => contents.apply(asked),
            _ => {}
        }
    }
}

#[derive(Debug, Default)]
struct DiskState {
    contents: Contents,
    next: usize,
    base: Cut,
    asked: Vec<Asked>,
    /// Bytes of all files but `data` that there is room for.
    room: Option<usize>,
    /// Calls until all syncs fail.
    syncs_left: Option<u64>,
}

/// See this file's first lines.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedDisk {
    state: Arc<Mutex<DiskState>>,
}

impl RecordedDisk {
    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has told this to somebody.
    pub(super) fn told(&self, durable: u64) {
        self.lock().asked.push(Asked::Told { durable });
    }

    /// What was there at the beginning, and all calls since.
    pub(super) fn history(&self) -> (Cut, Vec<Asked>) {
        let state = self.lock();
        (state.base.clone(), state.asked.clone())
    }

    pub(super) fn calls(&self) -> usize {
        self.lock().asked.len()
    }

    pub(super) fn set_room(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    pub(super) fn used(&self) -> usize {
        self.lock().used()
    }

    pub(super) fn fail_syncs_after(&self, count: u64) {
        self.lock().syncs_left = Some(count);
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.lock();
        state.contents.files[&state.contents.names[name]].clone()
    }

    /// Changes a file behind the store's back.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.lock();
        let file = state.contents.names[name];
        change(state.contents.file(file));
    }

    /// A disk of its own with the same contents.
    pub(super) fn copy(&self) -> Arc<Self> {
        let state = self.lock();
        let (contents, next) = (state.contents.clone(), state.next);
        let base = Cut { certain: contents.clone(), ..Cut::default() };
        let state = DiskState { contents, next, base, ..DiskState::default() };
        Arc::new(Self { state: Arc::new(Mutex::new(state)) })
    }
}

impl DiskState {
    fn ask(&mut self, asked: Asked) -> io::Result<()> {
        let grows = self.growth(&asked);
        // Who needs no more than before is never refused.
        if grows > 0 && self.room.is_some_and(|room| self.used() + grows > room) {
            return Err(ErrorKind::StorageFull.into());
        }
        self.contents.apply(&asked);
        self.asked.push(asked);
        Ok(())
    }

    fn growth(&mut self, asked: &Asked) -> usize {
        let (file, end) = match asked {
            Asked::Write { file, at, bytes } => (*file, at + bytes.len()),
            Asked::SetLen { file, len } => (*file, *len),
            _ => return 0,
        };
        end.saturating_sub(self.contents.file(file).len())
    }

    fn used(&self) -> usize {
        let Contents { names, files } = &self.contents;
        let counted = names.iter().filter(|(name, _)| *name != "data");
        counted.map(|(_, file)| files.get(file).map_or(0, Vec::len)).sum()
    }
}

impl StoreDisk for RecordedDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        let number = self.lock().contents.names.get(name).copied();
        let number = number.ok_or(ErrorKind::NotFound)?;
        Ok(Arc::new(RecordedFile { disk: self.clone(), number }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        if let Ok(file) = self.open(name) {
            return Ok(file);
        }
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.ask(Asked::Create { name: name.to_owned(), file: number })?;
        Ok(Arc::new(RecordedFile { disk: self.clone(), number }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock().ask(Asked::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().ask(Asked::Remove { name: name.to_owned() })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().contents.names.keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.lock().ask(Asked::SyncNames)
    }
}

#[derive(Debug)]
struct RecordedFile {
    disk: RecordedDisk,
    number: usize,
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("a small file")
}

impl StoreFile for RecordedFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.lock().contents.file(self.number).len() as u64)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        let file = state.contents.file(self.number);
        let found = file.get(place(at)..place(at) + into.len());
        into.copy_from_slice(found.ok_or(ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, parts: &mut [IoSlice<'_>], at: u64) -> io::Result<()> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.disk.lock().ask(Asked::Write { file: self.number, at: place(at), bytes: bytes.into() })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.lock().ask(Asked::SetLen { file: self.number, len: place(len) })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        if state.contents.file(self.number).len() >= place(len) {
            return Ok(());
        }
        state.ask(Asked::SetLen { file: self.number, len: place(len) })
    }

    fn punch(&self, range: Range<u64>) -> io::Result<()> {
        let range = place(range.start)..place(range.end);
        self.disk.lock().ask(Asked::Punch { file: self.number, range })
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        if let Some(left) = &mut state.syncs_left {
            *left = left.checked_sub(1).ok_or(ErrorKind::Other)?;
        }
        state.ask(Asked::Sync { file: self.number })
    }
}
