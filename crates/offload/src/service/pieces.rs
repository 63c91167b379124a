//! Frames in pieces that fit into a session's messages, and whole again. Pure.

use crate::frames::FRAME_MAX;

/// Bytes of a session's message, at most.
pub const PIECE_MAX: usize = 64 << 10;
/// The first byte of a piece that is a frame's last.
const LAST: u8 = 1;
/// The first byte of any other piece.
const MORE: u8 = 0;

/// Why pieces are no frame: the peer's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PieceFault {
    /// A message that begins with neither.
    #[error("the peer sent a message that is no piece of a frame")]
    NoPiece,
    /// The frame would be too long.
    #[error("the peer sent a frame of more than {FRAME_MAX} bytes")]
    TooLong,
}

/// Cuts a frame into messages.
pub fn cut(frame: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let count = frame.len().div_ceil(PIECE_MAX - 1).max(1);
    (0..count).map(move |at| {
        let begin = at * (PIECE_MAX - 1);
        let end = frame.len().min(begin + PIECE_MAX - 1);
        let head = if at + 1 == count { LAST } else { MORE };
        let mut piece = Vec::with_capacity(1 + end - begin);
        piece.push(head);
        piece.extend(&frame[begin..end]);
        piece
    })
}

/// Puts frames together.
#[derive(Debug, Default)]
pub struct Joiner {
    frame: Vec<u8>,
}

impl Joiner {
    /// Adds a message; gives the frame of which it was the last piece.
    ///
    /// # Errors
    /// [`PieceFault`].
    pub fn add(&mut self, piece: &[u8]) -> Result<Option<Vec<u8>>, PieceFault> {
        let (head, bytes) = piece.split_first().ok_or(PieceFault::NoPiece)?;
        if self.frame.len() + bytes.len() > FRAME_MAX {
            return Err(PieceFault::TooLong);
        }
        self.frame.extend(bytes);
        match *head {
            LAST => Ok(Some(std::mem::take(&mut self.frame))),
            MORE => Ok(None),
            _ => Err(PieceFault::NoPiece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_any_length_are_whole_again() {
        let mut joiner = Joiner::default();
        for len in [0, 1, PIECE_MAX - 2, PIECE_MAX - 1, PIECE_MAX, 3 * PIECE_MAX] {
            let frame: Vec<u8> =
                (0..len).map(|at| u8::try_from(at % 251).expect("small")).collect();
            let mut found = Vec::new();
            for piece in cut(&frame) {
                assert!(piece.len() <= PIECE_MAX);
                found.extend(joiner.add(&piece).expect("a piece"));
            }
            assert_eq!(found, [frame]);
        }
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        assert_eq!(Joiner::default().add(&[]), Err(PieceFault::NoPiece));
        assert_eq!(Joiner::default().add(&[7, 1]), Err(PieceFault::NoPiece));
    }
}
