//! One slot of the STag table: a value that many threads pin for a moment and one closes.
//!
//! A pin is one atomic addition, so that a placement costs nanoseconds; closing first makes new
//! pins fail, then waits until the old ones are gone, and only then takes the value out. The
//! caller of `open` must own the slot (the table's free list ensures that); the type checks nothing
//! else about STags. A forgotten pin makes `close` wait for ever; it never frees the value early.

#[cfg(all(loom, test))]
use loom::{
    cell::UnsafeCell,
    sync::atomic::{AtomicU64, Ordering},
    thread::yield_now,
};
#[cfg(not(all(loom, test)))]
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread::yield_now,
};

#[cfg(not(all(loom, test)))]
use self::cell::UnsafeCell;

/// The std cell with loom's interface.
#[cfg(not(all(loom, test)))]
mod cell {
    #[derive(Debug)]
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(super) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        #[inline]
        pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

/// The low bits of the state count pins.
const PINS: u64 = (1 << 48) - 1;
/// More pins than this mean that the program forgets them by the billion: refuse to pin, long
/// before the count could run over into the other bits.
const PINS_MAX: u64 = 1 << 47;
/// Set while the value may be pinned.
const OPEN: u64 = 1 << 48;
/// Set while the slot holds a value that no call of `close` has taken.
const HELD: u64 = 1 << 49;
const KEY_SHIFT: u32 = 50;

/// A cache line each, so that pins of neighbours do not slow each other down.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot<T> {
    /// Key (12 bits), HELD, OPEN, number of pins (48 bits).
    state: AtomicU64,
    /// `Some` exactly while HELD, or not HELD and `close` still waits.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: `value` is written only by `open` and `close`, which have it to themselves: `open`
// because the slot is free (caller's contract) and OPEN is not yet set, `close` because it won
// the HELD bit and saw no pin after OPEN was cleared. Everyone else reads it under a pin. So a
// `&Slot` gives out `&T` on many threads (`T: Sync`) and moves `T` between them (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

/// Keeps the value where it is.
#[derive(Debug)]
pub(crate) struct Pin<'a, T> {
    slot: &'a Slot<T>,
}

impl<T> Slot<T> {
    /// A free slot.
    pub(crate) fn free() -> Self {
        Self { state: AtomicU64::new(0), value: UnsafeCell::new(None) }
    }

    /// Puts `value` in and lets it be pinned with `key`.
    ///
    /// # Safety
    /// The slot is free, and no other thread opens it during the call: it is new, or `close` has
    /// returned its value since the last `open`, and the caller is the only one who knows of it.
    pub(crate) unsafe fn open(&self, key: u16, value: T) {
        self.value.with_mut(|cell| {
            // SAFETY: no thread reads a value without OPEN, and by contract no other thread writes.
            unsafe { *cell = Some(value) };
        });
        let bits = OPEN | HELD | u64::from(key) << KEY_SHIFT;
        // Late pins that are about to fail may be counted in the low bits: add, do not store.
        self.state.fetch_add(bits, Ordering::Release);
    }

    /// Pins the value if the slot is open under `key`.
    #[inline]
    pub(crate) fn pin(&self, key: u16) -> Option<Pin<'_, T>> {
        // A stale STag stops here and cannot disturb a `close` under way.
        if !is_open(self.state.load(Ordering::Relaxed), key) {
            return None;
        }
        let state = self.state.fetch_add(1, Ordering::Acquire);
        if is_open(state, key) && state & PINS < PINS_MAX {
            return Some(Pin { slot: self });
        }
        self.unpin();
        None
    }

    #[inline]
    fn unpin(&self) {
        self.state.fetch_sub(1, Ordering::Release);
    }

    /// Makes new pins fail and keeps the value until `close`; false if it was so already. Does
    /// not wait for pins: the caller holds one.
    pub(crate) fn shut(pin: &Pin<'_, T>) -> bool {
        // The pin keeps `close` from finishing, so the key cannot have changed.
        pin.slot.state.fetch_and(!OPEN, Ordering::Relaxed) & OPEN != 0
    }

    /// Makes new pins fail, waits for the last pin to go, and takes the value out, after which
    /// the caller owns the slot. `None` if there is no value under `key`, or another thread
    /// closes it. A caller that holds a pin itself waits for ever.
    pub(crate) fn close(&self, key: u16) -> Option<T> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if state & HELD == 0 || !is_key(state, key) {
                return None;
            }
            let closed = state & PINS;
            match self.state.compare_exchange_weak(
                state,
                closed,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(found) => state = found,
            }
        }
        while self.state.load(Ordering::Acquire) & PINS != 0 {
            yield_now();
        }
        // SAFETY: only one thread clears HELD, this one; OPEN is clear, so no pin will succeed,
        // and the last of the old ones is gone (acquired by the load above).
        self.value.with_mut(|cell| unsafe { (*cell).take() })
    }
}

fn is_key(state: u64, key: u16) -> bool {
    state >> KEY_SHIFT == u64::from(key)
}

#[inline]
fn is_open(state: u64, key: u16) -> bool {
    state & OPEN != 0 && is_key(state, key)
}

impl<T> Pin<'_, T> {
    /// The pinned value.
    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.slot.value.with(|cell| {
            // SAFETY: a pin was granted while OPEN, after `open` wrote `Some`; until this pin
            // is dropped `close` does not touch the value, and no other thread writes.
            unsafe { (*cell).as_ref().unwrap_unchecked() }
        })
    }
}

impl<T> Drop for Pin<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin();
    }
}

#[cfg(test)]
mod tests;
