//! Memory regions: registered memory with an STag that peers of the same protection domain may
//! use, as far as its access rights go.

use crate::context::Shared;
use crate::error::VerbsError;
use crate::pd::Pd;
use outboard_iwarp::work::Remote;
use outboard_mem::{Access, MemError, PdId, Segment, SharedSlice};
use outboard_wire::ddp::Stag;
use std::ops::Range;
use std::sync::Arc;

/// A registered memory region. Dropping it deregisters it.
#[derive(Debug)]
pub struct Mr {
    shared: Arc<Shared>,
    slice: SharedSlice,
    stag: Stag,
    base: u64,
    access: Access,
    registered: bool,
}

impl Mr {
    pub(crate) fn register(
        shared: &Arc<Shared>,
        pd: PdId,
        slice: SharedSlice,
        base: u64,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let stag = Stag(shared.core.stags.register(pd, slice.clone(), base, access)?);
        Ok(Self { shared: Arc::clone(shared), slice, stag, base, access, registered: true })
    }

    /// Makes it another memory region with the same STag. Returns when no placement into the old
    /// memory is under way; peers that use the STag during the call are refused.
    ///
    /// # Errors
    /// [`VerbsError::Memory`] when offsets would wrap, [`VerbsError::OtherContext`] when the domain
    /// is another context's; then nothing has changed.
    pub fn reregister(
        &mut self,
        pd: &Pd,
        slice: SharedSlice,
        base: u64,
        access: Access,
    ) -> Result<(), VerbsError> {
        self.shared.check_own(&pd.shared, "the protection domain")?;
        self.shared.core.stags.reregister(self.stag.0, pd.id, slice.clone(), base, access)?;
        (self.slice, self.base, self.access) = (slice, base, access);
        Ok(())
    }

    /// The STag to give to peers.
    pub fn stag(&self) -> Stag {
        self.stag
    }

    /// The tagged offset of the region's first byte.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// True for a region without bytes.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// What peers may do.
    pub fn access(&self) -> Access {
        self.access
    }

    /// The memory, from the region's first byte on.
    pub fn memory(&self) -> &SharedSlice {
        &self.slice
    }

    /// Where peers find the byte at `at` of the region.
    pub fn remote(&self, at: usize) -> Remote {
        Remote { stag: self.stag, offset: self.base + at as u64 }
    }

    /// A part of the region, in bytes from its start, for a work request's local list.
    ///
    /// # Errors
    /// [`MemError::OutOfBounds`] when the range is not inside the region.
    pub fn segment(&self, range: Range<usize>) -> Result<Segment, MemError> {
        self.slice.slice(range).map(Segment::Shared)
    }

    /// Makes the STag useless to peers; the region stays registered, and local work requests may go
    /// on using it. Placements under way may still finish: [`Mr::deregister`] waits for them.
    /// False when it was invalid already, as after a peer's Send with Invalidate.
    pub fn invalidate(&self) -> bool {
        self.shared.core.stags.invalidate_locally(self.stag.0).is_ok()
    }

    /// Takes the STag back. Returns when no placement through it is under way: afterwards no
    /// peer can reach the memory.
    ///
    /// # Errors
    /// [`MemError`] when the STag is not registered; this cannot happen.
    pub fn deregister(mut self) -> Result<(), MemError> {
        self.registered = false;
        self.shared.core.stags.deregister(self.stag.0)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        if self.registered {
            // Can only fail if it was deregistered already; then there is nothing to do.
            let _done = self.shared.core.stags.deregister(self.stag.0);
        }
    }
}
