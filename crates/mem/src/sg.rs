//! Scatter/gather lists: the local memory of a work request, as one run of logical bytes.
//!
//! A list owns its exclusive buffers and keeps its shared memory alive, so a work request is
//! complete in itself. Raw spans for system calls are made here and used only by the engine.
//! Shared memory can be taken away from a list ([`SgList::revoke`]): the list keeps its length, and
//! accesses to that part fail.

use crate::error::MemError;
use crate::owned::OwnedBuf;
use crate::shared::{SharedRegion, Span};
use crate::slice::{SharedSlice, check};

/// One piece of local memory.
#[derive(Debug)]
pub enum Segment {
    /// Exclusive bytes.
    Owned(OwnedBuf),
    /// A part of remotely accessible memory.
    Shared(SharedSlice),
    /// Memory that is not registered, or no longer: every access to it fails.
    Gone {
        /// Length in bytes of what should be there.
        len: usize,
    },
}

impl Segment {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Owned(buf) => buf.len(),
            Self::Shared(slice) => slice.len(),
            Self::Gone { len } => *len,
        }
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. })
    }

    fn is_of(&self, region: &SharedRegion) -> bool {
        matches!(self, Self::Shared(slice) if slice.region().is_same(region))
    }
}

impl From<OwnedBuf> for Segment {
    fn from(buf: OwnedBuf) -> Self {
        Self::Owned(buf)
    }
}

impl From<SharedSlice> for Segment {
    fn from(slice: SharedSlice) -> Self {
        Self::Shared(slice)
    }
}

/// A list of segments, read and written as if they were one run of bytes.
#[derive(Debug, Default)]
pub struct SgList {
    repr: Repr,
    /// Sum of the segments' lengths (the segments never change length while listed).
    len: usize,
    /// Some segment is [`Segment::Gone`].
    gone: bool,
}

/// No allocation for the usual single segment.
#[derive(Debug, Default)]
enum Repr {
    #[default]
    Empty,
    One(Segment),
    Many(Vec<Segment>),
}

impl From<Vec<Segment>> for SgList {
    fn from(segments: Vec<Segment>) -> Self {
        // Saturation is harmless: every segment checks its own bounds again.
        let len = segments.iter().fold(0, |sum: usize, segment| sum.saturating_add(segment.len()));
        let gone = segments.iter().any(Segment::is_gone);
        Self { repr: Repr::Many(segments), len, gone }
    }
}

impl<S: Into<Segment>> From<S> for SgList {
    fn from(segment: S) -> Self {
        let segment = segment.into();
        Self { len: segment.len(), gone: segment.is_gone(), repr: Repr::One(segment) }
    }
}

impl SgList {
    /// No memory at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A private copy of `bytes`, which the caller may reuse at once ("inline data").
    #[must_use]
    pub fn copied(bytes: &[u8]) -> Self {
        Self::from(OwnedBuf::from(bytes))
    }

    /// Total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all of it can be used: no segment is [`Segment::Gone`].
    #[must_use]
    pub fn is_intact(&self) -> bool {
        !self.gone
    }

    /// Whether the `len` bytes from the logical `offset` can be used.
    #[must_use]
    pub fn is_usable(&self, offset: usize, len: usize) -> bool {
        let mut pieces = SegmentRanges::new(offset, len);
        let mut parts = self.segments().map(|part| (part, pieces.next_in(part.len())));
        self.is_intact() || !parts.any(|(part, piece)| part.is_gone() && piece.is_some())
    }

    /// Makes every segment of `region` [`Segment::Gone`]; true if there was any. Spans made before
    /// must not be used afterwards.
    pub fn revoke(&mut self, region: &SharedRegion) -> bool {
        let mut any = false;
        for segment in self.as_mut_slice().iter_mut().filter(|segment| segment.is_of(region)) {
            *segment = Segment::Gone { len: segment.len() };
            any = true;
        }
        self.gone |= any;
        any
    }

