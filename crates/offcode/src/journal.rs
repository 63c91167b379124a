//! The journal of a region: a memory file in which the commit under way can be repeated, and in
//! which the answers to requests outlive the service's process.
//!
//! A commit is made by one store, that of its number; what belongs to it is written before. A
//! process that is killed before that has committed nothing, one that is killed after it finds the
//! commit again and applies it once more. (Memory keeps what a killed process has stored, in that
//! order; a power cut is another matter: the journal is gone then.)
//!
//! Layout, in bytes: a header of 4,096 (below), the lines of the last commit, the ring of answers.

use crate::write_set::{ENCODED, WriteSet};
use outboard_mem::{MemError, SharedRegion, Space};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;

/// "outboard active journal", version 1.
const MAGIC: u64 = 0x3161_6f62_6a72_6e6c;
/// Where the number of the last commit is.
const SEQ: usize = 8;
/// Where the number of the last commit that was applied is.
const APPLIED: usize = 16;
/// Where the two states of the ring are: that of even commits, that of odd ones. Each has 32 bytes:
/// the end of the ring's newest record, the start of its oldest, the newest commit whose answer was
/// dropped, bytes of lines.
const STATES: usize = 64;
const HEADER: usize = 4096;
/// Bytes of a record's head: its length, the client, the request's number, the commit, the length
/// of its answer.
const HEAD: usize = 48;

/// Bytes of memory that is kept for the next commit's lines, at most.
const LINES_KEPT: usize = 64 << 10;

/// Which request, of all that ever reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// The client's own random number.
    pub client: [u8; 16],
    /// The request's number there.
    pub number: u64,
}

/// What the journal knows of a request that is made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Earlier {
    /// It was executed, and this is its answer.
    Answered(Vec<u8>),
    /// It was not executed.
    NotExecuted,
    /// Its answer may have been dropped.
    Unknown,
}

/// Why memory is no journal of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// This machine's memory.
    #[error(transparent)]
    Memory(#[from] MemError),
    /// It was written by something else.
    #[error("the journal that was kept is none of this release's, or is damaged")]
    Damaged,
}

/// The ring at a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RingState {
    /// Bytes that were ever written.
    end: u64,
    /// Bytes that were ever dropped.
    start: u64,
    /// The newest commit whose answer was dropped.
    dropped: u64,
    lines_len: u64,
}

/// See this file's first lines.
#[derive(Debug)]
pub struct RegionJournal {
    memory: SharedRegion,
    lines_cap: usize,
    ring_cap: u64,
    seq: u64,
    ring: RingState,
    answers: AnswerIndex,
    /// Memory for the next commit's lines.
    lines: Vec<u8>,
}

impl RegionJournal {
    /// An empty one, for commits of `write_max` bytes, with `ring_cap` bytes for answers.
    ///
    /// # Errors
    /// [`JournalError::Memory`].
    pub fn new(write_max: usize, ring_cap: usize) -> Result<Self, JournalError> {
        let lines_cap = lines_cap(write_max);
        let ring_cap = ring_cap.next_multiple_of(8);
        let len = HEADER + lines_cap + ring_cap;
        let memory = SharedRegion::memfd(c"outboard-journal", len, Space::OnDemand)?;
        memory.store_u64(24, lines_cap as u64)?;
        memory.store_u64(32, ring_cap as u64)?;
        memory.store_u64(0, MAGIC)?;
        Self::of(memory)
    }

    /// As [`new`](Self::new), as if so many commits had been made: of requests before them nothing
    /// is known.
    ///
    /// # Errors
    /// [`JournalError::Memory`].
    pub fn behind(write_max: usize, ring_cap: usize, seq: u64) -> Result<Self, JournalError> {
        let mut journal = Self::new(write_max, ring_cap)?;
        journal.ring.dropped = seq;
        journal.store_state(seq, journal.ring)?;
        journal.memory.store_u64(APPLIED, seq)?;
        journal.memory.store_u64(SEQ, seq)?;
        journal.seq = seq;
        Ok(journal)
    }

    /// Bytes of the longest lines of a commit.
    #[must_use]
    pub fn lines_max(&self) -> usize {
        self.lines_cap
    }

