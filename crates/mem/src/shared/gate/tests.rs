//! Writes and a closed gate: on threads, and under loom in every interleaving
//! (`RUSTFLAGS="--cfg loom" cargo test -p outboard-mem --lib gate`).

use super::*;

/// Two words that are written one after the other; loom finds accesses that nothing orders.
#[cfg(loom)]
mod interleaved {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Pair {
        gate: Gate,
        words: [UnsafeCell<u32>; 2],
    }

    // SAFETY: what the models prove: whoever accesses the words has the gate closed, or is the one
    // writer that has entered.
    unsafe impl Sync for Pair {}

    impl Pair {
        fn new() -> Arc<Self> {
            Arc::new(Self { gate: Gate::new(), words: [0, 0].map(UnsafeCell::new) })
        }

        fn add(&self) {
            for word in &self.words {
                // SAFETY: see `Sync`; loom tells of any access at the same time.
                word.with_mut(|word| unsafe { *word += 1 });
            }
        }

        fn seen(&self) -> [u32; 2] {
            // SAFETY: as above.
            [0, 1].map(|at: usize| self.words[at].with(|word| unsafe { *word }))
        }

        fn write(&self) {
            self.gate.enter();
            self.add();
            self.gate.leave();
        }

        fn change(&self) {
            self.gate.close();
            let [first, second] = self.seen();
            assert_eq!(first, second, "half of a write");
            self.add();
            self.gate.open();
        }
    }

    #[test]
    fn a_writer_and_a_closer() {
        loom::model(|| {
            let pair = Pair::new();
            let other = pair.clone();
            let writer = thread::spawn(move || other.write());
            pair.change();
            writer.join().expect("joined");
            assert_eq!(pair.seen(), [2, 2]);
        });
    }

    #[test]
    fn two_closers() {
        loom::model(|| {
            let pair = Pair::new();
            let other = pair.clone();
            let closer = thread::spawn(move || other.change());
            pair.change();
            closer.join().expect("joined");
            assert_eq!(pair.seen(), [2, 2]);
        });
    }
}

/// Two threads add, as peers do; a third moves sums between words while they wait.
#[cfg(not(loom))]
#[test]
fn what_is_done_behind_a_closed_gate_is_done_at_once() {
    const ROUNDS: u64 = 20_000;
    let region = SharedRegion::zeroed(4096).expect("memory").with_gate();
    std::thread::scope(|threads| {
        for word in [0, 8] {
            let slice = region.slice(word..word + 8).expect("inside");
            threads.spawn(move || {
                for _ in 0..ROUNDS {
                    slice.fetch_update_u64(0, |value| value + 1).expect("inside");
                }
            });
        }
        threads.spawn(|| {
            for _ in 0..ROUNDS {
                let closed = region.close_gate();
                let words = [0, 8, 16].map(|at| closed.load_u64(at).expect("inside"));
                closed.store_u64(16, words[2] + words[0] + words[1]).expect("inside");
                closed.store_u64(0, 0).expect("inside");
                closed.copy_in(8, &[0; 8]).expect("inside");
                assert_eq!([closed.load_u64(0), closed.load_u64(8)], [Ok(0), Ok(0)]);
            }
        });
    });
    let words = [0, 8, 16].map(|at| region.load_u64(at).expect("inside"));
    assert_eq!(words.iter().sum::<u64>(), 2 * ROUNDS);
}

#[cfg(not(loom))]
#[test]
fn a_direct_write_keeps_the_gate_open() {
    let region = SharedRegion::zeroed(64).expect("memory").with_gate();
    let direct = region.write_directly();
    std::thread::scope(|threads| {
        let closing = threads.spawn(|| drop(region.close_gate()));
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!closing.is_finished(), "it closed during a write");
        drop(direct);
    });
    // A region without one closes at once.
    let without = SharedRegion::zeroed(64).expect("memory");
    assert!(!without.has_gate() && region.has_gate());
    let _direct = without.write_directly();
    let _closed = without.close_gate();
    without.store_u64(0, 1).expect("inside");
}

