//! Open files: bytes that are read ahead, writes that are gathered and under way.
//!
//! Writes belong to the inode: whoever reads or asks through this mount sees them. What of them
//! fails is reported once to each opening: to the next write, flush or sync of it.

use super::ahead::AheadPlan;
use super::gather::{GatheredWrite, WriteGather};
use super::kept_ahead::{CountedBytes, KeptAhead};
use crate::client::{
    ChangeWhat, ErrorCursor, FileRead, FsCaller, FsClient, FsError, FsOpening, IMPATIENT, NewTimes,
    PendingChange, PendingRead, SyncWhen, TRANSFER_MAX,
};
use crate::protocol::{FsAnswer, FsInode, FsRecord, MAY_WRITE};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Writes of one inode under way, at most.
const UNDER_WAY: usize = 4;
/// The first read of a file that is opened for the first time brings so many bytes at most.
pub(super) const FIRST_READ: u32 = 128 << 10;

/// What this mount has to write to an inode.
#[derive(Debug)]
struct PendingWrites {
    gather: WriteGather,
    /// Attributes that are set after these bytes.
    later: NewTimes,
    /// Where what was written since the service was last asked ends.
    end: u64,
    /// For whom what is gathered is written.
    caller: FsCaller,
    under_way: VecDeque<(Range<u64>, PendingChange)>,
    /// The last opening is closed: nothing is held from now on.
    is_closed: bool,
}

/// An inode that somebody has open here.
#[derive(Debug)]
pub(super) struct OpenInode {
    pub(super) inode: FsInode,
    client: Arc<FsClient>,
    writes: Mutex<PendingWrites>,
    /// Grows with each change of the bytes: what was read ahead before is of no use.
    changes: AtomicU64,
    /// The thread that has opened it for writing last.
    writer: AtomicU32,
    /// Whether somebody will send what is held.
    is_awaited: AtomicBool,
}

/// What this mount has to say of an inode that the service does not know yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SaidLater {
    /// Attributes.
    pub(super) new: NewTimes,
    /// Where its bytes end that are not sent.
    pub(super) end: u64,
}

/// What became of writes, for the map of inodes.
pub(super) type ChangedHere<'a> = &'a dyn Fn(FsInode, &FsRecord);

impl PendingWrites {
    /// What is sent from now on is sent for this caller. One who sets attributes has not opened the
    /// file: bytes are written by whom it was opened for.
    fn is_for(&mut self, caller: &FsCaller) {
        let grant = self.caller.who.grant;
        self.caller = *caller;
        if caller.who.grant.rights & MAY_WRITE == 0 {
            self.caller.who.grant = grant;
        }
    }

    /// Whether nothing is held.
    fn is_clean(&self) -> bool {
        self.gather.is_empty() && self.later.is_empty()
    }

    /// Whether nothing is held, and nothing under way.
    fn is_settled(&self) -> bool {
        self.is_clean() && self.under_way.is_empty()
    }
}

impl OpenInode {
    pub(super) fn new(client: Arc<FsClient>, inode: FsInode) -> Self {
        let caller = FsCaller::default();
        let (gather, under_way) = (WriteGather::new(TRANSFER_MAX), VecDeque::new());
        let (later, end) = (NewTimes::default(), 0);
        let pending = PendingWrites { gather, later, end, caller, under_way, is_closed: false };
        let writes = Mutex::new(pending);
        let (changes, writer) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { inode, client, writes, changes, writer, is_awaited: AtomicBool::new(false) }
    }

    /// A thread has opened it for writing.
    pub(super) fn is_opened_by(&self, thread: u32) {
        self.writer.store(thread, Ordering::Relaxed);
    }

    /// Whether that was the last thread that did.
    pub(super) fn is_written_by(&self, thread: u32) -> bool {
        thread != 0 && self.writer.load(Ordering::Relaxed) == thread
    }

