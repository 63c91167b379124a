//! A program that closes all its descriptors, as daemons do when they start, while it
//! listens: its engine stands still and leaves the processor alone.
//!
//! The only test of this program, for that reason.

mod common;

use rustix::time::{ClockId, clock_gettime};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// How long the engine is watched.
const WATCHED: Duration = Duration::from_secs(1);
/// What it may use of one processor meanwhile; without rest it uses all that it gets.
const USED_MAX: Duration = Duration::from_millis(100);

fn used() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).expect("a time")
}

#[test]
fn an_engine_without_descriptors_does_not_spin() {
    let side = ManuallyDrop::new(common::Side::new());
    let _listener = ManuallyDrop::new(side.listen());
    // SAFETY: it closes descriptors that others own, which is what is tested; nothing is dropped
    // after it, so none is closed twice.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    assert_eq!(closed, 0);
    let before = used();
    std::thread::sleep(WATCHED);
    let spent = used() - before;
    assert!(spent < USED_MAX, "{spent:?} of {WATCHED:?}");
}
