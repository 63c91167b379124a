//! Messages to the user who runs the program: on stderr, with the prefix `outboard:`, and explained
//! in docs/run-troubleshooting.md.
//!
//! It never fails and waits for no lock: a stderr that takes nothing (a full disk, a pipe whose
//! reader is gone) must not end a program that only uses this library, and another thread may be
//! printing when a process forks.

use std::fmt::Arguments;

/// Prints a message in one piece, as `eprintln!` would.
macro_rules! say {
    ($($words:tt)*) => {
        $crate::say::say(format_args!($($words)*))
    };
}

/// See [`say!`].
pub(crate) fn say(words: Arguments<'_>) {
    let text = format!("outboard: {words}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        let wrote = rustix::io::retry_on_intr(|| rustix::io::write(std::io::stderr(), rest));
        match wrote {
            Ok(count @ 1..) => rest = &rest[count..],
            // There is no other place to report it.
            _ => return,
        }
    }
}
