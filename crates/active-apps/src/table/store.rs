//! Memory for items that belongs to a plain client: taken from the table, or left over when it
//! replaced another item. It belongs to one table, whatever handle is made of it.

use super::layout::item_place;
use crate::bytes::{word, words};
use crate::error::AppError;
use crate::list::not_done;
use crate::structure::Structure;
use outboard_active::ActiveClient;

/// Pieces that are taken at once.
const TAKEN: u64 = 16;
/// Pieces that are kept: what is left over beyond them goes back to the table.
const KEPT: usize = 64;

/// Memory of an item: offset and bytes.
type Piece = (u64, u64);

/// See this file's first lines.
#[derive(Clone, Debug, Default)]
pub(super) struct ItemStore {
    pieces: Vec<Piece>,
}

impl ItemStore {
    /// Memory for so many bytes. One execution if there is none in store.
    pub(super) fn take(
        &mut self,
        structure: &mut Structure,
        client: &mut ActiveClient,
        len: u64,
    ) -> Result<Piece, AppError> {
        if let Some(at) = self.pieces.iter().position(|(_, has)| (len..=2 * len).contains(has)) {
            return Ok(self.pieces.swap_remove(at));
        }
        let taken = structure.call(client, "take", &words(&[structure.root(), len, TAKEN]));
        let taken = taken.map_err(|error| not_done("take", error))?;
        for item in taken.chunks(8) {
            self.pieces.push((word(item, 0)?, len));
        }
        let (what, found, expected) = ("memory that was taken", 0, TAKEN);
        self.pieces.pop().ok_or(AppError::Broken { what, found, expected })
    }

    /// The client did not use it.
    pub(super) fn put_back(&mut self, piece: Piece) {
        self.pieces.push(piece);
    }

    /// A slot that the client has replaced: the item is its own now. One execution if it has more
    /// than it keeps.
    pub(super) fn replaced(
        &mut self,
        structure: &mut Structure,
        client: &mut ActiveClient,
        slot: u64,
    ) {
        self.pieces.push(item_place(slot));
        if self.pieces.len() > KEPT {
            let (oldest, _) = self.pieces.remove(0);
            // What it does not take back is lost, no more: the caller's operation is done.
            let _given = structure.call(client, "give", &words(&[structure.root(), oldest]));
        }
    }
}
