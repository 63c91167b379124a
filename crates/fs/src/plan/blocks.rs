//! Which blocks of a store get which blocks of a file, and where parts of a file are in them.

use super::Piece;
use crate::protocol::{BLOCK_LEN, FsBlocksRun, FsExtent};

/// Where parts of `len` bytes of a file from an offset on are: the block, how many bytes of it to
/// leave out, and which of the bytes they are. What lies in no extent is a hole.
pub(crate) fn parts(
    extents: &[FsExtent],
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> + '_ {
    let end = offset.saturating_add(len as u64);
    extents.iter().filter_map(move |extent| {
        let first = extent.file.checked_mul(BLOCK_LEN)?;
        let from = first.max(offset);
        let to = first.checked_add(extent.len.checked_mul(BLOCK_LEN)?)?.min(end);
        if from >= to {
            return None;
        }
        let block = extent.block + (from - first) / BLOCK_LEN;
        let skip = usize::try_from(from % BLOCK_LEN).ok()?;
        let at = usize::try_from(from - offset).ok()?;
        Some((block, skip, at..at + usize::try_from(to - from).ok()?))
    })
}

/// Which blocks of the store get which blocks of the file.
pub(crate) fn lay_out(pieces: &[Piece], runs: &[FsBlocksRun]) -> Vec<FsExtent> {
    let (mut runs, mut extents) = (runs.iter().copied(), Vec::new());
    let mut run = FsBlocksRun::default();
    for piece in pieces {
        let (mut file, mut left) = (piece.file, piece.blocks);
        while left > 0 {
            if run.len == 0 {
                let Some(next) = runs.next() else { return extents };
                run = next;
            }
            let len = left.min(run.len);
            extents.push(FsExtent { file, block: run.start, len });
            (file, left) = (file + len, left - len);
            run = FsBlocksRun { start: run.start + len, len: run.len - len };
        }
    }
    extents
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Fill;

    #[test]
    fn pieces_get_the_blocks_of_runs_in_order() {
        let piece = |file, blocks| Piece {
            file,
            blocks,
            head: None,
            tail: None,
            at: 0,
            fill: Fill::Zeroes(0),
        };
        let runs = [FsBlocksRun { start: 10, len: 2 }, FsBlocksRun { start: 20, len: 3 }];
        let extent = |file, block, len| FsExtent { file, block, len };
        let laid = lay_out(&[piece(0, 3), piece(9, 2)], &runs);
        assert_eq!(laid, [extent(0, 10, 2), extent(2, 20, 1), extent(9, 21, 2)]);
    }

    #[test]
    fn parts_of_a_file_leave_holes_out() {
        let extents =
            [FsExtent { file: 1, block: 7, len: 2 }, FsExtent { file: 5, block: 90, len: 9 }];
        let found: Vec<_> = parts(&extents, 4100, 20_000).collect();
        assert_eq!(found, [(7, 4, 0..8188), (90, 0, 16_380..20_000)]);
        assert_eq!(parts(&extents, 0, 4096).count(), 0);
    }
}
