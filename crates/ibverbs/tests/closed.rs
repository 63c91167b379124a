//! A program that closes all its descriptors, as daemons do when they start, while it listens: its
//! engine stands still and leaves the processor alone.
//!
//! The only test of this program, for that reason. It counts rests, and processor time for each:
//! how long a busy machine takes for them says nothing.

use outboard_testkit::eventually;
use outboard_verbs::Context;
use std::mem::{ManuallyDrop, zeroed};
use std::time::{Duration, Instant};

/// How often the engine is seen to rest.
const RESTS: i64 = 50;
/// How long a rest takes at least, and what the engine may use of one processor for it.
const REST_MIN: Duration = Duration::from_millis(10);
const USED_MAX: Duration = Duration::from_millis(2);

/// How often the other threads of this process have gone to sleep, and their processor time. Needs
/// no descriptor.
fn others() -> (i64, Duration) {
    let usage = |of| {
        // SAFETY: of numbers only.
        let mut usage: libc::rusage = unsafe { zeroed() };
        // SAFETY: it writes the figures.
        assert_eq!(unsafe { libc::getrusage(of, &raw mut usage) }, 0);
        let times = [usage.ru_utime, usage.ru_stime].map(|time| {
            let [seconds, rest] = [time.tv_sec, time.tv_usec].map(|part| part.try_into());
            let seconds = Duration::from_secs(seconds.expect("a time"));
            seconds + Duration::from_micros(rest.expect("a time"))
        });
        (usage.ru_nvcsw, times[0] + times[1])
    };
    // The own thread first: what it does in between counts as the others'.
    let ((ours, our_time), (all, time)) = (usage(libc::RUSAGE_THREAD), usage(libc::RUSAGE_SELF));
    (all - ours, time.saturating_sub(our_time))
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
    let (begin, (rests, used)) = (Instant::now(), others());
    eventually("the engine rests", || others().0 - rests >= RESTS);
    let (rested, spent) = (others().0 - rests, others().1.saturating_sub(used));
    println!("{rested} rests took {:?}, and {spent:?} of a processor", begin.elapsed());
    // `eventually` looks in between only, so that some more may have come.
    let count = u32::try_from(RESTS).expect("few");
    assert!(begin.elapsed() >= REST_MIN * count, "they are no rests");
    assert!(spent < USED_MAX * count, "{spent:?} for {rested} rests");
}
