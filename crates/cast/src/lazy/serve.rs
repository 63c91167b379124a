//! The kernel's FUSE requests. Everything but reads is answered at once, from the manifest.
//!
//! Names, attributes and contents hold for ever, since nothing of a view ever changes. `OPENDIR`,
//! `FLUSH` and, where no entry has one, extended attributes are answered `ENOSYS`, after which the
//! kernel no longer sends them.

use super::attributes::{attributes, entry_of, inode, kind, link_target, top};
use super::server::{LazyServer, ViewTree};
use fuser::{
    Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyXattr, Request,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// How long the kernel may keep names and attributes.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// Requests of the kernel's own read-ahead under way: a killed reader's stay until they are
/// answered.
const BACKGROUND_MAX: u16 = 256;
/// Names that each directory has besides its entries.
const DOTS: usize = 2;
/// Bytes of a write request, of which there are none: it bounds the kernel's buffers.
const WRITE_MAX: u32 = 1 << 20;

/// The handlers that `fuser` calls.
pub(super) struct ViewHandlers(pub(super) Arc<LazyServer>);

impl ViewHandlers {
    /// The tree, and the entry of an inode in it.
    fn entry(&self, number: INodeNo) -> Option<(&ViewTree, Option<u32>)> {
        let tree = self.0.tree()?;
        Some((tree, entry_of(number, tree.staged.manifest().len())?))
    }

    fn xattr(
        &self,
        number: INodeNo,
        look: impl FnOnce(&[(&[u8], &[u8])]) -> XattrBytes,
        size: u32,
        reply: ReplyXattr,
    ) {
        let Some((tree, entry)) = self.entry(number) else { return reply.error(Errno::NO_XATTR) };
        if !tree.has_xattrs {
            return reply.error(Errno::ENOSYS);
        }
        let entry = entry.map(|entry| tree.staged.manifest().entry(entry));
        let shown: Vec<(&[u8], &[u8])> = entry
            .iter()
            .flat_map(|entry| &entry.xattrs)
            .filter(|xattr| tree.staged.shows_xattr(xattr.name))
            .map(|xattr| (xattr.name, xattr.value))
            .collect();
        match look(&shown) {
            None => reply.error(Errno::NO_XATTR),
            Some(bytes) if size == 0 => reply.size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
            Some(bytes) if bytes.len() as u64 > u64::from(size) => reply.error(Errno::ERANGE),
            Some(bytes) => reply.data(&bytes),
        }
    }
}

/// A value, or a list of names; `None` if there is no such attribute.
type XattrBytes = Option<Vec<u8>>;

impl Filesystem for ViewHandlers {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // A kernel that lacks them sends more requests.
        let wanted = InitFlags::FUSE_PARALLEL_DIROPS | InitFlags::FUSE_CACHE_SYMLINKS;
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_max_write(WRITE_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Some((tree, directory)) = self.entry(parent) else { return reply.error(Errno::ENOENT) };
        match tree.names.find(tree.staged.manifest(), directory, name.as_bytes()) {
            Some(entry) => {
                reply.entry(&FOREVER, &attributes(&tree.staged, Some(entry)), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn forget(&self, _: &Request, _: INodeNo, _: u64) {}

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.entry(number) {
            Some((tree, entry)) => reply.attr(&FOREVER, &attributes(&tree.staged, entry)),
            None if number == INodeNo::ROOT => reply.attr(&FOREVER, &top()),
            None => reply.error(Errno::ESTALE),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let Some((tree, Some(entry))) = self.entry(number) else {
            return reply.error(Errno::EINVAL);
        };
        match link_target(&tree.staged.manifest().entry(entry)) {
            Some(target) => reply.data(&target),
            None => reply.error(Errno::EINVAL),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let Some((_, Some(entry))) = self.entry(number) else { return reply.error(Errno::ESTALE) };
        match self.0.open(entry) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
            Err(errno) => reply.error(of(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let answer = move |bytes: Result<&[u8], rustix::io::Errno>| match bytes {
            Ok(bytes) => reply.data(bytes),
            Err(errno) => reply.error(of(errno)),
        };
        self.0.read(handle.0, offset, size, Box::new(answer));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.0.close(handle.0);
        reply.ok();
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.tree() {
            Some(_) => reply.error(Errno::ENOSYS),
            // That the directory is empty holds only until the manifest is here.
            None => reply.opened(FileHandle(0), FopenFlags::empty()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some((tree, directory)) = self.entry(number) else { return reply.ok() };
        let manifest = tree.staged.manifest();
        let parent = directory.and_then(|entry| manifest.parent(entry));
        let dots = [(number, "."), (inode(parent), "..")].into_iter();
        let dots = dots.map(|(number, name)| (number, FileType::Directory, name.as_bytes()));
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let children = tree.names.children(directory);
        let passed = from.saturating_sub(DOTS).min(children.len());
        let children = children[passed..].iter().map(|child| {
            let entry = manifest.entry(*child);
            (inode(Some(*child)), kind(&entry), entry.name)
        });
        let names = dots.skip(from).chain(children);
        for (next, (number, kind, name)) in (offset + 1..).zip(names) {
            if reply.add(number, next, kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = |xattrs: &[(&[u8], &[u8])]| {
            let found = xattrs.iter().find(|(known, _)| *known == name.as_bytes());
            found.map(|(_, value)| value.to_vec())
        };
        self.xattr(number, value, size, reply);
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let names = |xattrs: &[(&[u8], &[u8])]| {
            Some(xattrs.iter().flat_map(|(name, _)| [name, &b"\0"[..]].concat()).collect())
        };
        self.xattr(number, names, size, reply);
    }
}

fn of(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}
