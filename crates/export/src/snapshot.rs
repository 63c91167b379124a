//! Snapshots of contents: each file is read once, hashed, and offered as one state.
//!
//! Copies with read(2): a mapped file that shrinks would kill the process. A file that changes
//! during the read is not offered; a file that may have changed unnoticed, because the clock is
//! coarse, is hashed again later.

use crate::export::{Export, with_position};
use crate::fsys::{self, FileStamp};
use crate::known::id_of;
use crate::path::{Path, shared, split};
use crate::record::{Answer, Contents, FileNode, LogRecord, Position};
use crate::roots::LOOK_DIRECTORY;
use crate::snapshot_ring::FileId;
use crate::watch::{Hint, Notices};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// The least age of a change at which the next change is sure to get another time stamp.
const GRAIN_NS: i64 = 10_000_000;
/// Bytes of the buffer that is kept from one snapshot to the next.
const SCRATCH_KEPT: usize = 8 << 20;
/// Flags to open a file; if it has become a pipe, without waiting for its writer.
const READ_FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// The clock of file systems' time stamps.
fn coarse_now_ns() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec)
}

/// Whether a file may change after `read_ns` without a change of its stamp.
fn is_racy(stamp: FileStamp, read_ns: i64) -> bool {
    stamp.ctime_ns > read_ns.saturating_sub(GRAIN_NS)
}

const CHANGED: Answer = Answer::Changed(Position { epoch: 0, length: 0 });

impl Export {
    /// Makes a snapshot of a file, if its version is still the one that the server knows.
    pub fn offer(&mut self, path: &[u8], version: u64) -> Answer {
        let place = split(path).filter(|_| self.may_show(path));
        let Some((dir, name)) = place else { return Answer::Withheld };
        self.refresh();
        let answer = self.offer_fresh(&shared(dir), name, version);
        let position = self.settle();
        match answer {
            Ok(()) => Answer::Published(position),
            Err(answer) => with_position(answer, position),
        }
    }

    fn offer_fresh(&mut self, dir: &Path, name: &[u8], version: u64) -> Result<(), Answer> {
        self.list_down_to(dir)?;
        let id = self.expect_file(dir, name, version)?;
        let inode = self.known.inodes.get(&id);
        if inode.is_none_or(|inode| inode.version != version) {
            // The change was noticed under another of the file's names.
            return Err(self.look_once(dir, name, Hint::default()));
        }
        if inode.is_some_and(|inode| inode.snapshot.is_some()) {
            self.counters.hits += 1;
            return Ok(());
        }
        self.counters.misses += 1;
        let mut bytes = std::mem::take(&mut self.scratch);
        let taken = self.take(dir, name, id, &mut bytes);
        let kept = taken.and_then(|read_ns| {
            self.refresh();
            self.expect_file(dir, name, version)?;
            self.keep(id, &bytes, read_ns);
            self.counters.snapshots += 1;
            self.counters.snapshots_bytes += bytes.len() as u64;
            Ok(())
        });
        bytes.clear();
        bytes.shrink_to(SCRATCH_KEPT);
        self.scratch = bytes;
        kept
    }

    fn expect_file(&self, dir: &Path, name: &[u8], version: u64) -> Result<FileId, Answer> {
        match self.known.node(dir, name) {
            Some(FileNode::File(attr)) if attr.version == version => Ok(id_of(attr)),
            Some(FileNode::Withheld) => Err(Answer::Withheld),
            _ => Err(CHANGED),
        }
    }

    /// Reads a file into `bytes`; returns when the read began, by the file system's clock.
    fn take(
        &mut self,
        dir: &Path,
        name: &[u8],
        id: FileId,
        bytes: &mut Vec<u8>,
    ) -> Result<i64, Answer> {
        let file = match self.open_file(dir, name) {
            Ok(file) => file,
            Err(Errno::NOENT | Errno::LOOP | Errno::STALE | Errno::NOTDIR | Errno::XDEV) => {
                return Err(self.look_once(dir, name, Hint::default()));
            }
            Err(errno) => return Err(Answer::Failed(errno.raw_os_error())),
        };
        let Some(before) = self.stamp_of(&file, id) else {
            return Err(self.look_once(dir, name, Hint::default()));
        };
        let len_max = self.ring.len_max() as u64;
        if before.size > len_max {
            return Err(Answer::TooLarge { len: before.size, len_max });
        }
        self.watch_file(file.as_fd(), id);
        let read_ns = coarse_now_ns();
        let read = fsys::read_whole(file, before.size, bytes);
        let file = read.map_err(|error| Answer::Failed(error.raw_os_error().unwrap_or(EIO)))?;
        if self.stamp_of(&file, id) != Some(before) {
            return Err(self.look_once(dir, name, Hint { touched: true, ..Hint::default() }));
        }
        let whole = bytes.len() as u64 == before.size;
        if whole { Ok(read_ns) } else { Err(Answer::Failed(EIO)) }
    }