#[cfg(not(loom))]
mod regions {
    use super::*;
    use crate::{Access, PdId, StagTable};
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    #[test]
    fn a_gate_that_came_later_is_not_opened() {
        let region = SharedRegion::zeroed(64).expect("memory");
        let without = region.close_gate();
        let region = region.clone().with_gate();
        let closed = region.close_gate();
        drop(without);
        std::thread::scope(|threads| {
            let writing = threads.spawn(|| region.store_u64(0, 1));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!writing.is_finished() && closed.load_u64(0) == Ok(0), "somebody opened it");
            drop(closed);
        });
        assert_eq!(region.load_u64(0), Ok(1));
    }

    #[test]
    fn the_caller_s_memory_has_one_too() {
        let mut words = vec![0_u64; 8];
        // SAFETY: `words` outlives the region and is not touched meanwhile.
        let region = unsafe { SharedRegion::from_raw(words.as_mut_ptr().cast(), 64) }.with_gate();
        assert!(region.has_gate() && region.clone().has_gate());
    }

    /// The function may write into the region itself, or take its time: the gate can be closed.
    #[test]
    fn an_update_s_function_is_no_write_under_way() {
        let region = SharedRegion::zeroed(64).expect("memory").with_gate();
        let before = region.fetch_update_u64(0, |value| {
            let closer = region.clone();
            let closing = std::thread::spawn(move || drop(closer.close_gate()));
            let since = Instant::now();
            while !closing.is_finished() {
                assert!(since.elapsed() < Duration::from_secs(10), "it cannot be closed");
                std::thread::yield_now();
            }
            region.store_u64(8, 1).expect("inside");
            value + 1
        });
        assert_eq!((before, region.load_u64(0)), (Ok(0), Ok(1)));
    }

    /// FetchAdd, CmpSwap and Writes as the engine makes them, by STag. While the gate is closed no
    /// byte changes, and what is moved between the words behind it is neither lost nor doubled.
    #[test]
    fn placements_by_stag_wait_for_the_gate() {
        let region = SharedRegion::zeroed(4096).expect("memory").with_gate();
        let table = StagTable::new(4);
        let access = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let stag = table.register(PdId(1), region.clone().into(), 0, access).expect("room");
        let is_over = AtomicBool::new(false);
        let placed = |need, at, len, place: fn(&crate::Placement<'_>)| {
            let mut rounds = 0_u64;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                place(&table.resolve(stag, PdId(1), need, at, len).expect("registered"));
                rounds += 1;
            }
            rounds
        };
        let added = |placement: &crate::Placement<'_>| {
            placement.fetch_update_u64(0, |word| word.wrapping_add(1)).expect("inside");
        };
        let written = |placement: &crate::Placement<'_>| {
            placement.copy_in(0, &[1; 2048]).expect("inside");
            placement.copy_in(0, &[2; 2048]).expect("inside");
        };
        let sum = std::thread::scope(|threads| {
            let placed = &placed;
            let adders =
                [0, 8].map(|at| threads.spawn(move || placed(Access::REMOTE_ATOMIC, at, 8, added)));
            threads.spawn(move || placed(Access::REMOTE_WRITE, 1024, 2048, written));
            let closer = threads.spawn(|| (0..1000).for_each(|_| move_sum(&region)));
            let closed = closer.join();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            closed.expect("nothing changes behind the closed gate");
            adders.map(|adder| adder.join().expect("added")).iter().sum::<u64>()
        });
        move_sum(&region);
        assert_eq!(region.load_u64(16), Ok(sum));
    }

    /// Adds two words to a third, and makes them zero, behind the closed gate.
    fn move_sum(region: &SharedRegion) {
        let closed = region.close_gate();
        let before = region.snapshot(0..4096);
        let [one, two, sum] = [0, 8, 16].map(|at| closed.load_u64(at).expect("inside"));
        (0..200).for_each(|_| spin_loop());
        assert_eq!(region.snapshot(0..4096), before);
        assert!(before.expect("inside")[1024..3072].windows(2).all(|two| two[0] == two[1]));
        closed.store_u64(0, 0).expect("inside");
        closed.copy_in(8, &[0; 8]).expect("inside");
        closed.store_u64(16, sum + one + two).expect("inside");
    }
}
