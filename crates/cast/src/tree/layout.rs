//! From places in the stream to places in the manifest and in files.

use super::manifest::TreeManifest;
use std::ops::Range;

/// A part of the stream that lies in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPiece {
    /// Bytes of the manifest.
    Manifest {
        /// Where they begin in it.
        at: usize,
        /// How many, bytes.
        len: usize,
    },
    /// Bytes of a file.
    File {
        /// The file's entry.
        entry: u32,
        /// Where they begin in the file, bytes.
        offset: u64,
        /// How many, bytes.
        len: usize,
    },
}

impl StreamPiece {
    /// How many bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Manifest { len, .. } | Self::File { len, .. } => *len,
        }
    }

    /// Whether it has none, which never happens in a stream.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl TreeManifest {
    /// The pieces of a part of the stream, in order. What lies behind its end has none.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = StreamPiece> + '_ {
        let end = range.end.min(self.stream_len());
        let mut at = range.start;
        let mut next = self.data.partition_point(|data| data.stream_at <= at);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let following = self.data.get(next);
            let until = following.map_or_else(|| self.stream_len(), |data| data.stream_at);
            let len = until.min(end) - at;
            let piece = self.piece(next, at, len);
            (at, next) = (at + len, next + 1);
            Some(piece)
        })
    }

    /// Where in the stream the data of a part of a file lies, in order; its holes lie nowhere.
    pub fn stream_parts(
        &self,
        entry: u32,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        let of_file = self.data.partition_point(|data| data.entry < entry);
        let begun = self.data[of_file..]
            .partition_point(|data| data.entry == entry && data.file_offset <= range.start);
        let first = of_file + begun.saturating_sub(1);
        let runs = self.data[first..].iter().enumerate();
        let runs = runs.take_while(move |(_, data)| data.entry == entry);
        runs.map_while(move |(index, data)| {
            let next = self.data.get(first + index + 1);
            let end = next.map_or_else(|| self.stream_len(), |next| next.stream_at);
            let len = end - data.stream_at;
            let from = range.start.max(data.file_offset);
            let until = range.end.min(data.file_offset.saturating_add(len));
            if data.file_offset >= range.end {
                return None;
            }
            let at = |offset: u64| data.stream_at + offset.saturating_sub(data.file_offset);
            Some(if from < until { at(from)..at(until) } else { 0..0 })
        })
        .filter(|part| !part.is_empty())
    }

    /// The piece before the run of data with index `next`.
    #[allow(clippy::cast_possible_truncation)] // lengths within a chunk
    fn piece(&self, next: usize, at: u64, len: u64) -> StreamPiece {
        match next.checked_sub(1) {
            None => StreamPiece::Manifest { at: at as usize, len: len as usize },
            Some(index) => {
                let data = self.data[index];
                let offset = data.file_offset + (at - data.stream_at);
                StreamPiece::File { entry: data.entry, offset, len: len as usize }
            }
        }
    }
}
