//! Preprocessed sources of a client's jobs: each slot keeps a buffer into which they are read (the
//! paper's SRC RX regions).

use super::session::SessionEnd;
use crate::protocol::{SOURCE_MAX, TicketNumber};
use outboard_cluster::hub::Exposed;
use outboard_verbs::Remote;
use std::collections::HashMap;

/// Tags of reads of sources begin here; all other tags are smaller.
const FIRST_TAG: u64 = 1 << 63;
/// Bytes of the largest buffer that is kept.
const KEPT_MAX: usize = 16 << 20;

/// Preprocessed sources of one client; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Sources {
    reads: HashMap<u64, TicketNumber>,
    buffers: HashMap<u32, Vec<u8>>,
    next: u64,
}

impl Sources {
    /// The read that fetches the source of a job in a slot: its range, its buffer and its tag.
    ///
    /// # Errors
    /// When a client announces a source of impossible length.
    pub(crate) fn begin(
        &mut self,
        exposed: Exposed,
        ticket: TicketNumber,
        slot: u32,
    ) -> Result<(Remote, Vec<u8>, u64), SessionEnd> {
        let len = usize::try_from(exposed.len()).ok().filter(|len| (1..=SOURCE_MAX).contains(len));
        let (Some(len), Some(from)) = (len, exposed.range(0, exposed.len())) else {
            return Err(SessionEnd::Memory);
        };
        // A new buffer's pages are the system's zeros: nothing is cleared here, however long it is.
        let kept = self.buffers.remove(&slot).filter(|kept| kept.capacity() >= len);
        let mut into = kept.unwrap_or_else(|| vec![0; len]);
        into.resize(len, 0);
        let tag = FIRST_TAG + self.next;
        self.next += 1;
        self.reads.insert(tag, ticket);
        Ok((from, into, tag))
    }

    /// The job whose source has been read, if the tag is that of a source.
    pub(crate) fn take(&mut self, tag: u64) -> Option<TicketNumber> {
        self.reads.remove(&tag)
    }

    /// Keeps a slot's buffer, which is free again.
    pub(crate) fn keep(&mut self, slot: u32, bytes: Vec<u8>) {
        if bytes.capacity() <= KEPT_MAX {
            self.buffers.insert(slot, bytes);
        }
    }
}
