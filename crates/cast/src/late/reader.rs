//! Which chunks a late node reads, of which holder.
//!
//! It is connected with a few holders, chosen by chance, and reads their bitmaps now and then. Of
//! each it borrows some chunks at a time: those that fewest of its holders have, of some that it
//! finds from a place in the stream that chance chooses; the manifest and what programs wait for
//! come first. A holder that does not answer, or has nothing, gives way to another.

use super::holders::{BAD_MAX, BitmapRead, Borrowing, HolderStage, NamedHolder, OpenHolder};
use super::lent_max;
use crate::protocol::LentChunk;
use crate::receive::ChunkBitmap;
use crate::sign::StreamShape;
use outboard_cluster::hub::Exposed;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Holders that are connected at a time.
const HOLDERS_MAX: usize = 8;
/// Reads of a holder's chunks that are under way at a time.
const READS_MAX: usize = 4;
/// Bytes that are read, or checked and written, at a time, unless one chunk has more.
const BYTES_MAX: u64 = 16 << 20;
/// Chunks that are looked at for each one that is borrowed.
const SAMPLE: usize = 4;
/// Chunks that programs wait for, at most.
const DEMANDED_MAX: usize = 64;
/// A dialled holder must have answered within this time.
const JOIN_LIMIT: Duration = Duration::from_secs(8);
/// So must one that chunks are borrowed of.
const BORROW_LIMIT: Duration = Duration::from_secs(8);
/// A read must end within this time, and the time that its bytes take at the slowest rate.
const READ_LIMIT: Duration = Duration::from_secs(5);
const SLOWEST_BYTES_PER_SECOND: u64 = 256 << 10;
/// How often a holder's bitmap is read, if it has not more bytes than are read in a second.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const BITMAP_BYTES_PER_SECOND: u64 = 1 << 20;
/// A holder that lends nothing is asked again after this time.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// One from which nothing has come for so long gives way to another.
const USELESS_MAX: Duration = Duration::from_secs(4);
/// How often time-outs are looked for.
const TICK: Duration = Duration::from_millis(50);

/// Whether a chunk is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkNeed {
    /// It is here.
    Held,
    /// It may come another way, or cannot be checked yet.
    NotNow,
    /// It is.
    Wanted,
}

/// What the reader must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadAction {
    /// Dial a holder and join it to read; then [`LateReader::opened`] or [`LateReader::lost`].
    Dial { node: u32 },
    /// Read its bitmap; then [`LateReader::bitmap`].
    Look { node: u32, bitmap: Exposed },
    /// Ask it for chunks; then [`LateReader::lent`].
    Borrow { node: u32, chunks: Vec<u32> },
    /// Read a chunk; then [`LateReader::read`], and [`LateReader::kept`].
    Read { node: u32, lent: LentChunk },
    /// End the connection with it.
    End { node: u32, why: &'static str },
    /// Tell the source that there is no holder to read from.
    Feed,
}

/// What a holder did that no holder of this program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadFault {
    #[error("it has a bitmap of {found} bytes: this cast's has {expected}")]
    Bitmap { found: u64, expected: u64 },
    #[error("it lends chunk {chunk}, which was not asked of it")]
    Unasked { chunk: u32 },
    #[error("it lends {found} bytes as chunk {chunk}, which has {expected}")]
    Length { chunk: u32, found: u64, expected: u64 },
    #[error("it lets this node read, which did not ask for it")]
    Twice,
}

/// What became of a chunk that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Kept,
    /// It is not what the source signed. Its owner may have changed the published file.
    Bad,
    /// Its hash is not known yet.
    Unknown,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct LateReader {
    shape: StreamShape,
    named: BTreeMap<u32, NamedHolder>,
    open: BTreeMap<u32, OpenHolder>,
    /// Chunks that are here or to come, a bit each.
    taken: Vec<u64>,
    taken_chunks: u64,
    /// Bytes that are read, or checked and written.
    busy_bytes: u64,
    demanded: VecDeque<u32>,
    chance: u64,
    has_asked_to_be_fed: bool,
    looked: Option<Instant>,
    actions: VecDeque<ReadAction>,
}

