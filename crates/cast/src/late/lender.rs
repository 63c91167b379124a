//! Which nodes may read what of a holder. Bounds what they cost it, and lets what it sends by the
//! schedule go first.
//!
//! A reader has the bitmap, and the chunks that it borrowed last: to borrow others gives these
//! back. What was lent is revoked when the reader borrows again, says nothing for a while, or
//! leaves.

use super::lent_max;
use crate::pause::excuse;
use outboard_cluster::hub::{Exposed, PeerId};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Nodes that read from one holder at a time.
const READERS_MAX: usize = 8;
/// A reader that borrows nothing for so long is sent away.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// A holder that owes chunks to others lends one for each this many that it sends.
const SENDS_FOR_ONE: u64 = 8;
/// Bytes of copies that are lent at a time, unless one chunk has more.
const COPIES_MAX: u64 = 4 << 20;

/// Why a node may not read, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LenderFault {
    #[error("{READERS_MAX} nodes read from this one already")]
    Full,
    #[error("node {node} reads from this one already")]
    Again { node: u32 },
    #[error("it borrows {found} chunks: 1 to {most} are lent at a time")]
    Chunks { found: usize, most: usize },
    #[error("it borrows chunk {chunk} of a cast that has {chunks}")]
    NoSuchChunk { chunk: u32, chunks: u32 },
    #[error("it borrows chunks before it has heard what it is lent")]
    Unanswered,
    #[error("it borrows chunks of a node that it does not read from")]
    Stranger,
}

/// What a holder has to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LendRoom {
    /// It has nothing else to send.
    Idle,
    /// Neither, but its rate is limited: one chunk at a time.
    Limited,
    /// It owes chunks to others.
    Owes,
    /// It has sent as much as its rate allows.
    Spent,
}

/// What is to be done for a reader.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LendStep<P> {
    /// Make these chunks readable; then [`Lender::prepared`].
    Prepare {
        reader: P,
        chunks: Vec<u32>,
        /// Bytes that may be copied for it.
        room: u64,
    },
    /// Tell it that nothing can be lent now.
    Refuse { reader: P },
}

#[derive(Debug)]
struct CastReader {
    node: u32,
    heard: Instant,
    /// What it can read, and how many bytes were copied for it.
    lent: Vec<(Exposed, u64)>,
    /// What it wants, until it has an answer.
    asked: Option<Vec<u32>>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Lender<P = PeerId> {
    readers: BTreeMap<P, CastReader>,
    /// Those that want something, in order.
    queue: VecDeque<P>,
    is_preparing: bool,
    /// Chunks that the schedule had sent when one was lent while it owed more.
    sent_before: u64,
    lent_chunks: u64,
}

impl<P> Default for Lender<P> {
    fn default() -> Self {
        let (readers, queue) = (BTreeMap::new(), VecDeque::new());
        Self { readers, queue, is_preparing: false, sent_before: 0, lent_chunks: 0 }
    }
}

impl<P: Copy + Ord> Lender<P> {
    /// Whether node `node` may begin to read.
    pub(crate) fn admits(&self, node: u32) -> Result<(), LenderFault> {
        if self.readers.len() >= READERS_MAX {
            return Err(LenderFault::Full);
        }
        match self.readers.values().any(|reader| reader.node == node) {
            true => Err(LenderFault::Again { node }),
            false => Ok(()),
        }
    }

    /// It begins to read.
    pub(crate) fn admit(&mut self, reader: P, node: u32, now: Instant) {
        let lent = Vec::new();
        self.readers.insert(reader, CastReader { node, heard: now, lent, asked: None });
    }

    /// A reader wants to read these chunks. Returns what it may not read any more.
    pub(crate) fn borrow(
        &mut self,
        reader: P,
        chunks: Vec<u32>,
        (all, chunk_len): (u32, u32),
        now: Instant,
    ) -> Result<Vec<Exposed>, LenderFault> {
        let known = self.readers.get_mut(&reader).ok_or(LenderFault::Stranger)?;
        let (found, most) = (chunks.len(), lent_max(chunk_len));
        if found == 0 || found > most {
            return Err(LenderFault::Chunks { found, most });
        }
        if let Some(chunk) = chunks.iter().copied().find(|chunk| *chunk >= all) {
            return Err(LenderFault::NoSuchChunk { chunk, chunks: all });
        }
        if known.asked.is_some() {
            return Err(LenderFault::Unanswered);
        }
        (known.asked, known.heard) = (Some(chunks), now);
        self.queue.push_back(reader);
        Ok(known.lent.drain(..).map(|(memory, _)| memory).collect())
    }

    /// What to do next.
    pub(crate) fn next(
        &mut self,
        room: LendRoom,
        sent: u64,
        chunk_len: u32,
    ) -> Option<LendStep<P>> {
        if self.is_preparing {
            return None;
        }
        let reader = self.queue.pop_front()?;
        let mut chunks = self.readers.get(&reader)?.asked.clone()?;
        let is_early = sent < self.sent_before.saturating_add(SENDS_FOR_ONE);
        match room {
            LendRoom::Idle => {}
            LendRoom::Limited => chunks.truncate(1),
            LendRoom::Owes if !is_early => {
                self.sent_before = sent;
                chunks.truncate(1);
            }
            LendRoom::Owes | LendRoom::Spent => {
                self.answered(reader);
                return Some(LendStep::Refuse { reader });
            }
        }
        self.is_preparing = true;
        let copied = |known: &CastReader| known.lent.iter().map(|(_, copied)| copied).sum::<u64>();
        let copied: u64 = self.readers.values().map(copied).sum();
        let room = COPIES_MAX.max(u64::from(chunk_len)).saturating_sub(copied);
        Some(LendStep::Prepare { reader, chunks, room })
    }

    /// What was prepared for a reader; false if it has left.
    pub(crate) fn prepared(&mut self, reader: P) -> bool {
        self.is_preparing = false;
        self.answered(reader);
        self.readers.contains_key(&reader)
    }

    fn answered(&mut self, reader: P) {
        if let Some(known) = self.readers.get_mut(&reader) {
            known.asked = None;
        }
    }

    /// A reader can read this.
    pub(crate) fn lend(&mut self, reader: P, memory: Exposed, copied_bytes: u64) {
        if let Some(known) = self.readers.get_mut(&reader) {
            known.lent.push((memory, copied_bytes));
            self.lent_chunks += 1;
        }
    }

    /// A reader has left.
    pub(crate) fn forget(&mut self, reader: P) {
        self.readers.remove(&reader);
        self.queue.retain(|waiting| *waiting != reader);
    }

    /// This process itself was held up.
    pub(crate) fn held_up(&mut self, now: Instant, late: Duration) {
        self.readers.values_mut().for_each(|reader| excuse(&mut reader.heard, now, late));
    }

    /// Those that have said nothing for too long.
    pub(crate) fn silent(&self, now: Instant) -> Vec<P> {
        let is_silent = |known: &CastReader| now > known.heard + SILENCE_MAX;
        self.readers.iter().filter(|(_, known)| is_silent(known)).map(|(peer, _)| *peer).collect()
    }

    /// All that read from this node.
    pub(crate) fn readers(&self) -> impl Iterator<Item = P> + '_ {
        self.readers.keys().copied()
    }

    /// Chunks that were lent so far.
    pub(crate) fn lent_chunks(&self) -> u64 {
        self.lent_chunks
    }
}
