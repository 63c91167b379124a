//! Faults outside the crate's accesses, in programs with and without a handler of their own. A test
//! binary of its own: each case runs in a child process, which installs its handlers.

use libc::{c_int, c_void, siginfo_t};
use outboard_mem::{MemError, SharedRegion};
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// Address of a page without access.
static AWAY: AtomicUsize = AtomicUsize::new(0);
/// How often the program's own handler has run.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

fn away() -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(AWAY.load(Ordering::SeqCst))
}

/// Maps a page without access, and makes a region of it.
fn map_without_access() -> SharedRegion {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0) };
    AWAY.store(page.expose_provenance(), Ordering::SeqCst);
    // SAFETY: the page stays, and no other code knows it.
    unsafe { SharedRegion::from_raw(page.cast(), PAGE) }
}

fn touch() -> c_int {
    // SAFETY: a page of this test; a handler makes it readable, or the process ends.
    let byte = unsafe { away().read_volatile() };
    c_int::from(byte != 0 || HANDLED.load(Ordering::SeqCst) != 1)
}

/// True if an access through the region fails and the program's handler does not run.
fn refused(region: &SharedRegion) -> bool {
    let missing = MemError::Missing { addr: region.addr(), len: 8 };
    region.copy_in(0, &[1; 8]) == Err(missing) && HANDLED.load(Ordering::SeqCst) == 0
}

fn grant_access() {
    HANDLED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: a page of this test.
    unsafe { libc::mprotect(away().cast(), PAGE, libc::PROT_READ) };
}

extern "C" fn plain(signal: c_int) {
    if signal == libc::SIGSEGV {
        grant_access();
    }
}

extern "C" fn informed(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: a handler with SA_SIGINFO gets both.
    let at = unsafe { (*info).si_addr() };
    if signal == libc::SIGSEGV && at == away().cast() && !context.is_null() {
        grant_access();
    }
}

fn install(handler: usize, flags: c_int) {
    // SAFETY: zeroes are an empty mask; the handler lives for ever.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
    }
}

/// Runs `work` in a child process. Returns its exit status, or minus the signal that ended it.
fn child(work: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the child takes no lock of the parent's, and ends without calling the test harness.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::alarm(20);
            libc::_exit(work());
        }
        let mut status = -1;
        assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
        if libc::WIFSIGNALED(status) { -libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
    }
}

#[test]
fn a_handler_that_was_there_gets_all_other_faults() {
    let handlers =
        [(plain as *const () as usize, 0), (informed as *const () as usize, libc::SA_SIGINFO)];
    for (handler, flags) in handlers {
        let ended = child(|| {
            install(handler, flags);
            let region = map_without_access();
            if refused(&region) { touch() } else { 2 }
        });
        assert_eq!(ended, 0);
    }
}

#[test]
fn a_handler_of_one_shot_runs_once() {
    let ended = child(|| {
        install(plain as *const () as usize, libc::SA_RESETHAND);
        let region = map_without_access();
        if !refused(&region) || touch() != 0 {
            return 2;
        }
        map_without_access();
        touch()
    });
    assert_eq!(ended, -libc::SIGSEGV);
}

#[test]
fn without_a_handler_other_faults_end_the_process() {
    for handler in [libc::SIG_DFL, libc::SIG_IGN] {
        let ended = child(|| {
            install(handler, 0);
            let region = map_without_access();
            if refused(&region) { touch() } else { 2 }
        });
        assert_eq!(ended, -libc::SIGSEGV);
    }
}

#[test]
fn a_signal_that_somebody_sends_is_no_fault() {
    let raise = |handler| {
        child(|| {
            install(handler, 0);
            map_without_access();
            // SAFETY: takes no pointer.
            unsafe { libc::raise(libc::SIGSEGV) };
            0
        })
    };
    assert_eq!([raise(libc::SIG_DFL), raise(libc::SIG_IGN)], [-libc::SIGSEGV, 0]);
}
