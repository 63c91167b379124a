//! The records with the largest values that a predicate selects, of an array in a region: as
//! `modules/topk/topk.h` says.
//!
//! A record has 16 to 64 bytes, a multiple of 8: key, value, then anything. Up to 1000 are
//! returned. Records that a peer writes during a scan may be seen in half.

use crate::bytes::{word, word_in, words};
use crate::error::AppError;
use crate::shipped::AppModule;
use crate::structure::Structure;
use outboard_active::{ActiveClient, RemoteRegion};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// `TOPK_K_MAX`.
pub const K_MAX: u32 = 1000;
/// Bytes that a plain client reads at once, in so many pieces.
const PIECE: usize = 1 << 20;
const PIECES: usize = 16;
/// Bytes of a record in an answer.
const ANSWER: usize = 24;

/// An array of records: at its structure's offset, a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordArray {
    /// Offset of the first record, a multiple of 8.
    pub offset: u64,
    /// How many there are.
    pub number: u64,
    /// Bytes of each.
    pub record_len: u32,
}

/// Which records are selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPredicate {
    /// All.
    All,
    /// Those with keys from the first to the last.
    KeyRange(u64, u64),
    /// Those with values below this.
    ValueBelow(u64),
    /// Those whose keys have these bits (first) so (second).
    KeyMask(u64, u64),
}

/// A record that is among the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopRecord {
    /// Its key.
    pub key: u64,
    /// Its value.
    pub value: u64,
    /// Its place in the array.
    pub index: u64,
}

/// The best records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopRecords {
    /// How many the predicate selects.
    pub selected: u64,
    /// The largest value first; of equal values the earlier record.
    pub best: Vec<TopRecord>,
}

impl RecordPredicate {
    /// `enum topk_predicate`, a and b.
    fn parts(self) -> [u64; 3] {
        match self {
            Self::All => [0, 0, 0],
            Self::KeyRange(first, last) => [1, first, last],
            Self::ValueBelow(limit) => [2, limit, 0],
            Self::KeyMask(mask, bits) => [3, mask, bits],
        }
    }

    fn selects(self, key: u64, value: u64) -> bool {
        match self {
            Self::All => true,
            Self::KeyRange(first, last) => (first..=last).contains(&key),
            Self::ValueBelow(limit) => value < limit,
            Self::KeyMask(mask, bits) => key & mask == bits,
        }
    }
}

impl RecordArray {
    /// The arguments of entry `top`.
    #[must_use]
    pub fn top_args(&self, k: u32, predicate: RecordPredicate) -> Vec<u8> {
        let lengths = u64::from(self.record_len) | u64::from(k) << 32;
        let [number, a, b] = predicate.parts();
        words(&[self.offset, self.number, lengths, number, a, b])
    }

    fn check(&self, k: u32) -> Result<(), AppError> {
        let too_much = |what, found: u32, limit: u32| AppError::TooMuch {
            what,
            found: found.into(),
            limit: limit.into(),
        };
        match (k, self.record_len) {
            (k, _) if k > K_MAX => Err(too_much("the number of best records", k, K_MAX)),
            (_, len) if !(16..=64).contains(&len) || len % 8 != 0 => {
                Err(too_much("a record's length, a multiple of 8 from 16 on,", len, 64))
            }
            _ => Ok(()),
        }
    }
}

/// Top-k scans by an execution: one round trip, whatever the array's size.
#[derive(Clone, Debug)]
pub struct ActiveTopK {
    structure: Structure,
}

