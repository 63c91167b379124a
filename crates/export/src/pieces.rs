//! Memory of a client that is too long for one read, and is not in its export: read piece by piece.
//!
//! A value: it says what to read next, and gathers what was read. Whether the bytes are the right
//! ones, their hash says.

/// Bytes of one read.
const READ_MAX: u64 = 4 << 20;

/// See the [module](self).
#[derive(Debug)]
pub struct Pieces {
    len: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    /// Nothing of that many bytes has been read.
    #[must_use]
    pub fn new(len: u64) -> Self {
        Self { len, bytes: Vec::new() }
    }

    /// The next piece to read: its offset and length; `None` when all are here.
    #[must_use]
    pub fn next(&self) -> Option<(u64, u64)> {
        let at = self.bytes.len() as u64;
        let left = self.len.saturating_sub(at);
        (left > 0).then(|| (at, left.min(READ_MAX)))
    }

    /// Takes the piece that was read.
    pub fn handle_read(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// All bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole() {
        let whole: Vec<u8> =
            (0..u8::MAX).cycle().take(usize::try_from(READ_MAX).expect("small") * 2 + 1).collect();
        let mut pieces = Pieces::new(whole.len() as u64);
        let mut lengths = Vec::new();
        while let Some((at, len)) = pieces.next() {
            lengths.push(len);
            let at = usize::try_from(at).expect("small");
            pieces.handle_read(&whole[at..at + usize::try_from(len).expect("small")]);
        }
        assert_eq!(lengths, [READ_MAX, READ_MAX, 1]);
        assert!(pieces.into_bytes() == whole);
        assert_eq!(Pieces::new(0).next(), None);
    }
}
