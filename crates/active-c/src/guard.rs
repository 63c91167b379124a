//! Around every entry from C: a panic becomes a status, the calling thread cannot be cancelled
//! (pthread_cancel(3)), and what was wrong is kept in words for the thread that asked.

use crate::status::{CFailure, CStatus};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// What an entry's body returns: the status of a call that was made, or why it was not.
pub type CResult<T = CStatus> = Result<T, CFailure>;

/// For entries that return a status.
pub(crate) fn guarded(entry: &str, body: impl FnOnce() -> CResult) -> c_int {
    let _uncancelled = Uncancelled::new();
    let caught = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        // The panic has printed where it was.
        let message = format!("{entry} failed inside Outboard; this is a bug, please report it");
        Err(CFailure::new(CStatus::Bug, message))
    });
    caught.unwrap_or_else(|failure| say(&failure)).into()
}

/// Keeps a failure's words for this thread; its status.
pub(crate) fn say(failure: &CFailure) -> CStatus {
    let words = failure.message.replace('\0', "\u{fffd}");
    let words = CString::new(words).unwrap_or_default();
    // A thread that is ending asks for no words.
    let _kept = MESSAGE.try_with(|message| message.replace(words));
    failure.status
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_message() -> *const c_char {
    let kept = MESSAGE.try_with(|message| message.borrow().as_ptr());
    kept.unwrap_or(c"".as_ptr())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn outboard_active_status_name(status: c_int) -> *const c_char {
    let known = CStatus::ALL.iter().find(|known| c_int::from(**known) == status);
    known.map_or(c"?", |known| known.word()).as_ptr()
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// While it lives, pthread_cancel(3) waits. Entries do not call each other.
struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        // SAFETY: changes only how this thread takes cancellation, and says how it was.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        Self { before }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: as in `new`.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: it stays until this thread's next call.
        unsafe { CStr::from_ptr(outboard_active_message()) }.to_str().expect("text").to_owned()
    }

    #[test]
    fn a_panic_is_a_status_with_words() {
        assert_eq!(guarded("this", || panic!("told on purpose")), c_int::from(CStatus::Bug));
        assert!(message().starts_with("this failed inside Outboard"), "{}", message());
        assert_eq!(guarded("this", || Ok(CStatus::Ok)), 0);
    }

    #[test]
    fn words_are_a_thread_s_own_and_end_at_their_end() {
        let failure = || CFailure::argument("with a \0 inside");
        assert_eq!(guarded("this", || Err(failure())), c_int::from(CStatus::Argument));
        assert_eq!(message(), "with a \u{fffd} inside");
        std::thread::spawn(|| assert_eq!(message(), "")).join().expect("as expected");
    }

    #[test]
    fn every_status_has_a_name_of_its_own() {
        let mut names: Vec<_> = CStatus::ALL.iter().map(|status| status.word()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), CStatus::ALL.len());
    }
}
