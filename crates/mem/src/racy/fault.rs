//! Accesses to shared memory that is not there: the processor's fault becomes a failure.
//!
//! The kernel reports such an access by SIGSEGV, or by SIGBUS behind the end of a file. If the
//! faulting instruction is one of `imp`'s, the handler here lets the thread continue at
//! `outboard_racy_missing`, which returns 1 from the access. Any other fault goes to the handler
//! that was installed before this one, or has the effect that it had without one. A program that
//! installs a handler of its own later replaces this one.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Once, OnceLock};

use libc::{c_int, c_void, sigaction, siginfo_t};

unsafe extern "C" {
    // Labels in the assembly of `imp`: before its first access, and behind its last one.
    static outboard_racy_start: u8;
    static outboard_racy_missing: u8;
}

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions that were installed before, in the order of `SIGNALS`.
static BEFORE: OnceLock<[sigaction; 2]> = OnceLock::new();

/// Installs the handlers, once.
pub(super) fn handle_faults() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = SIGNALS.map(action);
        let before = BEFORE.get_or_init(|| before);
        for (signal, before) in SIGNALS.into_iter().zip(before) {
            let mut ours = *before;
            // The mask and flags of a disposition without a handler mean nothing.
            if !has_handler(before) {
                ours = default();
            }
            ours.sa_sigaction = handle as *const () as usize;
            // Stack overflows are reported on a stack of their own.
            ours.sa_flags &= libc::SA_NODEFER | libc::SA_RESTART;
            ours.sa_flags |= libc::SA_SIGINFO | libc::SA_ONSTACK;
            install(signal, &ours);
        }
    });
}

fn has_handler(action: &sigaction) -> bool {
    ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}

fn default() -> sigaction {
    // SAFETY: zeroes are SIG_DFL, no flags and an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// The action that is installed now.
fn action(signal: c_int) -> sigaction {
    let mut found = default();
    // SAFETY: asks only, and writes one local structure.
    unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut found) };
    found
}

fn install(signal: c_int, action: &sigaction) {
    // SAFETY: reads one structure, whose handler lives for ever or is not there.
    unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
}

extern "C" fn handle(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both, for a handler with SA_SIGINFO.
    let (by_kernel, context) = unsafe { ((*info).si_code > 0, &mut *context.cast()) };
    if !(by_kernel && skip_access(context)) {
        pass_on(signal, info, context, by_kernel);
    }
}

/// Lets the faulting access fail if it is one of `imp`'s; false for any other.
fn skip_access(context: &mut libc::ucontext_t) -> bool {
    let at = program_counter(context);
    let code: Range<usize> =
        (&raw const outboard_racy_start).addr()..(&raw const outboard_racy_missing).addr();
    let ours = usize::try_from(*at).is_ok_and(|at| code.contains(&at));
    if ours {
        *at = code.end as _;
    }
    ours
}

#[cfg(target_arch = "x86_64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut libc::greg_t {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

#[cfg(target_arch = "aarch64")]
fn program_counter(context: &mut libc::ucontext_t) -> &mut libc::c_ulonglong {
    &mut context.uc_mcontext.pc
}

/// Does what would have been done without this module's handler.
fn pass_on(signal: c_int, info: *mut siginfo_t, context: &mut libc::ucontext_t, by_kernel: bool) {
    let at = SIGNALS.iter().position(|known| *known == signal);
    let Some(before) = at.and_then(|at| BEFORE.get()?.get(at)) else { return };
    if !has_handler(before) {
        // The kernel does not ignore a fault, even if the program ignores the signal.
        let ignored = before.sa_sigaction == libc::SIG_IGN && !by_kernel;
        if !ignored {
            end(signal, by_kernel);
        }
        return;
    }
    if before.sa_flags & libc::SA_RESETHAND != 0 {
        install(signal, &default());
    }
    // SAFETY: the program installed it as a handler of this kind.
    unsafe {
        if before.sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut libc::ucontext_t) =
                std::mem::transmute(before.sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(before.sa_sigaction);
            handler(signal);
        }
    }
}

/// Ends the process by the signal: a faulting instruction runs again when the handler returns, and
/// the signal then has its default action.
fn end(signal: c_int, by_kernel: bool) {
    install(signal, &default());
    if !by_kernel {
        // SAFETY: takes no pointer. The signal is blocked until the handler returns.
        unsafe { libc::raise(signal) };
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
