//! What the kernel's requests do: its numbers become inodes, answers become attributes, open files
//! are found.

use super::files::{FIRST_READ, OpenFile, OpenInode};
use super::inodes::InodeMap;
use super::kept_ahead::KeptAhead;
use super::known::{AskedAt, KnownName, KnownTree};
use super::later::HeldInodes;
use super::lists::OpenDirectory;
use super::locking::MountLocks;
use super::notices::{TellLocks, TellOpen, handle_notices};
use super::options::FsMountOptions;
use super::recent::RecentLooks;
use crate::client::{
    ChangeWhat, FsCaller, FsClient, FsError, NewInode, NewTimes, OpenedFile, SyncWhen, wanted_by,
};
use crate::protocol::{EXCHANGE, EXCL, FsAnswer, FsInode, FsNote, FsRecord, FsWho};
use fuser::{FileAttr, Notifier, Request};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An inode that is in use here, and how many have it open.
#[derive(Debug)]
struct UsedInode {
    open: Arc<OpenInode>,
    users: usize,
}

/// What programs have open, by numbers that the kernel gives back.
#[derive(Debug, Default)]
struct OpenTable {
    inodes: HashMap<FsInode, UsedInode>,
    files: HashMap<u64, Arc<OpenFile>>,
    directories: HashMap<u64, Arc<OpenDirectory>>,
    next: u64,
}

/// An answer for the kernel: attributes, and which use of the number it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShownInode {
    pub(super) attr: FileAttr,
    pub(super) generation: u64,
    /// How long the kernel may keep the attributes.
    pub(super) keep: Duration,
    /// And the name under which it was found.
    pub(super) keep_name: Duration,
}

/// A file that the kernel has opened, and whether its bytes of it are good.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenedHere {
    pub(super) handle: u64,
    pub(super) keeps: bool,
    pub(super) is_direct: bool,
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct MountedTree {
    pub(super) client: Arc<FsClient>,
    pub(super) options: FsMountOptions,
    /// Whether names and attributes are kept, under leases.
    pub(super) keeps_names: bool,
    inodes: Arc<Mutex<InodeMap>>,
    known: Arc<Mutex<KnownTree>>,
    recent: Mutex<RecentLooks>,
    table: Mutex<OpenTable>,
    ahead: Arc<KeptAhead>,
    pub(super) locks: MountLocks,
    /// What is sent later.
    pub(super) held: Arc<HeldInodes>,
}

/// Who has sent a request.
pub(super) fn caller_of(request: &Request) -> FsCaller {
    let who = FsWho { uid: request.uid(), gid: request.gid(), ..FsWho::default() };
    FsCaller { who, thread: request.pid() }
}

impl MountedTree {
    pub(super) fn new(client: Arc<FsClient>, options: FsMountOptions) -> Self {
        let inodes = Arc::new(Mutex::new(InodeMap::new(client.root())));
        let (known, table, locks) = (Arc::default(), Mutex::default(), MountLocks::new());
        let keeps_names = options.keeps_names() && client.tells_opens() && !client.is_one_sided();
        if keeps_names {
            client.note(&FsNote::Keeps);
        }
        let (held, recent, ahead) = (Arc::default(), Mutex::default(), Arc::default());
        Self { client, options, keeps_names, inodes, known, recent, table, ahead, locks, held }
    }

    /// Has notices of the service invalidate what the kernel keeps.
    pub(super) fn handle_notices(self: &Arc<Self>, kernel: Notifier) -> std::io::Result<()> {
        let weak = Arc::downgrade(self);
        let locks = {
            let weak = weak.clone();
            move |notice| {
                if let Some(tree) = weak.upgrade() {
                    tree.told_of_locks(notice);
                }
            }
        };
        let tell = move |inode| {
            if let Some(tree) = weak.upgrade() {
                tree.changed_elsewhere(inode);
            }
        };
        let tells: (TellOpen, TellLocks) = (Box::new(tell), Box::new(locks));
        let maps = (Arc::clone(&self.inodes), Arc::clone(&self.known));
        handle_notices(&self.client, maps, kernel, tells)
    }

    /// Others have changed a file's bytes: what was read ahead is of no use.
    pub(super) fn changed_elsewhere(&self, inode: FsInode) {
        if let Some(open) = self.in_use(inode) {
            open.changed_elsewhere();
        }
    }

    pub(super) fn inodes(&self) -> MutexGuard<'_, InodeMap> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, KnownTree> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn recent(&self) -> MutexGuard<'_, RecentLooks> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, OpenTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inode that the kernel names.
    pub(super) fn inode(&self, node: u64) -> Result<FsInode, FsError> {
        self.inodes().inode(node).ok_or_else(|| FsError::of(libc::ESTALE))
    }

