//! The file system: its tree, its rights, where bytes are, holders and extended attributes, against
//! models.

mod bytes;
mod holders;
mod long;
mod many;
mod quotas;
mod rights;
mod tree;
mod xattrs;

use crate::Sides;
use crate::native::Came;
use crate::sides::{args, word};
use std::collections::BTreeMap;

const REGION: usize = 1 << 19;
const BLOCKS: u64 = 1000;
const FILE: u32 = 8 << 12;
const DIRECTORY: u32 = 4 << 12;
const LINK: u32 = 10 << 12;
const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const HOLD: u32 = 256;
/// What the clock says at first.
const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

const E_PERM: i32 = 1;
const E_NOENT: i32 = 2;
const E_ACCES: i32 = 13;
const E_EXIST: i32 = 17;
const E_NOTDIR: i32 = 20;
const E_ISDIR: i32 = 21;
const E_INVAL: i32 = 22;
const E_NAMETOOLONG: i32 = 36;
const E_NOTEMPTY: i32 = 39;
const E_STALE: i32 = 116;

/// Number and generation.
type Id = (u64, u64);

const ROOT: Id = (1, 1);

/// What entries answer of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Found {
    id: Id,
    mode: u32,
    uid: u32,
    gid: u32,
    nlink: u32,
    holds: u32,
    size: u64,
    /// That are mapped.
    blocks: u64,
    atime_ns: u64,
    mtime_ns: u64,
    ctime_ns: u64,
    version: u64,
    /// Of a directory: the number of the one above.
    parent: u64,
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("32 bits")
}

impl Found {
    /// Of `struct fs_answer`.
    fn new(answer: &[u8]) -> Self {
        Self::of((word(answer, 0), word(answer, 8)), &answer[16..])
    }

    fn of(id: Id, record: &[u8]) -> Self {
        let (word, high) = (|at| word(record, at), |at| low(word(record, at) >> 32));
        Self {
            id,
            mode: high(8),
            uid: low(word(16)),
            gid: high(16),
            nlink: low(word(24)),
            holds: high(24),
            size: word(32),
            blocks: word(40),
            atime_ns: word(48),
            mtime_ns: word(56),
            ctime_ns: word(64),
            version: word(80),
            parent: word(88),
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("short")
}

/// A file system on all sides, used by one user.
struct Tree<'a> {
    sides: &'a mut Sides,
    who: (u32, u32),
    groups: Vec<u32>,
    /// Who pays.
    tenant: u16,
    /// What the opening that is used was granted.
    granted: u32,
}

impl<'a> Tree<'a> {
    fn init(sides: &mut Sides, flags: u64) {
        Self::init_with(sides, BLOCKS, flags);
    }

    fn init_with(sides: &mut Sides, blocks: u64, flags: u64) {
        sides.clear();
        sides.set_time(BEGIN_NS);
        sides.done("fs.init", &args(&[blocks, flags, 4, pair(0, 0), pair(0o755, 0)], b""));
    }

    /// User 0's.
    fn new(sides: &'a mut Sides) -> Self {
        Self { sides, who: (0, 0), groups: Vec::new(), tenant: 0, granted: 0 }
    }

    fn run(&mut self, entry: &str, all: &[u8]) -> Result<Vec<u8>, i32> {
        match self.sides.execute(&format!("fs.{entry}"), all) {
            Came::Done(result) => Ok(result),
            Came::Failed(code, _) => Err(code - 1000),
            other => panic!("{entry} {all:x?}: {other:?}"),
        }
    }

    /// `struct fs_who`.
    fn who_words(&self) -> Vec<u64> {
        let mut groups = [0; 13];
        groups[..self.groups.len()].copy_from_slice(&self.groups);
        let count = u32::try_from(self.groups.len()).expect("few");
        let count = count | u32::from(self.tenant) << 16;
        let mut words = vec![pair(self.who.0, self.who.1), pair(count, groups[0])];
        words.extend(groups[1..].chunks(2).map(|two| pair(two[0], two[1])));
        words.extend([0, 0, pair(self.granted, 0)]);
        words
    }

    fn call(&mut self, entry: &str, words: &[u64], bytes: &[&[u8]]) -> Result<Vec<u8>, i32> {
        let words = [&self.who_words()[..], words].concat();
        self.run(entry, &args(&words, &bytes.concat()))
    }

