//! The kernel's FUSE requests, each answered by what [`MountedTree`] does.

use super::attributes::{kind, new_time};
use super::lists::ListedAt;
use super::locks::{AskedLock, LockReply};
use super::replies::{errno, open_flags, reply_empty, reply_xattr};
use super::shown::{ShownName, dot, taken};
use super::tree::{MountedTree, RemoveWhat, ShownInode, caller_of};
use crate::client::{FsCaller, FsClient, FsError, FsLock, NewInode, NewTimes};
use crate::protocol::{BLOCK_LEN, ByteRange, LockKind, NAME_MAX, SEEK_DATA, SEEK_HOLE};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Bytes of one write, at most.
const WRITE_MAX: u32 = 1 << 20;
/// Requests of the kernel's own read-ahead under way.
const BACKGROUND_MAX: u16 = 64;
/// What every mount can do with a kernel that can.
const WANTED: InitFlags = InitFlags::FUSE_PARALLEL_DIROPS
    .union(InitFlags::FUSE_POSIX_LOCKS)
    .union(InitFlags::FUSE_FLOCK_LOCKS)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_DO_READDIRPLUS)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO)
    // Without FUSE_DIRECT_IO_ALLOW_MMAP: what is opened for direct I/O cannot be mapped shared, as
    // before Linux 6.6. So a mount refuses mappings that another one may have as well.
    // The service takes set-user-id off what is written: the kernel asks for no capability of a
    // file before each write then.
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2);

/// The handlers that `fuser` calls.
pub(super) struct FsHandlers(pub(super) Arc<MountedTree>);

impl FsHandlers {
    fn client(&self) -> &FsClient {
        &self.0.client
    }

    fn asked_lock(
        &self,
        (node, handle, owner): (INodeNo, FileHandle, LockOwner),
        range: ByteRange,
        kind: i32,
        pid: u32,
    ) -> Result<AskedLock, FsError> {
        let kind = match kind {
            libc::F_RDLCK => LockKind::Shared,
            libc::F_WRLCK => LockKind::Exclusive,
            _ => return Err(FsError::of(libc::EINVAL)),
        };
        let inode = self.0.inode(node.0)?;
        let lock = FsLock { inode, owner: owner.0, range, kind, pid };
        Ok(AskedLock { lock, handle: handle.0, waits: false })
    }