    /// A record has changed by what was asked here.
    pub(super) fn changed(&self, asked: AskedAt, inode: FsInode, record: &FsRecord) {
        self.inodes().changed_here(inode, record);
        if self.keeps_names {
            self.known().learn(asked, &FsAnswer { inode, record: *record });
        }
    }

    /// What takes the records that changes answer with which are asked for now.
    pub(super) fn changes_here(&self, asked: AskedAt) -> impl Fn(FsInode, &FsRecord) {
        move |inode, record| self.changed(asked, inode, record)
    }

    /// What is open of an inode.
    pub(super) fn in_use(&self, inode: FsInode) -> Option<Arc<OpenInode>> {
        self.table().inodes.get(&inode).map(|used| Arc::clone(&used.open))
    }

    /// Sends what was written to an inode here, so that others and the service see it.
    pub(super) fn settle(&self, caller: &FsCaller, inode: FsInode) {
        if let Some(open) = self.in_use(inode) {
            open.settle(caller, &self.changes_here(self.ask()));
        }
    }

    /// As [`Self::settle`], for all open files.
    pub(super) fn settle_all(&self, caller: &FsCaller) {
        let open: Vec<_> = self.table().inodes.keys().copied().collect();
        open.into_iter().for_each(|inode| self.settle(caller, inode));
    }

    /// As [`Self::settle`], for what a name stands for: others find under its new name what was
    /// written and set before. Where this mount does not know the name, for every open file.
    fn settle_name(&self, caller: &FsCaller, (dir, name): (FsInode, &[u8])) {
        let known = self.known().name(dir, name, Instant::now());
        let held: Vec<FsInode> = match known {
            KnownName::Is(inode) => vec![inode],
            KnownName::Absent => Vec::new(),
            KnownName::Unknown => {
                let table = self.table();
                let held = table.inodes.iter().filter(|(_, used)| !used.open.is_settled());
                held.map(|(inode, _)| *inode).collect()
            }
        };
        held.into_iter().for_each(|inode| self.settle(caller, inode));
    }

    pub(super) fn set_attributes(
        &self,
        caller: &FsCaller,
        node: u64,
        (size, handle): (Option<u64>, Option<u64>),
        new: &NewTimes,
    ) -> Result<ShownInode, FsError> {
        if size.is_none()
            && let Some(shown) = self.set_later(caller, node, new)?
        {
            return Ok(shown);
        }
        let inode = self.inode(node)?;
        let mut answer = None;
        if let Some(size) = size {
            let file = handle.and_then(|handle| self.file(handle).ok());
            let caller = file.map_or(*caller, |file| file.used_by(caller));
            answer =
                Some(self.change(&caller, inode, ChangeWhat::Resize(size), SyncWhen::Later)?);
        } else {
            self.settle(caller, inode);
        }
        if *new != NewTimes::default() || answer.is_none() {
            let asked = self.ask();
            let set = self.client.set(caller, inode, new)?;
            self.changed(asked, inode, &set.record);
            answer = Some(set);
        }
        let answer = answer.ok_or_else(|| FsError::of(libc::EIO))?;
        self.shown(node, &answer)
    }

    /// Changes bytes at once, after what was written here.
    pub(super) fn change(
        &self,
        caller: &FsCaller,
        inode: FsInode,
        what: ChangeWhat<'_>,
        is_durable: SyncWhen,
    ) -> Result<FsAnswer, FsError> {
        let changed = self.changes_here(self.ask());
        match self.in_use(inode) {
            Some(open) => open.change(caller, what, is_durable, &changed),
            None => {
                let answer = self.client.change(caller, inode, what, is_durable)?;
                changed(inode, &answer.record);
                Ok(answer)
            }
        }
    }

