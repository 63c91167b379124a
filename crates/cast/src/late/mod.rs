//! A node that comes late, and those that it reads chunks from: values without I/O that are given
//! the time.
//!
//! Such a node is in no plan. It dials holders, nodes that may have some of the cast only,
//! reads from their memory which chunks they have, and reads these, one-sided. A holder does
//! nothing for it but say where a chunk is, for some chunks at a time; the reader checks what it
//! has read, as every node does.
//!
//! Modules: `reader` (which chunks it reads, of which holder), `holders` (those that it knows),
//! `lender` (the other side: who may read what, and until when).

mod holders;
mod lender;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use lender::{LendRoom, LendStep, Lender, LenderFault};
pub(crate) use reader::{ChunkNeed, LateReader, ReadAction, ReadFault, ReadOutcome};

/// Chunks that are lent to a node at a time, at most.
const LENT_MAX: u64 = 32;
/// And their bytes, if they are more than one.
const LENT_BYTES_MAX: u64 = 8 << 20;

/// The most chunks that are lent to a node at a time.
fn lent_max(chunk_len: u32) -> usize {
    let fitting = LENT_BYTES_MAX / u64::from(chunk_len.max(1));
    usize::try_from(fitting.clamp(1, LENT_MAX)).unwrap_or(1)
}
