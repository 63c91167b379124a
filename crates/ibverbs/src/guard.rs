//! Wrappers around every entry from C: a panic becomes an errno, and the calling thread cannot be
//! cancelled (pthread_cancel(3)) while the library holds locks.
//!
//! libibverbs has three conventions for errors, and so this has three wrappers.

use libc::c_int;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A number of errno(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<outboard_verbs::MemError> for Errno {
    fn from(_: outboard_verbs::MemError) -> Self {
        Self(libc::EINVAL)
    }
}

/// The result of an entry's Rust function.
pub type Outcome<T> = Result<T, Errno>;

/// `Err(Errno(number))`.
pub(crate) fn fail<T>(number: c_int) -> Outcome<T> {
    Err(Errno(number))
}

/// For entries that return 0 or an errno number (most of libibverbs).
pub(crate) fn code(entry: &'static str, body: impl FnOnce() -> Outcome<()>) -> c_int {
    match guarded(entry, body) {
        Ok(()) => 0,
        Err(Errno(number)) => {
            set_errno(number);
            number
        }
    }
}

/// For entries that return a pointer, or NULL with errno set.
pub(crate) fn pointer<T>(entry: &'static str, body: impl FnOnce() -> Outcome<*mut T>) -> *mut T {
    guarded(entry, body).unwrap_or_else(|Errno(number)| {
        set_errno(number);
        std::ptr::null_mut()
    })
}

/// For entries that return a number of 0 or more, or -1 with errno set (librdmacm, and some of
/// libibverbs).
pub(crate) fn minus_one(entry: &'static str, body: impl FnOnce() -> Outcome<c_int>) -> c_int {
    guarded(entry, body).unwrap_or_else(|Errno(number)| {
        set_errno(number);
        -1
    })
}

fn guarded<T>(entry: &'static str, body: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    let _uncancelled = Uncancelled::new();
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The panic has printed where it was.
        say!("{entry} failed inside Outboard; this is a bug, please report it");
        fail(libc::EIO)
    })
}

fn set_errno(number: c_int) {
    // SAFETY: the C library gives every thread an errno to write to.
    unsafe { *libc::__errno_location() = number };
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

thread_local! {
    /// How many guards this thread is inside of: only the outermost talks to the C library.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, pthread_cancel(3) waits.
#[derive(Debug)]
struct Uncancelled {
    /// The state to restore; `None` in an inner guard.
    before: Option<c_int>,
}

impl Uncancelled {
    fn new() -> Self {
        let outermost = DEPTH.with(|depth| depth.replace(depth.get() + 1)) == 0;
        let mut before = 0;
        if outermost {
            // SAFETY: changes only how this thread takes cancellation, and says how it was.
            unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        }
        Self { before: outermost.then_some(before) }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get() - 1));
        if let Some(state) = self.before {
            // SAFETY: as in `new`.
            unsafe { pthread_setcancelstate(state, std::ptr::null_mut()) };
        }
    }
}

unsafe extern "C-unwind" {
    fn poll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int;
}

/// Sleeps until `fd` is readable, as a cancellation point: called outside of a guard, from a
/// function that has nothing to drop, because cancelling unwinds through both.
///
/// Returns 0, or an errno number.
pub(crate) extern "C-unwind" fn sleep_on(fd: c_int) -> c_int {
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    let count = unsafe { poll(&raw mut wanted, 1, -1) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    if count >= 0 || error == libc::EINTR && every_handler_restarts() { 0 } else { error }
}

/// Programs expect the read(2) of rdma-core, which goes on after a signal whose handler was
/// installed with SA_RESTART (signal(2) does so); poll(2) never does. Faults are handled by many
/// runtimes, Rust's among them, and do not interrupt a sleeping thread.
fn every_handler_restarts() -> bool {
    const FAULTS: [c_int; 5] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP];
    (1..=libc::SIGRTMAX()).filter(|signal| !FAULTS.contains(signal)).all(|signal| {
        let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: asks only, and writes one structure whose zero is valid.
        let action = unsafe {
            libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
            action.assume_init()
        };
        let handled = ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction);
        !handled || action.sa_flags & libc::SA_RESTART != 0
    })
}
