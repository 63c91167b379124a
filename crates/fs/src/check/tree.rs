//! Names and inodes against each other: what each name stands for, and how many names each inode
//! has.

use super::FsCheckReport;
use super::bytes::{RegionBytes, word_of};
use super::found::{Findings, FoundAt};
use super::heap::Heap;
use super::inodes::{DIRECTORY, FoundInodes, kind_of};
use super::names::{self, FoundName};
use super::table::NameValue;
use super::tenants::TenantUse;
use crate::protocol::is_name;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// Bits of a number in what a name says; its kind is above.
const NUMBER: u64 = (1 << 56) - 1;

/// What was seen of an inode.
#[derive(Clone, Copy, Debug, Default)]
struct InodeSeen {
    names: u32,
    directories: u32,
    is_nameless: bool,
    is_dying: bool,
}

/// See this file's first lines.
pub(super) struct TreeCheck<'a> {
    region: RegionBytes<'a>,
    inodes: &'a FoundInodes<'a>,
    /// What the table has and no directory so far.
    table: HashMap<Vec<u8>, NameValue>,
    seen: HashMap<u64, InodeSeen>,
    names: u64,
}

impl<'a> TreeCheck<'a> {
    pub(super) fn new(
        region: RegionBytes<'a>,
        inodes: &'a FoundInodes<'a>,
        table: HashMap<Vec<u8>, NameValue>,
    ) -> Self {
        Self { region, inodes, table, seen: HashMap::new(), names: 0 }
    }

    /// Goes through all directories, from the root on.
    pub(super) fn walk(&mut self, root: u64, heap: &mut Heap, found: &mut Findings) {
        let mut dirs = vec![root];
        // It has no name, and is one.
        self.seen.entry(root).or_default().names = 1;
        while let Some(dir) = dirs.pop() {
            let Some(record) = self.inodes.get(dir).filter(|one| kind_of(one) == DIRECTORY) else {
                found.of_inode(dir, "the directory is none");
                continue;
            };
            let (names, read) = names::read(self.region, record.body, heap);
            if let Err(why) = read {
                found.of_inode(dir, why);
            }
            if record.size != names.len() as u64 {
                let size = record.size;
                found.of_inode(dir, format!("its size is {size}, it has {} names", names.len()));
            }
            for name in &names {
                dirs.extend(self.name(dir, name, found));
            }
        }
    }

    /// Checks a name. The directory for which it stands, if it is one.
    fn name(&mut self, dir: u64, name: &FoundName, found: &mut Findings) -> Option<u64> {
        let at = || FoundAt::Name(dir, name.name.clone());
        let FoundName { number, kind, .. } = *name;
        self.names += 1;
        if !is_name(&name.name) {
            found.add(at(), "this is no name");
        }
        self.check_item(dir, name, found);
        let Some(record) = self.inodes.get(number).filter(|record| record.mode != 0) else {
            found.add(at(), format!("it stands for inode {number}, which is not used"));
            return None;
        };
        found.name(number, dir, &name.name);
        let seen = self.seen.entry(number).or_default();
        seen.names += 1;
        let is_first = seen.names == 1;
        if kind_of(&record) != kind {
            found.add(at(), "it says another kind than its inode does");
        }
        if kind_of(&record) != DIRECTORY {
            return None;
        }
        self.seen.entry(dir).or_default().directories += 1;
        if record.parent != dir {
            let parent = record.parent;
            found.add(at(), format!("the directory says that it is in inode {parent}"));
        }
        if !is_first {
            found.add(at(), "the directory has a further name");
        }
        is_first.then_some(number)
    }

    /// The table has the name as well.
    fn check_item(&mut self, dir: u64, name: &FoundName, found: &mut Findings) {
        let key = [&dir.to_le_bytes()[..], &name.name].concat();
        let word = name.number | u64::from(name.kind) << 56;
        match self.table.remove(&key) {
            Some(value) if value == (word, name.place) => {}
            Some((other, _)) if other & NUMBER != name.number => {
                let what =
                    format!("looked up it is inode {}, listed {}", other & NUMBER, name.number);
                found.add(FoundAt::Name(dir, name.name.clone()), what);
            }
            Some(_) => {
                found
                    .add(FoundAt::Name(dir, name.name.clone()), "its place or kind is another one");
            }
            None => found.add(FoundAt::Name(dir, name.name.clone()), "it is listed, not looked up"),
        }
    }