impl LateReader {
    /// Node `node` reads a cast of this shape.
    pub(crate) fn new(node: u32, shape: StreamShape) -> Self {
        Self {
            shape,
            named: BTreeMap::new(),
            open: BTreeMap::new(),
            taken: vec![0; shape.chunks().div_ceil(64) as usize],
            taken_chunks: 0,
            busy_bytes: 0,
            demanded: VecDeque::new(),
            // Any number but 0, and another one for each node.
            chance: u64::from(node + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            has_asked_to_be_fed: false,
            looked: None,
            actions: VecDeque::new(),
        }
    }

    /// The next thing to do.
    pub(crate) fn next_action(&mut self) -> Option<ReadAction> {
        self.actions.pop_front()
    }

    /// The source names the holders: these and no others.
    pub(crate) fn name(&mut self, holders: &[u32], now: Instant) {
        let holders: BTreeSet<u32> = holders.iter().copied().collect();
        let over: Vec<u32> =
            self.named.keys().copied().filter(|node| !holders.contains(node)).collect();
        for node in over {
            self.end(node, "the source has lost it", now);
            self.named.remove(&node);
        }
        for node in holders {
            self.named.entry(node).or_insert_with(|| NamedHolder::new(now));
        }
        self.looked = None;
    }

    /// A holder lets this node read.
    pub(crate) fn opened(
        &mut self,
        node: u32,
        bitmap: Exposed,
        now: Instant,
    ) -> Result<(), ReadFault> {
        // It was given up meanwhile: its session ends.
        let Some(named) = self.named.get_mut(&node) else { return Ok(()) };
        if !matches!(named.stage, HolderStage::Dialled { .. }) {
            return Err(ReadFault::Twice);
        }
        let expected = ChunkBitmap::bytes(self.shape.chunks()) as u64;
        if bitmap.len() != expected {
            return Err(ReadFault::Bitmap { found: bitmap.len(), expected });
        }
        named.stage = HolderStage::Open;
        self.open.insert(node, OpenHolder::new(bitmap, now));
        Ok(())
    }

    /// A holder's bitmap was read.
    pub(crate) fn bitmap(&mut self, node: u32, bytes: &[u8], now: Instant) {
        let chunks = self.shape.chunks();
        let Some(holder) = self.open.get_mut(&node) else { return };
        let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let before = std::mem::replace(&mut holder.holds, words.collect());
        if matches!(holder.borrowing, Borrowing::Idle { .. }) && before != holder.holds {
            holder.borrowing = Borrowing::Idle { from: now };
        }
        if let (Some(last), rest @ 1..) = (holder.holds.last_mut(), chunks % 64) {
            *last &= (1 << rest) - 1;
        }
        let bytes_len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let pause = Duration::from_secs(1) * bytes_len
            / u32::try_from(BITMAP_BYTES_PER_SECOND).unwrap_or(1);
        holder.look = BitmapRead::Due(now + pause.max(LOOK_EVERY));
    }

    /// A holder says what can be read.
    pub(crate) fn lent(
        &mut self,
        node: u32,
        lent: Vec<LentChunk>,
        now: Instant,
    ) -> Result<(), ReadFault> {
        let Some(holder) = self.open.get_mut(&node) else { return Ok(()) };
        let from = if lent.is_empty() { now + REFUSED_PAUSE } else { now };
        let before = std::mem::replace(&mut holder.borrowing, Borrowing::Idle { from });
        let mut asked = match before {
            Borrowing::Asked { chunks, .. } => chunks,
            Borrowing::Idle { .. } => BTreeSet::new(),
        };
        let mut fault = None;
        for lent in lent {
            let LentChunk { chunk, memory } = lent;
            if !asked.remove(&chunk) {
                fault = Some(ReadFault::Unasked { chunk });
                break;
            }
            let (found, expected) = (memory.len(), self.shape.len_of(chunk) as u64);
            if found != expected {
                asked.insert(chunk);
                fault = Some(ReadFault::Length { chunk, found, expected });
                break;
            }
            holder.ready.push_back(lent);
        }
        asked.into_iter().for_each(|chunk| self.untake(chunk));
        fault.map_or(Ok(()), Err)
    }

    /// A chunk was read, and is to be checked. False if it is of no use any more.
    pub(crate) fn read(&mut self, node: u32, chunk: u32, now: Instant) -> bool {
        let Some(holder) = self.open.get_mut(&node) else { return false };
        holder.useful = now;
        holder.reading.remove(&chunk).is_some()
    }

    /// A chunk that was read of a holder was checked.
    pub(crate) fn kept(&mut self, node: u32, chunk: u32, outcome: ReadOutcome, now: Instant) {
        self.busy_bytes = self.busy_bytes.saturating_sub(self.shape.len_of(chunk) as u64);
        if outcome == ReadOutcome::Kept {
            return;
        }
        self.untake(chunk);
        if let Some(holder) = self.open.get_mut(&node) {
            // Until its bitmap is read again, another holder has its turn.
            if let Some(word) = holder.holds.get_mut((chunk / 64) as usize) {
                *word &= !(1 << (chunk % 64));
            }
        }
        if let Some(named) = self.named.get_mut(&node).filter(|_| outcome == ReadOutcome::Bad) {
            named.bad += 1;
            if named.bad >= BAD_MAX {
                self.end(node, "chunks that it has are not what the source has signed", now);
                self.spoil(node);
            }
        }
    }

    /// The connection with a holder is over, or cannot be made. Returns the chunks that were being
    /// read.
    pub(crate) fn lost(&mut self, node: u32, now: Instant) -> Vec<u32> {
        if let Some(named) = self.named.get_mut(&node).filter(|named| named.is_connected()) {
            named.fail(now);
        }
        self.close(node)
    }

    /// The chunks that are being read.
    pub(crate) fn reading(&self) -> Vec<u32> {
        self.open.values().flat_map(|holder| holder.reading.keys().copied()).collect()
    }

    /// A holder breaks the rules: its session ends, and it is not dialled again.
    pub(crate) fn spoil(&mut self, node: u32) {
        if let Some(named) = self.named.get_mut(&node) {
            named.stage = HolderStage::Bad;
        }
    }

    /// Whether a holder that was dialled is to be joined.
    pub(crate) fn awaits(&self, node: u32) -> bool {
        let stage = self.named.get(&node).map(|named| named.stage);
        matches!(stage, Some(HolderStage::Dialled { .. }))
    }

    /// Programs wait for these chunks.
    pub(crate) fn demand(&mut self, chunks: &[u32]) {
        for chunk in chunks.iter().filter(|chunk| **chunk < self.shape.chunks()) {
            if self.demanded.len() < DEMANDED_MAX && !self.demanded.contains(chunk) {
                self.demanded.push_back(*chunk);
            }
        }
    }

    /// This process itself was held up.
    pub(crate) fn held_up(&mut self, now: Instant, late: Duration) {
        self.named.values_mut().for_each(|named| named.held_up(late));
        self.open.values_mut().for_each(|holder| holder.held_up(now, late));
    }

    /// When [`Self::go_on`] has something to do, if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.looked.map(|looked| looked + TICK)
    }