    fn writes(&self) -> MutexGuard<'_, PendingWrites> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether somebody will send what is held; whether somebody would before.
    pub(super) fn set_awaited(&self, is_awaited: bool) -> bool {
        self.is_awaited.swap(is_awaited, Ordering::AcqRel)
    }

    /// Somebody else has changed the bytes.
    pub(super) fn changed_elsewhere(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Writes bytes, soon.
    pub(super) fn write_later(
        &self,
        caller: &FsCaller,
        offset: u64,
        bytes: &[u8],
        changed: ChangedHere<'_>,
    ) -> Result<(), FsError> {
        let mut writes = self.writes();
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.make_way(&mut writes, caller, changed);
        let due = writes.gather.add(offset, bytes);
        writes.end = writes.end.max(offset.saturating_add(bytes.len() as u64));
        self.send(&mut writes, due, changed)
    }

    /// What others have said here goes before, and attributes that bytes would change.
    fn make_way(&self, writes: &mut PendingWrites, caller: &FsCaller, changed: ChangedHere<'_>) {
        if !writes.caller.who.is_same_user(&caller.who) || !writes.later.is_empty() {
            self.settle_all(writes, changed);
        }
        writes.is_for(caller);
    }

    /// Sets attributes, soon; what is not known to the service then. `None` where the last opening
    /// has been closed meanwhile: nothing would send them.
    pub(super) fn set_later(
        &self,
        caller: &FsCaller,
        new: &NewTimes,
        changed: ChangedHere<'_>,
    ) -> Result<Option<SaidLater>, FsError> {
        let mut writes = self.writes();
        if writes.is_closed {
            return Ok(None);
        }
        if !writes.caller.who.is_same_user(&caller.who) {
            self.settle_all(&mut writes, changed);
        }
        writes.is_for(caller);
        writes.later = writes.later.then(new);
        Ok(Some(SaidLater { new: writes.later, end: writes.end }))
    }

    /// The last opening is closed, unless something is held or under way. Waits for nothing.
    pub(super) fn close(&self) -> bool {
        let Ok(mut writes) = self.writes.try_lock() else { return false };
        writes.is_closed = writes.is_settled();
        writes.is_closed
    }

    /// Whether the service knows everything, for certain.
    pub(super) fn is_settled(&self) -> bool {
        self.writes.try_lock().is_ok_and(|writes| writes.is_settled())
    }

    /// Sends writes; waits for those under way that they touch, and for the oldest where there are
    /// too many.
    fn send(
        &self,
        writes: &mut PendingWrites,
        due: Vec<GatheredWrite>,
        changed: ChangedHere<'_>,
    ) -> Result<(), FsError> {
        for write in due {
            let range = write.range();
            let is_touched = |(other, _): &(Range<u64>, PendingChange)| {
                other.start < range.end && range.start < other.end
            };
            while writes.under_way.len() >= UNDER_WAY || writes.under_way.iter().any(is_touched) {
                self.end_oldest(writes, changed);
            }
            self.begin(writes, ChangeWhat::Write(write.offset, &write.bytes), range)?;
        }
        Ok(())
    }

    /// Begins a change, with the attributes that are to be set.
    fn begin(
        &self,
        writes: &mut PendingWrites,
        what: ChangeWhat<'_>,
        range: Range<u64>,
    ) -> Result<(), FsError> {
        let (caller, later) = (writes.caller, std::mem::take(&mut writes.later));
        let begun = self.client.begin_change_and_set(&caller, self.inode, what, &later)?;
        writes.under_way.push_back((range, begun));
        Ok(())
    }

    /// Sends everything that is held.
    fn send_all(
        &self,
        writes: &mut PendingWrites,
        changed: ChangedHere<'_>,
    ) -> Result<(), FsError> {
        if !writes.later.is_empty() {
            // What is under way might be done after them.
            self.end_all(writes, changed);
        }
        let due: Vec<_> = writes.gather.take().into_iter().collect();
        match due.is_empty() && !writes.later.is_empty() {
            true => self.begin(writes, ChangeWhat::Nothing, 0..0),
            false => self.send(writes, due, changed),
        }
    }

    fn end_all(&self, writes: &mut PendingWrites, changed: ChangedHere<'_>) {
        while !writes.under_way.is_empty() {
            self.end_oldest(writes, changed);
        }
    }

    /// Sends everything and waits for it; what has failed stays to be reported.
    fn settle_all(&self, writes: &mut PendingWrites, changed: ChangedHere<'_>) {
        if let Err(error) = self.send_all(writes, changed) {
            self.client.write_failed(self.inode, &error);
        }
        self.end_all(writes, changed);
        writes.end = 0;
    }

    /// Sends what is held without waiting for anything; whether nothing is held any more.
    pub(super) fn send_soon(&self, changed: ChangedHere<'_>) -> bool {
        let Ok(mut writes) = self.writes.try_lock() else { return false };
        // What was sent here before nobody else has taken, perhaps.
        while writes.under_way.front().is_some_and(|(_, change)| change.is_over()) {
            self.end_oldest(&mut writes, changed);
        }
        if writes.is_clean() || !writes.under_way.is_empty() {
            return writes.is_clean();
        }
        let caller = FsCaller { thread: IMPATIENT, ..writes.caller };
        let (write, later) = (writes.gather.take(), writes.later);
        let what = match &write {
            Some(write) => ChangeWhat::Write(write.offset, &write.bytes),
            None => ChangeWhat::Nothing,
        };
        let begun = self.client.begin_change_and_set(&caller, self.inode, what, &later);
        let range = write.as_ref().map_or(0..0, GatheredWrite::range);
        match begun {
            Ok(begun) => {
                writes.later = NewTimes::default();
                writes.under_way.push_back((range, begun));
            }
            // There was no room; others are told why else, when they send it.
            Err(_) => write.into_iter().for_each(|write| writes.gather.put_back(write)),
        }
        writes.is_clean()
    }

    fn end_oldest(&self, writes: &mut PendingWrites, changed: ChangedHere<'_>) {
        let Some((_, change)) = writes.under_way.pop_front() else { return };
        match change.end(&writes.caller) {
            Ok(answer) => changed(self.inode, &answer.record),
            Err(error) => {
                self.client.write_failed(self.inode, &error);
                // What there is of it now is shown.
                if let Ok(answer) = self.client.get(&writes.caller, self.inode) {
                    changed(self.inode, &answer.record);
                }
            }
        }
    }

    /// Sends everything and waits for it; what has failed stays to be reported. Whether there was
    /// anything.
    pub(super) fn settle(&self, caller: &FsCaller, changed: ChangedHere<'_>) -> bool {
        let mut writes = self.writes();
        if writes.is_settled() {
            return false;
        }
        writes.caller.thread = caller.thread;
        self.settle_all(&mut writes, changed);
        true
    }

    /// Changes bytes at once, after everything that was written before.
    pub(super) fn change(
        &self,
        caller: &FsCaller,
        what: ChangeWhat<'_>,
        is_durable: SyncWhen,
        changed: ChangedHere<'_>,
    ) -> Result<FsAnswer, FsError> {
        self.settle(caller, changed);
        self.changes.fetch_add(1, Ordering::AcqRel);
        let answer = self.client.change(caller, self.inode, what, is_durable)?;
        changed(self.inode, &answer.record);
        Ok(answer)
    }
}

/// Bytes that were asked for ahead of their reader.
#[derive(Debug)]
enum AheadBytes {
    Pending(Box<PendingRead>),
    Here(Vec<u8>),
}

#[derive(Debug)]
struct AheadPiece {
    range: Range<u64>,
    bytes: AheadBytes,
    _counted: CountedBytes,
}

#[derive(Debug, Default)]
struct FileReader {
    plan: AheadPlan,
    pieces: VecDeque<AheadPiece>,
    /// The changes of the inode that the pieces are behind.
    changes: u64,
    size: u64,
    /// Whether the list of files with pieces has this one.
    is_listed: bool,
}

/// A file as a program has opened it.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) open: Arc<OpenInode>,
    pub(super) opening: FsOpening,
    /// Who has opened it.
    opener: FsCaller,
    /// The flags of open(2).
    pub(super) flags: i32,
    /// Whether bytes may be read before they are asked for, and written after.
    pub(super) keeps_bytes: bool,
    /// Which errors of the inode it has been told of.
    errors: ErrorCursor,
    ahead: Arc<KeptAhead>,
    reader: Mutex<FileReader>,
}

