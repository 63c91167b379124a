//! What programs look up: from what is known here as long as a lease runs, else from the service.

use super::attributes::attributes;
use super::known::{AskedAt, KnownName};
use super::lists::ListedAt;
use super::tree::{MountedTree, ShownInode};
use crate::client::{ChangedName, FsCaller, FsError, RenamedInode};
use crate::protocol::{EXCHANGE, FsAnswer, FsInode, FsRecord, NAME_MAX};
use fuser::{FileType, INodeNo};
use std::time::{Duration, Instant};

impl MountedTree {
    /// Something is asked now.
    pub(super) fn ask(&self) -> AskedAt {
        self.known().ask(Instant::now())
    }

    /// An answer as the kernel is told of it once more.
    pub(super) fn tell(&self, answer: &FsAnswer) -> Result<ShownInode, FsError> {
        // No number is a node before it is known that the answer can be shown.
        self.as_shown(0, answer)?;
        let node = self.inodes().tell(answer.inode);
        self.shown(node, answer)
    }

    /// An answer as the kernel sees it under a number that it knows.
    pub(super) fn shown(&self, node: u64, answer: &FsAnswer) -> Result<ShownInode, FsError> {
        let shown = self.as_shown(node, answer)?;
        self.inodes().shows(node, &answer.record);
        Ok(shown)
    }

    /// An inode of which the service does not know yet what the kernel is told.
    pub(super) fn as_held(&self, node: u64, answer: &FsAnswer) -> Result<ShownInode, FsError> {
        let shown = self.as_shown(node, answer)?;
        Ok(ShownInode { keep: Duration::ZERO, ..shown })
    }

    fn as_shown(&self, node: u64, answer: &FsAnswer) -> Result<ShownInode, FsError> {
        let attr = attributes(node, &answer.record).filter(|_| answer.inode.number != 0);
        let attr = attr.ok_or(FsError::Answer { entry: "attributes" })?;
        let known = self.known().record(answer.inode, Instant::now());
        let is_it = |known: &FsAnswer| known.record.version == answer.record.version;
        let keep = known.filter(|(known, _)| is_it(known)).map_or(Duration::ZERO, |(_, left)| left);
        let generation = answer.inode.generation;
        Ok(ShownInode { attr, generation, keep, keep_name: Duration::ZERO })
    }

    /// An inode's attributes, asked for.
    pub(super) fn get(&self, caller: &FsCaller, inode: FsInode) -> Result<FsAnswer, FsError> {
        let asked = self.ask();
        let answer = self.client.get(caller, inode)?;
        self.learn(asked, &answer);
        Ok(answer)
    }

    pub(super) fn learn(&self, asked: AskedAt, answer: &FsAnswer) {
        if self.keeps_names {
            self.known().learn(asked, answer);
        }
    }

    pub(super) fn look_up(
        &self,
        caller: &FsCaller,
        parent: u64,
        name: &[u8],
    ) -> Result<ShownInode, FsError> {
        let dir = self.inode(parent)?;
        if name.len() > NAME_MAX {
            return Err(FsError::of(libc::ENAMETOOLONG));
        }
        let known = self.known().name(dir, name, Instant::now());
        match known {
            KnownName::Absent => return Err(FsError::of(libc::ENOENT)),
            KnownName::Unknown => {}
            KnownName::Is(inode) => {
                self.settle(caller, inode);
                let known = self.known().record(inode, Instant::now());
                if let Some((answer, _)) = known {
                    return self.found((parent, name), &answer);
                }
            }
        }
        let asked = self.ask();
        // A name that is not there is no failure of a walk: failures cost the service more.
        let (found, error) = self.client.walk(caller, dir, &[name])?;
        let error = i32::try_from(error).unwrap_or(libc::EIO);
        let answer = found.into_iter().next();
        if self.keeps_names && (answer.is_some() || error == libc::ENOENT) {
            let mut known = self.known();
            known.learn_name(asked, (dir, name), answer.map(|answer| answer.inode));
            answer.iter().for_each(|answer| known.learn(asked, answer));
        }
        let answer = self.up_to_date(caller, answer.ok_or_else(|| FsError::of(error))?)?;
        if !self.keeps_names {
            self.recent().found(&answer, Instant::now());
        }
        self.found((parent, name), &answer)
    }

    /// What was found or made in a directory, as the kernel is told of it.
    pub(super) fn found(
        &self,
        (parent, name): (u64, &[u8]),
        answer: &FsAnswer,
    ) -> Result<ShownInode, FsError> {
        let dir = self.inode(parent)?;
        let mut shown = self.tell(answer)?;
        shown.keep_name = self.known().lend((dir, name), answer.inode, Instant::now());
        if shown.attr.kind == FileType::Directory {
            self.inodes().found_in(shown.attr.ino.0, parent);
        }
        Ok(shown)
    }

