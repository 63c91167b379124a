//! The pin and close protocol: by hand, and under loom in every interleaving
//! (`RUSTFLAGS="--cfg loom" cargo test -p outboard-mem --lib slot`).

use super::*;

/// Opens a slot that the test knows to be free.
fn open<T>(slot: &Slot<T>, key: u16, value: T) {
    // SAFETY: every test opens a slot only when it is new or after its own `close`.
    unsafe { slot.open(key, value) };
}

#[cfg(not(loom))]
mod alone {
    use super::*;

    #[test]
    fn only_the_right_key_of_an_open_slot_pins() {
        let slot = Slot::free();
        assert!(slot.pin(0).is_none() && slot.close(0).is_none());
        open(&slot, 5, "a");
        assert_eq!(slot.pin(5).map(|pin| *pin.get()), Some("a"));
        assert!(slot.pin(4).is_none() && slot.close(4).is_none());
        assert_eq!(slot.close(5), Some("a"));
        assert!(slot.pin(5).is_none() && slot.close(5).is_none());
        open(&slot, 4095, "b");
        assert!(slot.pin(5).is_none());
        assert_eq!(slot.close(4095), Some("b"));
        assert_eq!(slot.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn shut_keeps_the_value_for_close() {
        let slot = Slot::free();
        open(&slot, 1, 7);
        let pin = slot.pin(1).expect("open");
        assert!(Slot::shut(&pin));
        assert!(!Slot::shut(&pin));
        assert!(slot.pin(1).is_none());
        assert_eq!(*pin.get(), 7);
        drop(pin);
        assert_eq!(slot.close(1), Some(7));
    }

    #[test]
    fn too_many_pins_are_refused() {
        let slot = Slot::free();
        open(&slot, 1, 7);
        slot.state.fetch_add(PINS_MAX - 1, Ordering::Relaxed);
        let last = slot.pin(1).expect("one more is allowed");
        assert!(slot.pin(1).is_none());
        drop(last);
        slot.state.fetch_sub(PINS_MAX - 1, Ordering::Relaxed);
        assert_eq!(slot.close(1), Some(7));
    }
}

#[cfg(loom)]
mod interleaved {
    use loom::{sync::Arc, thread};

    use super::*;

    /// A value whose every use and end loom watches.
    struct Watched(loom::cell::UnsafeCell<u32>);

    // SAFETY: loom reports any unordered use; that is the test.
    unsafe impl Send for Watched {}
    // SAFETY: as above.
    unsafe impl Sync for Watched {}

    impl Watched {
        fn new(value: u32) -> Self {
            Self(loom::cell::UnsafeCell::new(value))
        }

        fn read(&self) -> u32 {
            // SAFETY: loom checks that no write runs beside it.
            self.0.with(|cell| unsafe { *cell })
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            // SAFETY: loom checks that nothing else runs beside it.
            self.0.with_mut(|cell| unsafe { *cell = u32::MAX });
        }
    }

    fn pin_and_read(slot: &Slot<Watched>, key: u16, expected: u32) {
        if let Some(pin) = slot.pin(key) {
            assert_eq!(pin.get().read(), expected);
            assert_eq!(pin.get().read(), expected);
        }
    }

    #[test]
    fn close_waits_for_pins() {
        loom::model(|| {
            let slot = Arc::new(Slot::free());
            open(&slot, 1, Watched::new(10));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let slot = Arc::clone(&slot);
                    thread::spawn(move || pin_and_read(&slot, 1, 10))
                })
                .collect();
            drop(slot.close(1).expect("held"));
            others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
    }

    #[test]
    fn stale_keys_never_see_the_next_value() {
        loom::model(|| {
            let slot = Arc::new(Slot::free());
            open(&slot, 1, Watched::new(10));
            let other = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    pin_and_read(&slot, 1, 10);
                    pin_and_read(&slot, 2, 20);
                })
            };
            drop(slot.close(1).expect("held"));
            open(&slot, 2, Watched::new(20));
            other.join().expect("no panic");
            assert_eq!(slot.close(2).expect("held").read(), 20);
        });
    }

    #[test]
    fn one_of_two_closes_wins() {
        loom::model(|| {
            let slot = Arc::new(Slot::free());
            open(&slot, 1, Watched::new(10));
            let other = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || slot.close(1).is_some())
            };
            let mine = slot.close(1).is_some();
            assert!(mine ^ other.join().expect("no panic"));
        });
    }

    #[test]
    fn shut_beside_close() {
        loom::model(|| {
            let slot = Arc::new(Slot::free());
            open(&slot, 1, Watched::new(10));
            let other = {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    if let Some(pin) = slot.pin(1) {
                        Slot::shut(&pin);
                        assert_eq!(pin.get().read(), 10);
                        assert!(slot.pin(1).is_none());
                    }
                })
            };
            assert_eq!(slot.close(1).expect("held").read(), 10);
            open(&slot, 2, Watched::new(20));
            other.join().expect("no panic");
            assert_eq!(slot.pin(2).expect("open").get().read(), 20);
        });
    }
}