    /// One that the supervisor has kept.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn kept(memory: OwnedFd) -> Result<Self, JournalError> {
        Self::of(SharedRegion::from_memfd(memory)?)
    }

    fn of(memory: SharedRegion) -> Result<Self, JournalError> {
        if memory.len() < HEADER || memory.load_u64(0)? != MAGIC {
            return Err(JournalError::Damaged);
        }
        let size = |at: usize| -> Result<usize, JournalError> {
            let word = memory.load_u64(at)?;
            usize::try_from(word)
                .ok()
                .filter(|len| *len <= memory.len())
                .ok_or(JournalError::Damaged)
        };
        let (lines_cap, ring_cap, seq) = (size(24)?, size(32)?, memory.load_u64(SEQ)?);
        if HEADER + lines_cap + ring_cap != memory.len() {
            return Err(JournalError::Damaged);
        }
        let mut journal = Self {
            ring: RingState::default(),
            memory,
            lines_cap,
            ring_cap: ring_cap as u64,
            seq,
            answers: AnswerIndex::default(),
            lines: Vec::new(),
        };
        journal.ring = journal.load_state(seq)?;
        journal.scan()?;
        Ok(journal)
    }

    /// A descriptor of its memory, to be kept.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn descriptor(&self) -> Result<OwnedFd, MemError> {
        self.memory.descriptor()
    }

    /// The number of the last commit.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The lines of a commit that was made and perhaps not applied.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn unapplied(&self) -> Result<Option<Vec<u8>>, JournalError> {
        if self.memory.load_u64(APPLIED)? == self.seq {
            return Ok(None);
        }
        let len = usize::try_from(self.ring.lines_len).map_err(|_| JournalError::Damaged)?;
        if len > self.lines_cap {
            return Err(JournalError::Damaged);
        }
        Ok(Some(self.memory.snapshot(HEADER..HEADER + len)?))
    }

    /// The last commit is applied.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn applied(&self) -> Result<(), MemError> {
        self.memory.store_u64(APPLIED, self.seq)
    }

    /// As [`commit`](Self::commit), what an execution has written.
    pub(crate) fn commit_writes(
        &mut self,
        writes: &WriteSet,
        answer: Option<(RequestId, &[u8])>,
    ) -> Result<u64, MemError> {
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        writes.encode(&mut lines);
        let seq = self.commit(&lines, answer);
        lines.shrink_to(LINES_KEPT);
        self.lines = lines;
        seq
    }

    /// The lines that [`commit_writes`](Self::commit_writes) has committed last.
    pub(crate) fn last_lines(&self) -> &[u8] {
        &self.lines
    }

    /// Commits: once this returns, the lines will be applied and the answer found, whatever
    /// happens to this process. The caller applies them now, and says so.
    ///
    /// # Errors
    /// [`MemError`]: this machine has no memory left; nothing is committed.
    pub fn commit(
        &mut self,
        lines: &[u8],
        answer: Option<(RequestId, &[u8])>,
    ) -> Result<u64, MemError> {
        self.memory.copy_in(HEADER, lines)?;
        let seq = self.seq + 1;
        let record = answer.map(|(id, bytes)| self.put(seq, id, bytes)).transpose()?;
        let end = record.map_or(self.ring.end, |(_, end)| end);
        let ring = RingState { lines_len: lines.len() as u64, end, ..self.ring };
        self.store_state(seq, ring)?;
        // The commit. What it stands for is stored before: the store has release ordering.
        self.memory.store_u64(SEQ, seq)?;
        (self.seq, self.ring) = (seq, ring);
        if let (Some((id, _)), Some((at, _))) = (answer, record) {
            self.answers.add(id, at);
        }
        Ok(seq)
    }

    /// What is known of a request that its client makes again. `seen` is the newest commit that the
    /// client knew of when it made the request first.
    ///
    /// # Errors
    /// [`MemError`].
    pub fn find(&self, id: RequestId, seen: u64) -> Result<Earlier, MemError> {
        let Some(at) = self.answers.find(id) else {
            let is_certain = seen >= self.ring.dropped;
            return Ok(if is_certain { Earlier::NotExecuted } else { Earlier::Unknown });
        };
        let at = self.place(at) + HEAD;
        let len = usize::try_from(self.memory.load_u64(at - 8)?).unwrap_or(usize::MAX);
        Ok(Earlier::Answered(self.memory.snapshot(at..at.saturating_add(len))?))
    }

    /// Bytes of the longest answer that fits.
    #[must_use]
    pub fn answer_max(&self) -> usize {
        usize::try_from(self.ring_cap / 4).unwrap_or(usize::MAX) - HEAD
    }

    /// Puts an answer behind the ring's end, over the oldest ones. Returns where it begins and
    /// ends; a commit makes it the ring's newest.
    fn put(&mut self, seq: u64, id: RequestId, bytes: &[u8]) -> Result<(u64, u64), MemError> {
        let len = (HEAD + bytes.len()).next_multiple_of(8) as u64;
        let mut at = self.ring.end;
        let left = self.ring_cap - at % self.ring_cap;
        let skip = if len > left { left } else { 0 };
        self.make_room(skip + len)?;
        if skip > 0 {
            // A length of 0 says that the ring goes on at its beginning.
            self.memory.store_u64(self.place(at), 0)?;
            at += skip;
        }
        let head = RecordHead { len, id, seq, answer_len: bytes.len() as u64 };
        let place = self.place(at);
        self.memory.copy_in(place, &head.encode())?;
        self.memory.copy_in(place + HEAD, bytes)?;
        Ok((at, at + len))
    }

    /// Drops the oldest answers until `len` bytes are free. They are gone before anything is put
    /// over them, whether a commit follows or not.
    fn make_room(&mut self, len: u64) -> Result<(), MemError> {
        if self.ring.end + len - self.ring.start <= self.ring_cap {
            return Ok(());
        }
        while self.ring.end + len - self.ring.start > self.ring_cap {
            let at = self.ring.start;
            let Some(head) = self.record(at)? else {
                self.ring.start = self.lap_after(at);
                continue;
            };
            self.answers.forget(head.id, at);
            self.ring.start = at + head.len;
            self.ring.dropped = self.ring.dropped.max(head.seq);
        }
        let now = state_at(self.seq);
        self.memory.store_u64(now + 16, self.ring.dropped)?;
        self.memory.store_u64(now + 8, self.ring.start)
    }

    /// The head of the record that begins there; `None` where the ring goes on at its beginning.
    fn record(&self, at: u64) -> Result<Option<RecordHead>, MemError> {
        let place = self.place(at);
        if self.memory.load_u64(place)? == 0 {
            return Ok(None);
        }
        let mut head = [0; HEAD];
        self.memory.copy_out(place, &mut head)?;
        Ok(Some(RecordHead::decode(&head)))
    }

    /// Where the ring begins again behind a byte of it.
    fn lap_after(&self, at: u64) -> u64 {
        at + self.ring_cap - at % self.ring_cap
    }

    /// Where a byte of the ring is in the memory.
    fn place(&self, at: u64) -> usize {
        let within = usize::try_from(at % self.ring_cap.max(1)).unwrap_or_default();
        HEADER + self.lines_cap + within
    }

    fn load_state(&self, seq: u64) -> Result<RingState, JournalError> {
        let at = state_at(seq);
        let word = |index: usize| self.memory.load_u64(at + index * 8);
        let ring =
            RingState { end: word(0)?, start: word(1)?, dropped: word(2)?, lines_len: word(3)? };
        let used = ring.end.checked_sub(ring.start).ok_or(JournalError::Damaged)?;
        if used > self.ring_cap { Err(JournalError::Damaged) } else { Ok(ring) }
    }

    fn store_state(&self, seq: u64, ring: RingState) -> Result<(), MemError> {
        let at = state_at(seq);
        let words = [ring.end, ring.start, ring.dropped, ring.lines_len];
        let mut words = words.into_iter().enumerate();
        words.try_for_each(|(index, word)| self.memory.store_u64(at + index * 8, word))
    }

    /// Finds the answers in memory that was kept.
    fn scan(&mut self) -> Result<(), JournalError> {
        let mut at = self.ring.start;
        while at < self.ring.end {
            let Some(head) = self.record(at)? else {
                at = self.lap_after(at);
                continue;
            };
            if !head.is_whole() || head.len > self.ring.end - at {
                return Err(JournalError::Damaged);
            }
            self.answers.add(head.id, at);
            at += head.len;
        }
        Ok(())
    }
}