    /// The segments in order.
    pub fn segments(&self) -> std::slice::Iter<'_, Segment> {
        self.as_slice().iter()
    }

    /// How many segments there are (the verbs' number of SGEs).
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.as_slice().len()
    }

    /// Takes the first exclusive buffer out; `None` if there is none.
    #[must_use]
    pub fn into_owned(self) -> Option<OwnedBuf> {
        self.into_segments().into_iter().find_map(|segment| match segment {
            Segment::Owned(buf) => Some(buf),
            Segment::Shared(_) | Segment::Gone { .. } => None,
        })
    }

    /// Takes all segments out, in order.
    #[must_use]
    pub fn into_segments(self) -> Vec<Segment> {
        match self.repr {
            Repr::Empty => Vec::new(),
            Repr::One(segment) => vec![segment],
            Repr::Many(segments) => segments,
        }
    }

    /// Writes `bytes` at the logical `offset`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`]: nothing is written; [`MemError::Gone`], [`MemError::Missing`]:
    /// only what lies before that memory, and of that a part.
    pub fn scatter(&mut self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        check(offset, bytes.len(), self.len)?;
        let mut pieces = SegmentRanges::new(offset, bytes.len());
        for segment in self.as_mut_slice() {
            let Some(piece) = pieces.next_in(segment.len()) else {
                continue;
            };
            let source = &bytes[piece.done..piece.done + piece.len];
            match segment {
                Segment::Owned(buf) => buf[piece.range()].copy_from_slice(source),
                Segment::Shared(slice) => slice.copy_in(piece.at, source)?,
                Segment::Gone { len } => return Err(MemError::Gone { len: *len }),
            }
        }
        Ok(())
    }

    /// Appends a copy of `len` bytes from the logical `offset` to `out`.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Gone`], [`MemError::Missing`]; then nothing is
    /// appended.
    pub fn gather(&self, offset: usize, len: usize, out: &mut Vec<u8>) -> Result<(), MemError> {
        check(offset, len, self.len)?;
        out.reserve(len);
        let before = out.len();
        let mut pieces = SegmentRanges::new(offset, len);
        for segment in self.segments() {
            let Some(piece) = pieces.next_in(segment.len()) else {
                continue;
            };
            let appended = match segment {
                Segment::Owned(buf) => {
                    out.extend_from_slice(&buf[piece.range()]);
                    Ok(())
                }
                Segment::Shared(slice) => slice.append_to(piece.range(), out),
                Segment::Gone { len } => Err(MemError::Gone { len: *len }),
            };
            appended.inspect_err(|_| out.truncate(before))?;
        }
        Ok(())
    }

    /// Appends the raw pieces of `len` bytes from the logical `offset` to `out`, to be read by
    /// one system call while the list is neither changed nor dropped. Nothing may be written
    /// through them: see [`Self::spans_mut`].
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Gone`]; then nothing is appended.
    pub fn spans(&self, offset: usize, len: usize, out: &mut Vec<Span>) -> Result<(), MemError> {
        check(offset, len, self.len)?;
        let before = out.len();
        let mut pieces = SegmentRanges::new(offset, len);
        for segment in self.segments() {
            let Some(piece) = pieces.next_in(segment.len()) else {
                continue;
            };
            out.push(match segment {
                Segment::Owned(buf) => {
                    let bytes = &buf[piece.range()];
                    Span { ptr: bytes.as_ptr().cast_mut(), len: bytes.len() }
                }
                Segment::Shared(slice) => slice.span(piece.range())?,
                Segment::Gone { len } => {
                    out.truncate(before);
                    return Err(MemError::Gone { len: *len });
                }
            });
        }
        Ok(())
    }

    /// As [`Self::spans`], for a system call that writes (a receive straight into the list).
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`], [`MemError::Gone`], [`MemError::Gated`]; then nothing is
    /// appended.
    pub fn spans_mut(
        &mut self,
        offset: usize,
        len: usize,
        out: &mut Vec<Span>,
    ) -> Result<(), MemError> {
        check(offset, len, self.len)?;
        let before = out.len();
        let mut pieces = SegmentRanges::new(offset, len);
        for segment in self.as_mut_slice() {
            let Some(piece) = pieces.next_in(segment.len()) else {
                continue;
            };
            out.push(match segment {
                Segment::Owned(buf) => {
                    let bytes = &mut buf[piece.range()];
                    Span { ptr: bytes.as_mut_ptr(), len: bytes.len() }
                }
                // What is received there is copied, past its gate.
                Segment::Shared(slice) if slice.region().has_gate() => {
                    out.truncate(before);
                    return Err(MemError::Gated);
                }
                Segment::Shared(slice) => slice.span(piece.range())?,
                Segment::Gone { len } => {
                    out.truncate(before);
                    return Err(MemError::Gone { len: *len });
                }
            });
        }
        Ok(())
    }

    /// The `len` bytes from the logical `offset`, if they lie in one exclusive segment: they can
    /// be sent or checksummed where they are. An empty range is in none.
    #[must_use]
    pub fn owned_slice(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let mut pieces = SegmentRanges::new(offset, len);
        for segment in self.segments() {
            let Some(piece) = pieces.next_in(segment.len()) else {
                continue;
            };
            return match segment {
                Segment::Owned(buf) if piece.len == len => Some(&buf[piece.range()]),
                _ => None,
            };
        }
        None
    }

    fn as_slice(&self) -> &[Segment] {
        match &self.repr {
            Repr::Empty => &[],
            Repr::One(segment) => std::slice::from_ref(segment),
            Repr::Many(segments) => segments,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [Segment] {
        match &mut self.repr {
            Repr::Empty => &mut [],
            Repr::One(segment) => std::slice::from_mut(segment),
            Repr::Many(segments) => segments,
        }
    }
}

/// Cuts a logical range at the borders of the segments, which are shown to it in order.
struct SegmentRanges {
    /// Bytes still to skip.
    skip: usize,
    /// Bytes still to hand out.
    left: usize,
    done: usize,
}

/// `len` bytes at `at` of one segment, after `done` earlier bytes of the whole range.
struct SegmentRange {
    at: usize,
    len: usize,
    done: usize,
}

impl SegmentRange {
    fn range(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.len
    }
}

impl SegmentRanges {
    fn new(offset: usize, len: usize) -> Self {
        Self { skip: offset, left: len, done: 0 }
    }

    /// The part of the range in the next segment, of `size` bytes; `None` if it has none.
    fn next_in(&mut self, size: usize) -> Option<SegmentRange> {
        let at = self.skip.min(size);
        self.skip -= at;
        let len = self.left.min(size - at);
        let piece = SegmentRange { at, len, done: self.done };
        self.left -= len;
        self.done += len;
        (len > 0).then_some(piece)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
