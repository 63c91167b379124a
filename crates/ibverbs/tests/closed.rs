//! A program that closes all its descriptors, as daemons do when they start, while it listens: its
//! engine stands still and leaves the processor alone.
//!
//! The only test of this program, for that reason.

use outboard_verbs::Context;
use std::mem::ManuallyDrop;
use std::time::Duration;

/// How long the engine is watched.
const WATCHED: Duration = Duration::from_secs(1);
/// What it may use of one processor meanwhile; without rest it uses all that it gets.
const USED_MAX: Duration = Duration::from_millis(100);

/// This process's processor time.
fn used() -> Duration {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    assert_eq!(done, 0);
    let [seconds, rest] = [used.tv_sec, used.tv_nsec].map(|part| part.try_into().expect("a time"));
    Duration::from_secs(seconds) + Duration::from_nanos(rest)
}

#[test]
fn an_engine_without_descriptors_does_not_spin() {
    let context = ManuallyDrop::new(Context::open().expect("a context"));
    let any = "127.0.0.1:0".parse().expect("an address");
    let _listener = ManuallyDrop::new(context.listen(any, 16).expect("a listener"));
    // SAFETY: it closes descriptors that others own, which is what is tested; nothing is dropped
    // after it, so none is closed twice.
    let closed = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    assert_eq!(closed, 0);
    let before = used();
    std::thread::sleep(WATCHED);
    let spent = used() - before;
    assert!(spent < USED_MAX, "{spent:?} of {WATCHED:?}");
}