    /// A name of a listing, as the kernel is told of it.
    pub(super) fn listed(
        &self,
        caller: &FsCaller,
        parent: u64,
        listed: &ListedAt<'_>,
    ) -> Result<ShownInode, FsError> {
        let head = &listed.name.head;
        let answer = FsAnswer { inode: head.inode, record: head.record };
        let is_old = self.inodes().is_touched_since(answer.inode, listed.then);
        if self.keeps_names {
            let dir = self.inode(parent)?;
            let mut known = self.known();
            known.learn_name(listed.asked, (dir, &listed.name.name), Some(answer.inode));
            known.learn(listed.asked, &answer);
        }
        let answer = match self.up_to_date(caller, answer)? {
            answer if is_old => self.get(caller, answer.inode).unwrap_or(answer),
            answer => answer,
        };
        self.found((parent, &listed.name.name), &answer)
    }

    /// An answer that knows of what was written here.
    fn up_to_date(&self, caller: &FsCaller, answer: FsAnswer) -> Result<FsAnswer, FsError> {
        let Some(open) = self.in_use(answer.inode) else { return Ok(answer) };
        match open.settle(caller, &self.changes_here(self.ask())) {
            true => self.get(caller, answer.inode),
            false => Ok(answer),
        }
    }

    pub(super) fn attributes(&self, caller: &FsCaller, node: u64) -> Result<ShownInode, FsError> {
        let inode = self.inode(node)?;
        self.settle(caller, inode);
        let known = self.known().record(inode, Instant::now());
        let answer = match known {
            Some((answer, _)) => answer,
            None => match self.get(caller, inode) {
                Err(FsError::Failed { errno: libc::ESTALE, text }) => {
                    let gone = self.recent().of_gone(inode, Instant::now());
                    let gone = gone.or_else(|| self.inodes().removed_dir(node));
                    gone.ok_or(FsError::Failed { errno: libc::ESTALE, text })?
                }
                got => got?,
            },
        };
        self.shown(node, &answer)
    }

    /// A file is opened: the kernel sees attributes as they are now.
    pub(super) fn sees_at_open(&self, node: u64, record: &FsRecord) {
        let has_others = self.inodes().shows(node, record);
        if has_others && let Some(kernel) = self.locks.kernel() {
            // A negative offset leaves the bytes alone. Of what it does not know it says so.
            let _known = kernel.inval_inode(INodeNo(node), -1, 0);
        }
    }

    /// This mount has given an inode a name.
    pub(super) fn named_here(
        &self,
        asked: AskedAt,
        (dir, name): (FsInode, &[u8]),
        changed: &ChangedName,
    ) {
        self.inodes().touch(dir);
        if self.keeps_names {
            let made = &changed.made;
            let mut known = self.known();
            known.changed_name(asked, (dir, name), Some(made.inode));
            known.learn(asked, made);
            known.learn(asked, &changed.dir);
            if made.record.mode & libc::S_IFMT == libc::S_IFDIR {
                known.made_dir(asked, made.inode);
            }
        }
    }

    /// This mount has taken a name from an inode.
    pub(super) fn unnamed_here(
        &self,
        asked: AskedAt,
        (dir, name): (FsInode, &[u8]),
        changed: &ChangedName,
    ) {
        {
            let mut inodes = self.inodes();
            inodes.touch(dir);
            inodes.touch(changed.made.inode);
        }
        if self.keeps_names {
            let mut known = self.known();
            known.changed_name(asked, (dir, name), None);
            known.attributes_changed(changed.made.inode);
            known.learn(asked, &changed.dir);
        }
    }

    /// This mount has renamed something.
    pub(super) fn renamed_here(
        &self,
        asked: AskedAt,
        [from, to]: [(FsInode, &[u8]); 2],
        flags: u32,
        renamed: &RenamedInode,
    ) {
        let RenamedInode { replaced, moved } = renamed;
        // Of two names of one inode none goes.
        if !self.keeps_names || moved.inode.number == 0 {
            return;
        }
        let mut known = self.known();
        let is_exchange = flags & EXCHANGE != 0;
        known.changed_name(asked, to, Some(moved.inode));
        known.changed_name(asked, from, is_exchange.then_some(replaced.inode));
        [from.0, to.0, replaced.inode, moved.inode]
            .into_iter()
            .for_each(|inode| known.attributes_changed(inode));
    }
}