impl ActiveTopK {
    /// Of arrays of this region. No round trip.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(client: &mut ActiveClient, region: &RemoteRegion) -> Result<Self, AppError> {
        Ok(Self::on(Structure::shipped(client, region, 0, AppModule::TopK)?))
    }

    /// The same with a module of the caller's choice.
    #[must_use]
    pub fn on(structure: Structure) -> Self {
        Self { structure }
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// The best `k` of an array. One round trip. The node limits an execution's time: a hundred MB
    /// take some 20 ms.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn top(
        &mut self,
        client: &mut ActiveClient,
        array: &RecordArray,
        (k, predicate): (u32, RecordPredicate),
    ) -> Result<TopRecords, AppError> {
        array.check(k)?;
        let answer = self.structure.call(client, "top", &array.top_args(k, predicate))?;
        let (count, selected) = (word(&answer, 0)?, word(&answer, 8)?);
        let records = answer.get(16..).unwrap_or_default().chunks_exact(ANSWER);
        let (what, found) = ("records in an answer", records.len() as u64);
        if found != count {
            return Err(AppError::Broken { what, found, expected: count });
        }
        let record = |bytes: &[u8]| TopRecord {
            key: word_in(bytes, 0),
            value: word_in(bytes, 8),
            index: word_in(bytes, 16),
        };
        Ok(TopRecords { selected, best: records.map(record).collect() })
    }
}

/// Top-k scans at the client, which reads the whole array.
#[derive(Clone, Debug)]
pub struct PlainTopK {
    structure: Structure,
}

impl PlainTopK {
    /// As [`ActiveTopK::open`].
    ///
    /// # Errors
    /// [`AppError`].
    pub fn open(client: &mut ActiveClient, region: &RemoteRegion) -> Result<Self, AppError> {
        Ok(Self::on(ActiveTopK::open(client, region)?.structure))
    }

    /// As [`ActiveTopK::on`]; of the structure only the region is used.
    #[must_use]
    pub fn on(structure: Structure) -> Self {
        Self { structure }
    }

    /// What it works on, with the count of round trips.
    #[must_use]
    pub fn structure(&self) -> &Structure {
        &self.structure
    }

    /// As [`ActiveTopK::top`]: one round trip for each 16 MiB, in Reads of 1 MiB that wait for each
    /// other no more than the link makes them.
    ///
    /// # Errors
    /// [`AppError`].
    pub fn top(
        &mut self,
        client: &mut ActiveClient,
        array: &RecordArray,
        (k, predicate): (u32, RecordPredicate),
    ) -> Result<TopRecords, AppError> {
        array.check(k)?;
        let limit = self.structure.region().len() / u64::from(array.record_len);
        if array.number > limit {
            let what = "the number of records in the region";
            return Err(AppError::TooMuch { what, found: array.number, limit });
        }
        let record_len = array.record_len as usize;
        let records = (PIECE / record_len) as u64;
        let places: Vec<(u64, usize)> = (0..array.number)
            .step_by(PIECE / record_len)
            .map(|first| {
                let number = records.min(array.number - first);
                let at = array.offset.saturating_add(first * u64::from(array.record_len));
                (at, usize::try_from(number).unwrap_or(0) * record_len)
            })
            .collect();
        let mut best = BestRecords { k: k as usize, ..BestRecords::default() };
        for places in places.chunks(PIECES) {
            for piece in self.structure.read_each(client, places)? {
                best.look(&piece, record_len, predicate);
            }
        }
        Ok(best.into_records())
    }
}

/// The best so far, the worst of them on top.
#[derive(Default)]
struct BestRecords {
    k: usize,
    index: u64,
    selected: u64,
    heap: BinaryHeap<Reverse<(u64, Reverse<u64>, u64)>>,
}

impl BestRecords {
    fn look(&mut self, bytes: &[u8], record_len: usize, predicate: RecordPredicate) {
        for record in bytes.chunks_exact(record_len) {
            let (key, value, index) = (word_in(record, 0), word_in(record, 8), self.index);
            self.index += 1;
            if !predicate.selects(key, value) {
                continue;
            }
            self.selected += 1;
            // A later record of the same value is worse.
            let is_full = self.heap.len() == self.k;
            if is_full && self.heap.peek().is_none_or(|worst| worst.0.0 >= value) {
                continue;
            }
            if is_full {
                self.heap.pop();
            }
            self.heap.push(Reverse((value, Reverse(index), key)));
        }
    }

    fn into_records(self) -> TopRecords {
        let best = self.heap.into_sorted_vec().into_iter();
        let record = |Reverse((value, Reverse(index), key))| TopRecord { key, value, index };
        TopRecords { selected: self.selected, best: best.map(record).collect() }
    }
}