    /// FoundInodes without names: those that somebody has open, and those that are given back.
    pub(super) fn check_nameless(
        &mut self,
        (holders, dying): (u64, u64),
        heap: &mut Heap,
        found: &mut Findings,
    ) {
        let (names, read) = names::read(self.region, holders, heap);
        if let Err(why) = read {
            found.of_region(format!("inodes that are only open: {why}"));
        }
        for name in names {
            self.check_item(0, &name, found);
            if word_of(&name.name) != name.number {
                found.of_inode(name.number, "it is open under another number");
            }
            self.seen.entry(name.number).or_default().is_nameless = true;
        }
        let (mut next, mut all) = (dying, HashSet::new());
        while next != 0 {
            let record = self.inodes.get(next).filter(|record| record.mode != 0);
            let Some(record) = record.filter(|_| all.insert(next)) else {
                return found.of_inode(next, "it is to be given back, and cannot");
            };
            self.seen.entry(next).or_default().is_dying = true;
            next = record.parent;
        }
    }

    /// Counts of all inodes.
    pub(super) fn end(
        &self,
        found: &mut Findings,
        report: &mut FsCheckReport,
        tenants: &mut TenantUse,
    ) {
        for number in 1..self.inodes.next {
            let Some(record) = self.inodes.get(number).filter(|record| record.mode != 0) else {
                continue;
            };
            let seen = self.seen.get(&number).copied().unwrap_or_default();
            report.inodes += 1;
            if !seen.is_dying {
                tenants.add(&record);
            }
            report.nameless += u64::from(seen.is_nameless);
            report.dying += u64::from(seen.is_dying);
            let is_dir = kind_of(&record) == DIRECTORY;
            let links = match (is_dir, seen.names) {
                (true, 1..) => 2 + seen.directories,
                (_, names) => names,
            };
            let is_open = record.nlink == 0 && record.holds != 0;
            if record.nlink != links {
                let told = record.nlink;
                let what = match seen.names {
                    0 => format!("no name leads to it, and it counts {told}"),
                    _ => format!("{told} links are counted, and it has {links}"),
                };
                found.of_inode(number, what);
            } else if is_open != seen.is_nameless {
                found.of_inode(number, "without a name, it is not where those are that are open");
            } else if (links == 0 && !is_open) != seen.is_dying {
                found.of_inode(number, "nobody has it, and it is not given back");
            }
        }
        report.names = self.names;
        for (key, (word, _)) in &self.table {
            let dir = word_of(&key[..key.len().min(8)]);
            let name = key.get(8..).unwrap_or_default().to_vec();
            let what = format!("looked up it is inode {}, and it is not listed", word & NUMBER);
            found.add(FoundAt::Name(dir, name), what);
        }
    }
}

/// Says which files have blocks that are counted otherwise.
pub(super) fn name_wrong_blocks(
    inodes: &FoundInodes<'_>,
    wrong: &[Range<u64>],
    found: &mut Findings,
) {
    if wrong.is_empty() {
        return;
    }
    for number in 1..inodes.next {
        let Some(record) = inodes.get(number).filter(|record| record.mode != 0) else { continue };
        let mut has = None;
        let _read = inodes.extents(&record, &mut |extent, node| {
            let (from, to) = (extent.block, extent.block + extent.len);
            let behind = wrong.partition_point(|range| range.end <= from);
            let other = wrong.get(behind).filter(|range| node.is_none() && range.start < to);
            let block = other.map(|range| range.start.max(from));
            has = has.or(block);
            Ok(())
        });
        if let Some(block) = has {
            found.of_inode(number, format!("it has block {block}, which is counted otherwise"));
        }
    }
}