    fn reply_entry(&self, reply: ReplyEntry, shown: Result<ShownInode, FsError>) {
        match shown {
            Ok(ShownInode { attr, generation, keep, keep_name }) => {
                reply.entry_with_ttls(&keep, &keep_name, &attr, Generation(generation));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn reply_attr(&self, reply: ReplyAttr, shown: Result<ShownInode, FsError>) {
        match shown {
            Ok(shown) => reply.attr(&shown.keep, &shown.attr),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Filesystem for FsHandlers {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks some of them sends more requests; it has said what it takes.
        let _ = config.add_capabilities(WANTED & config.capabilities());
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.0.look_up(&caller_of(request), parent.0, name.as_bytes());
        self.reply_entry(reply, found);
    }

    fn forget(&self, _: &Request, node: INodeNo, times: u64) {
        self.0.inodes().forget(node.0, times);
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attr(reply, self.0.attributes(&caller_of(request), node.0));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(new_time), mtime.map(new_time));
        let new = NewTimes { mode: mode.map(|mode| mode & 0o7777), uid, gid, atime, mtime };
        let resize = (size, handle.map(|handle| handle.0));
        let set = self.0.set_attributes(&caller_of(request), node.0, resize, &new);
        self.reply_attr(reply, set);
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let caller = caller_of(request);
        let target = self.0.inode(node.0).and_then(|inode| self.client().target(&caller, inode));
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = NewInode { mode, rdev: rdev.into(), target: b"" };
        let made = self.0.make(&caller_of(request), parent.0, name.as_bytes(), &new);
        self.reply_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = libc::S_IFDIR | (mode & 0o7777);
        let new = NewInode { mode, ..NewInode::default() };
        let made = self.0.make(&caller_of(request), parent.0, name.as_bytes(), &new);
        self.reply_entry(reply, made);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        let new = NewInode { mode: libc::S_IFLNK | 0o777, rdev: 0, target };
        let made = self.0.make(&caller_of(request), parent.0, name.as_bytes(), &new);
        self.reply_entry(reply, made);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller_of(request), name.as_bytes());
        reply_empty(reply, self.0.remove(&caller, parent.0, name, RemoveWhat::Name));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (caller_of(request), name.as_bytes());
        reply_empty(reply, self.0.remove(&caller, parent.0, name, RemoveWhat::Directory));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        let renamed = self.0.rename(&caller_of(request), from, to, flags.bits());
        reply_empty(reply, renamed);
    }

    fn link(
        &self,
        request: &Request,
        node: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.0.link(&caller_of(request), node.0, parent.0, name.as_bytes());
        self.reply_entry(reply, linked);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.0.open(&caller_of(request), node.0, flags.0) {
            Ok(opened) => reply.opened(FileHandle(opened.handle), open_flags(&opened)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let place = (parent.0, name.as_bytes());
        match self.0.create(&caller_of(request), place, mode, flags) {
            Ok((ShownInode { attr, generation, keep, keep_name }, opened)) => {
                let (handle, flags) = (FileHandle(opened.handle), open_flags(&opened));
                let both = keep.min(keep_name);
                reply.created(&both, &attr, Generation(generation), handle, flags);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.read(&caller_of(request), handle.0, offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let caller = caller_of(request);
        let is_kernel = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        match self.0.write((!is_kernel).then_some(&caller), handle.0, offset, data) {
            Ok(()) => reply.written(u32::try_from(data.len()).unwrap_or(WRITE_MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let caller = caller_of(request);
        let flushed = self.0.flush(&caller, handle.0);
        if let Ok(file) = self.0.file(handle.0) {
            self.0.process_closes(&caller, file.open.inode, owner.0);
        }
        reply_empty(reply, flushed.map(drop));
    }

    fn getlk(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let range = (start, end);
        match self.asked_lock((node, handle, owner), range, kind, pid) {
            Ok(AskedLock { lock, .. }) => self.0.ask_test(caller_of(request), lock, reply),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let (caller, range) = (caller_of(request), (start, end));
        if kind == libc::F_UNLCK {
            return match self.0.inode(node.0) {
                Ok(inode) => {
                    self.0.ask_unlock(caller, (inode, owner.0), range, LockReply::Done(reply));
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        match self.asked_lock((node, handle, owner), range, kind, pid) {
            Ok(asked) => {
                let asked = AskedLock { waits: sleep, ..asked };
                self.0.ask_lock(caller, asked, LockReply::Done(reply));
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn release(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.close(&caller_of(request), handle.0);
        self.0.locks_of_closed(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.sync(&caller_of(request), handle.0));
    }

    fn opendir(&self, request: &Request, node: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open_directory(&caller_of(request), node.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut take = |_: &FsCaller, name: ShownName<'_>| {
            let ListedAt { name, next, .. } = match name {
                ShownName::Dot(number, next, name) => {
                    return Ok(taken(reply.add(INodeNo(number), next, FileType::Directory, name)));
                }
                ShownName::Listed(listed) => listed,
            };
            let kind = kind(&name.head.record).ok_or(FsError::Answer { entry: "list" })?;
            let number = INodeNo(self.0.inodes().shown(name.head.inode));
            Ok(taken(reply.add(number, next, kind, OsStr::from_bytes(&name.name))))
        };
        match self.0.list(&caller_of(request), (node.0, handle.0), offset, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut take = |caller: &FsCaller, name: ShownName<'_>| {
            let listed = match name {
                ShownName::Dot(number, next, name) => {
                    // The kernel counts no look-up of these two.
                    let (attr, zero) = (dot(number), Duration::ZERO);
                    let is_full = reply.add(attr.ino, next, name, &zero, &attr, Generation(0));
                    return Ok(taken(is_full));
                }
                ShownName::Listed(listed) => listed,
            };
            let shown = self.0.listed(caller, node.0, &listed)?;
            let ShownInode { attr, generation, keep, keep_name } = shown;
            let name = OsStr::from_bytes(&listed.name.name);
            let generation = Generation(generation);
            // One time for both.
            let both = keep.min(keep_name);
            let is_full = reply.add(attr.ino, listed.next, name, &both, &attr, generation);
            if is_full {
                self.0.inodes().forget(attr.ino.0, 1);
            }
            Ok(taken(is_full))
        };
        match self.0.list(&caller_of(request), (node.0, handle.0), offset, &mut take) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.0.close_directory(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.sync_directory(&caller_of(request), handle.0));
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.client().stats(&caller_of(request)) {
            Ok(stats) => {
                let (block, name) = (4096, u32::try_from(NAME_MAX).unwrap_or(255));
                debug_assert_eq!(u64::from(block), BLOCK_LEN);
                let (all, free) = (stats.blocks, stats.blocks_free);
                let inodes = stats.inodes.saturating_add(stats.inodes_free);
                reply.statfs(all, free, free, inodes, stats.inodes_free, block, name, block);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let caller = caller_of(request);
        let pair = (name.as_bytes(), value);
        let flags = u32::try_from(flags).unwrap_or_default();
        reply_empty(reply, self.0.set_xattr(&caller, node.0, pair, flags));
    }

    fn getxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let caller = caller_of(request);
        // There are no access control lists: programs that copy files ask for them each time.
        if name.as_bytes().starts_with(b"system.") {
            return reply.error(Errno::EOPNOTSUPP);
        }
        reply_xattr(reply, size, self.0.xattr(&caller, node.0, name.as_bytes()));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let caller = caller_of(request);
        reply_xattr(reply, size, self.0.xattr_names(&caller, node.0));
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let caller = caller_of(request);
        reply_empty(reply, self.0.remove_xattr(&caller, node.0, name.as_bytes()));
    }

    fn fallocate(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller_of(request);
        reply_empty(reply, self.0.allocate(&caller, handle.0, (offset, length), mode));
    }

    fn lseek(
        &self,
        request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let caller = caller_of(request);
        let which = match whence {
            libc::SEEK_DATA => SEEK_DATA,
            libc::SEEK_HOLE => SEEK_HOLE,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(from) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let found = self.0.file(handle.0).and_then(|file| {
            self.0.settle(&caller, file.open.inode);
            self.client().seek(&file.used_by(&caller), file.open.inode, from, which)
        });
        match found.map(i64::try_from) {
            Ok(Ok(place)) => reply.offset(place),
            Ok(Err(_)) => reply.error(Errno::EIO),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _from: INodeNo,
        from_handle: FileHandle,
        from_at: u64,
        _to: INodeNo,
        to_handle: FileHandle,
        to_at: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits.
        let len = len.min(u64::from(u32::MAX) / BLOCK_LEN * BLOCK_LEN);
        let (from, to) = ((from_handle.0, from_at), (to_handle.0, to_at));
        match self.0.share(&caller_of(request), from, to, len) {
            Ok(shared) => reply.written(u32::try_from(shared).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(&error)),
        }
    }
}
