//! Names of a directory from a place on, with what they stand for: along the records of names, a
//! piece of memory at a time, then to the inodes' records.

use super::lookup::find;
use super::records::{directory, named};
use super::view::{ReadPlace, RegionView, WalkStop, Walked, word_at};
use crate::client::ListedName;
use crate::protocol::places::{
    NAMES_DIR_LEN, NAMES_RECORD_MAX, NAMES_SEGMENTS, NAMES_SEGMENTS_AT, NAMES_STEP, names_segment,
    names_segment_of, word_of,
};
use crate::protocol::{FsInode, FsLayout, FsListed, FsRecord, is_name};

/// Names of one walk, at most: the longer the Reads take, the oftener something is committed
/// meanwhile.
const PAGE_NAMES: usize = 32;
/// Bytes of names that are read at once: more than a record has.
const PIECE: u64 = 1024;
/// Such pieces of one walk, at most.
const PIECES_MAX: usize = 8;
/// A place is not behind this one.
const PLACE_MAX: u64 = 1 << 34;

/// A name as its directory has it, and the place behind it.
struct PlacedName<'a> {
    name: &'a [u8],
    number: u64,
    place: u64,
    next: u64,
}

/// A directory's header.
struct DirHeader<'a>(&'a [u8]);

impl DirHeader<'_> {
    /// The first place behind all records.
    fn end(&self) -> u64 {
        word_at(self.0, 8).min(PLACE_MAX)
    }

    /// Where a piece from a place on is.
    fn piece(&self, place: u64) -> Walked<ReadPlace> {
        let segment = names_segment_of(place);
        if segment >= NAMES_SEGMENTS {
            return Err(WalkStop::Unclear);
        }
        let (start, len) = names_segment(segment);
        let at = usize::try_from(NAMES_SEGMENTS_AT).unwrap_or(0) + 8 * segment;
        let room = (start + len).min(self.end()) - place;
        let piece = usize::try_from(room.min(PIECE)).map_err(|_| WalkStop::Unclear)?;
        let at = word_at(self.0, at).checked_add(place - start).ok_or(WalkStop::Unclear)?;
        Ok((at, piece))
    }
}

/// Names of a directory from a place on, some of them; none behind the last.
pub(crate) fn list(view: &RegionView<'_>, dir: FsInode, at: u64) -> Walked<Vec<ListedName>> {
    let record = directory(view, dir)?;
    let header = DirHeader(view.read(record.body, NAMES_DIR_LEN)?);
    let names = names_of(view, &header, at)?;
    let records: Walked<Vec<ReadPlace>> =
        names.iter().map(|name| Ok((view.headers.record(name.number)?, FsRecord::LEN))).collect();
    view.need(&records?)?;
    // Where one goes on, a record must begin, and not the midst of a name.
    if let Some(first) = names.first().filter(|_| at > 0) {
        let item = find(view, dir, first.name)?;
        let is_there = item.is_some_and(|item| item.place == first.place);
        is_there.then_some(()).ok_or(WalkStop::Unclear)?;
    }
    names.iter().map(|name| listed(view, name)).collect()
}

fn listed(view: &RegionView<'_>, name: &PlacedName<'_>) -> Walked<ListedName> {
    let answer = named(view, name.number)?;
    let name_len = u32::try_from(name.name.len()).map_err(|_| WalkStop::Unclear)?;
    let head =
        FsListed { next: name.next, name_len, zero: 0, inode: answer.inode, record: answer.record };
    Ok(ListedName { head, name: name.name.to_vec() })
}

fn names_of<'a>(
    view: &RegionView<'a>,
    header: &DirHeader<'_>,
    mut place: u64,
) -> Walked<Vec<PlacedName<'a>>> {
    let mut names = Vec::new();
    for _ in 0..PIECES_MAX {
        if place >= header.end() {
            return Ok(names);
        }
        if !place.is_multiple_of(NAMES_STEP) {
            return Err(WalkStop::Unclear);
        }
        let (at, len) = header.piece(place)?;
        let piece = view.read(at, len as u64)?;
        let behind = records_of(piece, place, &mut names)?;
        if names.len() >= PAGE_NAMES {
            return Ok(names);
        }
        // A piece that has no whole record is none.
        place = if behind > place { behind } else { return Err(WalkStop::Unclear) };
    }
    // Places that are free: the module looks through them faster.
    if names.is_empty() { Err(WalkStop::Unclear) } else { Ok(names) }
}

/// Takes the names of whole records of a piece; the place behind these.
fn records_of<'a>(piece: &'a [u8], mut place: u64, names: &mut Vec<PlacedName<'a>>) -> Walked<u64> {
    const HEAD: usize = 16;
    let mut rest = piece;
    while let Some(head) = rest.get(..HEAD).filter(|_| names.len() < PAGE_NAMES) {
        let (number, name_len) = (word_of(&head[..8]), usize::from(head[9]));
        let len = word_of(&head[10..12]);
        let is_record = (NAMES_STEP..=NAMES_RECORD_MAX).contains(&len)
            && len.is_multiple_of(NAMES_STEP)
            && (number == 0 || HEAD as u64 + name_len as u64 <= len);
        if !is_record {
            return Err(WalkStop::Unclear);
        }
        let size = usize::try_from(len).map_err(|_| WalkStop::Unclear)?;
        let Some((record, behind)) = rest.split_at_checked(size) else { break };
        let next = place + len;
        if number != 0 {
            let name = record.get(HEAD..HEAD + name_len).filter(|name| is_name(name));
            let name = name.ok_or(WalkStop::Unclear)?;
            names.push(PlacedName { name, number, place, next });
        }
        (rest, place) = (behind, next);
    }
    Ok(place)
}
