//! Reads: the module says where a file's bytes are, they are read, and the record's version says
//! whether they were still there.
//!
//! Blocks that a file gives back may soon have another file's bytes. So what was read counts only
//! if nothing was committed meanwhile, or the file's record is as it was.

use super::backend::{FsBackend, PIECE_MAX, READS_ONLY};
use super::call::{FsCall, FsWork, OwnWork, ReadWork};
use super::entries::EntryKind;
use crate::plan::{Found, room_for};
use crate::protocol::{
    FsAnswer, FsGrant, FsInode, FsInodeArgs, FsLayout, FsOpenArgs, FsReadArgs, MAY_WRITE,
};
use outboard_active::Outcome;
use outboard_active::service::BackendCaller;
use outboard_offcode::executor::Request;

/// How often a read is begun, while others change the file, before its client is told of a
/// conflict: it asks again as long as it may wait.
const TRIES_MAX: u32 = 64;
/// Bytes that the loop reads itself, if they are in memory.
const NOW_MAX: usize = 128 << 10;

/// What a request asks for: which file, from which byte on, and how many.
struct AskedBytes {
    inode: FsInode,
    offset: u64,
    len: u64,
    /// What of the file is to be granted.
    want: Option<u32>,
}

impl AskedBytes {
    fn parse(request: &Request) -> Option<Self> {
        match request.entry.as_str() {
            "open" => FsOpenArgs::split(&request.args).map(|(args, _)| {
                let FsOpenArgs { inode, want, len, .. } = args;
                Self { inode, offset: 0, len: len.into(), want: Some(want) }
            }),
            _ => FsReadArgs::split(&request.args).map(|(args, _)| {
                let FsReadArgs { inode, offset, len, .. } = args;
                Self { inode, offset, len, want: None }
            }),
        }
    }
}

impl FsBackend {
    pub(super) fn begin_read(
        &mut self,
        caller: BackendCaller,
        mut request: Request,
    ) -> Option<Request> {
        let token = request.token;
        let Some(asked) = AskedBytes::parse(&request) else {
            // The module says so.
            return Some(request);
        };
        self.counters.reads += 1;
        let len = usize::try_from(asked.len).unwrap_or(usize::MAX);
        if len > PIECE_MAX {
            self.fail(token, libc::EINVAL, "a read asks for 4 MiB at most");
            return None;
        }
        if asked.want.is_some_and(|want| want & MAY_WRITE != 0) && !caller.may_write {
            self.fail(token, libc::EROFS, READS_ONLY);
            return None;
        }
        let grant = asked.want.map(|want| {
            let rights = self.rights_of(token, asked.inode, want);
            self.grants.grant(caller.node, asked.inode, rights)
        });
        let offset = asked.offset;
        let work = ReadWork { offset, len, grant, version: 0, seq: 0, bytes: Vec::new(), tries: 0 };
        let (peer, kept) = (caller.peer, Box::new(request.clone()));
        let call =
            FsCall { peer, kind: EntryKind::Read, request: Some(kept), work: FsWork::Read(work) };
        self.calls.insert(token, call);
        request.out_cap = room_for(len);
        Some(request)
    }

    /// The module has said where the bytes are, or where they are now.
    pub(super) fn read_looked(&mut self, token: u64, outcome: Outcome) {
        let Outcome::Done { result, seq } = outcome else { return self.answer(token, outcome) };
        let Some(found) = Found::parse(&result) else {
            return self.fail(token, libc::EIO, "the module's answer to a read has no form");
        };
        let Some(call) = self.calls.get_mut(&token) else { return };
        let (Some(request), FsWork::Read(work)) = (&call.request, &mut call.work) else { return };
        let len = found.len_of(work.offset, work.len);
        let mut bytes = found.answer.bytes();
        work.grant.iter().for_each(|grant| grant.put(&mut bytes));
        let head = bytes.len();
        if head + len > request.out_cap as usize {
            return self.fail(token, libc::EINVAL, "the result does not fit where it is to go");
        }
        (work.version, work.seq) = (found.answer.record.version, seq);
        work.tries += 1;
        let offset = work.offset;
        bytes.resize(head + len, 0);
        if found.extents.is_empty()
            || (len <= NOW_MAX
                && self.io.read_now(&mut bytes[head..], (offset, &found.extents))
                && self.region.seq() == seq)
        {
            return self.read_done(token, bytes, seq);
        }
        bytes[head..].fill(0);
        self.under_way += bytes.len();
        self.io.read(token, bytes, (head, offset, found.extents));
    }

    /// A thread has read them. They are right if nothing was committed meanwhile; else the record
    /// is asked for.
    pub(super) fn bytes_read(
        &mut self,
        token: u64,
        (len, bytes): (usize, Vec<u8>),
        result: std::io::Result<()>,
    ) {
        self.under_way -= len;
        if let Err(error) = result {
            return self.fail(token, libc::EIO, &format!("the store cannot be read: {error}"));
        }
        let seq = self.region.seq();
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Read(work) = &mut call.work else { return };
        if work.seq == seq {
            return self.read_done(token, bytes, seq);
        }
        let Some((answer, _)) = FsAnswer::split(&bytes) else { return };
        work.bytes = bytes;
        let args = FsInodeArgs { inode: answer.inode }.bytes();
        self.execute_own("get", args, OwnWork::Verify { of: token });
    }

    /// The record, after the bytes were read.
    pub(super) fn read_verified(&mut self, token: u64, outcome: &Outcome) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let FsWork::Read(work) = &mut call.work else { return };
        let Outcome::Done { result, seq } = outcome else { return self.read_again(token) };
        let version = FsAnswer::split(result).map(|(answer, _)| answer.record.version);
        match version == Some(work.version) {
            true => {
                let bytes = std::mem::take(&mut work.bytes);
                self.read_done(token, bytes, *seq);
            }
            false => self.read_again(token),
        }
    }

    fn read_again(&mut self, token: u64) {
        let Some(call) = self.calls.get(&token) else { return };
        let (Some(request), FsWork::Read(work)) = (&call.request, &call.work) else { return };
        if work.tries >= TRIES_MAX {
            return self.answer(token, Outcome::Conflict);
        }
        let mut again = (**request).clone();
        again.out_cap = room_for(work.len);
        self.counters.again += 1;
        self.execute(again);
    }

    fn read_done(&mut self, token: u64, result: Vec<u8>, seq: u64) {
        let opens = self.calls.get(&token).and_then(|call| match &call.work {
            FsWork::Read(ReadWork { grant: Some(_), .. }) => Some(call.peer),
            _ => None,
        });
        let opened = opens.zip(FsAnswer::split(&result).map(|(answer, _)| answer.inode));
        let head = FsAnswer::LEN + if opened.is_some() { FsGrant::LEN } else { 0 };
        self.counters.read_bytes += (result.len() - head) as u64;
        self.answer(token, Outcome::Done { result, seq });
        // The answer comes first: what is stale in it is recalled behind it.
        if let Some((peer, inode)) = opened {
            self.grant_record(peer, inode, seq);
        }
    }
}