    /// Begins what can be begun; `need` tells of each chunk whether it is to be read.
    pub(crate) fn go_on(&mut self, now: Instant, need: &dyn Fn(u32) -> ChunkNeed) {
        if self.looked.is_none_or(|looked| now >= looked + TICK) {
            self.looked = Some(now);
            self.end_overdue(now);
            self.dial(now);
        }
        let is_open = |node: &&u32| {
            self.named.get(node).is_some_and(|named| named.stage == HolderStage::Open)
        };
        let open: Vec<u32> = self.open.keys().filter(is_open).copied().collect();
        for node in open {
            self.look(node, now);
            self.borrow(node, now, need);
            self.begin_reads(node, now, need);
        }
    }

    fn end_overdue(&mut self, now: Instant) {
        let dialled = self.named.iter().filter(
            |(_, named)| matches!(named.stage, HolderStage::Dialled { until } if now > until),
        );
        let mut over: Vec<(u32, &'static str)> =
            dialled.map(|(node, _)| (*node, "it does not answer")).collect();
        let overdue = self.open.iter().filter_map(|(node, at)| Some((*node, at.is_overdue(now)?)));
        over.extend(overdue);
        if self.named.values().any(|named| named.is_due(now)) {
            let useless = self.open.iter().filter(|(_, holder)| now > holder.useful + USELESS_MAX);
            over.extend(useless.map(|(node, _)| (*node, "nothing that is lacking can be read")));
        }
        for (node, why) in over {
            self.end(node, why, now);
        }
    }

    /// Dials holders that chance chooses. If none is left, the source is to feed this node.
    fn dial(&mut self, now: Instant) {
        let connected = self.named.values().filter(|named| named.is_connected()).count();
        let due = self.named.iter().filter(|(_, named)| named.is_due(now));
        let mut due: Vec<u32> = due.map(|(node, _)| *node).collect();
        for _ in connected..HOLDERS_MAX {
            if due.is_empty() {
                break;
            }
            let node = due.swap_remove(self.chance_below(due.len()));
            if let Some(named) = self.named.get_mut(&node) {
                named.stage = HolderStage::Dialled { until: now + JOIN_LIMIT };
                self.actions.push_back(ReadAction::Dial { node });
            }
        }
        let is_alone = self.named.values().all(NamedHolder::is_out);
        if is_alone && !std::mem::replace(&mut self.has_asked_to_be_fed, true) {
            self.actions.push_back(ReadAction::Feed);
        }
    }

    fn look(&mut self, node: u32, now: Instant) {
        let all = self.shape.chunks();
        let Some(holder) = self.open.get_mut(&node) else { return };
        let held: u64 = holder.holds.iter().map(|word| u64::from(word.count_ones())).sum();
        if matches!(holder.look, BitmapRead::Due(at) if now >= at) && held < u64::from(all) {
            holder.look = BitmapRead::UnderWay { until: now + READ_LIMIT };
            self.actions.push_back(ReadAction::Look { node, bitmap: holder.bitmap });
        }
    }

    fn borrow(&mut self, node: u32, now: Instant, need: &dyn Fn(u32) -> ChunkNeed) {
        let is_idle = self.open.get(&node).is_some_and(|holder| holder.is_idle(now));
        if !is_idle || self.busy_bytes >= BYTES_MAX {
            return;
        }
        let chunks = self.choose(node, need);
        let Some(holder) = self.open.get_mut(&node) else { return };
        if chunks.is_empty() {
            // Not before there is something new.
            holder.borrowing = Borrowing::Idle { from: now + REFUSED_PAUSE };
            return;
        }
        let asked: BTreeSet<u32> = chunks.iter().copied().collect();
        holder.borrowing = Borrowing::Asked { chunks: asked, until: now + BORROW_LIMIT };
        chunks.iter().for_each(|chunk| self.take(*chunk));
        self.actions.push_back(ReadAction::Borrow { node, chunks });
    }

    /// What to borrow of a holder.
    fn choose(&mut self, node: u32, need: &dyn Fn(u32) -> ChunkNeed) -> Vec<u32> {
        let chunks = self.shape.chunks();
        let lacking = u64::from(chunks).saturating_sub(self.taken_chunks);
        let share = usize::try_from(lacking).unwrap_or(usize::MAX) / (2 * self.open.len().max(1));
        let most = lent_max(self.shape.chunk_len().bytes()).min(share + 1);
        self.demanded.retain(|chunk| need(*chunk) != ChunkNeed::Held);
        let has = |chunk: &u32| self.open.get(&node).is_some_and(|holder| holder.has(*chunk));
        let is_free = |chunk: &u32| !self.is_taken(*chunk) && need(*chunk) == ChunkNeed::Wanted;
        let mut chosen: Vec<u32> =
            self.demanded.iter().copied().filter(has).filter(is_free).take(most).collect();
        if chosen.is_empty() {
            let manifest = self.shape.manifest_chunks();
            chosen = self.sample(node, 0..manifest.min(chunks), most, need);
        }
        if chosen.is_empty() {
            let at = u32::try_from(self.chance_below(chunks as usize)).unwrap_or(0) / 64 * 64;
            chosen = self.sample(node, at..chunks, most * SAMPLE, need);
            if chosen.len() < most {
                let more = most * SAMPLE - chosen.len();
                chosen.extend(self.sample(node, 0..at, more, need));
            }
        }
        // The rarest first; of equal ones, the order is the stream's.
        chosen.sort_by_key(|chunk| self.open.values().filter(|other| other.has(*chunk)).count());
        chosen.truncate(most);
        chosen
    }

    /// Chunks in a part of the stream that a holder has and that are to be read.
    fn sample(
        &mut self,
        node: u32,
        part: std::ops::Range<u32>,
        most: usize,
        need: &dyn Fn(u32) -> ChunkNeed,
    ) -> Vec<u32> {
        let mut found = Vec::new();
        for word in part.start / 64..part.end.div_ceil(64) {
            let held = self.open.get(&node).and_then(|holder| holder.holds.get(word as usize));
            let mut left = held.map_or(0, |held| held & !self.taken[word as usize]);
            while left != 0 && found.len() < most {
                let chunk = word * 64 + left.trailing_zeros();
                left &= left - 1;
                match need(chunk) {
                    _ if !part.contains(&chunk) => {}
                    ChunkNeed::Held => self.take(chunk),
                    ChunkNeed::NotNow => {}
                    ChunkNeed::Wanted => found.push(chunk),
                }
            }
            if found.len() >= most {
                break;
            }
        }
        found
    }

    fn begin_reads(&mut self, node: u32, now: Instant, need: &dyn Fn(u32) -> ChunkNeed) {
        while let Some(holder) = self.open.get_mut(&node) {
            let is_full = holder.reading.len() >= READS_MAX || self.busy_bytes >= BYTES_MAX;
            let Some(lent) = holder.ready.front().copied().filter(|_| !is_full) else { return };
            holder.ready.pop_front();
            let chunk = lent.chunk;
            match need(chunk) {
                ChunkNeed::Held => continue,
                ChunkNeed::NotNow => {
                    self.untake(chunk);
                    continue;
                }
                ChunkNeed::Wanted => {}
            }
            let len = self.shape.len_of(chunk) as u64;
            self.busy_bytes += len;
            // What this holder sends before it takes its time, too.
            let reads = holder.reading.len() as u64 + 1;
            let takes = Duration::from_secs(1 + reads * len / SLOWEST_BYTES_PER_SECOND);
            holder.reading.insert(chunk, now + READ_LIMIT + takes);
            self.actions.push_back(ReadAction::Read { node, lent });
        }
    }

    /// Ends the connection with a holder, which may be dialled again.
    fn end(&mut self, node: u32, why: &'static str, now: Instant) {
        if let Some(named) = self.named.get_mut(&node).filter(|named| named.is_connected()) {
            named.fail(now);
            self.actions.push_back(ReadAction::End { node, why });
        }
    }

    /// Nothing comes from a holder any more.
    fn close(&mut self, node: u32) -> Vec<u32> {
        let Some(holder) = self.open.remove(&node) else { return Vec::new() };
        for chunk in holder.pending() {
            self.untake(chunk);
        }
        let reading: Vec<u32> = holder.reading.keys().copied().collect();
        let len: u64 = reading.iter().map(|chunk| self.shape.len_of(*chunk) as u64).sum();
        self.busy_bytes = self.busy_bytes.saturating_sub(len);
        reading
    }

    fn take(&mut self, chunk: u32) {
        let word = &mut self.taken[(chunk / 64) as usize];
        self.taken_chunks += u64::from(*word >> (chunk % 64) & 1 == 0);
        *word |= 1 << (chunk % 64);
    }

    fn untake(&mut self, chunk: u32) {
        let word = &mut self.taken[(chunk / 64) as usize];
        self.taken_chunks -= *word >> (chunk % 64) & 1;
        *word &= !(1 << (chunk % 64));
    }

    fn is_taken(&self, chunk: u32) -> bool {
        self.taken[(chunk / 64) as usize] >> (chunk % 64) & 1 == 1
    }

    /// A number below `end`, which is not 0.
    fn chance_below(&mut self, end: usize) -> usize {
        // Marsaglia's xorshift: nothing depends on it but which holder and chunk come first.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        usize::try_from(self.chance >> 33).unwrap_or(0) % end.max(1)
    }
}
