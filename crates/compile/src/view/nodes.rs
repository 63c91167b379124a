//! What the kernel holds of a view: nodes by number, with how often it was told of each.
//!
//! Directories belong to one slot. A regular file of the client is one node for all slots and for
//! one state of its contents, so that a page which the kernel keeps never goes stale; what a job
//! makes is a node of its slot alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::source::{Attr, NodeId};

/// Number of the mount's root, which lists the slots.
pub(super) const TOP: u64 = 1;

/// Which slot.
pub(super) type SlotId = usize;

/// A directory in a slot's subtree.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) slot: SlotId,
    pub(super) path: Vec<u8>,
    pub(super) attr: Attr,
    /// Made by the job: its source has nothing in it.
    pub(super) made: bool,
    /// Names that the kernel was told of, kept only for directories that lead to pins: every
    /// other directory is dropped from its caches whole.
    pub(super) told: HashSet<Vec<u8>>,
}

/// A file that a job made, or its own copy of one.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) slot: SlotId,
    pub(super) data: Vec<u8>,
    pub(super) attr: Attr,
}

/// What a node is.
#[derive(Debug)]
pub(super) enum What {
    /// The mount's root.
    Top,
    Dir(Dir),
    /// A client's file in one state, with a path where it was seen.
    Shared {
        path: Arc<[u8]>,
        id: NodeId,
        attr: Attr,
    },
    Link {
        attr: Attr,
        target: Arc<[u8]>,
    },
    /// An empty file for something to be mounted on.
    Place {
        attr: Attr,
    },
    Own(Own),
}

#[derive(Debug)]
struct Node {
    what: What,
    /// How often the kernel was told of it and has not forgotten.
    told: u64,
    /// How many of jobs' changes name it.
    held: u32,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    by_number: HashMap<u64, Node>,
    dirs: HashMap<(SlotId, Vec<u8>), u64>,
    shared: HashMap<NodeId, u64>,
    next: u64,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let top = Node { what: What::Top, told: 1, held: 1 };
        Self {
            by_number: HashMap::from([(TOP, top)]),
            dirs: HashMap::new(),
            shared: HashMap::new(),
            next: TOP + 1,
        }
    }

    pub(super) fn get(&self, number: u64) -> Option<&What> {
        Some(&self.by_number.get(&number)?.what)
    }

    pub(super) fn dir(&self, number: u64) -> Option<&Dir> {
        match self.get(number)? {
            What::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn dir_mut(&mut self, number: u64) -> Option<&mut Dir> {
        match &mut self.by_number.get_mut(&number)?.what {
            What::Dir(dir) => Some(dir),
            _ => None,
        }
    }

    pub(super) fn own_mut(&mut self, number: u64) -> Option<&mut Own> {
        match &mut self.by_number.get_mut(&number)?.what {
            What::Own(own) => Some(own),
            _ => None,
        }
    }

    /// The directory at `path` in a slot, if the kernel holds it.
    pub(super) fn dir_at(&self, slot: SlotId, path: &[u8]) -> Option<u64> {
        self.dirs.get(&(slot, path.to_vec())).copied()
    }

    pub(super) fn add(&mut self, what: What) -> u64 {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, Node { what, told: 0, held: 0 });
        number
    }

    /// The node of a directory, new or with its attributes brought up to date.
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
        let number = self.add(What::Dir(Dir { slot, path: path.clone(), attr, made, told }));
        self.dirs.insert((slot, path), number);
        number
    }

    /// The node of a client's file in one state.
    pub(super) fn intern_shared(&mut self, path: &[u8], id: NodeId, attr: Attr) -> u64 {
        if let Some(&number) = self.shared.get(&id) {
            return number;
        }
        let number = self.add(What::Shared { path: path.into(), id, attr });
        self.shared.insert(id, number);
        number
    }

    /// The kernel is about to be told of this node once more.
    pub(super) fn told(&mut self, number: u64) {
        if let Some(node) = self.by_number.get_mut(&number) {
            node.told += 1;
        }
    }

    /// One more change names a node: it is kept whatever the kernel forgets.
    pub(super) fn hold(&mut self, number: u64) {
        if let Some(node) = self.by_number.get_mut(&number) {
            node.held += 1;
        }
    }

    /// One change less names a node.
    pub(super) fn release(&mut self, number: u64) {
        if let Some(node) = self.by_number.get_mut(&number) {
            node.held = node.held.saturating_sub(1);
            self.drop_if_unused(number);
        }
    }

    /// The kernel has forgotten this node `times` times.
    pub(super) fn forget(&mut self, number: u64, times: u64) {
        if number == TOP {
            return;
        }
        if let Some(node) = self.by_number.get_mut(&number) {
            node.told = node.told.saturating_sub(times);
            self.drop_if_unused(number);
        }
    }

    fn drop_if_unused(&mut self, number: u64) {
        let unused =
            self.by_number.get(&number).is_some_and(|node| node.told == 0 && node.held == 0);
        if !unused {
            return;
        }
        match self.by_number.remove(&number).map(|node| node.what) {
            Some(What::Dir(dir)) => {
                self.dirs.remove(&(dir.slot, dir.path));
            }
            Some(What::Shared { id, .. }) => {
                self.shared.remove(&id);
            }
            _ => {}
        }
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.by_number.len()
    }
}
