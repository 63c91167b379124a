//! Changes of the metadata: all or nothing, also where a client ends in their midst.
//!
//! First the journal is written, with all that will be, then the number of changes becomes odd:
//! readers wait. Behind that answer all is written to its place, and the number becomes even. Who
//! finds the lock left behind with an odd number does what the journal says once more, and has the
//! change whole; with an even one nothing was changed yet.

use super::RdmaLink;
use super::lock::number;
use crate::client::FsError;
use crate::protocol::volatile::{
    JOURNAL_AT, JOURNAL_HEAD_AT, SEQ_AT, WrittenRun, journal_len, journal_of, parse_journal,
};
use outboard_active::{RegionVerb, VerbWhat};

/// Bytes of one Write, at most.
const PIECE: usize = 256 << 10;

impl RdmaLink {
    /// Writes to the metadata. The lock is held.
    pub(super) fn apply(&mut self, runs: &[WrittenRun]) -> Result<(), FsError> {
        self.must_be_sure()?;
        let (journal, head) = journal_of(runs);
        let region = &self.shared;
        let mut verbs: Vec<RegionVerb<'_>> = pieces(region, JOURNAL_AT, &journal).collect();
        verbs.push(RegionVerb { region, at: JOURNAL_HEAD_AT, what: VerbWhat::Write(&head) });
        let even = self.lock.seq;
        let odd = even.wrapping_add(1);
        verbs.push(RegionVerb { region, at: SEQ_AT, what: VerbWhat::Swap(even, odd) });
        self.trips += 1;
        let done = self.client.verbs(&verbs)?;
        if done.last().map(|found| number(found)) != Some(even) {
            return Err(FsError::Machine("somebody else has changed the metadata".into()));
        }
        self.lock.seq = odd;
        self.put(runs)
    }

    /// Writes what the journal has, and says that it is done.
    fn put(&mut self, runs: &[WrittenRun]) -> Result<(), FsError> {
        let writes = runs.iter().flat_map(|(at, bytes)| pieces(&self.metadata, *at, bytes));
        let mut verbs: Vec<RegionVerb<'_>> = writes.collect();
        let odd = self.lock.seq;
        let even = odd.wrapping_add(1);
        let what = VerbWhat::Swap(odd, even);
        verbs.push(RegionVerb { region: &self.shared, at: SEQ_AT, what });
        self.trips += 1;
        self.client.verbs(&verbs)?;
        self.lock.seq = even;
        Ok(())
    }

    /// Finishes what the lock's last holder, or this client itself, has begun. The lock is held.
    pub(super) fn finish(&mut self) -> Result<(), FsError> {
        let damaged = || FsError::Machine("the journal of a volatile file system is none".into());
        let region = self.shared.clone();
        let verb = |at, len| RegionVerb { region: &region, at, what: VerbWhat::Read(len) };
        self.trips += 1;
        let read = self.client.verbs(&[verb(SEQ_AT, 8), verb(JOURNAL_HEAD_AT, 16)])?;
        let [seq, head] = &read[..] else { return Err(damaged()) };
        self.lock.seq = number(seq);
        if self.lock.seq.is_multiple_of(2) {
            return Ok(());
        }
        let len = journal_len(head).ok_or_else(damaged)?;
        let starts = (0..len).step_by(PIECE);
        let places = starts.map(|at| verb(JOURNAL_AT + at as u64, PIECE.min(len - at)));
        let places: Vec<_> = places.collect();
        self.trips += 1;
        let journal = self.client.verbs(&places)?.concat();
        let runs = parse_journal(head, &journal).ok_or_else(damaged)?;
        self.put(&runs)
    }
}

fn pieces<'a>(
    region: &'a outboard_active::RemoteRegion,
    at: u64,
    bytes: &'a [u8],
) -> impl Iterator<Item = RegionVerb<'a>> {
    bytes.chunks(PIECE).enumerate().map(move |(index, piece)| RegionVerb {
        region,
        at: at + (index * PIECE) as u64,
        what: VerbWhat::Write(piece),
    })
}
