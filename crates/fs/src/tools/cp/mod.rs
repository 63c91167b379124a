//! cp: files and whole trees copied within a file system, at its server. Names are made many with a
//! request, and a file gets the blocks of the one that it is a copy of: no bytes travel, and none
//! are written until one of both changes.
//!
//! What is said of failures is what GNU cp says.
//!
//! Modules in reading order: `names` (what is made), `bytes` (what files have in them),
//! `attributes` (rights, owners, times, extended attributes).

mod attributes;
mod bytes;
mod names;

use super::{ToolError, errno_words, quoted};
use crate::client::{FsCaller, FsClient, FsError};
use crate::protocol::{FsAnswer, FsInode};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What of a file is kept beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpKeep {
    /// Rights, as far as the umask lets them.
    #[default]
    Rights,
    /// Rights, owners and times, as -p.
    Attributes,
    /// Extended attributes and hard links as well, as -a.
    Everything,
}

/// What becomes of a file that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CpExisting {
    /// It gets other bytes.
    #[default]
    Overwritten,
    /// It is removed if it cannot be written, as with -f.
    Removed,
    /// It stays, as with -n.
    Kept,
}

/// How it is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpWish {
    /// Directories, with all that is in them.
    pub is_recursive: bool,
    /// What is kept.
    pub keep: CpKeep,
    /// What becomes of what is there already.
    pub existing: CpExisting,
    /// Rights that new names do not get.
    pub umask: u32,
}

/// What is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpSource {
    /// What it is.
    pub found: FsAnswer,
    /// How its caller writes it.
    pub shown: Vec<u8>,
}

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpTarget {
    /// The directory that has the name.
    pub dir: FsInode,
    /// The name.
    pub name: Vec<u8>,
    /// What the name stands for already.
    pub found: Option<FsAnswer>,
    /// That directory, and those above it.
    pub above: Vec<FsInode>,
    /// The path from the file system's root on.
    pub place: Vec<u8>,
    /// How the caller writes it.
    pub shown: Vec<u8>,
}

/// A name that is copied.
#[derive(Clone, Debug)]
struct CpName {
    from: FsAnswer,
    from_path: Vec<u8>,
    name: Vec<u8>,
    /// What the name stands for; `None`: it is to be made.
    to: Option<FsAnswer>,
    to_path: Vec<u8>,
    to_place: Vec<u8>,
    is_made: bool,
}

/// A directory whose names are still to be copied.
#[derive(Debug)]
struct CpDirectory {
    from: FsInode,
    from_path: Vec<u8>,
    to: FsInode,
    to_path: Vec<u8>,
    to_place: Vec<u8>,
    /// There is nothing in it yet.
    is_made: bool,
}

/// Copies, one thing after the other; what is copied before counts for hard links.
pub struct TreeCopier<'a> {
    client: &'a Arc<FsClient>,
    caller: FsCaller,
    wish: CpWish,
    failed: &'a mut dyn FnMut(&str),
    /// Copies of files that have several names; `None`: there is none yet.
    linked: HashMap<FsInode, Option<CpName>>,
    made: HashSet<FsInode>,
    left: Vec<CpDirectory>,
    /// Directories whose attributes are set when nothing comes into them any more.
    directories: Vec<CpName>,
}

impl std::fmt::Debug for TreeCopier<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeCopier").field("wish", &self.wish).finish_non_exhaustive()
    }
}

fn kind(answer: &FsAnswer) -> u32 {
    answer.record.mode & libc::S_IFMT
}

fn is_directory(answer: &FsAnswer) -> bool {
    kind(answer) == libc::S_IFDIR
}

fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
    [path, slash, name].concat()
}

impl<'a> TreeCopier<'a> {
    /// One that tells `failed` what could not be copied, and why.
    #[must_use]
    pub fn new(
        client: &'a Arc<FsClient>,
        caller: &FsCaller,
        wish: CpWish,
        failed: &'a mut dyn FnMut(&str),
    ) -> Self {
        Self {
            client,
            caller: *caller,
            wish,
            failed,
            linked: HashMap::new(),
            made: HashSet::new(),
            left: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// Copies something.
    ///
    /// # Errors
    /// [`ToolError`]: it ends there.
    pub fn copy(&mut self, source: &CpSource, target: &CpTarget) -> Result<(), ToolError> {
        let fault = |error| ToolError::Fs { path: source.shown.clone(), error };
        if is_directory(&source.found) {
            let (from, to) = (quoted(&source.shown), quoted(&target.shown));
            if !self.wish.is_recursive {
                self.tell(&format!("-r not specified; omitting directory {from}"));
                return Ok(());
            }
            if target.above.contains(&source.found.inode) {
                self.tell(&format!("cannot copy a directory, {from}, into itself, {to}"));
                return Ok(());
            }
        }
        let name = CpName {
            from: source.found,
            from_path: source.shown.clone(),
            name: target.name.clone(),
            to: target.found,
            to_path: target.shown.clone(),
            to_place: target.place.clone(),
            is_made: false,
        };
        self.names(target.dir, vec![name], None).map_err(fault)?;
        while let Some(dir) = self.left.pop() {
            self.directory(&dir).map_err(fault)?;
        }
        self.set_directories().map_err(fault)
    }

    fn tell(&mut self, what: &str) {
        (self.failed)(what);
    }

    fn tell_errno(&mut self, what: &str, errno: i32) {
        self.tell(&format!("{what}: {}", errno_words(errno)));
    }

    /// Copies the names of a directory, as many at a time as one request lists.
    fn directory(&mut self, dir: &CpDirectory) -> Result<(), FsError> {
        let existing = if dir.is_made { HashMap::new() } else { self.names_of(dir.to)? };
        let mut at = 0;
        loop {
            let listed = match self.client.list(&self.caller, dir.from, at) {
                Err(FsError::Failed { errno, .. }) => {
                    let path = quoted(&dir.from_path);
                    self.tell_errno(&format!("cannot access {path}"), errno);
                    return Ok(());
                }
                listed => listed?,
            };
            let Some(last) = listed.last() else { return Ok(()) };
            let next = last.head.next;
            let names = listed.into_iter().map(|one| CpName {
                from: FsAnswer { inode: one.head.inode, record: one.head.record },
                from_path: below(&dir.from_path, &one.name),
                to: existing.get(&one.name).copied(),
                to_path: below(&dir.to_path, &one.name),
                to_place: below(&dir.to_place, &one.name),
                name: one.name,
                is_made: false,
            });
            self.names(dir.to, names.collect(), Some((dir.from, at)))?;
            at = next;
        }
    }

    /// What is in a directory already; nothing of one that cannot be listed.
    fn names_of(&self, dir: FsInode) -> Result<HashMap<Vec<u8>, FsAnswer>, FsError> {
        let (mut all, mut at) = (HashMap::new(), 0);
        loop {
            let listed = match self.client.list(&self.caller, dir, at) {
                Err(FsError::Failed { errno: libc::EACCES, .. }) => return Ok(all),
                listed => listed?,
            };
            let Some(last) = listed.last() else { return Ok(all) };
            at = last.head.next;
            let answer = |head: &crate::protocol::FsListed| FsAnswer {
                inode: head.inode,
                record: head.record,
            };
            all.extend(listed.into_iter().map(|one| (one.name, answer(&one.head))));
        }
    }
}
