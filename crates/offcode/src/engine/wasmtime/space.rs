//! The addresses that a program sees: scratch memory, and behind it a region's own pages,
//! read-only.
//!
//! The engine is told of the scratch memory only. So its own functions, which check lengths, never
//! touch the region; compiled code has no checks, because everything that it can reach is scratch,
//! region or without access.

use crate::abi::{SCRATCH_LEN, STACK_END};
use crate::host::Scratch;
use crate::stop::Stop;
use outboard_mem::{MemError, Reservation, Rights, SharedRegion};
use std::cell::RefCell;
use std::sync::Arc;
use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

thread_local! {
    /// The space for the memory that is being made.
    static OFFERED: RefCell<Option<Arc<AddressSpace>>> = const { RefCell::new(None) };
}

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct AddressSpace {
    reservation: Reservation,
    /// The lowest accessible address.
    start: usize,
}

const SCRATCH: usize = SCRATCH_LEN as usize;

impl AddressSpace {
    pub(super) fn new(region: &SharedRegion, guard: u64, null_traps: bool) -> Result<Self, Stop> {
        let failed = |error: MemError| Stop::Machine(error.to_string());
        let mut reservation = Reservation::new(addresses(guard)).map_err(failed)?;
        let start = if null_traps { STACK_END as usize } else { 0 };
        reservation.map_private(start, SCRATCH - start).map_err(failed)?;
        if !region.is_empty() {
            let mapped = reservation.map_region(SCRATCH, region, 0..region.len(), Rights::ReadOnly);
            mapped.map_err(failed)?;
        }
        Ok(Self { reservation, start })
    }

    /// Whether there is room for one.
    pub(super) fn try_one(guard: u64) -> Result<(), MemError> {
        Reservation::new(addresses(guard)).map(drop)
    }

    fn is_inside(&self, at: u32, len: usize) -> bool {
        let at = at as usize;
        at >= self.start && at.checked_add(len).is_some_and(|end| end <= SCRATCH)
    }
}

/// What one takes.
fn addresses(guard: u64) -> usize {
    usize::try_from((1_u64 << 32) + guard).unwrap_or(usize::MAX)
}

impl Scratch for Arc<AddressSpace> {
    fn read(&self, at: u32, into: &mut [u8]) -> bool {
        self.is_inside(at, into.len()) && self.reservation.copy_out(at as usize, into).is_ok()
    }

    fn write(&mut self, at: u32, bytes: &[u8]) -> bool {
        self.is_inside(at, bytes.len()) && self.reservation.copy_in(at as usize, bytes).is_ok()
    }
}

/// Has `make` make a memory of a space.
pub(super) fn offer<T>(space: Arc<AddressSpace>, make: impl FnOnce() -> T) -> T {
    OFFERED.with(|offered| *offered.borrow_mut() = Some(space));
    let made = make();
    OFFERED.with(|offered| offered.borrow_mut().take());
    made
}

/// Makes the engine's memories of spaces that were offered.
#[derive(Debug)]
pub(super) struct SpaceMemories;

// SAFETY: the addresses are reserved for 4 GiB and a guard, which `AddressSpace::new` is given; the
// accessible part is zeroed, stays where it is, and is dropped after the memory. Host calls change
// scratch memory while the module waits for them. The region behind it changes at any time, which
// compiled code must bear with, as with memory that threads share.
unsafe impl MemoryCreator for SpaceMemories {
    fn new_memory(
        &self,
        _type: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let space = OFFERED.with(|offered| offered.borrow_mut().take());
        let space = space.ok_or("a module has a memory of its own")?;
        let needed = reserved.unwrap_or(minimum).saturating_add(guard);
        if minimum > SCRATCH || needed > space.reservation.len() {
            return Err("the memory is larger than the addresses reserved for it".into());
        }
        Ok(Box::new(SpaceMemory(space)))
    }
}

struct SpaceMemory(Arc<AddressSpace>);

// SAFETY: as for `SpaceMemories`.
unsafe impl LinearMemory for SpaceMemory {
    fn byte_size(&self) -> usize {
        SCRATCH
    }

    fn byte_capacity(&self) -> usize {
        SCRATCH
    }

    fn grow_to(&mut self, _new: usize) -> wasmtime::Result<()> {
        Err(wasmtime::Error::msg("an execution's memory does not grow"))
    }

    fn as_ptr(&self) -> *mut u8 {
        self.0.reservation.base().as_ptr()
    }
}
