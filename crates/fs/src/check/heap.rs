//! The heap of `modules/alloc`: that its pieces follow each other without a gap, that its lists
//! have all free ones, and that each taken one is somebody's, once.

use super::bytes::RegionBytes;
use super::found::Findings;

const MAGIC: u64 = 0x3163_6f6c_6c61_6f62;
const HEAD: u64 = 16;
const CLASSES: u64 = 112;
/// Bytes of the state: behind it, at a multiple of 64, is the first piece.
const STATE: u64 = 48 + 8 * CLASSES;
const TAKEN: u64 = 0x7461;
const FREE: u64 = 0x6672;
/// What a table's buckets are moved by inside of their piece, so that they are at a multiple of 64.
const MOVED_MAX: u64 = 48;

#[derive(Clone, Copy, Debug)]
struct HeapPiece {
    at: u64,
    len: u64,
    is_taken: bool,
    /// Somebody's, or in a list of free ones.
    is_known: bool,
}

/// See this file's first lines.
#[derive(Debug, Default)]
pub(super) struct Heap {
    pieces: Vec<HeapPiece>,
}

fn tag(piece: u64, state: u64, class: u64) -> u64 {
    (state << 48 | class) ^ (piece.wrapping_mul(0x9e37_79b9_7f4a_7c15) & 0xffff_ffff_ff00)
}

fn class_len(class: u64) -> u64 {
    match class {
        0..4 => 16 * (class + 1),
        _ => (5 + (class - 4) % 4) << (4 + (class - 4) / 4),
    }
}

impl Heap {
    /// Reads all pieces.
    pub(super) fn read(region: RegionBytes<'_>, heap: u64, found: &mut Findings) -> Self {
        let Some(head) = region.words(heap, 6).filter(|head| head[0] == MAGIC) else {
            found.of_region("the heap's state is none");
            return Self::default();
        };
        let (end, next) = (head[1], head[2]);
        if end > region.len() || next > end {
            found.of_region(format!("the heap says that it ends at {end}, used up to {next}"));
            return Self::default();
        }
        let mut all = Self::default();
        all.walk(region, (heap + STATE.next_multiple_of(64), next), found);
        let taken = all.pieces.iter().filter(|piece| piece.is_taken);
        let (count, bytes) =
            taken.fold((0, 0), |(count, bytes), piece| (count + 1, bytes + piece.len + HEAD));
        if (count, bytes) != (head[3], head[4]) {
            let (told, told_bytes) = (head[3], head[4]);
            found.of_region(format!(
                "the heap counts {told} pieces of {told_bytes} bytes, and has {count} of {bytes}"
            ));
        }
        all.check_free(region, heap, found);
        all
    }

    fn walk(&mut self, region: RegionBytes<'_>, (mut at, end): (u64, u64), found: &mut Findings) {
        while at < end {
            let piece = at + HEAD;
            let word = region.word(at).unwrap_or(0);
            let class = word & 0xff;
            let is = |state| class < CLASSES && word == tag(piece, state, class);
            if !is(TAKEN) && !is(FREE) {
                found.of_region(format!("the heap has no piece at {piece}"));
                return;
            }
            let len = class_len(class);
            self.pieces.push(HeapPiece { at: piece, len, is_taken: is(TAKEN), is_known: false });
            at = piece + len;
        }
    }

    fn check_free(&mut self, region: RegionBytes<'_>, heap: u64, found: &mut Findings) {
        for class in 0..CLASSES {
            let mut at = region.word(heap + 48 + 8 * class).unwrap_or(0);
            while at != 0 {
                let is_free = |piece: &&mut HeapPiece| {
                    !piece.is_taken && !piece.is_known && piece.len == class_len(class)
                };
                let place = self.pieces.binary_search_by_key(&at, |piece| piece.at).ok();
                let piece = place.and_then(|place| self.pieces.get_mut(place));
                let Some(piece) = piece.filter(is_free) else {
                    found.of_region(format!("the heap lists {at} as free, which it is not"));
                    break;
                };
                piece.is_known = true;
                at = region.word(at - 8).unwrap_or(0);
            }
        }
        let lost = self.pieces.iter().filter(|piece| !piece.is_taken && !piece.is_known).count();
        if lost > 0 {
            found.of_region(format!("{lost} free pieces of the heap are in no list"));
        }
    }

    /// Somebody has so many bytes there; why they cannot be its.
    pub(super) fn claim(&mut self, at: u64, len: u64) -> Result<(), String> {
        let behind = self.pieces.partition_point(|piece| piece.at <= at);
        let piece = behind.checked_sub(1).and_then(|place| self.pieces.get_mut(place));
        let fits = |piece: &&mut HeapPiece| {
            at - piece.at <= MOVED_MAX && len <= piece.len.saturating_sub(at - piece.at)
        };
        match piece.filter(fits) {
            Some(HeapPiece { is_taken: false, .. }) => Err(format!("memory at {at} is free")),
            Some(HeapPiece { is_known: true, .. }) => {
                Err(format!("memory at {at} is somebody else's, too"))
            }
            Some(piece) => {
                piece.is_known = true;
                Ok(())
            }
            None => Err(format!("there is no memory of {len} bytes at {at}")),
        }
    }

    /// Says what nobody has.
    pub(super) fn end(&self, found: &mut Findings) {
        let lost = self.pieces.iter().filter(|piece| piece.is_taken && !piece.is_known);
        let (count, bytes) =
            lost.fold((0, 0), |(count, bytes), piece| (count + 1, bytes + piece.len));
        if count > 0 {
            found.of_region(format!("{count} pieces of the heap with {bytes} bytes are nobody's"));
        }
    }
}
