//! Files' bytes by one-sided verbs: read from blocks that the metadata say, written into blocks
//! that nobody uses, which the file then has. The lock is held meanwhile, so that no block gets
//! another file.

use super::{GoesOn, RdmaLink, RdmaVariant};
use crate::client::counts::RoundTrips;
use crate::client::{FileRead, FsError, whole};
use crate::plan::{
    ChangeNeeds, Fill, Found, Known, Piece, lay_out, module_args, needs, parts, plan,
};
use crate::protocol::{
    BLOCK_BYTES, BLOCK_LEN, FsAnswer, FsBlocksRun, FsChangeArgs, FsExtent, FsInodeArgs, FsLayout,
    FsReadArgs, FsTakeArgs,
};
use outboard_active::{RegionVerb, VerbWhat};

/// Blocks that are reserved at once, at least.
const TAKEN: u64 = 256;

impl RdmaVariant {
    /// Reads.
    pub(crate) fn read(
        &self,
        asked: (&RoundTrips, GoesOn<'_>),
        args: &FsReadArgs,
    ) -> Result<FileRead, FsError> {
        self.held(asked, |link| link.read(args))
    }

    /// Changes bytes.
    pub(crate) fn change(
        &self,
        asked: (&RoundTrips, GoesOn<'_>),
        args: &FsChangeArgs,
        bytes: &[u8],
    ) -> Result<FsAnswer, FsError> {
        self.held(asked, |link| link.change(args, bytes))
    }
}

impl RdmaLink {
    fn read(&mut self, args: &FsReadArgs) -> Result<FileRead, FsError> {
        let found = self.found(args)?;
        let asked = usize::try_from(args.len).unwrap_or(usize::MAX);
        let mut bytes = vec![0; found.len_of(args.offset, asked)];
        let places: Vec<_> = parts(&found.extents, args.offset, bytes.len()).collect();
        let verbs: Vec<_> = places
            .iter()
            .map(|(block, skip, range)| {
                let at = block.saturating_mul(BLOCK_LEN).saturating_add(*skip as u64);
                RegionVerb { region: &self.data, at, what: VerbWhat::Read(range.len()) }
            })
            .collect();
        self.trips += u64::from(!verbs.is_empty());
        let read = self.client.verbs(&verbs)?;
        self.must_be_sure()?;
        for ((_, _, range), part) in places.into_iter().zip(read) {
            bytes[range].copy_from_slice(&part);
        }
        Ok(FileRead { answer: found.answer, bytes })
    }

    /// Where bytes of a file are.
    fn found(&mut self, args: &FsReadArgs) -> Result<Found, FsError> {
        let result = self.run("read", &args.bytes())?;
        Found::parse(&result).ok_or(FsError::Answer { entry: "read" })
    }

    fn change(&mut self, change: &FsChangeArgs, bytes: &[u8]) -> Result<FsAnswer, FsError> {
        let found = self.look(change)?;
        let known = found.as_ref();
        let known =
            known.map(|found| Known { record: &found.answer.record, extents: &found.extents });
        let plan = plan(change, known).map_err(|_| FsError::of(libc::EFBIG))?;
        let runs = self.take(plan.blocks())?;
        let extents = lay_out(&plan.pieces, &runs);
        let written = self.write(&plan.pieces, bytes, &extents);
        let changed =
            written.and_then(|()| self.run("change", &module_args(change, &plan, &extents)));
        match changed {
            Err(failed @ FsError::Failed { .. }) => {
                self.pool.extend(runs);
                Err(failed)
            }
            changed => whole(&changed?, "change"),
        }
    }

    /// What must be known of a file before a change.
    fn look(&mut self, change: &FsChangeArgs) -> Result<Option<Found>, FsError> {
        let blocks = |from: u64, to: u64| FsReadArgs {
            who: change.who,
            inode: change.inode,
            offset: from * BLOCK_LEN,
            len: (to - from) * BLOCK_LEN,
        };
        match needs(change, None) {
            ChangeNeeds::Nothing => Ok(None),
            ChangeNeeds::Blocks(from, to) => self.found(&blocks(from, to)).map(Some),
            ChangeNeeds::Record => {
                let args = FsInodeArgs { inode: change.inode };
                let answer: FsAnswer = whole(&self.run("get", &args.bytes())?, "get")?;
                match needs(change, Some(answer.record.size)) {
                    ChangeNeeds::Blocks(from, to) => self.found(&blocks(from, to)).map(Some),
                    _ => Ok(Some(Found { answer, extents: Vec::new() })),
                }
            }
        }
    }

    /// Takes blocks that nobody uses.
    fn take(&mut self, count: u64) -> Result<Vec<FsBlocksRun>, FsError> {
        let has = |pool: &[FsBlocksRun]| pool.iter().map(|run| run.len).sum::<u64>();
        while has(&self.pool) < count {
            let want = (count - has(&self.pool)).max(TAKEN);
            let result = self.run("take", &FsTakeArgs { want, goal: 0 }.bytes())?;
            let (mut rest, before) = (&result[..], self.pool.len());
            let last = self.data.len() / BLOCK_LEN;
            while let Some(run) = FsBlocksRun::take(&mut rest) {
                let is_one = run.start <= last && run.len <= last - run.start;
                is_one.then_some(()).ok_or(FsError::Answer { entry: "take" })?;
                self.pool.push(run);
            }
            if self.pool.len() == before {
                return Err(FsError::of(libc::ENOSPC));
            }
        }
        let (mut taken, mut left) = (Vec::new(), count);
        while left > 0
            && let Some(run) = self.pool.pop()
        {
            let len = run.len.min(left);
            taken.push(FsBlocksRun { start: run.start, len });
            left -= len;
            if len < run.len {
                self.pool.push(FsBlocksRun { start: run.start + len, len: run.len - len });
                break;
            }
        }
        Ok(taken)
    }

    /// Writes pieces into their blocks.
    fn write(
        &mut self,
        pieces: &[Piece],
        bytes: &[u8],
        extents: &[FsExtent],
    ) -> Result<(), FsError> {
        let mut all = Vec::new();
        for piece in pieces {
            let made = self.assemble(piece, bytes)?;
            let end = piece.file + piece.blocks;
            for extent in extents.iter().filter(|one| one.file >= piece.file && one.file < end) {
                let from = usize::try_from(extent.file - piece.file).unwrap_or(0) * BLOCK_BYTES;
                let len = usize::try_from(extent.len).unwrap_or(0) * BLOCK_BYTES;
                all.push((extent.block.saturating_mul(BLOCK_LEN), made[from..from + len].to_vec()));
            }
        }
        let region = &self.data;
        let verbs: Vec<_> = all
            .iter()
            .map(|(at, bytes)| RegionVerb { region, at: *at, what: VerbWhat::Write(bytes) })
            .collect();
        self.trips += u64::from(!verbs.is_empty());
        self.client.verbs(&verbs)?;
        Ok(())
    }

    /// A piece's blocks: what stays of the old ones, with the change over it.
    fn assemble(&mut self, piece: &Piece, bytes: &[u8]) -> Result<Vec<u8>, FsError> {
        let mut all = vec![0; piece.len()];
        let tail = all.len() - BLOCK_BYTES;
        for (block, at) in [(piece.head, 0), (piece.tail, tail)] {
            if let Some(block) = block {
                let from = block.saturating_mul(BLOCK_LEN);
                let old = self.data.read(&mut self.client, from, BLOCK_BYTES)?;
                self.trips += 1;
                all[at..at + BLOCK_BYTES].copy_from_slice(&old);
            }
        }
        match &piece.fill {
            Fill::Bytes(range) => {
                all[piece.at..piece.at + range.len()].copy_from_slice(&bytes[range.clone()]);
            }
            Fill::Zeroes(len) => all[piece.at..piece.at + len].fill(0),
        }
        Ok(all)
    }
}
