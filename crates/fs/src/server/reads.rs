//! Reads: the module says where a file's bytes are, they are read, and the record's version says
//! whether they were still there.
//!
//! Blocks that a file gives back may soon have another file's bytes. So what was read counts only
//! if nothing was committed meanwhile, or the file's record is as it was.

use super::backend::FsBackend;
use super::call::{FsWork, OwnWork};
use crate::plan::{Found, room_for};
use crate::protocol::{FsAnswer, FsInodeArgs, FsLayout, FsReadArgs};
use outboard_active::Outcome;

/// How often a read is begun, while others change the file, before its client is told of a
/// conflict: it asks again as long as it may wait.
const TRIES_MAX: u32 = 64;
/// Bytes that the loop reads itself, if they are in memory.
const NOW_MAX: usize = 128 << 10;

/// Bytes that a read asks for.
fn asked_len(args: &[u8]) -> usize {
    let asked = FsReadArgs::split(args).map_or(0, |(args, _)| args.len);
    usize::try_from(asked).unwrap_or(usize::MAX)
}

impl FsBackend {
    /// The module has said where the bytes are, or where they are now.
    pub(super) fn read_looked(&mut self, token: u64, outcome: Outcome) {
        let Outcome::Done { result, seq } = outcome else { return self.answer(token, outcome) };
        let Some(found) = Found::parse(&result) else {
            return self.fail(token, libc::EIO, "the module's answer to a read has no form");
        };
        let Some(call) = self.calls.get_mut(&token) else { return };
        let (Some(request), FsWork::Read(work)) = (&call.request, &mut call.work) else { return };
        let len = found.len_of(work.offset, asked_len(&request.args));
        if FsAnswer::LEN + len > request.out_cap as usize {
            return self.fail(token, libc::EINVAL, "the result does not fit where it is to go");
        }
        (work.version, work.seq) = (found.answer.record.version, seq);
        work.tries += 1;
        let offset = work.offset;
        let mut bytes = found.answer.bytes();
        bytes.resize(FsAnswer::LEN + len, 0);
        if found.extents.is_empty()
            || (len <= NOW_MAX
                && self.io.read_now(&mut bytes[FsAnswer::LEN..], (offset, &found.extents))
                && self.region.seq() == seq)
        {
            return self.read_done(token, bytes, seq);
        }
        bytes[FsAnswer::LEN..].fill(0);
        self.under_way += bytes.len();
        self.io.read(token, bytes, (FsAnswer::LEN, offset, found.extents));
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
        again.out_cap = room_for(asked_len(&again.args));
        self.counters.again += 1;
        self.execute(again);
    }

    fn read_done(&mut self, token: u64, result: Vec<u8>, seq: u64) {
        self.counters.read_bytes += (result.len() - FsAnswer::LEN) as u64;
        self.answer(token, Outcome::Done { result, seq });
    }
}
