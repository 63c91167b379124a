//! Handles the kernel's FUSE requests: which go to [`ViewCore`], which wait until the source has
//! answered, and which the kernel need not send again.
//!
//! `OPEN`, `OPENDIR`, `FLUSH`, `CREATE`, `ACCESS` and extended attributes are answered `ENOSYS`,
//! after which the kernel no longer sends them (it then makes a file with `MKNOD`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use outboard_export::{Attr, FetchError, FetchRequest};

use super::changes::NewAttr;
use super::inodes::{FileKind, InodeBody, SlotId};
use super::requesters::Requesters;
use super::slot::{UpcallCounts, Why};
use super::state::{InodeShape, SYNTHETIC, ViewAnswer, ViewCore};

/// How long the kernel may cache names and attributes: until they are invalidated.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Bytes of one write request of the kernel, at most.
const WRITE_MAX: u32 = 1 << 20;
/// The I/O size that `stat` recommends to programs.
const BLOCK: u32 = 64 << 10;
/// The largest error number of Linux.
const ERRNO_MAX: i32 = libc::EHWPOISON;
/// How often an upcall is retried before it fails.
const TRIES_MAX: u32 = 16;

/// A request of the kernel's that may have to wait for the source.
enum Upcall {
    LookUp { parent: u64, name: Vec<u8>, pid: u32, reply: ReplyEntry },
    Read { number: u64, offset: u64, size: u32, pid: u32, reply: ReplyData },
    List { number: u64, offset: u64, reply: ReplyDirectory },
}

struct PendingUpcall {
    slot: Option<SlotId>,
    tries: u32,
    upcall: Upcall,
}

/// A view as seen by the kernel's threads and the source's threads.
pub(super) struct ViewServer {
    pub(super) core: ViewCore,
    pub(super) requesters: Requesters,
    waiting: Mutex<(u64, HashMap<u64, PendingUpcall>)>,
}

impl ViewServer {
    pub(super) fn new(core: ViewCore) -> Self {
        let requesters = Requesters::default();
        Self { core, requesters, waiting: Mutex::new((0, HashMap::new())) }
    }

    fn waiting(&self) -> MutexGuard<'_, (u64, HashMap<u64, PendingUpcall>)> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, count: impl FnOnce(&mut UpcallCounts)) {
        count(&mut self.core.lock().upcalls);
    }

    /// Answers a request, now or when the source has answered.
    fn answer(self: &Arc<Self>, upcall: Upcall, tries: u32) {
        match upcall {
            Upcall::LookUp { parent, name, pid, reply } => {
                match self.core.look_up(parent, &name, pid) {
                    ViewAnswer::Done(Ok(entry)) => reply_entry(&self.core, reply, entry),
                    ViewAnswer::Done(Err(errno)) => reply.error(errno),
                    ViewAnswer::Wait(slot, wanted) => {
                        let upcall = Upcall::LookUp { parent, name, pid, reply };
                        self.wait(slot, wanted, tries, upcall);
                    }
                }
            }
            Upcall::Read { number, offset, size, pid, reply } => {
                match self.core.read(number, offset, size) {
                    ViewAnswer::Done(Ok(bytes)) => reply.data(bytes.get()),
                    ViewAnswer::Done(Err(errno)) => reply.error(errno),
                    ViewAnswer::Wait(slot, wanted) => {
                        // Without a slot the end of any job fails the read: no process may wait
                        // for ever, and a job whose read fails runs again.
                        let slot = slot.or_else(|| self.requesters.slot_of(pid));
                        let upcall = Upcall::Read { number, offset, size, pid, reply };
                        self.wait(slot, wanted, tries, upcall);
                    }
                }
            }
            Upcall::List { number, offset, reply } => match self.core.list(number) {
                ViewAnswer::Done(Ok(names)) => reply_names(reply, &names, offset),
                ViewAnswer::Done(Err(errno)) => reply.error(errno),
                ViewAnswer::Wait(slot, wanted) => {
                    self.wait(slot, wanted, tries, Upcall::List { number, offset, reply });
                }
            },
        }
    }

    fn wait(
        self: &Arc<Self>,
        slot: Option<SlotId>,
        wanted: FetchRequest,
        tries: u32,
        upcall: Upcall,
    ) {
        let cancelled = slot.is_some_and(|slot| self.core.lock().slots[slot].cancelled);
        if cancelled || tries >= TRIES_MAX {
            self.fail(slot, &wanted, FetchError::Gone, upcall);
            return;
        }
        self.count(|upcalls| upcalls.waits += 1);
        let key = {
            let (next, waiting) = &mut *self.waiting();
            *next += 1;
            waiting.insert(*next, PendingUpcall { slot, tries, upcall });
            *next
        };
        let (server, asked) = (Arc::clone(self), wanted.clone());
        self.core.source.fetch(wanted, Box::new(move |result| server.resume(key, &asked, result)));
    }

    fn resume(self: &Arc<Self>, key: u64, wanted: &FetchRequest, result: Result<(), FetchError>) {
        let Some(PendingUpcall { slot, tries, upcall }) = self.waiting().1.remove(&key) else {
            return;
        };
        match result {
            Ok(()) => self.answer(upcall, tries + 1),
            Err(error) => self.fail(slot, wanted, error, upcall),
        }
    }

    /// The source could not answer: the request fails, and the job's outcome says to discard its
    /// result.
    fn fail(&self, slot: Option<SlotId>, wanted: &FetchRequest, error: FetchError, upcall: Upcall) {
        let path = match wanted {
            FetchRequest::List { dir } => dir,
            FetchRequest::Contents { path, .. } | FetchRequest::Name { path } => path,
        };
        let why = match (wanted, &error) {
            (FetchRequest::Name { .. }, FetchError::Refused(_)) => Why::Outside,
            _ => Why::Unanswered,
        };
        let errno = match error {
            FetchError::Failed(errno) => errno_of(errno),
            _ => Errno::EIO,
        };
        {
            let mut state = self.core.lock();
            let slots = state.slots.iter_mut().enumerate();
            for (_, concerned) in slots.filter(|(number, _)| slot.is_none_or(|of| of == *number)) {
                match error {
                    FetchError::Failed(_) => {}
                    FetchError::Changed => concerned.stale |= concerned.running,
                    FetchError::Refused(_) | FetchError::Gone => {
                        concerned.refuse(path, why);
                    }
                }
            }
        }
        upcall.error(errno);
    }

    /// Fails everything that the slot's processes still wait for.
    pub(super) fn cancel(&self, slot: SlotId) {
        if let Some(slot) = self.core.lock().slots.get_mut(slot) {
            slot.cancelled = slot.running;
        }
        let (_, waiting) = &mut *self.waiting();
        let gone: Vec<_> =
            waiting.extract_if(|_, waiting| waiting.slot.is_none_or(|of| of == slot)).collect();
        for (_, waiting) in gone {
            waiting.upcall.error(Errno::EIO);
        }
    }
}

