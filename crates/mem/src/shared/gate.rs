//! A region's gate: code that changes several words at once closes it, and every other write into
//! the region, by peers or by this process, waits until it is open again.
//!
//! Reads do not pass it. A region without a gate pays one look at whether it has one. Whether a
//! write is under way is counted for each copy, never across a wait for a peer, so that closing
//! takes as long as the longest copy. The gate is the region's, with its clones and slices: other
//! regions over the same bytes, second mappings and other processes do not pass it.

#[cfg(all(loom, test))]
use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, Ordering},
    thread::yield_now,
};
#[cfg(not(all(loom, test)))]
use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU32, Ordering},
    thread::yield_now,
};

use super::{Owner, SharedRegion};
use crate::error::MemError;
use std::sync::Arc;

/// Set while the gate is closed; the other bits count writes under way.
const CLOSED: u32 = 1 << 31;
/// Looks before a thread that waits lets others run.
#[cfg(not(all(loom, test)))]
const SPINS: u32 = 64;
#[cfg(all(loom, test))]
const SPINS: u32 = 1;

/// See this file's first lines.
#[derive(Debug)]
pub(super) struct Gate {
    state: AtomicU32,
    /// Writes that wait because it is closed.
    waiting: AtomicU32,
    /// Threads that sleep until it is open.
    sleeping: AtomicU32,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self { state: AtomicU32::new(0), waiting: AtomicU32::new(0), sleeping: AtomicU32::new(0) }
    }

    /// Counts a write; waits while the gate is closed. [`Self::leave`] follows.
    #[inline]
    pub(super) fn enter(&self) {
        if self.state.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            self.enter_when_open();
        }
    }

    /// Takes the count back, which would keep the gate from being closed, until the gate is open.
    #[cold]
    fn enter_when_open(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        loop {
            self.leave();
            self.wait_until_open();
            if self.state.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
                break;
            }
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn leave(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Closes the gate, after whoever has closed it before, and waits until no write is under way.
    pub(super) fn close(&self) {
        self.let_waiting_go_first();
        while self.state.fetch_or(CLOSED, Ordering::Acquire) & CLOSED != 0 {
            self.wait_until_open();
        }
        self.wait_for_writes();
    }

    /// Else threads that close it again and again could keep a peer's write out for ever. Does not
    /// wait long: a thread that waits may not be running.
    fn let_waiting_go_first(&self) {
        for spin in 0..SPINS {
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            if spin == SPINS / 2 {
                yield_now();
            }
            spin_loop();
        }
    }

    pub(super) fn open(&self) {
        self.state.fetch_and(!CLOSED, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            sleep::wake_all(&self.state);
        }
    }

    /// Writes under way are copies: they end soon.
    fn wait_for_writes(&self) {
        let mut spins = 0_u32;
        while self.state.load(Ordering::Acquire) & !CLOSED != 0 {
            spins += 1;
            if spins < SPINS {
                spin_loop();
            } else {
                yield_now();
            }
        }
    }

    /// Sleeps: who has closed it may be a thread of lower priority, which runs only then.
    fn wait_until_open(&self) {
        let is_open = |state: u32| state & CLOSED == 0;
        for _ in 0..SPINS {
            if is_open(self.state.load(Ordering::Acquire)) {
                return;
            }
            spin_loop();
        }
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        loop {
            let state = self.state.load(Ordering::SeqCst);
            if is_open(state) {
                break;
            }
            sleep::while_unchanged(&self.state, state);
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A write under way: keeps a region's gate from closing.
#[derive(Debug)]
pub(crate) struct WriteUnderWay<'a>(Option<&'a Gate>);

impl Drop for WriteUnderWay<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.leave();
        }
    }
}

/// As long as it lives, the kernel may write into a region for the engine; its gate does not close.
/// Keep it for one system call that does not wait.
#[derive(Debug)]
pub struct DirectWrite(Option<Arc<Owner>>);

impl Drop for DirectWrite {
    fn drop(&mut self) {
        if let Some(gate) = self.0.as_deref().and_then(Owner::gate) {
            gate.leave();
        }
    }
}

/// A gate that its holder has closed: no peer and no other thread writes into the region until this
/// is dropped. The holder writes through this; through the region it would wait for itself. Peers'
/// connections wait meanwhile, with all that their engine serves: keep it for microseconds, and
/// never while waiting for anything.
#[derive(Debug)]
pub struct ClosedGate<'a> {
    region: &'a SharedRegion,
    /// The one that was closed; `None` if the region had none.
    gate: Option<&'a Gate>,
}

impl ClosedGate<'_> {
    /// As [`SharedRegion::copy_in`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_in(&self, offset: usize, bytes: &[u8]) -> Result<(), MemError> {
        self.region.copy_in_behind_gate(offset, bytes)
    }

    /// As [`SharedRegion::store_u64`].
    ///
    /// # Errors
    /// As there.
    pub fn store_u64(&self, offset: usize, value: u64) -> Result<(), MemError> {
        self.region.store_u64_behind_gate(offset, value)
    }

    /// As [`SharedRegion::load_u64`].
    ///
    /// # Errors
    /// As there.
    pub fn load_u64(&self, offset: usize) -> Result<u64, MemError> {
        self.region.load_u64(offset)
    }
}

impl Drop for ClosedGate<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            gate.open();
        }
    }
}

impl SharedRegion {
    /// The region, with a gate for all its clones and slices, for as long as one of them lives. For
    /// a region that nobody writes into yet: a write under way is not counted.
    #[must_use]
    pub fn with_gate(self) -> Self {
        self.owner.gate.get_or_init(Gate::new);
        self
    }

    /// Whether it has a gate.
    #[must_use]
    pub fn has_gate(&self) -> bool {
        self.owner.gate().is_some()
    }

    /// Closes the gate: returns when no write is under way, and after others who have closed it. A
    /// thread that holds it already, or a [`DirectWrite`], waits for itself. Nothing is kept out of
    /// a region without a gate.
    #[must_use]
    pub fn close_gate(&self) -> ClosedGate<'_> {
        let gate = self.owner.gate();
        if let Some(gate) = gate {
            gate.close();
        }
        ClosedGate { region: self, gate }
    }

    #[inline]
    pub(super) fn enter(&self) -> WriteUnderWay<'_> {
        let gate = self.owner.gate();
        if let Some(gate) = gate {
            gate.enter();
        }
        WriteUnderWay(gate)
    }

    /// For a system call that writes into the region: see [`DirectWrite`].
    #[must_use]
    pub fn write_directly(&self) -> DirectWrite {
        let Some(gate) = self.owner.gate() else { return DirectWrite(None) };
        gate.enter();
        DirectWrite(Some(Arc::clone(&self.owner)))
    }
}

#[cfg_attr(all(loom, test), path = "gate/yielding.rs")]
mod sleep;
#[cfg(test)]
mod tests;