impl OpenFile {
    pub(super) fn new(
        open: Arc<OpenInode>,
        (opening, opener): (FsOpening, &FsCaller),
        flags: i32,
        keeps_bytes: bool,
        (size, ahead): (u64, &Arc<KeptAhead>),
    ) -> Self {
        let changes = open.changes.load(Ordering::Acquire);
        let reader = Mutex::new(FileReader { changes, size, ..FileReader::default() });
        let errors = open.client.error_cursor(open.inode);
        let (opener, ahead) = (*opener, Arc::clone(ahead));
        Self { open, opening, opener, flags, keeps_bytes, errors, ahead, reader }
    }

    /// A caller with the rights of this opening.
    pub(super) fn used_by(&self, caller: &FsCaller) -> FsCaller {
        self.opening.used_by(caller)
    }

    /// The kernel itself, which writes mapped pages back for whom the file was opened.
    pub(super) fn used_by_kernel(&self) -> FsCaller {
        self.opening.used_by(&FsCaller { thread: 0, ..self.opener })
    }

    /// Reports once what of earlier changes of the inode has failed.
    pub(super) fn check_written(&self) -> Result<(), FsError> {
        self.open.client.check_written(self.open.inode, &self.errors)
    }

    /// Sends everything and waits for it, and reports what has failed to those who write.
    pub(super) fn flush(&self, caller: &FsCaller, changed: ChangedHere<'_>) -> Result<(), FsError> {
        self.open.settle(caller, changed);
        match self.flags & libc::O_ACCMODE {
            libc::O_RDONLY => Ok(()),
            _ => self.open.client.check_at_close(self.open.inode, &self.errors),
        }
    }

