//! The log's bytes: batches of records. Plain values, no file.
//!
//! A batch is what one flush has put into one segment: a head of 48 bytes, then its records one
//! behind the other, each with a head of 16 bytes (the commit's number, bytes of its lines, 0).
//! The head is, little-endian: "obfslog1", bytes behind the head (4), records (4), the first
//! record's number (8), the newest commit that was durable before the batch was written (8), and
//! half a BLAKE3 hash of all else (16), under a key of the store and of the segment. What is left
//! of another segment in the same blocks, or of another store, is therefore no batch of this one.
//!
//! A batch that is not whole was being written when the machine stopped, unless a later one says
//! that its records were durable: then it is damaged.

use std::ops::Range;

/// What a batch begins with.
const MAGIC: [u8; 8] = *b"obfslog1";
/// Bytes of a batch's head.
pub const BATCH_HEAD: usize = 48;
/// Bytes of a record's head.
pub const RECORD_HEAD: usize = 16;
/// Batches begin at multiples of this.
pub const BATCH_ALIGN: usize = 16;

/// The key of all hashes of one segment.
#[derive(Clone, Copy, Debug)]
pub struct SegmentKey([u8; 32]);

impl SegmentKey {
    /// The key of a store's segment.
    #[must_use]
    pub fn new(store: &[u8; 16], segment: u64) -> Self {
        let mut deriving = blake3::Hasher::new_derive_key("outboard fs 2026 log segment");
        deriving.update(store).update(&segment.to_le_bytes());
        Self(*deriving.finalize().as_bytes())
    }

    fn hash(&self, head: &[u8], body: &[u8]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(head).update(body);
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        half
    }
}

/// What a batch's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHead {
    /// Its records.
    pub count: u32,
    /// The first one's number, or that of the record that comes next.
    pub first: u64,
    /// The newest commit that was durable before.
    pub durable: u64,
}

impl BatchHead {
    /// The number of the commit behind its last one.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.first.saturating_add(self.count.into())
    }

    /// The head's bytes, for records that are `body`; `None` if they are too long.
    #[must_use]
    pub fn emit(&self, key: &SegmentKey, body: &[u8]) -> Option<[u8; BATCH_HEAD]> {
        let mut head = [0; BATCH_HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&u32::try_from(body.len()).ok()?.to_le_bytes());
        head[12..16].copy_from_slice(&self.count.to_le_bytes());
        head[16..24].copy_from_slice(&self.first.to_le_bytes());
        head[24..32].copy_from_slice(&self.durable.to_le_bytes());
        let hash = key.hash(&head[..32], body);
        head[32..].copy_from_slice(&hash);
        Some(head)
    }
}

/// A whole batch that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeBatch {
    /// What its head says.
    pub head: BatchHead,
    /// Where its records are in the segment.
    pub body: Range<usize>,
}

/// The batch that begins at a byte of a segment; `None` if none does, or not all of it is there.
#[must_use]
pub fn parse_batch(key: &SegmentKey, segment: &[u8], at: usize) -> Option<WholeBatch> {
    let rest = segment.get(at..)?;
    let head: &[u8; BATCH_HEAD] = rest.first_chunk()?;
    if head[..8] != MAGIC {
        return None;
    }
    let len = usize::try_from(word32(&head[8..])).ok()?;
    let body = rest[BATCH_HEAD..].get(..len)?;
    if key.hash(&head[..32], body)[..] != head[32..] {
        return None;
    }
    let head = BatchHead {
        count: word32(&head[12..]),
        first: word64(&head[16..]),
        durable: word64(&head[24..]),
    };
    let from = at + BATCH_HEAD;
    Some(WholeBatch { head, body: from..from + len })
}

/// The first whole batch that begins at `from` or behind it.
#[must_use]
pub fn find_batch(key: &SegmentKey, segment: &[u8], from: usize) -> Option<WholeBatch> {
    let mut at = from.next_multiple_of(BATCH_ALIGN);
    while at + BATCH_HEAD <= segment.len() {
        if let Some(found) = parse_batch(key, segment, at) {
            return Some(found);
        }
        at += BATCH_ALIGN;
    }
    None
}

/// Appends a record.
pub fn push_record(into: &mut Vec<u8>, seq: u64, lines: &[u8]) {
    // Lines of one commit have a few MiB at most.
    let len = u32::try_from(lines.len()).unwrap_or(u32::MAX);
    into.extend_from_slice(&seq.to_le_bytes());
    into.extend_from_slice(&len.to_le_bytes());
    into.extend_from_slice(&[0; 4]);
    into.extend_from_slice(lines);
    into.resize(into.len().next_multiple_of(BATCH_ALIGN), 0);
}

/// A record of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitRecord<'a> {
    /// The commit's number.
    pub seq: u64,
    /// What it has written.
    pub lines: &'a [u8],
    /// Bytes to the next record.
    pub len: usize,
}

/// The records of a batch, up to the first that is not whole.
pub fn records(mut body: &[u8]) -> impl Iterator<Item = CommitRecord<'_>> {
    std::iter::from_fn(move || {
        let record = first_record(body)?;
        body = &body[record.len..];
        Some(record)
    })
}

/// The record that bytes begin with.
#[must_use]
pub fn first_record(body: &[u8]) -> Option<CommitRecord<'_>> {
    let head: &[u8; RECORD_HEAD] = body.first_chunk()?;
    let lines = usize::try_from(word32(&head[8..])).ok()?;
    let len = RECORD_HEAD.checked_add(lines)?.checked_next_multiple_of(BATCH_ALIGN)?;
    let lines = body.get(..len)?.get(RECORD_HEAD..RECORD_HEAD + lines)?;
    Some(CommitRecord { seq: word64(head), lines, len })
}

/// Bytes of the whole records at the beginning of `body` that fit in `room`, and how many they are.
#[must_use]
pub fn fitting(body: &[u8], room: usize) -> (usize, u32) {
    let (mut len, mut count) = (0, 0);
    for record in records(body) {
        if len + record.len > room {
            break;
        }
        (len, count) = (len + record.len, count + 1);
    }
    (len, count)
}

fn word32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
