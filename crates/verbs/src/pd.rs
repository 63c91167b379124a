//! Protection domains: STags work only on queue pairs of the domain they were registered in.
//! Peers that do not trust each other get a domain each (RFC 5042 §2.2).

use crate::context::Shared;
use crate::error::VerbsError;
use crate::mr::Mr;
use crate::qp::{Qp, QpConfig};
use crate::srq::Srq;
use outboard_mem::{Access, PdId, SharedRegion, SharedSlice};
use std::ops::Range;
use std::sync::Arc;

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: PdId,
}

impl Pd {
    /// Registers a whole region; peers address it from tagged offset 0.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] when the STag table is full.
    pub fn register(&self, region: SharedRegion, access: Access) -> Result<Mr, VerbsError> {
        let len = region.len();
        self.register_range(region, 0..len, 0, access)
    }

    /// Registers part of a region; its first byte gets tagged offset `base`.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] when the range is outside the region or the STag table is full.
    pub fn register_range(
        &self,
        region: SharedRegion,
        range: Range<usize>,
        base: u64,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        self.register_slice(region.slice(range)?, base, access)
    }

    /// As [`Pd::register_range`], for a part that is a slice already.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] when the STag table is full.
    pub fn register_slice(
        &self,
        slice: SharedSlice,
        base: u64,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        Mr::register(&self.shared, self.id, slice, base, access)
    }

    /// Makes a queue pair.
    ///
    /// # Errors
    /// [`VerbsError::BadParameter`] for depths of 0, [`VerbsError::System`] when the engine
    /// cannot start.
    pub fn create_qp(&self, config: QpConfig) -> Result<Qp, VerbsError> {
        Qp::new(self, config)
    }

    /// Makes a shared receive queue of this many entries, at least 1, whose local lists have at
    /// most `max_sge` segments.
    pub fn create_srq(&self, depth: usize, max_sge: usize) -> Srq {
        Srq::new(self, depth, max_sge)
    }
}