/// What an answer in the ring begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordHead {
    /// Bytes to the next record.
    len: u64,
    /// Whose answer.
    id: RequestId,
    /// Which commit's.
    seq: u64,
    /// Bytes of the answer.
    answer_len: u64,
}

impl RecordHead {
    fn encode(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&self.len.to_le_bytes());
        head[8..24].copy_from_slice(&self.id.client);
        head[24..32].copy_from_slice(&self.id.number.to_le_bytes());
        head[32..40].copy_from_slice(&self.seq.to_le_bytes());
        head[40..48].copy_from_slice(&self.answer_len.to_le_bytes());
        head
    }

    fn decode(head: &[u8; HEAD]) -> Self {
        let word =
            |from: usize| head[from..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let mut client = [0; 16];
        client.copy_from_slice(&head[8..24]);
        let id = RequestId { client, number: word(24) };
        Self { len: word(0), id, seq: word(32), answer_len: word(40) }
    }

    /// Whether the record can be one that was put.
    fn is_whole(&self) -> bool {
        let room = self.len.checked_sub(HEAD as u64);
        self.len.is_multiple_of(8) && room.is_some_and(|room| self.answer_len <= room)
    }
}

/// Where each answer is in the ring. A client's requests come about in order, and the oldest are
/// forgotten first: what a commit touches of it stays in the cache, however many answers there are.
#[derive(Debug, Default, PartialEq, Eq)]
struct AnswerIndex {
    clients: HashMap<[u8; 16], BTreeMap<u64, u64>>,
}

impl AnswerIndex {
    fn find(&self, id: RequestId) -> Option<u64> {
        self.clients.get(&id.client)?.get(&id.number).copied()
    }