impl Upcall {
    fn error(self, errno: Errno) {
        match self {
            Self::LookUp { reply, .. } => reply.error(errno),
            Self::Read { reply, .. } => reply.error(errno),
            Self::List { reply, .. } => reply.error(errno),
        }
    }
}

/// The handlers that `fuser` calls.
pub(super) struct FuseHandlers(pub(super) Arc<ViewServer>);

impl Filesystem for FuseHandlers {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks them sends more requests. There is no write-back cache: with it,
        // every close makes the kernel ask for a file's attributes again, and headers are opened
        // far more often than pages are written.
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_CACHE_SYMLINKS;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.0.count(|upcalls| upcalls.look_ups += 1);
        let (name, pid) = (name.as_bytes().to_vec(), request.pid());
        let slot = self.0.core.lock().inodes.dir(parent.0).map(|dir| dir.slot);
        slot.into_iter().for_each(|slot| self.0.requesters.learn(slot, pid));
        self.0.answer(Upcall::LookUp { parent: parent.0, name, pid, reply }, 0);
    }

    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        self.0.core.lock().inodes.forget(number.0, times);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.0.count(|upcalls| upcalls.others += 1);
        match self.0.core.lock().shape(number.0) {
            Some(shape) => reply.attr(&FOREVER, &file_attr(&self.0.core, number.0, shape)),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        self.0.count(|upcalls| upcalls.changes += 1);
        let new = NewAttr { mode, size, mtime_ns: mtime.map(nanoseconds) };
        match self.0.core.set_attr(number.0, new, request.pid()) {
            Ok(shape) => reply.attr(&FOREVER, &file_attr(&self.0.core, number.0, shape)),
            Err(errno) => reply.error(errno),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        self.0.count(|upcalls| upcalls.others += 1);
        match self.0.core.lock().inodes.get(number.0) {
            Some(InodeBody::Link { target, .. }) => reply.data(target),
            _ => reply.error(Errno::EINVAL),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        self.0.count(|upcalls| upcalls.changes += 1);
        let regular = mode & libc::S_IFMT == libc::S_IFREG;
        let made = match regular {
            true => self.0.core.create(parent.0, name.as_bytes(), mode),
            false => Err(self.0.core.unsupported(parent.0, name.as_bytes())),
        };
        match made {
            Ok(made) => reply_entry(&self.0.core, reply, Some(made)),
            Err(errno) => reply.error(errno),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        self.0.count(|upcalls| upcalls.changes += 1);
        match self.0.core.make_dir(parent.0, name.as_bytes(), mode) {
            Ok(made) => reply_entry(&self.0.core, reply, Some(made)),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.count(|upcalls| upcalls.changes += 1);
        reply_empty(reply, self.0.core.remove(parent.0, name.as_bytes(), false));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.0.count(|upcalls| upcalls.changes += 1);
        reply_empty(reply, self.0.core.remove(parent.0, name.as_bytes(), true));
    }

    fn symlink(&self, _: &Request, parent: INodeNo, name: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(self.0.core.unsupported(parent.0, name.as_bytes()));
    }

    fn link(&self, _: &Request, _: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.error(self.0.core.unsupported(parent.0, name.as_bytes()));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.0.count(|upcalls| upcalls.changes += 1);
        // The kernel has checked RENAME_NOREPLACE against its own names by now.
        if flags.bits() & !libc::RENAME_NOREPLACE != 0 {
            reply.error(Errno::EINVAL);
            return;
        }
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        reply_empty(reply, self.0.core.rename(from, to));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        request: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.0.count(|upcalls| upcalls.reads += 1);
        let (number, pid) = (number.0, request.pid());
        self.0.answer(Upcall::Read { number, offset, size, pid, reply }, 0);
    }

    fn write(
        &self,
        _: &Request,
        number: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.0.count(|upcalls| upcalls.changes += 1);
        match (self.0.core.write(number.0, offset, data), u32::try_from(data.len())) {
            (Ok(()), Ok(written)) => reply.written(written),
            (Err(errno), _) => reply.error(errno),
            (_, Err(_)) => reply.error(Errno::EFBIG),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.0.count(|upcalls| upcalls.others += 1);
        self.0.answer(Upcall::List { number: number.0, offset, reply }, 0);
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let free = self.0.core.limits.quota / 4096;
        reply.statfs(free, free, free, 1 << 20, 1 << 20, 4096, 255, 4096);
    }

    fn access(&self, _: &Request, _: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(
        &self,
        _: &Request,
        _number: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }
}

/// An error number that a client named; EIO if Linux has none such, because the kernel accepts no
/// others.
fn errno_of(number: i32) -> Errno {
    let is_known = (1..=ERRNO_MAX).contains(&number);
    Errno::from_i32(if is_known { number } else { libc::EIO })
}

fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

/// Replies with an inode; number 0 stands for an absent name, which the kernel caches as well.
fn reply_entry(core: &ViewCore, reply: ReplyEntry, entry: Option<(u64, InodeShape)>) {
    let nothing = InodeShape { kind: FileKind::File, attr: SYNTHETIC };
    let (number, shape) = entry.unwrap_or((0, nothing));
    reply.entry(&FOREVER, &file_attr(core, number, shape), Generation(0));
}

fn reply_names(mut reply: ReplyDirectory, names: &[(Vec<u8>, FileKind)], offset: u64) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(names.len());
    for (at, (name, kind)) in names.iter().enumerate().skip(start) {
        // The kernel does not use the inode numbers in listings; they only must not be 0.
        let number = INodeNo(u64::MAX);
        if reply.add(number, at as u64 + 1, file_type(*kind), OsStr::from_bytes(name)) {
            break;
        }
    }
    reply.ok();
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
    }
}

fn file_attr(core: &ViewCore, number: u64, InodeShape { kind, attr }: InodeShape) -> FileAttr {
    let mtime = time(attr);
    FileAttr {
        ino: INodeNo(number),
        size: attr.size,
        blocks: attr.size.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: mtime,
        crtime: mtime,
        kind: file_type(kind),
        perm: u16::try_from(attr.mode & 0o7777).unwrap_or_default(),
        nlink: if kind == FileKind::Directory { 2 } else { 1 },
        uid: core.limits.uid,
        gid: core.limits.gid,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

fn time(attr: Attr) -> SystemTime {
    let nanoseconds = Duration::from_nanos(attr.mtime_ns.unsigned_abs());
    let time = match attr.mtime_ns {
        0.. => UNIX_EPOCH.checked_add(nanoseconds),
        _ => UNIX_EPOCH.checked_sub(nanoseconds),
    };
    time.unwrap_or(UNIX_EPOCH)
}

fn nanoseconds(time: TimeOrNow) -> i64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => UNIX_EPOCH + UNIX_EPOCH.elapsed().unwrap_or_default(),
    };
    let after = time.duration_since(UNIX_EPOCH).map(|time| i64::try_from(time.as_nanos()));
    match after {
        Ok(after) => after.unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_number_that_linux_does_not_have_is_eio() {
        for (said, shown) in [(13, 13), (133, 133), (134, 5), (0, 5), (-2, 5), (i32::MIN, 5)] {
            assert_eq!(errno_of(said).code(), shown, "{said}");
        }
    }
}