    fn open_file(&self, dir: &Path, name: &[u8]) -> Result<OwnedFd, Errno> {
        let dir = self.open_known(dir, LOOK_DIRECTORY)?;
        fsys::open_beneath(dir.as_fd(), name, READ_FILE)
    }

    /// The state of an open file, if it is the recorded file in the recorded state.
    fn stamp_of(&self, file: &OwnedFd, id: FileId) -> Option<FileStamp> {
        let stat = fsys::stat_anew(file).ok()?;
        let stamp = FileStamp::of(&stat);
        let same = fsys::is_regular(&stat) && (stat.st_dev, stat.st_ino) == id;
        let known = self.known.inodes.get(&id)?.stamp;
        (same && known == stamp).then_some(stamp)
    }

    pub(crate) fn look_once(&mut self, dir: &Path, name: &[u8], hint: Hint) -> Answer {
        let mut notices = Notices::default();
        notices.add(dir, name, hint);
        self.apply(notices);
        CHANGED
    }

    fn keep(&mut self, id: FileId, bytes: &[u8], read_ns: i64) {
        let hash = *blake3::hash(bytes).as_bytes();
        let packed = self.packer.pack(bytes).unwrap_or(bytes);
        let (at, lost) = self.ring.place(packed.len(), id);
        for id in lost {
            if let Some(inode) = self.known.inodes.get_mut(&id) {
                inode.snapshot = None;
            }
        }
        let at = self.arena_at + at;
        let copied = self.memory.copy_in(at, packed);
        debug_assert!(copied.is_ok(), "the ring lies inside the region: {copied:?}");
        let Some(inode) = self.known.inodes.get_mut(&id) else { return };
        let (version, len) = (inode.version, bytes.len() as u64);
        let (at, packed) = (at as u64, packed.len() as u64);
        let contents = Contents { dev: id.0, ino: id.1, version, hash, at, len, packed };
        inode.snapshot = Some(contents);
        if is_racy(inode.stamp, read_ns) {
            self.racy.push(id);
        }
        self.publish(&LogRecord::Contents(contents));
    }

    /// Hashes again the files that may have changed without a trace.
    pub(crate) fn add_racy(&mut self, notices: &mut Notices) {
        for id in std::mem::take(&mut self.racy) {
            let Some(inode) = self.known.inodes.get(&id) else { continue };
            let (Some(contents), Some(place)) = (inode.snapshot, inode.names.first()) else {
                continue;
            };
            let (dir, name) = place.clone();
            match self.rehash(&dir, &name, id) {
                Some((hash, read_ns, stamp)) if hash == contents.hash => {
                    self.racy.extend(is_racy(stamp, read_ns).then_some(id));
                }
                _ => notices.add(&dir, &name, Hint { touched: true, ..Hint::default() }),
            }
        }
    }

    fn rehash(
        &mut self,
        dir: &Path,
        name: &[u8],
        id: FileId,
    ) -> Option<([u8; 32], i64, FileStamp)> {
        let file = self.open_file(dir, name).ok()?;
        let stamp = self.stamp_of(&file, id)?;
        let read_ns = coarse_now_ns();
        let mut bytes = std::mem::take(&mut self.scratch);
        let read = fsys::read_whole(file, stamp.size, &mut bytes);
        let hash = *blake3::hash(&bytes).as_bytes();
        bytes.shrink_to(SCRATCH_KEPT);
        self.scratch = bytes;
        read.ok().map(|_| (hash, read_ns, stamp))
    }
}

const EIO: i32 = Errno::IO.raw_os_error();
