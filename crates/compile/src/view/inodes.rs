//! The inodes of a view that the kernel holds, by number, each with the count of look-ups that
//! returned it.
//!
//! A directory belongs to one slot. A client's regular file in one state of its contents is one
//! inode for all slots, so that a page cached by the kernel never goes stale. A file that a job
//! makes is an inode of its slot alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use outboard_export::{Attr, FileVersion};

/// The type of an inode, as directory listings name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileKind {
    File,
    Directory,
    Symlink,
}

/// Number of the mount's root, whose entries are the slots.
pub(super) const TOP: u64 = 1;

/// Index of a slot.
pub(super) type SlotId = usize;

/// A directory in a slot's subtree.
#[derive(Debug)]
pub(super) struct SlotDir {
    pub(super) slot: SlotId,
    pub(super) path: Vec<u8>,
    pub(super) attr: Attr,
    /// Made by the job: the source lists no names for it.
    pub(super) made: bool,
    /// Names returned to the kernel, kept only for directories that lead to pins: every other
    /// directory is dropped from the kernel's caches whole.
    pub(super) told: HashSet<Vec<u8>>,
}

/// A file that a job made, or its own copy of one.
#[derive(Debug)]
pub(super) struct OwnFile {
    pub(super) slot: SlotId,
    pub(super) data: Vec<u8>,
    pub(super) attr: Attr,
}

/// What an inode is.
#[derive(Debug)]
pub(super) enum InodeBody {
    /// The mount's root.
    Top,
    Dir(SlotDir),
    /// A client's file in one state, with a path at which it was found.
    Shared {
        path: Arc<[u8]>,
        id: FileVersion,
        attr: Attr,
    },
    Link {
        attr: Attr,
        target: Arc<[u8]>,
    },
    /// An empty file that serves as a mount point.
    Place {
        attr: Attr,
    },
    Own(OwnFile),
}

#[derive(Debug)]
struct Inode {
    what: InodeBody,
    /// Look-ups that returned the inode, less those that the kernel has forgotten.
    told: u64,
    /// How many changes made by jobs refer to it.
    held: u32,
}

/// All inodes.
#[derive(Debug)]
pub(super) struct Inodes {
    by_number: HashMap<u64, Inode>,
    dirs: HashMap<(SlotId, Vec<u8>), u64>,
    shared: HashMap<FileVersion, u64>,
    next: u64,
}

impl Inodes {
    pub(super) fn new() -> Self {
        let top = Inode { what: InodeBody::Top, told: 1, held: 1 };
        Self {
            by_number: HashMap::from([(TOP, top)]),
            dirs: HashMap::new(),
            shared: HashMap::new(),
            next: TOP + 1,
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&InodeBody> {
        Some(&self.by_number.get(&number)?.what)
    }

    pub(super) fn dir(&self, number: u64) -> Option<&SlotDir> {
        match self.get(number)? {
            InodeBody::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn dir_mut(&mut self, number: u64) -> Option<&mut SlotDir> {
        match &mut self.by_number.get_mut(&number)?.what {
            InodeBody::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn own_mut(&mut self, number: u64) -> Option<&mut OwnFile> {
        match &mut self.by_number.get_mut(&number)?.what {
            InodeBody::Own(own) => Some(own),
            _ => None,
        }
    }

    /// The directory at `path` in a slot, if the kernel holds it.
    pub(super) fn dir_at(&self, slot: SlotId, path: &[u8]) -> Option<u64> {
        self.dirs.get(&(slot, path.to_vec())).copied()
    }

    pub(super) fn add(&mut self, what: InodeBody) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Inode { what, told: 0, held: 0 });
        number
    }

    /// The inode of a directory, new or with its attributes brought up to date.
    pub(super) fn intern_dir(&mut self, slot: SlotId, path: &[u8], attr: Attr, made: bool) -> u64 {
        if let Some(number) = self.dir_at(slot, path) {
            if let Some(dir) = self.dir_mut(number) {
                dir.attr = attr;
                dir.made = made;
            }
            return number;
        }
        let told = HashSet::new();
        let path = path.to_vec();
        let number =
            self.add(InodeBody::Dir(SlotDir { slot, path: path.clone(), attr, made, told }));
        self.dirs.insert((slot, path), number);
        number
    }

    /// The inode of a client's file in one state.
    pub(super) fn intern_shared(&mut self, path: &[u8], id: FileVersion, attr: Attr) -> u64 {
        if let Some(&number) = self.shared.get(&id) {
            return number;
        }
        let number = self.add(InodeBody::Shared { path: path.into(), id, attr });
        self.shared.insert(id, number);
        number
    }

    /// Counts a look-up that is about to return this inode to the kernel.
    pub(super) fn told(&mut self, number: u64) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.told += 1;
        }
    }

    /// Counts a change that refers to the inode: it is kept even if the kernel forgets it.
    pub(super) fn hold(&mut self, number: u64) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.held += 1;
        }
    }

    /// Counts a change that no longer refers to the inode.
    pub(super) fn release(&mut self, number: u64) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.held = inode.held.saturating_sub(1);
            self.drop_if_unused(number);
        }
    }

    /// The kernel has dropped `times` look-ups of this inode.
    pub(super) fn forget(&mut self, number: u64, times: u64) {
        if number == TOP {
            return;
        }
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.told = inode.told.saturating_sub(times);
            self.drop_if_unused(number);
        }
    }

    fn drop_if_unused(&mut self, number: u64) {
        let unused =
            self.by_number.get(&number).is_some_and(|inode| inode.told == 0 && inode.held == 0);
        if !unused {
            return;
        }
        match self.by_number.remove(&number).map(|inode| inode.what) {
            Some(InodeBody::Dir(dir)) => {
                self.dirs.remove(&(dir.slot, dir.path));
            }
            Some(InodeBody::Shared { id, .. }) => {
                self.shared.remove(&id);
            }
            _ => {}
        }
    }
}