    /// Has everything that was changed made durable, and reports what has failed or was lost.
    pub(super) fn sync(&self, caller: &FsCaller, changed: ChangedHere<'_>) -> Result<(), FsError> {
        self.open.settle(caller, changed);
        self.open.client.sync(caller, self.open.inode, &self.errors)
    }

    pub(super) fn is_append(&self) -> bool {
        self.flags & libc::O_APPEND != 0
    }

    pub(super) fn sync_when(&self) -> SyncWhen {
        match self.flags & (libc::O_SYNC | libc::O_DSYNC) {
            0 => SyncWhen::Later,
            _ => SyncWhen::AtOnce,
        }
    }

    fn reader(&self) -> MutexGuard<'_, FileReader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes from the file's beginning that came with its opening.
    pub(super) fn has_first(self: &Arc<Self>, bytes: Vec<u8>) {
        let mut reader = self.reader();
        let range = 0..bytes.len() as u64;
        reader.plan.has(range.end);
        self.keep(&mut reader, range, AheadBytes::Here(bytes));
    }

    fn keep(self: &Arc<Self>, reader: &mut FileReader, range: Range<u64>, bytes: AheadBytes) {
        let counted = self.ahead.count(self, range.end - range.start);
        reader.pieces.push_back(AheadPiece { range, bytes, _counted: counted });
        if !std::mem::replace(&mut reader.is_listed, true) {
            self.ahead.list(self);
        }
    }

    /// What was read ahead is not kept any longer; false: somebody reads now.
    pub(super) fn forget_ahead(&self) -> bool {
        let Ok(mut reader) = self.reader.try_lock() else { return false };
        (reader.plan, reader.is_listed) = (AheadPlan::default(), false);
        reader.pieces.clear();
        true
    }