    fn add(&mut self, id: RequestId, at: u64) {
        self.clients.entry(id.client).or_default().insert(id.number, at);
    }

    /// Forgets an answer, unless the request has a newer one.
    fn forget(&mut self, id: RequestId, at: u64) {
        let Some(numbers) = self.clients.get_mut(&id.client) else { return };
        if numbers.get(&id.number) == Some(&at) {
            numbers.remove(&id.number);
        }
        if numbers.is_empty() {
            self.clients.remove(&id.client);
        }
    }
}

/// Bytes for the lines of a commit of `write_max` bytes.
fn lines_cap(write_max: usize) -> usize {
    (write_max.div_ceil(64) * ENCODED).next_multiple_of(4096)
}

fn state_at(seq: u64) -> usize {
    if seq.is_multiple_of(2) { STATES } else { STATES + 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        RequestId { client: [7; 16], number }
    }

    fn again(journal: &RegionJournal) -> RegionJournal {
        RegionJournal::kept(journal.descriptor().expect("a descriptor")).expect("kept")
    }

    #[test]
    fn a_commit_is_found_again_by_the_next_process() {
        let mut journal = RegionJournal::new(4096, 8192).expect("memory");
        assert_eq!(journal.find(id(1), 0), Ok(Earlier::NotExecuted));
        assert_eq!(journal.commit(b"lines", Some((id(1), b"answer"))), Ok(1));
        let mut next = again(&journal);
        assert_eq!(next.unapplied(), Ok(Some(b"lines".to_vec())));
        next.applied().expect("said");
        assert_eq!(again(&next).unapplied(), Ok(None));
        assert_eq!(next.find(id(1), 0), Ok(Earlier::Answered(b"answer".to_vec())));
        assert_eq!(next.commit(b"more", None), Ok(2));
        assert_eq!(again(&next).unapplied(), Ok(Some(b"more".to_vec())));
    }

    #[test]
    fn what_is_not_committed_was_never_there() {
        let mut journal = RegionJournal::new(4096, 8192).expect("memory");
        journal.commit(b"one", Some((id(1), b"first"))).expect("room");
        journal.applied().expect("said");
        // A process that is killed right before the commit has written all but the number.
        let (_, end) = journal.put(2, id(2), b"second").expect("room");
        let ring = RingState { lines_len: 3, end, ..journal.ring };
        journal.memory.copy_in(HEADER, b"two").expect("inside");
        journal.store_state(2, ring).expect("inside");
        let next = again(&journal);
        assert_eq!((next.seq(), next.unapplied()), (1, Ok(None)));
        assert_eq!(next.find(id(2), 1), Ok(Earlier::NotExecuted));
        assert_eq!(next.find(id(1), 0), Ok(Earlier::Answered(b"first".to_vec())));
    }

    #[test]
    fn old_answers_make_room_and_are_then_unknown() {
        let mut journal = RegionJournal::new(4096, 1024).expect("memory");
        for number in 1..=500_u64 {
            let answer = vec![number.to_le_bytes()[0]; (number % 150) as usize];
            assert_eq!(journal.commit(b"", Some((id(number), &answer))), Ok(number));
            assert_eq!(journal.find(id(number), 0), Ok(Earlier::Answered(answer)));
            if number.is_multiple_of(5) {
                // Killed before the commit: what it would have overwritten is gone, no more.
                journal.put(number + 1, id(0), &[7; 100]).expect("room");
                journal = again(&journal);
                assert_eq!(journal.find(id(0), number), Ok(Earlier::NotExecuted));
            }
            if number.is_multiple_of(7) {
                let next = again(&journal);
                assert_eq!(next.ring, journal.ring);
                assert_eq!(next.answers, journal.answers);
                journal = next;
            }
        }
        assert!(journal.answers.clients[&[7; 16]].len() > 3);
        assert_eq!(journal.find(id(1), 0), Ok(Earlier::Unknown));
        let kept = journal.answers.clients[&[7; 16]].first_key_value().map_or(0, |(id, _)| *id);
        assert_eq!(journal.find(id(9999), kept - 1), Ok(Earlier::NotExecuted));
        assert_eq!(journal.find(id(9999), kept - 2), Ok(Earlier::Unknown));
    }

    #[test]
    fn memory_of_something_else_is_no_journal() {
        let memory = SharedRegion::memfd(c"test", 8192, Space::OnDemand).expect("memory");
        let kept = || RegionJournal::kept(memory.descriptor().expect("a descriptor"));
        assert_eq!(kept().map(drop), Err(JournalError::Damaged));
        memory.store_u64(0, MAGIC).expect("inside");
        memory.store_u64(24, u64::MAX).expect("inside");
        assert_eq!(kept().map(drop), Err(JournalError::Damaged));
    }
}
