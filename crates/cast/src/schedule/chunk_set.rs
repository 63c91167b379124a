//! Which chunks a node holds: everything below a word of 64, and a bitmap from there on.
//!
//! In a running cast nearly all of what a node holds lies below its front, so that the sets of
//! 10,000 nodes cost little more than a few words each. Never larger than one bit for a chunk.

use serde::{Deserialize, Serialize};

/// A set of chunk numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SentChunkSet")]
pub struct ChunkSet {
    /// The number of words of 64 chunks at the beginning that are full.
    full_words: u32,
    /// The words after them.
    words: Vec<u64>,
}

/// A set as a peer sent it, which may have any form.
#[derive(Deserialize)]
struct SentChunkSet {
    full_words: u32,
    words: Vec<u64>,
}

impl From<SentChunkSet> for ChunkSet {
    fn from(SentChunkSet { full_words, words }: SentChunkSet) -> Self {
        let mut set = Self { full_words, words };
        set.fold();
        set
    }
}

impl ChunkSet {
    /// No chunk.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// All chunks with a number less than `end`.
    #[must_use]
    pub fn below(end: u32) -> Self {
        let rest = end % 64;
        let words = if rest == 0 { Vec::new() } else { vec![(1 << rest) - 1] };
        Self { full_words: end / 64, words }
    }

    /// Whether `chunk` is in the set.
    #[must_use]
    pub fn contains(&self, chunk: u32) -> bool {
        self.word(chunk / 64) >> (chunk % 64) & 1 == 1
    }

    /// Adds `chunk`; says whether it is new.
    pub fn insert(&mut self, chunk: u32) -> bool {
        let Some(index) = (chunk / 64).checked_sub(self.full_words) else { return false };
        let index = index as usize;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        let before = self.words[index];
        self.words[index] |= 1 << (chunk % 64);
        let new = self.words[index] != before;
        self.fold();
        new
    }

    /// How many chunks are in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        let beyond: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        u64::from(self.full_words) * 64 + beyond
    }

    /// Whether no chunk is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the highest chunk's number, 0 if there is none.
    #[must_use]
    pub fn end(&self) -> u64 {
        let last = self.words.iter().rposition(|word| *word != 0);
        let full = u64::from(self.full_words);
        match last {
            Some(at) => (full + at as u64 + 1) * 64 - u64::from(self.words[at].leading_zeros()),
            None => full * 64,
        }
    }

    /// The first chunk from `from` on that is not in the set.
    #[must_use]
    pub fn next_missing(&self, from: u32) -> u64 {
        let mut at = u64::from(from).max(u64::from(self.full_words) * 64);
        loop {
            let index = usize::try_from(at / 64 - u64::from(self.full_words)).unwrap_or(usize::MAX);
            let Some(word) = self.words.get(index) else { return at };
            let holes = !word >> (at % 64);
            if holes != 0 {
                return at + u64::from(holes.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
    }

    /// Whether all chunks below `end` are in the set.
    #[must_use]
    pub fn contains_all(&self, end: u32) -> bool {
        self.next_missing(0) >= u64::from(end)
    }

    /// The chunks below `end` that are not in the set, in runs.
    #[must_use]
    pub fn missing(&self, end: u32) -> ChunkRuns {
        let mut missing = ChunkRuns::default();
        let mut at = 0;
        while let Some(chunk) = u32::try_from(self.next_missing(at)).ok().filter(|c| *c < end) {
            missing.push(chunk);
            at = chunk + 1;
        }
        missing
    }

    /// Leaves out what lies more than `words` words of 64 chunks behind the first chunk that is
    /// missing, so that the set is short.
    pub fn keep_front(&mut self, words: usize) {
        self.words.truncate(words);
        self.fold();
    }

    /// Keeps what `other` holds too.
    pub fn intersect(&mut self, other: &Self) {
        *self = self.combine(other, |a, b| a & b, self.full_words.min(other.full_words));
    }

    /// Adds what `other` holds.
    pub fn unite(&mut self, other: &Self) {
        *self = self.combine(other, |a, b| a | b, self.full_words.max(other.full_words));
    }

    fn combine(&self, other: &Self, both: fn(u64, u64) -> u64, full_words: u32) -> Self {
        let end = self.word_end().max(other.word_end());
        let words = (full_words..end).map(|at| both(self.word(at), other.word(at))).collect();
        let mut combined = Self { full_words, words };
        combined.fold();
        combined
    }

    fn word_end(&self) -> u32 {
        self.full_words.saturating_add(u32::try_from(self.words.len()).unwrap_or(u32::MAX))
    }

    fn word(&self, at: u32) -> u64 {
        match at.checked_sub(self.full_words) {
            Some(index) => self.words.get(index as usize).copied().unwrap_or(0),
            None => u64::MAX,
        }
    }

    /// The one form of a set: full words first are counted, empty words last are left out.
    fn fold(&mut self) {
        let full = self.words.iter().take_while(|word| **word == u64::MAX).count();
        self.words.drain(..full);
        self.full_words = self.full_words.saturating_add(u32::try_from(full).unwrap_or(u32::MAX));
        let used = self.words.iter().rposition(|word| *word != 0).map_or(0, |at| at + 1);
        self.words.truncate(used);
    }
}

impl FromIterator<u32> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = u32>>(chunks: I) -> Self {
        let mut set = Self::empty();
        for chunk in chunks {
            set.insert(chunk);
        }
        set
    }
}

/// Chunk numbers in ascending or any other order, as runs of successive ones: found by position
/// in the logarithm of the number of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChunkRuns {
    /// Position and number of each run's first chunk.
    runs: Vec<(u32, u32)>,
    len: u32,
}

impl ChunkRuns {
    /// How many chunks there are.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The chunk at `position`, which is below [`len`](Self::len).
    #[must_use]
    pub fn chunk(&self, position: u32) -> Option<u32> {
        if position >= self.len {
            return None;
        }
        let after = self.runs.partition_point(|(start, _)| *start <= position);
        let (start, chunk) = self.runs[after - 1];
        Some(chunk + (position - start))
    }

    /// All chunks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).filter_map(|position| self.chunk(position))
    }

    pub(super) fn push(&mut self, chunk: u32) {
        let follows = self.runs.last().is_some_and(|(start, first)| {
            u64::from(*first) + u64::from(self.len - start) == u64::from(chunk)
        });
        if !follows {
            self.runs.push((self.len, chunk));
        }
        self.len += 1;
    }
}