    pub(super) fn make(
        &self,
        caller: &FsCaller,
        parent: u64,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<ShownInode, FsError> {
        let dir = self.inode(parent)?;
        let asked = self.ask();
        let made = self.client.make(caller, dir, name, new)?;
        self.named_here(asked, (dir, name), &made);
        self.found((parent, name), &made.made)
    }

    pub(super) fn remove(
        &self,
        caller: &FsCaller,
        parent: u64,
        name: &[u8],
        what: RemoveWhat,
    ) -> Result<(), FsError> {
        let dir = self.inode(parent)?;
        let asked = self.ask();
        let removed = match what {
            RemoveWhat::Name => self.client.unlink(caller, dir, name),
            RemoveWhat::Directory => self.client.rmdir(caller, dir, name),
        };
        let removed = removed?;
        self.name_is_gone(dir, name);
        self.unnamed_here(asked, (dir, name), &removed);
        Ok(())
    }

    pub(super) fn link(
        &self,
        caller: &FsCaller,
        node: u64,
        parent: u64,
        name: &[u8],
    ) -> Result<ShownInode, FsError> {
        let (inode, dir) = (self.inode(node)?, self.inode(parent)?);
        self.settle(caller, inode);
        let asked = self.ask();
        let linked = self.client.link(caller, inode, dir, name)?;
        self.named_here(asked, (dir, name), &linked);
        self.changed(asked, inode, &linked.made.record);
        self.found((parent, name), &linked.made)
    }

    pub(super) fn rename(
        &self,
        caller: &FsCaller,
        (from, from_name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<(), FsError> {
        let (from, to) = (self.inode(from)?, self.inode(to)?);
        self.settle_name(caller, (from, from_name));
        if flags & EXCHANGE != 0 {
            self.settle_name(caller, (to, to_name));
        }
        let asked = self.ask();
        let renamed = self.client.rename(caller, (from, from_name), (to, to_name), flags)?;
        if flags & EXCHANGE == 0 {
            self.name_is_gone(from, from_name);
        }
        // What it stands for in older listings is another inode.
        self.name_is_gone(to, to_name);
        self.renamed_here(asked, [(from, from_name), (to, to_name)], flags, &renamed);
        let mut inodes = self.inodes();
        [from, to, renamed.replaced.inode, renamed.moved.inode]
            .into_iter()
            .for_each(|inode| inodes.touch(inode));
        if from != to {
            inodes.moved();
        }
        Ok(())
    }

    /// A name stands no longer for what listings say that are under way.
    fn name_is_gone(&self, dir: FsInode, name: &[u8]) {
        let table = self.table();
        let open = table.directories.values().filter(|open| open.dir == dir);
        open.for_each(|open| open.removes(name));
    }

    /// Makes a file and opens it. A file that another client has made since the kernel's look-up is
    /// opened.
    pub(super) fn create(
        &self,
        caller: &FsCaller,
        (parent, name): (u64, &[u8]),
        mode: u32,
        flags: i32,
    ) -> Result<(ShownInode, OpenedHere), FsError> {
        let dir = self.inode(parent)?;
        let exclusive = if flags & libc::O_EXCL == 0 { 0 } else { EXCL };
        let (asked, want) = (self.ask(), wanted_by(flags) | exclusive);
        let (opening, changed) = self.client.create(caller, (dir, name), mode & 0o7777, want)?;
        self.named_here(asked, (dir, name), &changed);
        let begin = || -> Result<(ShownInode, FsAnswer), FsError> {
            let mut answer = changed.made;
            // The kernel believes that it is new.
            if flags & libc::O_TRUNC != 0 && answer.record.size > 0 {
                let (caller, what) = (opening.used_by(caller), ChangeWhat::Resize(0));
                answer = self.change(&caller, answer.inode, what, SyncWhen::Later)?;
            }
            Ok((self.found((parent, name), &answer)?, answer))
        };
        let (shown, answer) = begin().inspect_err(|_| self.client.close(&opening))?;
        let file = OpenedFile { opening, answer, bytes: Vec::new() };
        let opened = self.opened((caller, shown.attr.ino.0), file, flags);
        Ok((shown, opened))
    }

    /// Opens a file: what was closed before by anybody is seen.
    pub(super) fn open(
        &self,
        caller: &FsCaller,
        node: u64,
        flags: i32,
    ) -> Result<OpenedHere, FsError> {
        let inode = self.inode(node)?;
        self.settle(caller, inode);
        let is_cold = self.options.keeps_bytes()
            && flags & libc::O_ACCMODE == libc::O_RDONLY
            && !self.inodes().has_kept(node);
        let (asked, first) = (self.ask(), if is_cold { FIRST_READ } else { 0 });
        let opened = self.client.open(caller, inode, wanted_by(flags), first)?;
        self.learn(asked, &opened.answer);
        Ok(self.opened((caller, node), opened, flags))
    }

    fn opened(
        &self,
        (caller, node): (&FsCaller, u64),
        OpenedFile { opening, answer, bytes }: OpenedFile,
        flags: i32,
    ) -> OpenedHere {
        self.sees_at_open(node, &answer.record);
        let keeps = self.inodes().keeps(node, &answer.record);
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // The kernel would put appended bytes where it believes the end to be.
        let is_append = writes && flags & libc::O_APPEND != 0;
        let keeps_bytes = self.options.keeps_bytes() && flags & libc::O_DIRECT == 0;
        // Where another mount may have mapped it, the kernel refuses shared mappings (ENODEV).
        let is_unmappable = flags & libc::O_ACCMODE == libc::O_RDWR && !opening.may_map();
        let is_direct = is_append || !keeps_bytes || is_unmappable;
        let mut table = self.table();
        let used = table.inodes.entry(answer.inode).or_insert_with(|| {
            let open = Arc::new(OpenInode::new(Arc::clone(&self.client), answer.inode));
            UsedInode { open, users: 0 }
        });
        used.users += 1;
        let open = Arc::clone(&used.open);
        if writes {
            open.is_opened_by(caller.thread);
        }
        let ahead = (answer.record.size, &self.ahead);
        let file = OpenFile::new(open, (opening, caller), flags, keeps_bytes, ahead);
        let file = Arc::new(file);
        table.next += 1;
        let handle = table.next;
        table.files.insert(handle, Arc::clone(&file));
        drop(table);
        if !bytes.is_empty() {
            file.has_first(bytes);
        }
        OpenedHere { handle, keeps, is_direct }
    }

    pub(super) fn file(&self, handle: u64) -> Result<Arc<OpenFile>, FsError> {
        let file = self.table().files.get(&handle).map(Arc::clone);
        file.ok_or_else(|| FsError::of(libc::EBADF))
    }

    /// Nobody has this opening of a file any more.
    pub(super) fn close(&self, caller: &FsCaller, handle: u64) {
        let Some(file) = self.table().files.remove(&handle) else { return };
        loop {
            // Before anybody can open it anew; what fails was told by flush, or has nobody to tell.
            file.open.settle(caller, &self.changes_here(self.ask()));
            if self.is_closed(&file.open) {
                break;
            }
        }
        self.client.close(&file.opening);
    }

    /// One opening of an inode less; false: something is held of it again.
    fn is_closed(&self, open: &OpenInode) -> bool {
        let mut table = self.table();
        let Some(used) = table.inodes.get_mut(&open.inode) else { return true };
        if used.users > 1 {
            used.users -= 1;
            return true;
        }
        // A chmod of another thread may have come since.
        let is_closed = open.close();
        if is_closed {
            table.inodes.remove(&open.inode);
        }
        is_closed
    }

    pub(super) fn read(
        &self,
        caller: &FsCaller,
        handle: u64,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, FsError> {
        let file = self.file(handle)?;
        self.locks.check(handle)?;
        file.read(&file.used_by(caller), offset, len, &self.changes_here(self.ask()))
    }

    /// Writes for a caller; `None`: for whom the file was opened.
    pub(super) fn write(
        &self,
        caller: Option<&FsCaller>,
        handle: u64,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FsError> {
        let file = self.file(handle)?;
        self.locks.check(handle)?;
        let changed = self.changes_here(self.ask());
        let is_durable = file.sync_when();
        let caller = &match caller {
            Some(caller) => {
                file.check_written()?;
                file.used_by(caller)
            }
            // The kernel would lose the bytes of the mapping.
            None => file.used_by_kernel(),
        };
        if file.is_append() {
            let appended =
                file.open.change(caller, ChangeWhat::Append(bytes), is_durable, &changed);
            return appended.map(drop);
        }
        match file.keeps_bytes && is_durable == SyncWhen::Later {
            true => {
                self.is_held(&file.open);
                file.open.write_later(caller, offset, bytes, &changed)
            }
            false => {
                let what = ChangeWhat::Write(offset, bytes);
                file.open.change(caller, what, is_durable, &changed).map(drop)
            }
        }
    }

    pub(super) fn sync(&self, caller: &FsCaller, handle: u64) -> Result<(), FsError> {
        let file = self.file(handle)?;
        file.sync(caller, &self.changes_here(self.ask()))
    }

    pub(super) fn flush(&self, caller: &FsCaller, handle: u64) -> Result<FsInode, FsError> {
        let file = self.file(handle)?;
        file.flush(caller, &self.changes_here(self.ask()))?;
        Ok(file.open.inode)
    }

    pub(super) fn open_directory(&self, caller: &FsCaller, node: u64) -> Result<u64, FsError> {
        let dir = self.inode(node)?;
        let mut table = self.table();
        table.next += 1;
        let handle = table.next;
        let errors = self.client.error_cursor(dir);
        table.directories.insert(handle, Arc::new(OpenDirectory::new(dir, *caller, errors)));
        Ok(handle)
    }

    pub(super) fn directory(&self, handle: u64) -> Result<Arc<OpenDirectory>, FsError> {
        let directory = self.table().directories.get(&handle).map(Arc::clone);
        directory.ok_or_else(|| FsError::of(libc::EBADF))
    }

    pub(super) fn sync_directory(&self, caller: &FsCaller, handle: u64) -> Result<(), FsError> {
        let directory = self.directory(handle)?;
        self.client.sync(caller, directory.dir, &directory.errors)
    }

    pub(super) fn close_directory(&self, handle: u64) {
        self.table().directories.remove(&handle);
    }
}

/// What a name that is removed stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemoveWhat {
    /// Anything but a directory.
    Name,
    /// An empty directory.
    Directory,
}