    /// Reads; fewer bytes at the file's end only.
    pub(super) fn read(
        self: &Arc<Self>,
        caller: &FsCaller,
        offset: u64,
        len: usize,
        changed: ChangedHere<'_>,
    ) -> Result<Vec<u8>, FsError> {
        self.open.settle(caller, changed);
        if !self.keeps_bytes {
            return self.fetch(caller, offset, len).map(|read| read.bytes);
        }
        let range = offset..offset.saturating_add(len as u64);
        let mut reader = self.reader();
        let changes = self.open.changes.load(Ordering::Acquire);
        if reader.changes != changes {
            (reader.changes, reader.pieces) = (changes, VecDeque::new());
        }
        let size = reader.size;
        let Some(ahead) = reader.plan.read(&range, size) else {
            reader.pieces.clear();
            drop(reader);
            return self.fetch(caller, offset, len).map(|read| read.bytes);
        };
        for piece in ahead {
            let len = usize::try_from(piece.end - piece.start).unwrap_or(TRANSFER_MAX);
            let (client, inode) = (&self.open.client, self.open.inode);
            let Ok(read) = client.begin_read(caller, inode, piece.start, len) else { break };
            self.keep(&mut reader, piece, AheadBytes::Pending(Box::new(read)));
        }
        self.assemble(&mut reader, caller, &range)
    }

    /// The bytes of a range, from pieces as far as there are any.
    fn assemble(
        &self,
        reader: &mut FileReader,
        caller: &FsCaller,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, FsError> {
        let mut out = Vec::new();
        let mut at = range.start;
        while at < range.end && (out.is_empty() || at < reader.size) {
            let found = reader.pieces.iter().position(|piece| piece.range.contains(&at));
            let Some(found) = found else {
                let len = usize::try_from(range.end - at).unwrap_or(TRANSFER_MAX);
                // What begins later is fetched already.
                let next = reader.pieces.iter().map(|piece| piece.range.start);
                let next = next.filter(|start| *start > at).min().unwrap_or(u64::MAX);
                let most = usize::try_from(next - at).unwrap_or(usize::MAX);
                let read = self.fetch(caller, at, len.min(most))?;
                reader.size = reader.size.max(read.answer.record.size);
                let is_end = read.bytes.len() < len.min(most);
                at += read.bytes.len() as u64;
                out.extend(read.bytes);
                if is_end {
                    break;
                }
                continue;
            };
            let wanted = at..range.end;
            let Some(bytes) =
                reader.pieces.get_mut(found).map(|piece| piece.taken(caller, &wanted))
            else {
                break;
            };
            match bytes {
                Ok(bytes) if bytes.is_empty() => {
                    // The file has become shorter, or has grown since: ask.
                    reader.pieces.remove(found);
                }
                Ok(bytes) => {
                    at += bytes.len() as u64;
                    out.extend(bytes);
                }
                Err(error) => {
                    reader.pieces.remove(found);
                    return Err(error);
                }
            }
        }
        reader.pieces.retain(|piece| piece.range.end > range.start);
        Ok(out)
    }

    fn fetch(&self, caller: &FsCaller, offset: u64, len: usize) -> Result<FileRead, FsError> {
        self.open.client.read(caller, self.open.inode, offset, len)
    }
}

impl AheadPiece {
    /// What it has of a range that begins in it.
    fn taken(&mut self, caller: &FsCaller, wanted: &Range<u64>) -> Result<Vec<u8>, FsError> {
        if let AheadBytes::Pending(_) = self.bytes {
            let pending = std::mem::replace(&mut self.bytes, AheadBytes::Here(Vec::new()));
            if let AheadBytes::Pending(read) = pending {
                self.bytes = AheadBytes::Here(read.end(caller)?.bytes);
            }
        }
        let AheadBytes::Here(bytes) = &self.bytes else { return Ok(Vec::new()) };
        let from = usize::try_from(wanted.start - self.range.start).unwrap_or(usize::MAX);
        let len = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
        let behind = bytes.get(from..).unwrap_or_default();
        Ok(behind[..len.min(behind.len())].to_vec())
    }
}