    fn make(&mut self, dir: Id, mode: u32, name: &[u8], target: &[u8]) -> Result<Found, i32> {
        let words = [dir.0, dir.1, pair(mode, len_of(target)), 0];
        self.call("make", &words, &[name, target]).map(|answer| Found::new(&answer))
    }

    fn find(&mut self, dir: Id, name: &[u8]) -> Result<Found, i32> {
        self.call("find", &[dir.0, dir.1, 0], &[name]).map(|answer| Found::new(&answer))
    }

    fn remove(&mut self, entry: &str, dir: Id, name: &[u8]) -> Result<Found, i32> {
        self.remove_with(entry, dir, name, 0)
    }

    fn remove_with(&mut self, entry: &str, dir: Id, name: &[u8], flags: u32) -> Result<Found, i32> {
        let words = [dir.0, dir.1, u64::from(flags)];
        self.call(entry, &words, &[name]).map(|answer| Found::new(&answer))
    }

    fn link(&mut self, dir: Id, inode: Id, name: &[u8]) -> Result<Found, i32> {
        let words = [dir.0, dir.1, inode.0, inode.1];
        self.call("link", &words, &[name]).map(|answer| Found::new(&answer))
    }

    fn rename(&mut self, from: (Id, &[u8]), to: (Id, &[u8]), flags: u32) -> Result<Found, i32> {
        let words = [from.0.0, from.0.1, to.0.0, to.0.1, pair(flags, len_of(from.1))];
        self.call("rename", &words, &[from.1, to.1]).map(|answer| Found::new(&answer))
    }

    /// One that takes an inode and says nothing of who asks.
    fn of_inode(&mut self, entry: &str, inode: Id) -> Result<Vec<u8>, i32> {
        self.run(entry, &args(&[inode.0, inode.1], b""))
    }

    fn get(&mut self, inode: Id) -> Result<Found, i32> {
        self.of_inode("get", inode).map(|answer| Found::new(&answer))
    }

    fn list(&mut self, dir: Id) -> Result<BTreeMap<Vec<u8>, Found>, i32> {
        let (mut at, mut all) = (0, BTreeMap::new());
        loop {
            let listed = self.call("list", &[dir.0, dir.1, at, 0], &[])?;
            let mut rest = &listed[..];
            if rest.is_empty() {
                return Ok(all);
            }
            while !rest.is_empty() {
                let len = usize::try_from(low(word(rest, 8))).expect("short");
                at = word(rest, 0);
                let found = Found::of((word(rest, 16), word(rest, 24)), &rest[32..]);
                let name = rest[288..288 + len].to_vec();
                assert!(all.insert(name, found).is_none(), "a name twice");
                rest = &rest[288 + len.next_multiple_of(8)..];
            }
        }
    }

    /// Attributes, as `which` says: mode, owner and group.
    fn set(
        &mut self,
        inode: Id,
        which: u32,
        (mode, uid, gid): (u32, u32, u32),
    ) -> Result<Found, i32> {
        let words = [inode.0, inode.1, pair(which, mode), pair(uid, gid), 0, 0];
        self.call("set", &words, &[]).map(|answer| Found::new(&answer))
    }

    /// `struct fs_stats`.
    fn stats(&mut self) -> Stats {
        let stats = self.sides.done("fs.stats", b"");
        let word = |at: usize| word(&stats, 8 * at);
        Stats {
            blocks: word(0),
            free: word(1),
            inodes: word(2),
            heap: word(3),
            inodes_free: word(5),
            orphans: word(6),
            dying: word(7),
        }
    }

    /// Inodes that have holders only, and how many.
    fn orphans(&mut self) -> BTreeMap<Id, u32> {
        let (mut at, mut all) = (0, BTreeMap::new());
        loop {
            let found = self.run("orphans", &args(&[at], b"")).expect("a list");
            for orphan in found.chunks_exact(32) {
                at = word(orphan, 0);
                let id = (word(orphan, 8), word(orphan, 16));
                assert!(all.insert(id, low(word(orphan, 24))).is_none(), "an orphan twice");
            }
            if found.is_empty() {
                return all;
            }
        }
    }

    fn reap(&mut self) -> u64 {
        self.sides.number("fs.reap", b"")
    }
}

/// What is there in all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stats {
    blocks: u64,
    free: u64,
    inodes: u64,
    heap: u64,
    inodes_free: u64,
    orphans: u64,
    dying: u64,
}
