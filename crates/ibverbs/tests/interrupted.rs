//! A signal ends a wait for an event of the connection manager, as it ends rdma-core's read(2). One
//! test, because handlers are the process's.

use outboard_ibverbs::cm::channel::{
    rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How often the handler ran.
static SIGNALS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn handle(flags: libc::c_int) {
    // SAFETY: the handler only counts; zeros are an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, null_mut()), 0);
    }
}

#[test]
fn a_signal_ends_the_wait_unless_its_handler_restarts_calls() {
    // SAFETY: what the entries want; the waiter is joined before the channel goes.
    unsafe {
        let channel = rdma_create_event_channel();
        let shared = channel.expose_provenance();
        let waiter = std::thread::spawn(move || {
            let mut event = null_mut();
            let channel = std::ptr::with_exposed_provenance_mut(shared);
            let done = rdma_get_cm_event(channel, &raw mut event);
            (done, std::io::Error::last_os_error().raw_os_error())
        });
        let thread = std::os::unix::thread::JoinHandleExt::as_pthread_t(&waiter);
        handle(libc::SA_RESTART);
        // The thread may be about to sleep, or asleep: each signal arrives at another point.
        for _ in 0..20 {
            libc::pthread_kill(thread, libc::SIGUSR1);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!waiter.is_finished(), "a handler with SA_RESTART ended the wait");
        assert!(SIGNALS.load(Ordering::SeqCst) > 0);
        handle(0);
        let mut tries = 0;
        while !waiter.is_finished() {
            tries += 1;
            assert!(tries < 4_000, "no signal ends the wait");
            libc::pthread_kill(thread, libc::SIGUSR1);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(waiter.join().expect("no panic"), (-1, Some(libc::EINTR)));
        rdma_destroy_event_channel(channel);
    }
}
